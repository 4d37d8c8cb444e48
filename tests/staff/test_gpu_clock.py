"""The clock on a GPU: two kernels' ratio is that of CUDA events in the same rhythm, and what lies gains nothing."""

import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

from grader.clock import works
from grader.clock.measure import Measured, alone, measure
from grader.clock.players import BASELINES, Player
from grader.clock.stopwatch import RANDOM, stopwatch
from grader.doctor import Machine, uses_gpu
from grader.judge.child import RunnerChild
from grader.judge.plugin import Judge
from grader.judge.run import Selection, run_checks
from grader.judge.servers import Servers
from grader.judge.spawned import Runner
from grader.judge.verdict import Outcome, Verdict
from grader.result import CheckResult
from grader.rubric import Rubric
from grader.scoring import part_of

from .conftest import ROOT, Silent, submitted

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not uses_gpu(Machine.here()), reason="needs a GPU"),
]

KERNELS = Path(__file__).with_name("clocked.py")  # two honest kernels, and what lies about its time
SOFTMAX = works.softmax(32_768, 8192)
TO_START_S = 120.0


@pytest.fixture(scope="module")
def own() -> Iterator[Servers]:
    """The judge's own runner, for baselines."""
    servers = Servers.on(Machine.here())
    servers.ready()
    yield servers
    servers.close()


def player(server: Runner, folder: str, module: str, function: str, **options: object) -> Player:
    child = RunnerChild(server)
    child.request({"verb": "load", "folder": folder, "module": module}, (), TO_START_S, TO_START_S)
    return Player(child, function, options)


@pytest.fixture
def measured(confined: Servers, own: Servers, tmp_path: Path) -> Callable[[str], Measured]:
    """Measure a function of `clocked.py`, confined, beside a copy."""

    def run(function: str) -> Measured:
        shutil.copy(KERNELS, tmp_path)
        shutil.copy(ROOT / "solutions" / "softmax.py", tmp_path)
        with submitted(confined, tmp_path) as snapshot, stopwatch(SOFTMAX) as watch:
            folder = confined.sandbox.seen_at(snapshot.folder)
            theirs = player(confined.ready(), folder, "clocked", function)
            baseline = player(own.ready(), str(BASELINES), "baselines", "device_copy", halves=2)
            try:
                for one in (theirs, baseline):
                    one.prepare(SOFTMAX, watch.sets)
                    watch.sample(one, len(watch.sets), checked=False)
                of_baseline = partial(watch.sample, baseline, checked=False)
                before = alone(of_baseline, len(watch.sets), RANDOM.randint)
                of_theirs = partial(watch.sample, theirs, checked=True)
                return measure(of_theirs, of_baseline, before, len(watch.sets), RANDOM.randint)
            finally:
                for one in (theirs, baseline):
                    one.leave()
                    one.child.end()

    return run


def slopes_by_events(functions: list[Callable[[torch.Tensor], torch.Tensor]], rounds: int = 20) -> list[float]:
    """Seconds a call of each, in turns: the slope between many and few calls, by CUDA events."""
    sets = [torch.randn(SOFTMAX.inputs[0].shape, device="cuda", dtype=torch.bfloat16) for _ in range(24)]
    found: list[list[float]] = [[] for _ in functions]
    for _ in range(rounds):
        for function, times in zip(functions, found, strict=True):
            few, many = (elapsed(function, sets[:calls]) for calls in (4, 24))
            times.append((many - few) / 20)
    return [statistics.median(times[2:]) for times in found]


def elapsed(function: Callable[[torch.Tensor], torch.Tensor], sets: list[torch.Tensor]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    kept = [function(x) for x in sets]
    end.record()
    torch.cuda.synchronize()
    del kept
    return start.elapsed_time(end) / 1e3


def test_the_ratio_of_two_kernels_is_that_by_events(measured, monkeypatch):
    fast, slow = measured("eight_warps"), measured("thirty_two_warps")
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.delitem(sys.modules, "tests.staff.clocked", raising=False)
    from tests.staff import clocked

    by_events = slopes_by_events([clocked.eight_warps, clocked.thirty_two_warps])
    assert slow.theirs.time_s / fast.theirs.time_s == pytest.approx(by_events[1] / by_events[0], rel=0.01)


def test_a_function_that_works_twice_takes_twice_as_long(measured):
    once, twice = measured("eight_warps"), measured("twice")
    assert twice.theirs.time_s / once.theirs.time_s == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("lie", ["skips_now_and_then", "remembers_by_address", "replies_early"])
def test_a_wrong_answer_is_found(measured, lie):
    with pytest.raises(Outcome, match=f"a timed call of {lie} gave a wrong answer"):
        measured(lie)


@pytest.mark.parametrize("lie", ["sleeps_in_small_samples", "polls_in_a_thread"])
def test_a_lie_about_the_time_gains_nothing(measured, lie):
    honest = measured("twice")
    try:
        found = measured(lie)
    except Outcome:
        return
    assert found.theirs.doubt or found.ratio < 1.05 * honest.ratio


@pytest.mark.parametrize("right", ["on_a_stream_of_its_own", "with_a_workspace", "from_a_graph"])
def test_an_unusual_right_function_keeps_its_time(measured, right):
    found = measured(right)
    assert not found.theirs.doubt
    assert found.ratio > 0.3  # a graph copies its argument in and its answer out: a third of a copy's speed


WRONG = "import torch\n\n\ndef gelu(x):\n    return torch.zeros_like(x)\n"


@pytest.fixture
def gelu(confined: Servers, tmp_path: Path) -> Callable[[str], dict[str, CheckResult]]:
    """Grade two checks of a gelu, one of them timed: by id."""

    def grade(source: str) -> dict[str, CheckResult]:
        (tmp_path / "gelu.py").write_text(source)
        rubric = Rubric.read()
        with submitted(confined, tmp_path) as snapshot:
            checks = Selection(("gelu.layouts", "gelu.speed_bfloat16"), hidden=False).checks(rubric)
            found = run_checks(Judge(snapshot, confined, rubric), checks, Silent(), "gelu").checks
        return {check.id: check for check in found}

    return grade


def test_a_timed_check_records_what_it_saw_and_gives_points_by_it(gelu):
    found = gelu((ROOT / "solutions" / "gelu.py").read_text())["gelu.speed_bfloat16"]
    assert found.verdict is Verdict.PASS, found.message
    assert found.speed
    assert found.speed.ratio == pytest.approx(found.speed.baseline_s / found.speed.time_s)
    assert found.score == part_of(found.max, found.speed)
    assert found.speed.bound_s
    assert 0.5 * found.speed.time_s < found.speed.bound_s < found.speed.time_s


def test_a_function_that_is_wrong_is_not_timed(gelu):
    found = gelu(WRONG)["gelu.speed_bfloat16"]
    assert (found.verdict, found.speed) == (Verdict.FAIL, None)
    assert "speed counts once these checks pass in the same run: gelu.layouts" in found.message
