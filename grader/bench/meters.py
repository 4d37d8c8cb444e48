"""Who holds the clock for `bench`: the judge, or where it cannot share its device memory, the submission itself."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch

from grader.clock.measure import SAMPLES
from grader.clock.players import BASELINES
from grader.clock.timer import LOAD_LIMIT_S, WARM_LIMIT_S, Clock, ours, summary
from grader.clock.works import Work
from grader.judge.child import RunnerChild
from grader.judge.replies import Estimated, Loaded, Raised
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.submission import CheckProcess
from grader.judge.verdict import Outcome, Verdict
from grader.judge.wording import raised_outcome
from grader.result import Gpu
from grader.rubric_files import SpeedEntry
from grader.runner.blocks import CudaFailed

BRIEF_SAMPLES = 8  # of a point in a picture, where a graded time has SAMPLES


@dataclass(frozen=True)
class Times:
    """What a function and its baseline took in the same seconds."""

    time_s: float
    iqr_s: float
    baseline_s: float
    gpu: Gpu | None = None  # meanwhile


class Meter(Protocol):
    """Takes times."""

    estimates: bool  # by the submission's word, its answers unseen

    def beside(self, work: Work, entry: SpeedEntry, fine_s: float | None = None) -> Times:
        """Of the submission's function and its baseline. Raises `Outcome`.

        With `fine_s` there are fewer samples, and a shorter call's time is that of launching it: it need not settle.
        """

    def alone_s(self, work: Work, entry: SpeedEntry, baseline: str) -> float:
        """Seconds of a call of any baseline, by itself. Raises `Outcome`, and `RunnerBroken`."""


def meter_of(snapshot: Snapshot, servers: Servers) -> Meter:
    """The judge's clock where it works, once servers are ready."""
    return JudgesClock(snapshot, servers) if servers.shares_memory else OwnWord(snapshot, servers)


@dataclass(frozen=True)
class JudgesClock:
    """The clock that grades."""

    snapshot: Snapshot
    servers: Servers
    estimates = False

    def beside(self, work: Work, entry: SpeedEntry, fine_s: float | None = None) -> Times:
        with self._clock(work, entry, SAMPLES if fine_s is None else BRIEF_SAMPLES) as clock:
            try:
                clock.time(work)
            except Outcome:
                # Answers were right, and a time is there. Of short calls, which are not scored, it need not settle.
                if fine_s is None or not clock.measured or clock.measured.theirs.whole_s >= fine_s:
                    raise
            assert clock.measured
            assert self.servers.gpu
            pair, gpu = (clock.measured.theirs, clock.measured.baseline), summary(self.servers.gpu.name, clock.states)
            is_fine = fine_s is None or pair[0].whole_s >= fine_s
            theirs_s, baseline_s = (seen(one.time_s if is_fine else one.whole_s) for one in pair)
            return Times(theirs_s, pair[0].iqr_s, baseline_s, gpu)

    def alone_s(self, work: Work, entry: SpeedEntry, baseline: str) -> float:
        with self._clock(work, entry, BRIEF_SAMPLES) as clock:
            return seen(clock.baseline_s(work, baseline))

    @contextmanager
    def _clock(self, work: Work, entry: SpeedEntry, samples: int) -> Iterator[Clock]:
        process = CheckProcess(self.servers, self.snapshot.folder, work.problem, entry.limit_s)
        try:
            yield Clock(process, self.servers, entry, samples=samples)
        except (torch.OutOfMemoryError, CudaFailed):
            raise Outcome(
                Verdict.SKIPPED, "the judge's arguments and answers need more memory than this GPU has"
            ) from None
        finally:
            process.close()


@dataclass(frozen=True)
class OwnWord:
    """CUDA's events in the process that computes, for the submission and for baselines: good to a tenth or so."""

    snapshot: Snapshot
    servers: Servers
    estimates = True

    def beside(self, work: Work, entry: SpeedEntry, fine_s: float | None = None) -> Times:
        process = CheckProcess(self.servers, self.snapshot.folder, work.problem, entry.limit_s)
        try:
            process.require(work.function)
            assert process.child
            gradient = work.gradient is not None
            seconds = estimated(process.child, request(work, work.function, work.options, gradient), work.function)
        finally:
            process.close()
        first, middle, third = statistics.quantiles(seconds, n=4)
        return Times(middle, third - first, self.alone_s(work, entry, entry.baseline.value))

    def alone_s(self, work: Work, entry: SpeedEntry, baseline: str) -> float:
        opponent, child = work.opponent(baseline), RunnerChild(self.servers.own())
        gradient = opponent.differentiates and work.gradient is not None
        message: dict[str, object] = {"verb": "load", "folder": str(BASELINES), "module": BASELINES.name}
        try:
            with ours():
                reply, _ = child.request(message, (), LOAD_LIMIT_S, LOAD_LIMIT_S)
                if not isinstance(reply, Loaded):
                    raise RunnerBroken(f"the baselines cannot be loaded: {reply}")
                header = request(work, opponent.function, opponent.options, gradient)
                return statistics.median(estimated(child, header, opponent.function))
        finally:
            child.end()


def seen(slope_s: float) -> float:
    """The same, if it is a time: of very short calls noise may be all that the clock sees. Raises `Outcome`."""
    if slope_s <= 0:
        raise Outcome(Verdict.GRADER_ERROR, "calls are too short for the clock")
    return slope_s


def request(work: Work, function: str, options: object, gradient: bool) -> dict[str, object]:
    """What the runner is asked, for a function that differentiates or not."""
    return {
        "verb": "estimate", "function": function, "options": options, "gradient": work.gradient if gradient else None,
        "arguments": [number for number in range(len(work.inputs)) if number != work.gradient],
        "inputs": [
            {"shape": list(spec.shape), "dtype": str(spec.dtype).removeprefix("torch."),
             "requires_grad": gradient and number != work.gradient}
            for number, spec in enumerate(work.inputs)
        ],
    }  # fmt: skip


def estimated(child: RunnerChild, header: dict[str, object], function: str) -> Sequence[float]:
    """Seconds of a call, as a runner's process says. Raises `Outcome`."""
    reply, _ = child.request(header, (), WARM_LIMIT_S, WARM_LIMIT_S)
    if isinstance(reply, Raised):
        raise raised_outcome(reply, f"a timed call of {function}")
    if not isinstance(reply, Estimated):
        raise child.malformed("an answer where nothing was asked")
    return reply.seconds
