"""The clock's arithmetic, with simulated runners: what is honest is measured, and what is not is refused."""

import random
from collections.abc import Callable

import pytest

from grader.clock.line import Honest, Line, Sample, has_moved, timing
from grader.clock.measure import SAMPLES, Sizes, measure
from grader.clock.memory import Spec, extent
from grader.judge.replies import PlaceEntry
from grader.runner.protocol import Malformed

CONSTANT_S, SECOND_S, REFILL_S = 750e-6, 0.9e-3, 300e-6  # as on an H200
NOISE_S = 40e-6  # half of the samples' spread there

Runner = Callable[[int], Sample]


def honest(call_s: float, generator: random.Random) -> Runner:
    """A runner whose calls take so long, with the noise of a real one."""

    def take(calls: int) -> Sample:
        noise = abs(generator.gauss(0, NOISE_S))
        return Sample(calls, CONSTANT_S + call_s * calls + noise, SECOND_S * generator.uniform(0.9, 1.2), REFILL_S)

    return take


def altered(runner: Runner, **changes: Callable[[Sample], float]) -> Runner:
    """The same with other readings: a function of the sample for each."""

    def take(calls: int) -> Sample:
        sample = runner(calls)
        return Sample(**vars(sample) | {name: change(sample) for name, change in changes.items()})

    return take


CALL_S, MOST = 0.5e-3, 28


@pytest.fixture
def draws() -> random.Random:
    return random.Random(20261130)


@pytest.mark.parametrize("call_s", [0.25e-3, 0.5e-3, 2e-3])
@pytest.mark.parametrize("times", [0.5, 1.0, 1.3, 4.0])
def test_the_ratio_of_two_honest_runners_is_that_of_their_calls(draws, call_s, times):
    found = measure(honest(call_s * times, draws), honest(call_s, draws), MOST, draws.randint)
    assert not found.moved
    assert not found.theirs.doubt
    assert found.ratio == pytest.approx(1 / times, rel=0.01)


def test_points_without_noise_lie_on_their_line():
    samples = [Sample(calls, 1e-3 + 2e-3 * calls, 0, 0) for calls in (2, 3, 4, 16, 17, 18)]
    line = Line.through(samples)
    assert line.slope_s == pytest.approx(2e-3)
    assert line.constant_s == pytest.approx(1e-3)
    assert line.iqr_s == pytest.approx(0, abs=1e-12)
    assert line.residual(Sample(10, 42e-3, 0, 0)) == pytest.approx(21 / 42)


