"""The clock on a GPU: two kernels' ratio is that of CUDA events in the same rhythm, and what lies gains nothing."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from grader.clock import works
from grader.clock.line import Line, Sample
from grader.clock.measure import SAMPLES, Measured, alone, measure
from grader.clock.players import BASELINES, Player
from grader.clock.stopwatch import RANDOM, stopwatch, undisturbed
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
def measured(confined: Servers, own: Servers, tmp_path: Path) -> Callable[..., Measured]:
    """Measure a function of `clocked.py` beside a copy: confined, or by servers that let it write to its folder."""

    def run(function: str, servers: Servers = confined) -> Measured:
        confined.ready()
        confined.start_in_judge()
        shutil.copy(KERNELS, tmp_path)
        shutil.copy(ROOT / "solutions" / "softmax.py", tmp_path)  # a submission has one problem at least
        with submitted(confined, tmp_path) as snapshot, undisturbed(), stopwatch(SOFTMAX) as watch:
            folder = confined.sandbox.seen_at(snapshot.folder) if servers is confined else str(tmp_path)
            theirs = player(servers.ready(), folder, "clocked", function)
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


def slope_by_events(folder: Path) -> float:
    """Seconds a call, from the events that the function has recorded in the very calls that were measured."""
    lines = (folder / "clocked.events").read_text().splitlines()
    few, most = [line.split() for line in lines[:2]], [line.split() for line in lines[2:]]
    assert len(few) + len(most) > SAMPLES
    return Line.through([Sample(int(calls), float(ms) / 1e3, 0.0, 0.0) for calls, ms in most]).slope_s


def test_the_ratio_of_two_kernels_is_that_by_events_on_the_same_calls(measured, own, tmp_path):
    by_clock, by_events = [], []
    for function in ("eight_warps_recorded", "thirty_two_warps_recorded"):
        (tmp_path / "clocked.events").unlink(missing_ok=True)
        by_clock.append(measured(function, own).theirs.time_s)
        by_events.append(slope_by_events(tmp_path))
    assert by_clock[1] / by_clock[0] == pytest.approx(by_events[1] / by_events[0], rel=0.01), (by_clock, by_events)


def test_a_function_that_works_twice_takes_twice_as_long(measured):
    once, twice = measured("eight_warps"), measured("twice")
    assert twice.theirs.time_s / once.theirs.time_s == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("function", ["with_gaps_between_rows", "transposed"])
def test_an_answer_may_have_strides_of_its_own(measured, function):
    found = measured(function)
    assert not found.theirs.doubt
    assert len(found.theirs.refusals) <= 2, found.theirs.refusals


@pytest.mark.parametrize(
    "lie", ["skips_now_and_then", "remembers_by_address", "replies_early", "replies_before_the_last"]
)
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
    assert found.theirs.doubt or found.ratio < 1.05 * honest.ratio, found


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
    assert "speed counts once these checks pass in the same run: gelu." in found.message
