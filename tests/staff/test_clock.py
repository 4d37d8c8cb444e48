"""The clock's arithmetic, with simulated runners: what is honest is measured, and what is not is refused."""

import ctypes
import importlib
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from grader.clock import memory as memory_module
from grader.clock import stopwatch as stopwatch_module
from grader.clock import works
from grader.clock.line import MOST_CONSTANT_S, Honest, Line, Sample, Timing, has_moved, timing
from grader.clock.measure import SAMPLES, Measured, Sizes, alone
from grader.clock.measure import measure as measure_beside
from grader.clock.memory import Spec, extent
from grader.clock.players import Player
from grader.clock.timer import floor_s, ours, refuse_uneven, settled, summary
from grader.judge.replies import PlaceEntry, parse
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.verdict import Outcome, Verdict
from grader.rubric import Rubric
from grader.runner.protocol import Malformed
from grader.sandbox.gpu import GpuState
from grader.sandbox.levels import RUNNER_FOLDER

with pytest.MonkeyPatch.context() as patch:  # the runner's files import each other by their plain names
    patch.syspath_prepend(str(RUNNER_FOLDER))
    import timing as runner_timing

CONSTANT_S, SECOND_S, REFILL_S = 750e-6, 0.9e-3, 300e-6  # as on an H200
NOISE_S = 40e-6  # half of the samples' spread there

Runner = Callable[[int], Sample]


def honest(call_s: float, generator: random.Random) -> Runner:
    """A runner whose calls take so long, with the noise of a real one."""

    def take(calls: int) -> Sample:
        noise = abs(generator.gauss(0, NOISE_S))
        refill_s = REFILL_S * calls * generator.uniform(0.99, 1.03)
        return Sample(calls, CONSTANT_S + call_s * calls + noise, SECOND_S * generator.uniform(0.9, 1.2), refill_s)

    return take


def altered(runner: Runner, **changes: Callable[[Sample], float]) -> Runner:
    """The same with other readings: a function of the sample for each."""

    def take(calls: int) -> Sample:
        sample = runner(calls)
        return Sample(**vars(sample) | {name: change(sample) for name, change in changes.items()})

    return take


def measure(theirs: Runner, baseline: Runner, most: int, draw: Callable[[int, int], int]) -> Measured:
    """Measure with a baseline that is the same alone as beside the other."""
    return measure_beside(theirs, baseline, alone(baseline, most, draw), most, draw)


CALL_S, MOST = 0.5e-3, 48


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


def test_the_whole_time_of_a_call_has_its_part_in_what_a_sample_takes_beside_its_calls(draws):
    """12 ms for 10 calls, of which an honest runner has 1 ms: 1.1 ms each, though the line says 1 ms."""
    honest_one = Honest.of([Sample(calls, 1e-3 + 1e-3 * calls, 0, 1e-4 * calls) for calls in (2, 3, 10, 11)])
    found = timing([Sample(calls, 2e-3 + 1e-3 * calls, 0, 1e-4 * calls) for calls in (2, 2, 10, 10)], honest_one)
    assert found.whole_s == pytest.approx(1.1e-3)


def test_points_without_noise_lie_on_their_line():
    samples = [Sample(calls, 1e-3 + 2e-3 * calls, 0, 0) for calls in (2, 3, 4, 16, 17, 18)]
    line = Line.through(samples)
    assert line.slope_s == pytest.approx(2e-3)
    assert line.constant_s == pytest.approx(1e-3)
    assert line.iqr_s == pytest.approx(0, abs=1e-12)
    assert line.residual(Sample(10, 42e-3, 0, 0)) == pytest.approx(21 / 42)


