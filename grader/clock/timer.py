"""What timed checks say: `clock.time(work)` measures a function of the submission's beside its baseline."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch

from grader.clock.line import Line, Sample
from grader.clock.measure import ALONE, MOST_SLOWER, SAMPLES, Measured, alone, measure
from grader.clock.players import BASELINES, Player, frozen
from grader.clock.stopwatch import RANDOM, Stopwatch, stopwatch, undisturbed
from grader.clock.works import Work
from grader.judge.child import RunnerChild
from grader.judge.replies import Loaded
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.submission import CheckProcess
from grader.judge.verdict import Outcome, Verdict
from grader.result import Clocks, Gpu, Speed
from grader.rubric_files import SpeedEntry
from grader.runner.blocks import CudaFailed
from grader.sandbox.gpu import GpuState, ManagedGpu

SAMPLE_LIMIT_S = 20.0
WARM_LIMIT_S = 300.0  # for the first calls: kernels are compiled and tuned
LOAD_LIMIT_S = 60.0


@dataclass
class Clock:
    """The judge's clock for one timed check."""

    process: CheckProcess
    servers: Servers
    entry: SpeedEntry
    speed: Speed | None = None  # once it is measured
    states: list[GpuState] = field(default_factory=list)  # of the GPU, after each sample of the submission's
    samples: int = SAMPLES  # of each function
    measured: Measured | None = None  # also where the time does not count

    def time(self, work: Work) -> None:
        """Measure. Raises `Outcome`: for a wrong answer, a time that cannot be relied on, and what calls raise."""
        self.process.require(work.function)
        self.process.renew()  # so that nothing of it is on the GPU while the baseline is measured alone
        with ExitStack() as stack:
            watch, baseline = self._ready(stack, work, self.entry.baseline.value)
            before = self._alone(watch, baseline)
            self.measured = measured = self._beside(watch, baseline, before)
            if measured.uneven():
                after = self._alone(watch, baseline)
                refuse_uneven(measured, Line.through(after).slope_s, work.function)
        self.speed = self._speed(work, settled(measured, work.function))

    def baseline_s(self, work: Work, baseline: str) -> float:
        """Seconds that a call of a baseline takes by itself: the submission has no part in it."""
        with ExitStack() as stack:
            return Line.through(self._alone(*self._ready(stack, work, baseline))).slope_s

    def _ready(self, stack: ExitStack, work: Work, baseline: str) -> tuple[Stopwatch, Player]:
        """Arguments, and a baseline's child that has worked on them."""
        stack.enter_context(undisturbed())
        self.servers.start_in_judge()
        watch = stack.enter_context(stopwatch(work))
        player = stack.enter_context(self._baseline(work, baseline))
        with ours():
            self._warm_up(watch, player)
        return watch, player

    def _alone(self, watch: Stopwatch, baseline: Player) -> list[Sample]:
        with ours():
            take = partial(watch.sample, baseline, checked=False)
            return alone(take, len(watch.sets), RANDOM.randint, min(ALONE, self.samples))

    def _beside(self, watch: Stopwatch, baseline: Player, before: Sequence[Sample]) -> Measured:
        """Open the submission's child, measure it and the baseline in turns, and end it. Raises `Outcome`."""
        self.process.load()
        gpu, server, until = self._managed(), self.servers.start().leader, time.monotonic() + self.entry.limit_s
        try:
            with self._submission(watch.work) as theirs:
                self._warm_up(watch, theirs)

                def of_submission(calls: int) -> Sample:
                    theirs.limit_s = max(min(SAMPLE_LIMIT_S, until - time.monotonic()), 0.1)
                    sample = watch.sample(theirs, calls, checked=True)
                    self.states.append(gpu.state())
                    return sample

                def of_baseline(calls: int) -> Sample:
                    with frozen([server]), ours():
                        return watch.sample(baseline, calls, checked=False)

                return measure(of_submission, of_baseline, before, len(watch.sets), RANDOM.randint, self.samples)
        except (torch.OutOfMemoryError, CudaFailed) as error:
            raise Outcome(
                Verdict.OUT_OF_MEMORY, f"the GPU's memory ran out beside timed calls of {watch.work.function}",
                hint="keep no large tensors between calls", detail=str(error),
            ) from None  # fmt: skip
        finally:
            self.process.renew()

    def _warm_up(self, watch: Stopwatch, player: Player) -> None:
        """Let it compile and tune, and take all the memory for answers that it will."""
        player.prepare(watch.work, watch.sets)
        player.limit_s, limit_s = WARM_LIMIT_S, player.limit_s
        watch.sample(player, len(watch.sets), checked=False)
        player.limit_s = limit_s

    @contextmanager
    def _submission(self, work: Work) -> Iterator[Player]:
        assert self.process.child
        player = Player(self.process.child, work.function, work.options)
        try:
            yield player
        finally:
            player.leave()

    @contextmanager
    def _baseline(self, work: Work, baseline: str) -> Iterator[Player]:
        opponent = work.opponent(baseline)
        child = RunnerChild(self.servers.own())
        player = Player(child, opponent.function, opponent.options, opponent.differentiates)
        try:
            message: dict[str, object] = {"verb": "load", "folder": str(BASELINES), "module": BASELINES.name}
            with ours():
                reply, _ = child.request(message, (), LOAD_LIMIT_S, LOAD_LIMIT_S)
            if not isinstance(reply, Loaded):
                raise RunnerBroken(f"the baselines cannot be loaded: {reply}")
            yield player
        finally:
            player.leave()
            child.end()

    def _speed(self, work: Work, measured: Measured) -> Speed:
        gpu, seen = self.servers.gpu, self._managed()
        assert gpu
        return Speed(
            function=work.function, time_s=measured.theirs.time_s, iqr_s=measured.theirs.iqr_s,
            samples=measured.theirs.samples, refusals=len(measured.theirs.refusals), baseline=self.entry.baseline,
            baseline_s=measured.baseline.time_s, ratio=measured.ratio, bound_s=floor_s(work, seen),
            threshold=self.entry.threshold_on(gpu.name), gpu=summary(gpu.name, self.states),
        )  # fmt: skip

    def _managed(self) -> ManagedGpu:
        assert self.servers.gpu
        return ManagedGpu(self.servers.gpu.uuid)


