"""Cheating submissions gain nothing: each is graded as staff grade, beside its honest twin and an untouched stub.

Each folder below `submissions/cheating/` has one trick, in the module that it is about, and an `expect.yaml`. Its twin
has the same files without the trick: `honest.py` in that module's place. What is expected is a fact about scores, never
that somebody notices. First of all, each trick fools `naive_grader.py`.
"""

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

from grader.clock.curve import share
from grader.doctor import Machine, uses_gpu
from grader.judge.verdict import Verdict
from grader.result import CheckResult, Result
from grader.rubric import Rubric
from grader.sandbox.levels import Device

from .conftest import ROOT

STAFF = Path(__file__).parent
NAIVE_GRADER = STAFF / "naive_grader.py"
STUBS = ROOT / "assignment"
FASTER = 1.25  # times as fast as its twin, in the eyes of the naive grader
NOISE = 0.03  # of a timed check's points
NAIVE_LIMIT_S = 300.0  # for all of them

pytestmark = [pytest.mark.corpus, pytest.mark.usefixtures("short_collections")]


class Kind(StrEnum):
    """What a cheat lies about: kinds 1 and 2 of the reference, and what lies between checking and timing."""

    CLOCK = "clock"  # the work is done when nobody measures, or the clock is another
    REPLAY = "replay"  # an answer is that of another call
    TIMED = "timed"  # what is timed is not what is checked


class Bound(StrEnum):
    """How many points a cheat may have."""

    EMPTY = "empty"  # nothing right is behind it: no more than an untouched stub, in any check
    STALE = "stale"  # right for the first time: no more than its twin; in a second call or timed, than a stub
    SLOW = "slow"  # right, and lies about its time: the points of its twin, and no more speed


@dataclass(frozen=True)
class Cheat:
    """A cheating submission, and what its `expect.yaml` says."""

    folder: Path
    trick: str  # in a line
    kind: Kind
    cheat: Bound
    attacks: str  # the problem, or the check that is run on a GPU with those that it needs
    where: tuple[Device, ...]
    fools: str = "events"  # which clock of the naive grader

    @classmethod
    def read(cls, folder: Path) -> "Cheat":
        fields = yaml.safe_load((folder / "expect.yaml").read_text())
        kind, cheat, where = Kind(fields.pop("kind")), Bound(fields.pop("cheat")), tuple(fields.pop("where"))
        return cls(folder=folder, kind=kind, cheat=cheat, where=where, **fields)

    @property
    def problem(self) -> str:
        return self.attacks.partition(".")[0]

    def names(self, device: Device) -> tuple[str, ...]:
        """What is graded: a whole problem on a CPU, and few checks on a GPU, whose time is dear."""
        return (self.attacks if device == "cuda" else self.problem,)

    def twin(self, into: Path) -> Path:
        """The same files without the trick."""
        shutil.copytree(self.folder / "assignment", into / "assignment")
        (into / "assignment" / "honest.py").rename(into / "assignment" / f"{self.problem}.py")
        return into


CHEATS = [Cheat.read(folder) for folder in sorted((STAFF / "submissions" / "cheating").iterdir())]
HERE: Device = "cuda" if uses_gpu(Machine.here()) else "cpu"
Grade = Callable[[Path, tuple[str, ...]], dict[str, CheckResult]]


def everywhere(*bounds: Bound) -> pytest.MarkDecorator:
    """Each cheat of these bounds, on each device where it is one."""
    pairs = [(cheat, device) for cheat in CHEATS for device in cheat.where if cheat.cheat in bounds]
    marks = {"cpu": [], "cuda": [pytest.mark.gpu]}
    parameters = [
        pytest.param(cheat, device, marks=marks[device], id=f"{cheat.folder.name}-{device}") for cheat, device in pairs
    ]
    return pytest.mark.parametrize(("cheat", "device"), parameters)


@pytest.fixture(autouse=True)
def needed(request: pytest.FixtureRequest) -> None:
    """Skip what is for another device than this machine's."""
    device = request.node.callspec.params.get("device", HERE)
    if device != HERE:
        pytest.skip("needs a GPU" if device == "cuda" else "needs Triton's interpreter")


@pytest.fixture(scope="module")
def graded(grade_as_staff: Callable[..., Result]) -> Grade:
    """Grade, by check; what has been graded is not graded again, as a twin that many cheats share."""
    known: dict[tuple[object, ...], dict[str, CheckResult]] = {}

    def grade(folder: Path, names: tuple[str, ...]) -> dict[str, CheckResult]:
        files = sorted((folder / "assignment" if folder != STUBS else folder).rglob("*.py"))
        key = names, *((path.name, path.read_bytes()) for path in files)
        if key not in known:
            known[key] = {check.id: check for check in grade_as_staff(folder, *names).checks}
        return known[key]

    return grade