LIES = {
    "replies before the GPU is done": {
        "seconds": lambda one: CONSTANT_S + one.calls * CALL_S / 2,
        "second_s": lambda one: one.second_s + one.calls * CALL_S / 2,
    },
    "replies before the GPU is done in large samples": {
        "seconds": lambda one: one.seconds - 1.2e-3 * (one.calls > 20),
        "second_s": lambda one: one.second_s + 1.2e-3 * (one.calls > 20),
    },
    "works before the clock starts": {
        "seconds": lambda one: CONSTANT_S + one.calls * CALL_S / 2,
        "refill_s": lambda one: one.refill_s + one.calls * CALL_S / 2,
    },
    "lets the GPU do a little of the work before the clock starts": {
        "seconds": lambda one: one.seconds - 0.05 * one.calls * CALL_S,
        "refill_s": lambda one: one.refill_s + 0.05 * one.calls * CALL_S,
    },
    "sleeps in every second sample": {"seconds": lambda one: one.seconds + (4e-3 if hash(one.second_s) % 2 else 0)},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_leaves_a_doubt(draws, lie):
    runner = altered(honest(CALL_S, draws), **LIES[lie])
    found = measure(runner, honest(CALL_S, draws), MOST, draws.randint)
    assert found.theirs.doubt, found.theirs
    assert not found.baseline.doubt


@pytest.mark.parametrize("sleep_s", [0.3e-3, 0.7e-3, 3e-3, 30e-3])
@pytest.mark.parametrize("evenly", [True, False])
def test_a_sleep_in_small_samples_gains_no_more_than_what_a_call_may_need_to_start(draws, sleep_s, evenly):
    """The less, the more calls a sample has; evenly, so that all samples lie on one line, it is no more."""
    sizes = Sizes.for_calls(CALL_S, MOST)
    few, most = sizes.small[1], sizes.large[1]

    def slept(sample: Sample) -> float:
        part = max(most - sample.calls, 0) / (most - few) if evenly else sample.calls <= few
        return sample.seconds + sleep_s * part

    found = measure(altered(honest(CALL_S, draws), seconds=slept), honest(CALL_S, draws), MOST, draws.randint)
    assert found.ratio < 1 / (1 - MOST_CONSTANT_S / (sizes.large[0] * CALL_S)) + 0.01


def test_a_right_function_that_takes_long_to_start_pays_for_it_and_is_not_refused(draws):
    slow = altered(honest(CALL_S, draws), seconds=lambda one: one.seconds + 2e-3)
    found = measure(slow, honest(CALL_S, draws), MOST, draws.randint)
    assert not found.theirs.doubt
    assert found.ratio == pytest.approx(1 / (1 + (2e-3 - MOST_CONSTANT_S) / (39 * CALL_S)), rel=0.01)


def test_a_refill_of_little_time_says_nothing(draws):
    """Work of 20 ms whose arguments are written in a quarter of a millisecond, or in twice that time."""
    short = altered(honest(CALL_S, draws), refill_s=lambda one: 6e-6 * one.calls)
    before = alone(short, MOST, draws.randint)
    longer = altered(short, refill_s=lambda one: 12e-6 * one.calls)
    found = measure_beside(longer, longer, before, MOST, draws.randint)
    assert not found.theirs.doubt
    assert not found.uneven()


@pytest.mark.parametrize("share", [0.05, 0.15])
def test_some_disturbed_samples_are_refused_and_the_time_stands(draws, share):
    disturbed = altered(
        honest(CALL_S, draws), seconds=lambda one: one.seconds + (5e-3 if draws.random() < share else 0)
    )
    found = measure(disturbed, honest(CALL_S, draws), MOST, draws.randint)
    assert not found.theirs.doubt
    assert found.ratio == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(("warms", "moved"), [(False, True), (True, False)])
def test_a_baseline_that_moves_is_measured_once_more_and_then_told_unless_both_have_moved(draws, warms, moved):
    before, taken = alone(honest(CALL_S, draws), MOST, draws.randint), []

    def slowing(calls: int) -> Sample:
        taken.append(calls)
        return honest(CALL_S * (1 + 0.15 * len(taken) / SAMPLES), draws)(calls)

    def beside_it(calls: int) -> Sample:
        return honest(CALL_S * (1 + 0.15 * len(taken) / SAMPLES * warms), draws)(calls)

    found = measure_beside(beside_it, slowing, before, MOST, draws.randint)
    assert found.moved == moved
    assert len(taken) > 2 * SAMPLES


@pytest.mark.parametrize("whose", ["theirs", "baseline"])
def test_a_time_that_is_in_doubt_is_taken_once_more(draws, whose):
    before, taken = alone(honest(CALL_S, draws), MOST, draws.randint), []

    def disturbed_at_first(calls: int) -> Sample:
        taken.append(calls)
        late = 5e-3 * draws.random() if len(taken) <= SAMPLES else 0.0
        return altered(honest(CALL_S, draws), second_s=lambda one: one.second_s + late)(calls)

    runners = {"theirs": honest(CALL_S, draws), "baseline": honest(CALL_S, draws)} | {whose: disturbed_at_first}
    found = measure_beside(runners["theirs"], runners["baseline"], before, MOST, draws.randint)
    assert not found.theirs.doubt
    assert not found.uneven()
    assert len(taken) > 2 * SAMPLES


def test_a_baseline_that_is_slowed_down_beside_a_submission_is_no_measure(draws):
    """Work that the submission has left on the GPU: all samples alike, so that nothing moves."""
    before = alone(honest(CALL_S, draws), MOST, draws.randint)
    found = measure_beside(honest(CALL_S, draws), honest(1.1 * CALL_S, draws), before, MOST, draws.randint)
    assert "longer beside it than alone" in found.uneven()
    assert not found.uneven(after_s=1.1 * CALL_S), "the GPU has become warm"


def test_second_readings_are_held_to_those_of_a_baseline_alone(draws):
    """Late ones of the baseline beside it, which the submission can bring about, excuse nothing."""
    late = LIES["replies before the GPU is done"]
    before = alone(honest(CALL_S, draws), MOST, draws.randint)
    beside = altered(honest(CALL_S, draws), second_s=lambda one: one.second_s + 0.25 * (draws.random() < 0.1))
    found = measure_beside(altered(honest(CALL_S, draws), **late), beside, before, MOST, draws.randint)
    assert found.theirs.doubt


def test_two_percent_are_a_move_and_one_is_not():
    def samples(slope: float) -> list[Sample]:
        return [Sample(calls, slope * calls, 0, 0) for calls in (2, 18)] * 4

    assert has_moved(samples(1e-3) + samples(1.021e-3))
    assert not has_moved(samples(1e-3) + samples(1.01e-3))


def test_a_second_reading_within_what_honest_runners_show_is_fine():
    samples = [Sample(calls, 1e-3 * calls, 1e-3, 1e-4 * calls) for calls in (2, 3, 17, 18)] * 5
    own = Honest.of(samples)
    assert not timing(samples, own).refusals
    late = [Sample(calls, 1e-3 * calls, 2.6e-3, 1e-4 * calls) for calls in (2, 18)]
    assert len(timing(samples + late, own).refusals) == 2


@pytest.mark.parametrize(
    ("call_s", "most", "large"), [(0.5e-3, 48, 40), (3e-3, 48, 12), (0.1e-3, 48, 48), (0.5e-3, 28, 28)]
)
def test_large_samples_take_twenty_milliseconds_where_there_are_arguments_for_it(call_s, most, large):
    sizes = Sizes.for_calls(call_s, most)
    assert sizes.large == (large - 2, large)
    assert 1 <= sizes.small[0] < sizes.small[1] < sizes.large[0]


@pytest.mark.parametrize("samples", [8, SAMPLES])
def test_both_halves_of_the_samples_have_small_and_large_ones(draws, samples):
    """Or whether anything has moved between them could not be told."""
    sizes = Sizes.for_calls(CALL_S, MOST)
    for _ in range(500):
        drawn = sizes.drawn(samples, draws.randint)
        assert len(drawn) == samples
        large = [size >= sizes.large[0] for size in drawn]
        assert sum(large) == samples // 2
        assert {0 < sum(half) < samples // 2 for half in (large[: samples // 2], large[samples // 2 :])} == {True}


def test_fewer_samples_are_taken_where_that_is_asked_for(draws):
    taken: list[int] = []

    def counted(calls: int) -> Sample:
        taken.append(calls)
        return honest(CALL_S, draws)(calls)

    before = alone(counted, MOST, draws.randint, 8)
    assert (len(before), len(taken)) == (8, 4 + 8)  # four show how long a call takes
    found = measure_beside(honest(CALL_S, draws), counted, before, MOST, draws.randint, 8)
    assert found.theirs.samples + len(found.theirs.refusals) == 8
    assert found.ratio == pytest.approx(1, rel=0.02)


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
    assert Spec((3, 5), torch.bfloat16).nbytes == 30
    assert Spec((3, 5), torch.bfloat16).strides == [5, 1]


# Samples, with a driver that hands out this process's own memory, and a runner that is called here.


class Driver:
    """CUDA's driver, as far as it is asked, for memory of a CPU."""

    def __init__(self) -> None:
        self.taken: dict[int, torch.Tensor] = {}

    def call(self, name: str, *arguments: Any) -> None:
        if name == "cuMemAlloc_v2":
            memory = torch.empty(arguments[1].value, dtype=torch.uint8)
            self.taken[memory.data_ptr()] = memory
            arguments[0]._obj.value = memory.data_ptr()
        elif name == "cuMemFree_v2":
            del self.taken[arguments[0].value]

    def allocation(self, address: int) -> tuple[int, int]:
        usable = ctypes.CDLL(None).malloc_usable_size
        usable.restype, usable.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
        return address, usable(address)

    def number_of(self, address: int) -> int:
        return address

    def handle_of(self, base: int) -> str:
        return f"{base:0128x}"

    def opened(self, handle: str) -> SimpleNamespace:
        content = self.bytes_at(*self.allocation(int(handle, 16)))
        return SimpleNamespace(content=content, close=lambda: None)

    def bytes_at(self, address: int, size: int) -> torch.Tensor:
        return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


class InThisProcess:
    """A child of the runner's, as far as a player asks it, whose functions are these."""

    def __init__(self, functions: dict[str, Callable[..., Any]]) -> None:
        self.functions, self.server = SimpleNamespace(**functions), SimpleNamespace(leader=0)

    def request(self, header: Any, parts: Any, *limits: float) -> tuple[Any, bytearray]:
        self.ask(header, parts, 0, 0)
        return self.hear(0, 0, 0)

    def ask(self, header: Any, parts: Any, deadline: float, of_s: float) -> None:
        header = json.loads(json.dumps(header))
        self.said = [{"status": "timed"}]
        if header["verb"] == "prepare":
            self.timed = runner_timing.Timed(self.functions, header, "cpu")
        else:
            places = json.loads(json.dumps(self.timed.run(header["order"])))
            self.said = [{"status": "timed", **places}, {"status": "done"}]

    def hear(self, limit: int, deadline: float, of_s: float) -> tuple[Any, bytearray]:
        return parse({"number": 1, **self.said.pop(0)}), bytearray()

    def attend(self, seconds: float) -> None: ...

    def malformed(self, what: str) -> Outcome:
        return Outcome(Verdict.CRASH, f"the process that runs your code sent {what}")

    def end(self) -> None: ...


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    fake = Driver()
    for module in (memory_module.blocks, runner_timing.blocks):
        for name in ("call", "allocation", "number_of", "handle_of", "bytes_at"):
            monkeypatch.setattr(module, name, getattr(fake, name))
        monkeypatch.setattr(module, "Opened", fake.opened)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(stopwatch_module, "freeze", lambda leaders: set())
    return fake


def right_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


def cached() -> Callable[[torch.Tensor], torch.Tensor]:
    known: dict[int, torch.Tensor] = {}
    return lambda x: known.setdefault(x.data_ptr(), right_softmax(x))


def now_and_then() -> Callable[[torch.Tensor], torch.Tensor]:
    calls: list[int] = []
    return lambda x: right_softmax(x) if calls.append(1) or len(calls) % 5 else torch.full_like(x, 1 / x.shape[1])


def first_half(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros_like(x)
    y[: len(x) // 2] = right_softmax(x[: len(x) // 2])
    return y


def zeroing(x: torch.Tensor) -> torch.Tensor:
    x.zero_()
    return right_softmax(x)


SOFTMAX = works.softmax(96, 40, torch.float32)


def player(function: Callable[..., Any], name: str = "softmax", **options: object) -> Player:
    return Player(InThisProcess({name: function}), name, options)


def three_samples(function: Callable[..., Any]) -> None:
    with stopwatch_module.stopwatch(SOFTMAX, "cpu") as watch:
        one = player(function)
        one.prepare(SOFTMAX, watch.sets)
        for calls in (8, 3, 8):
            assert watch.sample(one, calls, checked=True).calls == calls


def test_a_right_function_passes_and_all_memory_is_given_back(driver: Driver):
    three_samples(right_softmax)
    assert not driver.taken


def transposed(x: torch.Tensor) -> torch.Tensor:
    return right_softmax(x).t().contiguous().t()


def with_gaps(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([right_softmax(x), x], 1)[:, : x.shape[1]]


@pytest.mark.parametrize("function", [transposed, with_gaps])
def test_an_answer_may_have_strides_of_its_own(driver: Driver, function):
    three_samples(function)


@pytest.mark.parametrize(
    "function", [lambda x: transposed(x.flip(1)), lambda x: with_gaps(x.flip(0))],
    ids=["transposed", "with gaps"],
)  # fmt: skip
def test_such_an_answer_is_checked_too(driver: Driver, function):
    with pytest.raises(Outcome, match="a timed call of softmax gave a wrong answer"):
        three_samples(function)


@pytest.mark.parametrize(
    "function", [cached(), now_and_then(), first_half, zeroing, lambda x: torch.zeros_like(x)],
    ids=["an answer for each address", "every fifth call", "half of the rows", "zeroed arguments", "zeros"],
)  # fmt: skip
def test_a_timed_answer_is_a_checked_answer(driver: Driver, function):
    with pytest.raises(Outcome, match="a timed call of softmax gave a wrong answer"):
        three_samples(function)
    assert not driver.taken


def test_a_last_answer_that_comes_after_the_reply_is_found(driver: Driver, monkeypatch: pytest.MonkeyPatch):
    """As on a GPU that still works: it is done once the judge waits for it, and the rows that are looked at then."""
    undone: list[tuple[torch.Tensor, torch.Tensor]] = []

    def finish() -> None:
        for y, x in undone:
            y.copy_(right_softmax(x))
        undone.clear()

    def late(x: torch.Tensor) -> torch.Tensor:
        finish()
        undone.append((torch.full_like(x, torch.nan), x))
        return undone[0][0]

    monkeypatch.setattr(torch.cuda, "synchronize", finish)
    with pytest.raises(Outcome, match="a timed call of softmax gave a wrong answer"):
        three_samples(late)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: None, "something else than a tensor"),
        (lambda x: right_softmax(x).double(), "a tensor of [96, 40] float64"),
        (lambda x: right_softmax(x)[:1], "a tensor of [1, 40] float32"),
    ],
)
def test_a_timed_answer_has_a_form(driver: Driver, function, words):
    with pytest.raises(Outcome, match=re.escape(words)):
        three_samples(function)


def reference_attention(q, k, v, is_causal):
    o = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    scores = q @ k.mT / q.shape[-1] ** 0.5
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) & is_causal
    return o, torch.logsumexp(scores.masked_fill(hidden, -torch.inf), -1)


def reference_gradients(do, q, k, v, o, lse, is_causal):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    return torch.autograd.grad(reference_attention(*leaves, is_causal)[0], leaves, do)


def fill_with_attention(tensors, generator):
    works.random_numbers(tensors[:4], generator)
    for tensor, value in zip(tensors[4:], reference_attention(*tensors[1:4], False), strict=True):
        tensor.copy_(value)


WORKS = {
    "gelu": (works.gelu(1 << 16, torch.float32), lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    "softmax": (SOFTMAX, right_softmax),
    "softmax_step": (works.softmax_step(96, 40, torch.float32), right_softmax),
    "matmul": (works.matmul(64, 48, 32, torch.float32), torch.mm),
    "attention": (works.attention_forward(3, 64, 16, True, torch.float32), reference_attention),
    "attention_backward": (
        replace(works.attention_backward(3, 64, 16, False, torch.float32), refill=fill_with_attention),
        reference_gradients,
    ),
}


@pytest.mark.parametrize("name", WORKS)
def test_rows_of_each_work_are_right_for_pytorchs_own_function_and_wrong_for_others(driver: Driver, name):
    work, function = WORKS[name]
    with stopwatch_module.stopwatch(work, "cpu") as watch:
        right = player(function, work.function, **work.options)
        right.prepare(work, watch.sets)
        watch.sample(right, 6, checked=True)
        for output in range(len(work.outputs)):
            wrong = player(off_by_a_little(function, output), work.function, **work.options)
            if work.gradient is None:
                wrong.prepare(work, watch.sets)
                with pytest.raises(Outcome, match="wrong answer"):
                    watch.sample(wrong, 6, checked=True)


class WithoutForward(torch.autograd.Function):
    """A right gradient for a softmax that was never computed."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.zeros_like(x)

    @staticmethod
    def backward(ctx, dy):
        y = right_softmax(*ctx.saved_tensors)
        return y * (dy - (dy * y).sum(-1, keepdim=True))


def test_a_step_is_not_its_gradient_alone(driver: Driver):
    work = works.softmax_step(96, 40, torch.float32)
    with stopwatch_module.stopwatch(work, "cpu") as watch:
        one = player(WithoutForward.apply)
        one.prepare(work, watch.sets)
        with pytest.raises(Outcome, match="wrong answer"):
            watch.sample(one, 6, checked=True)


def off_by_a_little(function: Callable[..., Any], output: int) -> Callable[..., Any]:
    """One of its answers is 1 % too large."""

    def off(*arguments: torch.Tensor, **options: object) -> Any:
        answer = function(*arguments, **options)
        if not isinstance(answer, tuple):
            return answer * 1.01
        return tuple(one * 1.01 if number == output else one for number, one in enumerate(answer))

    return off


# What is made of it


def fine(call_s: float, doubt: str = "") -> Timing:
    return Timing(call_s, 0.0, CONSTANT_S, SAMPLES, call_s, (), doubt)


def beside(theirs: Timing, baseline: Timing, alone_s: float = 1e-3, moved: bool = False) -> Measured:
    return Measured(theirs, baseline, alone_s, moved)


def test_a_time_that_does_not_settle_beside_a_baseline_that_does_is_the_submissions_fault():
    with pytest.raises(Outcome, match="the time of gelu is not reproducible: it sleeps") as raised:
        settled(beside(fine(1e-3, "it sleeps"), fine(1e-3)), "gelu")
    assert raised.value.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    "measured", [beside(fine(1e-3), fine(1e-3), moved=True), beside(fine(1e-3), fine(1e-3, "it is busy")),
                 beside(fine(1e-3), fine(1.2e-3))],
)  # fmt: skip
@pytest.mark.parametrize(("after_s", "verdict"), [(1.04e-3, Verdict.FAIL), (1.06e-3, Verdict.GRADER_ERROR)])
def test_an_uneven_baseline_is_the_submissions_fault_where_it_is_even_without_it(measured, after_s, verdict):
    with pytest.raises(Outcome) as raised:
        refuse_uneven(measured, after_s, "gelu")
    assert raised.value.verdict is verdict


def test_a_baseline_that_is_as_slow_afterwards_alone_is_fine():
    refuse_uneven(beside(fine(1e-3), fine(1.2e-3)), 1.19e-3, "gelu")


def test_a_time_that_settles_stands():
    measured = beside(fine(2e-3), fine(1e-3))
    assert not measured.uneven()
    assert settled(measured, "gelu").ratio == 0.5


def test_the_judges_own_server_outlives_that_of_a_submission():
    servers = Servers()
    own, first = servers.own(), servers.start()
    first.silent = True  # as where a submission has stopped it
    assert servers.start() is not first
    assert servers.own() is own
    servers.close()
    assert own.process.poll() is not None


def test_a_baseline_that_fails_is_no_fault_of_the_submissions():
    with pytest.raises(RunnerBroken, match="a baseline cannot be measured: it is gone"), ours():
        raise Outcome(Verdict.CRASH, "it is gone")


BIG = SimpleNamespace(bandwidth=lambda: 4e12, half_rate=lambda: 1e15)
UNKNOWN = SimpleNamespace(bandwidth=lambda: 1e12, half_rate=lambda: None)


@pytest.mark.parametrize(
    ("work", "gpu", "seconds"),
    [
        (works.gelu(1 << 29), BIG, 2 * 2 * 2**29 / 4e12),
        (works.gelu(1 << 29), UNKNOWN, 2 * 2 * 2**29 / 1e12),
        (works.matmul(8192, 8192, 8192), BIG, 2 * 8192**3 / 1e15),
        (works.matmul(8192, 8192, 8192), UNKNOWN, None),
        (works.matmul(64, 64, 64, torch.float32), UNKNOWN, 3 * 64 * 64 * 4 / 1e12),
        (works.attention_forward(64, 4096, 128, False), BIG, 4 * 64 * 4096**2 * 128 / 1e15),
        (works.attention_forward(64, 4096, 128, True), BIG, 2 * 64 * 4096**2 * 128 / 1e15),
    ],
)
def test_no_gpu_is_faster_than_its_memory_and_its_tensor_cores(work, gpu, seconds):
    assert floor_s(work, gpu) == (None if seconds is None else pytest.approx(seconds))


def test_a_gpu_is_summed_up_by_its_clocks_and_all_that_slowed_it_down():
    states = [
        GpuState(1980, 300.0, 40, ()),
        GpuState(1500, 690.0, 60, ("power",)),
        GpuState(1470, 700.0, 61, ("power", "temperature")),
    ]
    found = summary("a GPU", states)
    assert (found.clocks_mhz.min, found.clocks_mhz.median, found.clocks_mhz.max) == (1470, 1500, 1980)
    assert (found.power_w, found.temperature_c) == (690.0, 60)
    assert found.throttle == ("power", "temperature")


@pytest.mark.parametrize(
    ("work", "baseline", "function", "options"),
    [
        (works.softmax(96, 40), "device_copy", "device_copy", {"halves": 2, "results": 1}),
        (works.softmax_step(96, 40), "device_copy", "device_copy", {"halves": 5, "results": 2}),
        (works.matmul(64, 48, 32), "cublas", "matmul", {}),
        (works.attention_forward(2, 64, 16, True), "sdpa_flash", "attention_forward", {"is_causal": True}),
    ],
)
def test_a_baseline_does_the_same_work_or_moves_as_many_bytes(work, baseline, function, options):
    opponent = work.opponent(baseline)
    assert (opponent.function, dict(opponent.options)) == (function, options)
    assert opponent.differentiates == (baseline != "device_copy")


def test_a_baseline_that_a_work_has_not_is_refused():
    with pytest.raises(ValueError, match="no baseline cublas for softmax"):
        works.softmax(96, 40).opponent("cublas")


def test_every_timed_check_of_the_rubric_has_its_baseline(monkeypatch):
    """Each check is called with a clock that only looks at the work."""
    rubric = Rubric.read()
    for problem, entry in rubric.problems.items():
        module = importlib.import_module(f"tests.test_{problem}") if entry.speed else None
        for name, timed in entry.speed.items():
            seen: list[works.Work] = []
            getattr(module, f"test_{name}")(SimpleNamespace(time=seen.append))
            [work] = seen
            assert (work.problem, work.function) == (problem, timed.function)
            assert work.opponent(timed.baseline.value)
            half = work.inputs[0].dtype is not torch.float32
            assert floor_s(work, BIG) > 0.25e-3 or not half, "too short to be timed on a large GPU"