LIES = {
    "sleeps in small samples": {"seconds": lambda one: one.seconds + (3e-3 if one.calls < MOST / 2 else 0)},
    "sleeps a little in small samples": {"seconds": lambda one: one.seconds + (0.5e-3 if one.calls < MOST / 2 else 0)},
    "replies before the GPU is done": {
        "seconds": lambda one: CONSTANT_S + one.calls * CALL_S / 2,
        "second_s": lambda one: one.second_s + one.calls * CALL_S / 2,
    },
    "works before the clock starts": {
        "seconds": lambda one: CONSTANT_S + one.calls * CALL_S / 2,
        "refill_s": lambda one: one.refill_s + CALL_S / 2,
    },
    "does large samples in half the time, whatever that takes": {
        "seconds": lambda one: one.seconds / (2 if one.calls > MOST / 2 else 1)
    },
    "sleeps in every second sample": {"seconds": lambda one: one.seconds + (4e-3 if hash(one.second_s) % 2 else 0)},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_leaves_a_doubt(draws, lie):
    runner = altered(honest(CALL_S, draws), **LIES[lie])
    found = measure(runner, honest(CALL_S, draws), MOST, draws.randint)
    assert found.theirs.doubt, found.theirs
    assert not found.baseline.doubt


@pytest.mark.parametrize("share", [0.05, 0.15])
def test_some_disturbed_samples_are_refused_and_the_time_stands(draws, share):
    disturbed = altered(
        honest(CALL_S, draws), seconds=lambda one: one.seconds + (5e-3 if draws.random() < share else 0)
    )
    found = measure(disturbed, honest(CALL_S, draws), MOST, draws.randint)
    assert not found.theirs.doubt
    assert found.ratio == pytest.approx(1, rel=0.01)


def test_what_a_hidden_sleep_can_gain_is_bounded(draws):
    """Below what the constant may differ by: divided by the calls between the ends, and that of a whole call's time."""
    sleep_s = 250e-6
    runner = altered(honest(CALL_S, draws), seconds=lambda one: one.seconds + sleep_s * (one.calls < MOST / 2))
    found = measure(runner, honest(CALL_S, draws), MOST, draws.randint)
    sizes = Sizes.for_calls(CALL_S, MOST)
    gained = sleep_s / (sizes.large[0] - sizes.small[1]) / CALL_S
    assert found.theirs.doubt or found.ratio < 1 + gained + 0.01
    assert gained < 0.04


def test_a_baseline_that_moves_is_measured_once_more_and_then_told(draws):
    taken = []

    def slowing(calls: int) -> Sample:
        taken.append(calls)
        return honest(CALL_S * (1 + 0.1 * len(taken) / SAMPLES), draws)(calls)

    found = measure(honest(CALL_S, draws), slowing, MOST, draws.randint)
    assert found.moved
    assert len(taken) > 2 * SAMPLES


def test_two_percent_are_a_move_and_one_is_not():
    def samples(slope: float) -> list[Sample]:
        return [Sample(calls, slope * calls, 0, 0) for calls in (2, 18)] * 4

    assert has_moved(samples(1e-3) + samples(1.021e-3))
    assert not has_moved(samples(1e-3) + samples(1.01e-3))


def test_a_second_reading_within_what_honest_runners_show_is_fine():
    samples = [Sample(calls, 1e-3 * calls, 1e-3, 1e-4) for calls in (2, 3, 17, 18)] * 5
    own = Honest(constant_s=0, second_s=1e-3, refill_s=1e-4)
    assert not timing(samples, own).refusals
    late = [Sample(calls, 1e-3 * calls, 2.1e-3, 1e-4) for calls in (2, 18)]
    assert len(timing(samples + late, own).refusals) == 2


@pytest.mark.parametrize(("call_s", "most", "large"), [(0.5e-3, 28, 24), (3e-3, 28, 12), (0.1e-3, 28, 28)])
def test_large_samples_take_twelve_milliseconds_where_there_are_arguments_for_it(call_s, most, large):
    sizes = Sizes.for_calls(call_s, most)
    assert sizes.large == (large - 2, large)
    assert 1 <= sizes.small[0] < sizes.small[1] < sizes.large[0]


# Where an answer lies is what the runner says: nothing is read that is not in the block.

SIZE = 4096  # bytes of the block


def place(shape: list[int], strides: list[int], offset: int = 0, dtype: str = "float32") -> PlaceEntry:
    return PlaceEntry(kind="place", block=0, offset=offset, strides=strides, dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("one", "last"),
    [
        (place([32, 32], [32, 1]), 4096),
        (place([1024], [1]), 4096),
        (place([2, 4], [512, 1]), (512 + 3 + 1) * 4),
        (place([4], [1], offset=4080), 4096),
        (place([4, 1000], [0, 1]), 4000),
        (place([0, 7], [7, 1], offset=16), 16),
        (place([], []), 4),
    ],
)
def test_an_answer_ends_with_its_last_element(one, last):
    assert extent(one, SIZE) == (one.offset, last)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (place([1025], [1]), "beyond its block"),
        (place([4], [1], offset=4084), "beyond its block"),
        (place([2, 4], [1021, 1]), "beyond its block"),
        (place([2], [2**61]), "beyond its block"),
        (place([4], [-1], offset=64), "strides do not go"),
        (place([4, 4], [1]), "strides do not go"),
        (place([4], [1], offset=2), "not aligned"),
        (place([4], [1], dtype="complex64"), "unknown dtype"),
    ],
)
def test_an_answer_that_does_not_lie_in_its_block_is_malformed(one, words):
    with pytest.raises(Malformed, match=words):
        extent(one, SIZE)


def test_a_spec_counts_bytes():
    import torch

    assert Spec((3, 5), torch.bfloat16).nbytes == 30
    assert Spec((3, 5), torch.bfloat16).strides == [5, 1]
