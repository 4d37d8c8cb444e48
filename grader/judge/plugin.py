"""The judge as a pytest plugin: fixtures for checks, and verdicts instead of tracebacks.

A check is a test function that takes `submission`, or `ranks` of it, or a `clock` for it, in `tests/test_PROBLEM.py` or
a hidden `test_PROBLEM.py`. Its cases run in one child of the runner, or one for each rank. `pytest
tests/test_softmax.py` checks the package that the ini option `submission` names; `--here` runs it in pytest's own
process, for breakpoints and prints.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from grader.doctor import Gpu, Machine, can_run_kernels, can_run_ranks, uses_gpu
from grader.judge.borrowed import Borrowed
from grader.judge.cases import CONTIGUOUS, Input, Layout, placed
from grader.judge.causes import Cause, describe_access
from grader.judge.child import RunnerChild
from grader.judge.distributed import Ranks
from grader.judge.here import HereProcess, reexecute
from grader.judge.ranks import RankProcesses
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.snapshot import Refused, Snapshot
from grader.judge.submission import CheckProcess, Submission
from grader.judge.verdict import Outcome, Verdict
from grader.result import Speed
from grader.rubric import LIMIT_S, Rubric, Visibility
from grader.sandbox.levels import Device
from grader.scoring import unmet_outcome

if TYPE_CHECKING:
    from grader.clock.timer import Clock  # it asks NVIDIA's library, which is there on Linux only

HERE = "--here: your code runs in this process, unguarded, for breakpoints and prints. Nothing below is a verdict."
JUDGE_TIMEOUT_S = 300.0  # beyond a check's own limit: starting the runner, and our own comparison


@dataclass(frozen=True)
class Obstacles:
    """Why this machine cannot run kernels, or scenarios of several ranks; None: it can."""

    kernels: str | None = None
    ranks: str | None = None

    @classmethod
    def on(cls, machine: Machine) -> Obstacles:
        return cls(can_run_kernels(machine), can_run_ranks(machine))

    def of(self, item: Any) -> str | None:
        """Why a check cannot run."""
        return self.ranks if "ranks" in item.fixturenames else self.kernels

    @property
    def all(self) -> bool:
        """Whether nothing can run at all."""
        return self.kernels is not None and self.ranks is not None


NONE = Obstacles()


@dataclass
class Judge:
    """What one run needs to know. Commands make one; a plain pytest run makes its own."""

    submission: Snapshot
    servers: Servers
    rubric: Rubric
    seed: int | None = None  # None: from the operating system's entropy, anew for each check
    cannot_run: Obstacles = NONE  # what this machine lacks
    here: bool = False
    staff: bool = False  # doubts open a review; in a self-check they are warnings
    options: str = ""  # of the command, to be given again when a check is replayed
    seeds: dict[str, int] = field(default_factory=dict)
    timeouts: dict[str, Outcome] = field(default_factory=dict)  # by check
    failed: set[str] = field(default_factory=set)  # checks of which a case did not pass
    waited_s: float = 0.0  # for replies of the submission

    @property
    def device(self) -> Device:
        """Where kernels run: "cpu" (the interpreter) or "cuda"."""
        return self.servers.device

    def note_timeout(self, check: str, outcome: Outcome) -> None:
        """Remember that a check ran out of time."""
        if outcome.verdict is Verdict.TIMEOUT:
            self.timeouts[check] = outcome

    def refusal(self, check: str) -> Outcome | None:
        """Why a check is not tried: the submission's time is used up or, in a self-check, two others did not end."""
        all_s = self.rubric.public.limit_s * self.servers.slack
        if self.waited_s > all_s:
            return Outcome(
                Verdict.TIMEOUT, f"not tried: the checks before it took more than the {all_s:.0f} s for all of them",
                hint="make the slowest ones faster", cause="not_tried",
            )  # fmt: skip
        problem = f"{check.partition('.')[0]}."
        known = [outcome for other, outcome in self.timeouts.items() if other.startswith(problem) and other != check]
        if self.staff or len(known) < 2:
            return None
        where = f", the last in line {known[-1].where.line} of {known[-1].where.file}" if known[-1].where else ""
        return Outcome(
            Verdict.TIMEOUT, f"not tried: two checks of this problem ran out of time{where}", hint="mend these first",
            cause="not_tried",
        )  # fmt: skip

    def seed_of(self, check: str) -> int:
        """The seed of one check's inputs, recorded so that it can be replayed."""
        if check not in self.seeds:
            self.seeds[check] = secrets.randbelow(2**31) if self.seed is None else self.seed
        return self.seeds[check]


