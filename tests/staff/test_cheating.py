"""Cheating submissions gain nothing: each is graded as staff grade, beside its honest twin and an untouched stub.

Each folder below `submissions/cheating/` has one trick, in the module that it is about, and an `expect.yaml`. Its twin
has the same files without the trick: `honest.py` in that module's place. What is expected is a fact about scores, never
that somebody notices. First of all, each trick fools `naive_grader.py`, but those that only harm others.
"""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

import pytest
import yaml

from grader.batch.intake import take_in
from grader.batch.tree import Tree
from grader.clock.curve import share
from grader.doctor import Machine, uses_gpu
from grader.judge.verdict import Verdict
from grader.result import CheckResult, Result
from grader.rubric import Rubric
from grader.sandbox.levels import Device
from grader.sandbox.processes import descendants

from .conftest import ROOT, is_running

STAFF = Path(__file__).parent
NAIVE_GRADER = STAFF / "naive_grader.py"
STUBS = ROOT / "assignment"
FASTER = 1.25  # times as fast as its twin, in the eyes of the naive grader
NOISE = 0.03  # of a timed check's points
NAIVE_LIMIT_S = 300.0  # for all of them
RANKS = ("ddp", "sharded_optimizer")  # whose checks start processes, some seconds each

pytestmark = [pytest.mark.corpus, pytest.mark.usefixtures("short_collections")]


class Kind(StrEnum):
    """What a cheat attacks."""

    CLOCK = "clock"  # the work is done when nobody measures, or the clock is another
    REPLAY = "replay"  # an answer is that of another call
    TIMED = "timed"  # what is timed is not what is checked
    STEALING = "stealing"  # the answer is somebody else's
    CORRUPTING = "corrupting"  # the question is made wrong, or whatever compares
    FORGING = "forging"  # the verdict is claimed
    WEAK = "weak"  # a wrong answer to a weak check
    BORROWED = "borrowed"  # the library does the task
    HARM = "harm"  # nothing is gained, and others lose

    @property
    def is_fast(self) -> bool:
        """Whether a naive grader finds it faster than its twin."""
        return self in (Kind.CLOCK, Kind.REPLAY, Kind.TIMED)


class Bound(StrEnum):
    """How many points a cheat may have."""

    EMPTY = "empty"  # nothing right is behind it: no more than an untouched stub, in any check
    STALE = "stale"  # right for the first time: no more than its twin; in a second call or timed, than a stub
    SLOW = "slow"  # right, and lies about its time: the points of its twin, and no more speed
    PART = "part"  # right in part: no more than its twin, and in the check that it attacks than a stub
    BORROWED = "borrowed"  # right, by the library: no points before a person has decided
    RIGHT = "right"  # right: the points of its twin


@dataclass(frozen=True)
class Cheat:
    """A cheating submission, and what its `expect.yaml` says."""

    folder: Path
    trick: str  # in a line
    kind: Kind
    cheat: Bound
    attacks: str  # the problem, or the check that is run on a GPU with those that it needs
    where: tuple[Device, ...]
    fools: str = "events"  # in which way the naive grader is to grade
    verdicts: tuple[Verdict, ...] = ()  # what may become of each check, where that is known
    evidence: str = ""  # the operator that is named where an answer is borrowed
    limit_s: float | None = None  # for each check, where one never ends

    @classmethod
    def read(cls, folder: Path) -> "Cheat":
        fields = yaml.safe_load((folder / "expect.yaml").read_text())
        kind, cheat, where = Kind(fields.pop("kind")), Bound(fields.pop("cheat")), tuple(fields.pop("where"))
        verdicts = tuple(map(Verdict, fields.pop("verdicts", ())))
        return cls(folder=folder, kind=kind, cheat=cheat, where=where, verdicts=verdicts, **fields)

    @property
    def problem(self) -> str:
        return self.attacks.partition(".")[0]

    def names(self, device: Device) -> tuple[str, ...]:
        """What is graded: a whole problem on a CPU; less on a GPU, whose time is dear, of ranks, and of what harms."""
        few = device == "cuda" or self.problem in RANKS or self.kind is Kind.HARM
        return (self.attacks if few else self.problem,)

    def twin(self, into: Path) -> Path:
        """The same files without the trick."""
        shutil.copytree(self.folder / "assignment", into / "assignment", symlinks=True)
        (into / "assignment" / "honest.py").rename(into / "assignment" / f"{self.problem}.py")
        return into


