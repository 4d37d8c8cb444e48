"""`bench` on a GPU: its limits, its estimates beside the judge's clock, and a ladder."""

from collections.abc import Iterator

import pytest

from grader.bench.ladders import LADDERS
from grader.bench.meters import JudgesClock, Meter, OwnWord
from grader.bench.record import FINE_S, Timed
from grader.bench.rows import Measurements, Session, work_of
from grader.clock import works
from grader.doctor import Machine, uses_gpu
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.rubric import Rubric

from .conftest import ROOT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not uses_gpu(Machine.here()), reason="needs a GPU"),
]

RUBRIC = Rubric.read()


@pytest.fixture(scope="module")
def meters() -> Iterator[dict[str, Meter]]:
    """Both, for the solutions."""
    servers, snapshot = Servers.on(Machine.here()), Snapshot.of(ROOT / "solutions")
    servers.ready()
    if not servers.shares_memory:
        pytest.skip("CUDA IPC does not work here")
    yield {"judge": JudgesClock(snapshot, servers), "own": OwnWord(snapshot, servers)}
    servers.close()
    snapshot.remove()


@pytest.mark.parametrize(
    "check", ["gelu.speed_bfloat16", "softmax.speed_backward", "matmul.speed_bfloat16", "flash_attention.speed_forward"]
)
def test_an_estimate_is_about_what_the_judge_measures(meters, check):
    problem, _, name = check.partition(".")
    work, entry = work_of(problem, name), RUBRIC.problems[problem].speed[name]
    judged, own = meters["judge"].beside(work, entry, FINE_S), meters["own"].beside(work, entry)
    assert 1 / 1.5 < own.time_s / judged.time_s < 1.5
    assert 1 / 1.5 < own.baseline_s / judged.baseline_s < 1.5


def test_few_samples_give_the_time_that_many_do(meters):
    work, entry = works.softmax(32_768, 8192), RUBRIC.problems["softmax"].speed["speed_forward"]
    many, few = (meters["judge"].beside(work, entry, fine_s) for fine_s in (None, FINE_S))
    assert few.time_s / few.baseline_s == pytest.approx(many.time_s / many.baseline_s, rel=0.03)


@pytest.mark.parametrize("clock", ["judge", "own"])
def test_each_size_of_a_ladder_is_measured_and_small_ones_are_launch_bound(meters, clock):
    machine, found = Machine.here(), Measurements()
    session = Session(RUBRIC, meters[clock], machine.gpus[0].memory_bytes, machine.gpus[0].name, lambda what: None)
    found.by(session, ["gelu"], ladders=True, told=lambda row: None)
    assert not found.broken
    assert [point.size for point in found.points if isinstance(point, Timed)] == list(
        LADDERS["gelu.speed_bfloat16"].sizes
    )
    bound = [point.launch_bound for point in found.points if isinstance(point, Timed)]
    assert bound == sorted(bound, reverse=True), "the smaller, the more is launching"
    assert bound[0]
    assert not bound[-1]
    [row] = found.rows
    assert isinstance(row, Timed)
    assert row.of_limit
    assert 0.3 < row.of_limit < 1.1