@dataclass(frozen=True)
class CaseResult:
    """What became of one case."""

    check: str  # problem.check
    title: str
    visibility: Visibility
    words: str  # the case in the problem's terms
    outcome: Outcome | None  # None: passed
    seconds: float
    advice: Cause | None = None  # for a case that passed all the same
    borrowed: Borrowed | None = None  # what the library did, in this check up to this case
    speed: Speed | None = None  # of a timed case

    @property
    def verdict(self) -> Verdict:
        return self.outcome.verdict if self.outcome else Verdict.PASS


CHECKED = {"submission", "ranks", "clock"}  # fixtures: a test that takes one of them is a check
JUDGE = pytest.StashKey[Judge]()
OUTCOME = pytest.StashKey[Outcome]()
OWN_JUDGE = pytest.StashKey[bool]()
CURRENT = pytest.StashKey[tuple[str, CheckProcess]]()
CLOCK = pytest.StashKey["Clock"]()
KEPT = pytest.StashKey[list[RunnerChild]]()  # on a GPU, the children for the problem's next check


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of a check run."""
    group = parser.getgroup("grader")
    group.addoption("--here", action="store_true", help="run the submission in this process, for breakpoints")
    group.addoption("--seed", type=int, help="draw the inputs from this seed")
    parser.addini("submission", "the package that checks are run on", default="assignment")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """With --here on a machine without a GPU: start again with the interpreter's environment set."""
    if config.getoption("--here") and not uses_gpu(Machine.here()) and os.environ.get("TRITON_INTERPRET") != "1":
        reexecute(config)