CHEATS = [Cheat.read(folder) for folder in sorted((STAFF / "submissions" / "cheating").iterdir())]
HERE: Device = "cuda" if uses_gpu(Machine.here()) else "cpu"
FOOLING = [cheat for cheat in CHEATS if cheat.kind is not Kind.HARM]
HARMFUL = [cheat for cheat in CHEATS if cheat.kind is Kind.HARM]
Checks = dict[str, CheckResult]
Grade = Callable[..., Checks]


def everywhere(chosen: Callable[[Cheat], bool] = lambda cheat: True) -> pytest.MarkDecorator:
    """Each cheat, or those that are chosen, on each device where it is one."""
    pairs = [(cheat, device) for cheat in CHEATS for device in cheat.where if chosen(cheat)]
    marks = {"cpu": [], "cuda": [pytest.mark.gpu]}
    parameters = [
        pytest.param(cheat, device, marks=marks[device], id=f"{cheat.folder.name}-{device}") for cheat, device in pairs
    ]
    return pytest.mark.parametrize(("cheat", "device"), parameters)


@pytest.fixture(autouse=True)
def needed(request: pytest.FixtureRequest) -> None:
    """Skip what is for another device than this machine's."""
    device = request.node.callspec.params.get("device", HERE) if hasattr(request.node, "callspec") else HERE
    if device != HERE:
        pytest.skip("needs a GPU" if device == "cuda" else "needs Triton's interpreter")


@pytest.fixture(scope="module")
def graded(grade_as_staff: Callable[..., Result]) -> Grade:
    """Grade, by check; what has been graded is not graded again, as a twin that many cheats share."""
    known: dict[tuple[object, ...], Checks] = {}

    def grade(folder: Path, names: tuple[str, ...], limit_s: float | None = None) -> Checks:
        files = sorted((folder / "assignment" if folder != STUBS else folder).rglob("*.py"))
        key = names, *((path.name, path.read_bytes()) for path in files if not path.is_symlink())
        if key not in known:
            known[key] = by_name(grade_as_staff(folder, *names, limit_s=limit_s))
        return known[key]

    return grade


@pytest.fixture(scope="module")
def naively(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cheat], tuple[dict, dict]]:
    """What the naive grader says of a cheat, and of its twin: whether it is right, and how fast beside PyTorch."""
    folders = {theirs_of(cheat): cheat.folder for cheat in FOOLING}
    folders |= {twin_of(cheat): cheat.twin(tmp_path_factory.mktemp("twin")) for cheat in FOOLING}
    wishes = {key: f"{key[0]}:{key[1]}:{folder}" for key, folder in folders.items()}
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"TRITON_INTERPRET": "1"} if HERE == "cpu" else {})
    run = subprocess.run(
        [sys.executable, "-I", "-B", str(NAIVE_GRADER), *wishes.values()],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=NAIVE_LIMIT_S, check=True,
        cwd=tmp_path_factory.mktemp("naive"),
    )  # fmt: skip
    said = {line["of"]: line for line in map(json.loads, run.stdout.splitlines())}
    return lambda cheat: (said[wishes[theirs_of(cheat)]], said[wishes[twin_of(cheat)]])


def theirs_of(cheat: Cheat) -> tuple[str, str, str]:
    """The naive grader's way, a problem, and what tells this submission from others."""
    return cheat.fools, cheat.problem, cheat.folder.name


def twin_of(cheat: Cheat) -> tuple[str, str, str]:
    """The same for its twin, which is that of many."""
    return cheat.fools, cheat.problem, (cheat.folder / "assignment" / "honest.py").read_text()