@pytest.fixture(scope="module")
def naively(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Cheat], tuple[dict, dict]]:
    """What the naive grader says of a cheat, and of its twin: whether it is right, and how fast beside PyTorch."""
    folders = {theirs_of(cheat): cheat.folder for cheat in CHEATS}
    folders |= {twin_of(cheat): cheat.twin(tmp_path_factory.mktemp("twin")) for cheat in CHEATS}
    wishes = {key: f"{key[0]}:{key[1]}:{folder}" for key, folder in folders.items()}
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"TRITON_INTERPRET": "1"} if HERE == "cpu" else {})
    run = subprocess.run(
        [sys.executable, "-I", str(NAIVE_GRADER), *wishes.values()],
        env=environment, stdout=subprocess.PIPE, text=True, timeout=NAIVE_LIMIT_S, check=True,
    )  # fmt: skip
    said = {line["of"]: line for line in map(json.loads, run.stdout.splitlines())}
    return lambda cheat: (said[wishes[theirs_of(cheat)]], said[wishes[twin_of(cheat)]])


def theirs_of(cheat: Cheat) -> tuple[str, str, str]:
    """The naive grader's clock, a problem, and what tells this submission from others."""
    return cheat.fools, cheat.problem, cheat.folder.name


def twin_of(cheat: Cheat) -> tuple[str, str, str]:
    """The same for its twin, which is that of many."""
    return cheat.fools, cheat.problem, (cheat.folder / "assignment" / "honest.py").read_text()


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.folder.name)
def test_a_naive_grader_finds_it_right(cheat, naively):
    if cheat.where == ("cpu",) and HERE == "cuda":
        pytest.skip("needs Triton's interpreter")
    theirs, twin = naively(cheat)
    assert theirs["right"]
    assert twin["right"]


@everywhere(*Bound)
def test_a_naive_grader_finds_it_fast(cheat, device, naively):
    theirs, twin = naively(cheat)
    assert theirs["ratio"] > FASTER * twin["ratio"]


@everywhere(*Bound)
def test_it_gains_nothing(cheat, device, graded, tmp_path):
    found = graded(cheat.folder, cheat.names(device))
    stub = graded(STUBS, cheat.names(device))
    twin = graded(cheat.twin(tmp_path), cheat.names(device))
    second_call, rubric = f"{cheat.problem}.second_call", Rubric.read()
    for check in found.values():
        timed = rubric.timed(check.id) is not None
        stale = cheat.cheat is Bound.STALE and (timed or check.id == second_call)
        limit = stub if cheat.cheat is Bound.EMPTY or stale else twin
        most = earned(limit[check.id]) + (NOISE if timed and limit is twin else 0)
        assert earned(check) <= most, f"{check.id}: {earned(check)} of its points; {check.message} {check.speed}"


@everywhere(*Bound)
def test_it_costs_points_to_fail(cheat, device, graded):
    """What is skipped, or our own fault, would cost nothing."""
    stub = graded(STUBS, cheat.names(device))
    for check in graded(cheat.folder, cheat.names(device)).values():
        assert check.verdict is not Verdict.GRADER_ERROR, f"{check.id}: {check.message} {check.detail}"
        assert (check.verdict is Verdict.SKIPPED) == (stub[check.id].verdict is Verdict.SKIPPED), check.id
        assert check.runs == 1, f"{check.id} was retried: {check.message}"


@everywhere(Bound.SLOW)
def test_what_is_right_in_it_keeps_its_points(cheat, device, graded, tmp_path):
    rubric = Rubric.read()
    twin = graded(cheat.twin(tmp_path), cheat.names(device))
    for check in graded(cheat.folder, cheat.names(device)).values():
        if not rubric.timed(check.id):
            assert points(check) == points(twin[check.id]), f"{check.id}: {check.message}"


@everywhere(*Bound)
def test_its_twin_is_honest(cheat, device, graded, tmp_path):
    for check in graded(cheat.twin(tmp_path), cheat.names(device)).values():
        assert check.verdict in (Verdict.PASS, Verdict.SKIPPED), f"{check.id}: {check.message} {check.detail}"
        assert not check.review


def earned(check: CheckResult) -> float:
    """The part of a check's points, before it is rounded to hundredths of a point."""
    if check.speed and check.score:
        return share(check.speed.ratio, check.speed.threshold)
    return float(points(check) / check.max) if check.max else 0.0


def points(check: CheckResult) -> Decimal:
    """Of a check; none before people have decided."""
    return check.score or Decimal(0)