def pytest_configure(config: pytest.Config) -> None:
    """Register marks; make a judge unless a command has brought one."""
    torch.set_num_threads(1)  # OpenMP's threads spin: beside a busy runner, two are many times slower than one
    config.addinivalue_line("markers", "needs_gpu(reason, gib=, capability=): skipped without a GPU like this")
    config.addinivalue_line("markers", "precision: this check's cases fail the next lower precision")
    if JUDGE not in config.stash:
        machine = Machine.here()
        config.stash[JUDGE] = Judge(
            submission=_snapshot(config.rootpath / config.getini("submission")),
            servers=Servers.on(machine),
            rubric=Rubric.read(),
            seed=config.getoption("--seed"),
            cannot_run=Obstacles.on(machine),
            here=config.getoption("--here"),
        )
        config.stash[OWN_JUDGE] = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no process behind, where the judge is our own."""
    if config.stash.get(OWN_JUDGE, False):
        config.stash[JUDGE].servers.close()
        config.stash[JUDGE].submission.remove()


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Which package is checked, and where its kernels run."""
    judge = config.stash[JUDGE]
    kind = "Triton's interpreter, no GPU" if judge.device == "cpu" else "the GPU"
    return [f"submission: {judge.submission.source} on {kind}", *([HERE] if judge.here else [])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Guard the judge itself: a check that hangs on our side is ours."""
    for item in items:
        if (check := check_of(item)) and (judge := item.config.stash[JUDGE]) and not judge.here:
            entry = judge.rubric.entry(check)
            item.add_marker(pytest.mark.timeout((entry.limit_s if entry else LIMIT_S) + JUDGE_TIMEOUT_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the runner while pytest gets ready."""
    judge = session.config.stash[JUDGE]
    if any(check_of(item) and not judge.cannot_run.of(item) for item in session.items) and not (
        judge.here or session.config.option.collectonly
    ):
        judge.servers.start()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run, with the reason."""
    if check_of(item) is None:
        return
    judge = item.config.stash[JUDGE]
    if obstacle := judge.cannot_run.of(item):
        pytest.skip(obstacle)
    if (mark := item.get_closest_marker("needs_gpu")) and (lacking := _lacking(judge.servers.gpu, mark)):
        pytest.skip(lacking)


def _lacking(gpu: Gpu | None, mark: pytest.Mark) -> str | None:
    """What a check needs and this machine has not, as the reason for `skipped`."""
    gib, capability = mark.kwargs.get("gib", 0), mark.kwargs.get("capability", (0, 0))
    if gpu is None:
        return f"needs a GPU: {mark.args[0]}"
    if gpu.memory_bytes < gib << 30:
        return f"needs a GPU with {gib} GiB of memory"
    return None if gpu.capability >= capability else f"needs a GPU of capability {'.'.join(map(str, capability))}"


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End a check's process after its last case."""
    session, judge = item.session, item.config.stash[JUDGE]
    current = session.stash.get(CURRENT, None)
    if current and (nextitem is None or check_of(nextitem) != current[0]):
        judge.waited_s += current[1].spent_s
        del session.stash[CURRENT]
        if judge.servers.keeps_children and nextitem is not None and nextitem.path == item.path:
            session.stash[KEPT] = current[1].hand_over()
        else:
            current[1].close()
    if (nextitem is None or nextitem.path != item.path) and KEPT in session.stash:
        for child in session.stash[KEPT]:
            child.end()
        del session.stash[KEPT]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Turn an outcome into a plain failure: its words are the report, and pytest need not format a traceback."""
    try:
        return (yield)
    except Outcome as outcome:
        item.stash[OUTCOME] = outcome.with_traceback(None)  # or it would keep the case's tensors
        judge = item.config.stash[JUDGE]
        if current := item.session.stash.get(CURRENT, None):
            outcome.printed = outcome.printed or current[1].printed()
            judge.note_timeout(current[0], outcome)
            if judge.servers.keeps_children and outcome.verdict is Verdict.FAIL:
                current[1].renew()  # a CUDA context may be broken; after a crash or a timeout there is none any more
            if outcome.verdict is Verdict.OUT_OF_MEMORY and judge.servers.crowded:
                outcome.verdict = Verdict.GRADER_ERROR
                outcome.message = "the GPU was not free: others held much of its memory before the submission started"
        verdict = "" if judge.here else f"{outcome.verdict}; "
        text = f"{words_of(item)}\n{outcome}\n[{verdict}--seed {judge.seed_of(check_of(item) or '')}]"
        raise pytest.fail.Exception(text, pytrace=False) from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the case's result to the report."""
    report = yield
    if (check := check_of(item)) is None or call.when == "teardown":
        return report
    if call.when == "setup" and call.excinfo is None:
        return report
    case = CaseResult(
        check,
        title_of(item),
        visibility_of(item),
        words_of(item),
        _outcome(item, call),
        call.duration,
        _advice(item),
        _borrowed(item),
        timed.speed if (timed := item.stash.get(CLOCK, None)) else None,
    )
    if case.outcome and case.verdict.scored:
        item.config.stash[JUDGE].failed.add(check)
    report.grader_case = case  # type: ignore[attr-defined]
    return report


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(report: pytest.TestReport) -> Generator[None, object, object]:
    """A report that travels, from a worker of pytest-xdist, say, goes without the case: only `run_checks` reads it."""
    case = report.__dict__.pop("grader_case", None)
    try:
        return (yield)
    finally:
        if case is not None:
            report.grader_case = case  # type: ignore[attr-defined]


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Clock:
    """The judge's clock, for one function on a GPU: `clock.time(work)`."""
    judge, check = request.config.stash[JUDGE], check_of(request.node)
    assert check
    if judge.here:
        pytest.skip("speed is measured from outside: leave out --here")
    if not judge.servers.shares_memory:
        pytest.skip("needs CUDA IPC between two processes, which does not work here: speed cannot be measured")
    from grader.clock.timer import Clock

    entry, problem = judge.rubric.timed(check), check.partition(".")[0]
    assert entry
    needed = [f"{problem}.{name}" for name in entry.needed(judge.rubric.problems[problem].checks)]
    if lacking := [name for name in needed if name in judge.failed]:
        request.node.stash[OUTCOME] = unmet_outcome(lacking)
        pytest.fail(str(request.node.stash[OUTCOME]), pytrace=False)
    found = request.node.stash[CLOCK] = Clock(_process(request), judge.servers, entry)
    return found


@pytest.fixture
def submission(request: pytest.FixtureRequest) -> Submission:
    """The submission's module for this check: `submission.gelu(x)` runs in the runner."""
    return Submission(_process(request))


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> Callable[..., torch.Tensor]:
    """Turn a case into a tensor with fresh values, in guarded memory: `draw(case)`, `draw(case, "a")` by its name.

    A tensor in the place of a case is copied there: `draw(o, "o", row_pitch(96))` with strides.
    """
    judge, check = request.config.stash[JUDGE], check_of(request.node)
    assert check
    process = _process(request)
    generator = torch.Generator().manual_seed(case_seed(judge.seed_of(check), words_of(request.node)))

    def draw_case(case: Input | torch.Tensor, name: str = "x", layout: Layout = CONTIGUOUS) -> torch.Tensor:
        tensor = placed(case, layout) if isinstance(case, torch.Tensor) else case.draw(generator)
        process.names[tensor.untyped_storage().data_ptr()] = name
        return tensor

    return draw_case


@pytest.fixture
def ranks(request: pytest.FixtureRequest) -> Ranks:
    """Trainings of the submission on several ranks: `ranks.train(case)`."""
    judge, check = request.config.stash[JUDGE], check_of(request.node)
    assert check
    if judge.here:
        pytest.skip("several ranks do not run in one process: leave out --here")
    process = _process(request)
    assert isinstance(process, RankProcesses)
    return Ranks(process, torch.Generator().manual_seed(case_seed(judge.seed_of(check), words_of(request.node))))


def case_seed(seed: int, words: str) -> int:
    """The seed of one case: its own, and the same whichever other cases run."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{words}".encode()).digest()[:8], "little") >> 1


def check_of(item: Any) -> str | None:
    """`problem.check` of a test item, or None if it is no check."""
    if not CHECKED & set(getattr(item, "fixturenames", ())):
        return None
    return f"{item.path.stem.removeprefix('test_')}.{item.originalname.removeprefix('test_')}"


def title_of(item: Any) -> str:
    """The first line of a check's docstring."""
    return str(item.function.__doc__ or item.originalname).strip().splitlines()[0]


def visibility_of(item: pytest.Item) -> Visibility:
    return Visibility.HIDDEN if item.path.parent.name == "hidden" else Visibility.PUBLIC


def words_of(item: Any) -> str:
    """A case in the problem's terms."""
    return str(item.callspec.id) if hasattr(item, "callspec") else ""


def _snapshot(path: Path) -> Snapshot:
    try:
        return Snapshot.of(path)
    except Refused as error:
        raise pytest.UsageError(f"the submission is refused: {error}") from None


def _process(request: pytest.FixtureRequest) -> CheckProcess:
    """The process of this item's check, the same for all its cases."""
    session, judge, check = request.session, request.config.stash[JUDGE], check_of(request.node)
    assert check
    current = session.stash.get(CURRENT, None)
    if current is None or current[0] != check:
        of_ranks = "ranks" in request.fixturenames
        kind = HereProcess if judge.here else RankProcesses if of_ranks else CheckProcess
        entry = judge.rubric.entry(check)
        limit_s = entry.limit_s if entry else LIMIT_S
        folder = judge.submission.source if judge.here else judge.submission.folder
        problem, refusal = check.partition(".")[0], judge.refusal(check)
        process = kind(judge.servers, folder, problem, limit_s, refusal=refusal)
        if KEPT in session.stash:
            process.take_over(session.stash[KEPT])
            del session.stash[KEPT]
        session.stash[CURRENT] = (check, process)
    return session.stash[CURRENT][1]


def _advice(item: pytest.Item) -> Cause | None:
    """What the runner's watch saw so far in this check that the answers do not show."""
    current = item.session.stash.get(CURRENT, None)
    return describe_access(current[1].stray) if current and current[1].stray else None


def _borrowed(item: pytest.Item) -> Borrowed | None:
    """What speaks against the student's kernels having computed the answers so far."""
    check, process = item.session.stash.get(CURRENT, (None, None))
    if not check or not process:
        return None
    return process.doubt()


def _outcome(item: pytest.Item, call: pytest.CallInfo[None]) -> Outcome | None:
    """What an item's end means: nothing (passed), a check's outcome, a skip, or a fault of ours."""
    if call.excinfo is None:
        return None
    if outcome := item.stash.get(OUTCOME, None):
        return outcome
    error = call.excinfo.value
    if isinstance(error, pytest.skip.Exception):
        return Outcome(Verdict.SKIPPED, str(error))
    reason = str(error) if isinstance(error, RunnerBroken) else f"{type(error).__name__}: {error}"
    return Outcome(Verdict.GRADER_ERROR, f"the grader itself failed: {reason}", detail=str(call.excinfo.getrepr()))