@contextmanager
def ours() -> Iterator[None]:
    """What goes wrong here is no fault of the submission's: an `Outcome` becomes `RunnerBroken`."""
    try:
        yield
    except Outcome as outcome:
        raise RunnerBroken(f"a baseline cannot be measured: {outcome}") from None


def refuse_uneven(measured: Measured, after_s: float, function: str) -> None:
    """Raise `Outcome` where a baseline was uneven beside the submission, which took `after_s` alone after it."""
    if not (why := measured.uneven(after_s)):
        return
    if max(after_s, measured.alone_s) > MOST_SLOWER * min(after_s, measured.alone_s):
        raise Outcome(Verdict.GRADER_ERROR, f"the GPU does not work evenly: {why}")
    raise Outcome(
        Verdict.FAIL, f"the time of {function} cannot be measured: {why}",
        "a baseline is even without your process on this GPU",
        "leave nothing on the GPU when a call's answer is there: no stream, no graph, no kernel that waits",
        cause="not_reproducible",
    )  # fmt: skip


def settled(measured: Measured, function: str) -> Measured:
    """The same. Raises `Outcome` where the submission's time does not count."""
    if measured.theirs.doubt:
        raise Outcome(
            Verdict.FAIL, f"the time of {function} is not reproducible: {measured.theirs.doubt}",
            "a copy's time was, in the same minute and by the same protocol",
            "let each call do its own work, all of it, and nothing else: no sleep, no thread, no other call's answer",
            cause="not_reproducible",
        )  # fmt: skip
    return measured


def floor_s(work: Work, gpu: ManagedGpu) -> float | None:
    """Seconds that this GPU needs for the work at least; None where its rate is not known."""
    rate, half = gpu.half_rate(), work.inputs[0].dtype is not torch.float32
    if work.operations and half and rate is None:
        return None
    of_operations = work.operations / rate if rate and half else 0.0
    return max(work.moved_bytes / gpu.bandwidth(), of_operations)


def summary(name: str, states: Sequence[GpuState]) -> Gpu:
    """How a GPU was while it worked."""
    clocks = sorted(float(state.sm_mhz) for state in states)
    return Gpu(
        name=name,
        clocks_mhz=Clocks(min=clocks[0], median=statistics.median(clocks), max=clocks[-1]),
        power_w=_median(states, lambda state: state.power_w),
        temperature_c=_median(states, lambda state: float(state.temperature_c)),
        throttle=tuple(dict.fromkeys(reason for state in states for reason in state.throttles)),
    )


def _median(states: Sequence[GpuState], value: Callable[[GpuState], float]) -> float:
    return statistics.median(map(value, states))