@pytest.mark.parametrize("cheat", FOOLING, ids=lambda cheat: cheat.folder.name)
def test_a_naive_grader_finds_it_right(cheat, naively):
    if cheat.where == ("cpu",) and HERE == "cuda":
        pytest.skip("needs Triton's interpreter")
    theirs, twin = naively(cheat)
    assert theirs["right"]
    assert twin["right"]


@everywhere(lambda cheat: cheat.kind.is_fast)
def test_a_naive_grader_finds_it_fast(cheat, device, naively):
    theirs, twin = naively(cheat)
    assert theirs["ratio"] > FASTER * twin["ratio"]


@everywhere()
def test_it_gains_nothing(cheat, device, graded, tmp_path):
    found = graded(cheat.folder, cheat.names(device), cheat.limit_s)
    stub = graded(STUBS, cheat.names(device))
    twin = graded(cheat.twin(tmp_path), cheat.names(device))
    second_call, rubric = f"{cheat.problem}.second_call", Rubric.read()
    for check in found.values():
        timed = rubric.timed(check.id) is not None
        stale = cheat.cheat is Bound.STALE and (timed or check.id == second_call)
        wrong = cheat.cheat is Bound.EMPTY or (cheat.cheat is Bound.PART and check.id == cheat.attacks) or stale
        limit = stub if wrong or cheat.cheat is Bound.BORROWED else twin
        most = earned(limit[check.id]) + (NOISE if timed and limit is twin else 0)
        assert earned(check) <= most, f"{check.id}: {earned(check)} of its points; {check.message} {check.speed}"


@everywhere()
def test_it_costs_points_to_fail(cheat, device, graded):
    """What is skipped, or our own fault, would cost nothing."""
    stub = graded(STUBS, cheat.names(device))
    for check in graded(cheat.folder, cheat.names(device), cheat.limit_s).values():
        assert check.verdict is not Verdict.GRADER_ERROR, f"{check.id}: {check.message} {check.detail}"
        assert (check.verdict is Verdict.SKIPPED) == (stub[check.id].verdict is Verdict.SKIPPED), check.id
        assert check.runs == 1, f"{check.id} was retried: {check.message}"


@everywhere(lambda cheat: bool(cheat.verdicts))
def test_its_checks_end_in_the_way_that_is_known(cheat, device, graded):
    for check in graded(cheat.folder, cheat.names(device), cheat.limit_s).values():
        assert check.verdict in (*cheat.verdicts, Verdict.SKIPPED), f"{check.id}: {check.message} {check.detail}"


@everywhere(lambda cheat: cheat.cheat in (Bound.SLOW, Bound.RIGHT))
def test_what_is_right_in_it_keeps_its_points(cheat, device, graded, tmp_path):
    rubric = Rubric.read()
    twin = graded(cheat.twin(tmp_path), cheat.names(device))
    for check in graded(cheat.folder, cheat.names(device), cheat.limit_s).values():
        if not rubric.timed(check.id) and not check.review:  # a person is to look at some tricks, seen in the source
            assert points(check) == points(twin[check.id]), f"{check.id}: {check.message}"


@everywhere()
def test_its_twin_is_honest(cheat, device, graded, tmp_path):
    for check in graded(cheat.twin(tmp_path), cheat.names(device)).values():
        assert check.verdict in (Verdict.PASS, Verdict.SKIPPED), f"{check.id}: {check.message} {check.detail}"
        assert not check.review


@everywhere(lambda cheat: cheat.cheat is Bound.BORROWED)
def test_a_borrowed_answer_waits_for_a_person(cheat, device, grade_as_staff):
    result = grade_as_staff(cheat.folder, *cheat.names(device))
    assert not result.score.complete
    for check in result.checks:
        if check.verdict is not Verdict.SKIPPED:
            assert (check.verdict, check.score) == (Verdict.PASS, None), f"{check.id}: {check.message} {check.detail}"
            assert check.review.open
            assert cheat.evidence in check.review.evidence


@everywhere(lambda cheat: cheat.cheat is Bound.BORROWED)
def test_a_borrowed_answer_is_a_warning_before_it_is_handed_in(cheat, device, grade):
    for check in grade(cheat.folder, *cheat.names(device)).checks:
        if check.verdict is not Verdict.SKIPPED:
            assert (check.verdict, check.cause) == (Verdict.PASS, "borrowed"), f"{check.id}: {check.message}"
            assert cheat.evidence in check.why


@everywhere(lambda cheat: cheat.kind is Kind.HARM)
def test_nobody_else_is_harmed(cheat, device, grade_as_staff, confined, tmp_path):
    twin, names = cheat.twin(tmp_path), cheat.names(device)
    without = [grade_as_staff(folder, *names) for folder in (STUBS.parent / "solutions", twin)]
    before = grade_as_staff(STUBS.parent / "solutions", *names)
    grade_as_staff(cheat.folder, *names, limit_s=cheat.limit_s)
    left = [pid for pid in descendants(confined.start().leader) if is_running(pid)]
    after = grade_as_staff(twin, *names)
    assert [facts(result) for result in (before, after)] == [facts(result) for result in without]
    assert left == []


@pytest.mark.parametrize("cheat", HARMFUL, ids=lambda cheat: cheat.folder.name)
def test_it_refuses_to_harm_where_it_is_not_confined(cheat):
    """Only the function that proves where it is runs here."""
    file = cheat.folder / "assignment" / f"{cheat.problem}.py"
    guard = "prove_that_nobody_else_is_here"
    found = [node for node in ast.parse(file.read_text()).body if getattr(node, "name", "") == guard]
    names = {"os": os, "Path": Path, "__file__": str(file)}
    exec(compile(ast.Module(found, []), file.name, "exec"), names)
    with pytest.raises(RuntimeError, match="this is no sandbox"):
        names[guard]()


def test_a_pickle_is_loaded_by_a_naive_grader_only(graded, naively, tmp_path_factory):
    [cheat] = [cheat for cheat in CHEATS if cheat.folder.name == "pickle_reply"]
    graded(cheat.folder, cheat.names("cpu"))
    assert not Path("written_by_a_pickle").exists()
    naively(cheat)
    assert list(tmp_path_factory.getbasetemp().glob("naive*/written_by_a_pickle"))


def test_a_link_to_somebody_elses_solution_is_named_and_not_followed(tmp_path):
    [cheat] = [cheat for cheat in CHEATS if cheat.folder.name == "search_the_disk"]
    tree = taken_in(cheat, tmp_path)
    assert (cheat.folder / "assignment" / "linked.py").is_symlink()
    assert tree.ignored["assignment/linked.py"] == "a link, or no regular file"
    assert set(tree.files) == {"gelu.py", "honest.py"}


def test_files_that_would_set_the_grader_up_are_named_and_left_behind(tmp_path):
    [cheat] = [cheat for cheat in CHEATS if cheat.folder.name == "shadow_modules"]
    tree = taken_in(cheat, tmp_path)
    assert {"conftest.py", "pytest.ini", "result.json", "assignment/pytest.ini", "grader/__init__.py"} <= set(
        tree.ignored
    )
    assert all(name.endswith(".py") for name in tree.files)


def taken_in(cheat: Cheat, folder: Path) -> Tree:
    """What is left of a cheat that is handed in."""
    shutil.copytree(cheat.folder, folder / "handed in" / "ada", symlinks=True)
    [intake] = take_in(folder / "handed in", [f"{cheat.problem}.py"]).submissions
    assert intake.tree
    return intake.tree


def by_name(result: Result) -> Checks:
    return {check.id: check for check in result.checks}


def facts(result: Result) -> tuple[object, ...]:
    """What must be the same whenever a submission is graded, whoever came before."""
    return result.score, [check.model_dump(exclude={"time_s", "seed", "replay"}) for check in result.checks]


def earned(check: CheckResult) -> float:
    """The part of a check's points, before it is rounded to hundredths of a point."""
    if check.speed and check.score:
        return share(check.speed.ratio, check.speed.threshold)
    return float(points(check) / check.max) if check.max else 0.0


def points(check: CheckResult) -> Decimal:
    """Of a check; none before people have decided."""
    return check.score or Decimal(0)
