"""From samples to the time of a call: the slope of a line, and what speaks against it. Arithmetic only.

A sample is a number of calls, one after the other, between two readings of the judge's clock. The time of a call is
the slope of the line through samples of two sizes: what a sample costs besides its calls, the constant, cancels. But
whoever sleeps in small samples has a small slope and a large constant: so the time is no less than what a large
sample's calls took, after the judge's own constant and what a right kernel may need on top. Whoever answers before the
work is done makes the second reading late; whoever works before the clock starts makes the refill slow. Both are
compared with what the judge's own runner shows in the same minutes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# What a right kernel may differ from the judge's own runner (docs/measurements.md, The judge's clock).
MOST_RESIDUAL = 0.06  # of a sample's time, off the line
MOST_CONSTANT_S = 250e-6  # between the two lines' constants: what takes longer counts as work
MOST_SECOND_S = 1.0e-3  # more than the own runner's middle one, for the second reading
MOST_EARLY = 0.10  # of a sample's time, by which its refill takes longer than the own runner's
MOST_EARLIES = 0.02  # in the middle of all large samples
MOST_REFUSED = 1 / 3  # of the samples: then the time is not reproducible
EARLY = "the GPU worked before the calls began"
MOST_MOVED = 0.02  # between the halves of the baseline's samples


@dataclass(frozen=True)
class Sample:
    """One reading of the clock."""

    calls: int
    seconds: float  # from the release to the reply
    second_s: float  # from the reply to the copies of 64 slices
    refill_s: float  # for the arguments of all its calls


@dataclass(frozen=True)
class Line:
    """The line through samples of two sizes."""

    slope_s: float  # a call
    constant_s: float  # a sample, besides its calls
    iqr_s: float  # of a call, between the quarters of the large samples
    samples: int

    @classmethod
    def through(cls, samples: Sequence[Sample]) -> Line:
        """The median slope of all pairs of a small and a large sample. Raises `ValueError` without both."""
        small, large = _ends(samples)
        if not small or not large:
            raise ValueError("a line takes samples of two sizes")
        slope = statistics.median((b.seconds - a.seconds) / (b.calls - a.calls) for a in small for b in large)
        constant = statistics.median(sample.seconds - slope * sample.calls for sample in samples)
        each = [(sample.seconds - constant) / sample.calls for sample in large]
        first, _, third = statistics.quantiles(each, n=4) if len(each) > 1 else (slope, slope, slope)
        return cls(slope, constant, third - first, len(samples))

    def residual(self, sample: Sample) -> float:
        """How far a sample is off the line, as a part of its time."""
        return abs(sample.seconds - self.constant_s - self.slope_s * sample.calls) / sample.seconds


@dataclass(frozen=True)
class Timing:
    """The time of a call, with what was seen on the way."""

    time_s: float
    iqr_s: float
    constant_s: float
    samples: int  # that counted
    whole_s: float  # a call of large samples, with all that launching it took
    refusals: tuple[str, ...]  # of samples, with the reason
    doubt: str = ""  # why the time does not count, in words for a student


@dataclass(frozen=True)
class Honest:
    """What the judge's own runner shows under the same protocol."""

    constant_s: float
    second_s: float
    refill: Line  # over the number of calls

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Honest:
        return cls(
            constant_s=Line.through(samples).constant_s,
            second_s=statistics.median(sample.second_s for sample in samples),
            refill=Line.through([Sample(sample.calls, sample.refill_s, 0.0, 0.0) for sample in samples]),
        )

    def early(self, sample: Sample) -> float:
        """How much longer than the own runner's a sample's refill took, as a part of the sample's time.

        Work that the GPU has done for the submission meanwhile has taken it as long.
        """
        return (sample.refill_s - self.refill.constant_s - self.refill.slope_s * sample.calls) / sample.seconds

    def whole_s(self, sample: Sample) -> float:
        """Seconds that a call of this sample took, with its part in what came on top of an honest constant."""
        return (sample.seconds - self.constant_s) / sample.calls

    def least_s(self, sample: Sample) -> float:
        """Seconds that a call of this sample took at least, whatever happened in others."""
        return self.whole_s(sample) - MOST_CONSTANT_S / sample.calls


def timing(samples: Sequence[Sample], honest: Honest) -> Timing:
    """The time of a call by these samples; with a doubt where they do not lie on one line, or not on an honest one."""
    line, whole_s = Line.through(samples), statistics.median(map(honest.whole_s, _ends(samples)[1]))
    reasons = {number: _refusal(sample, line, honest) for number, sample in enumerate(samples)}
    refusals = tuple(reason for reason in reasons.values() if reason)
    kept = [sample for number, sample in enumerate(samples) if not reasons[number]]
    if len(refusals) > MOST_REFUSED * len(samples) or not all(_ends(kept, _middle(samples))):
        return _doubted(
            line, whole_s, refusals, f"{len(refusals)} of {len(samples)} samples were refused: {_most(refusals)}"
        )
    line, large = Line.through(kept), _ends(kept)[1]
    early = statistics.median(map(honest.early, large))
    if early > MOST_EARLIES:
        took = statistics.median(sample.seconds for sample in large) * early
        return _doubted(line, whole_s, refusals, f"{EARLY}: new arguments took {took * 1e6:.0f} µs longer to write")
    time_s = max(line.slope_s, statistics.median(map(honest.least_s, large)))
    return Timing(time_s, line.iqr_s, line.constant_s, line.samples, whole_s, refusals)


def has_moved(samples: Sequence[Sample]) -> bool:
    """Whether the baseline's own time changed while it was measured: then the other times are not comparable."""
    middle = len(samples) // 2
    first, second = (Line.through(half).slope_s for half in (samples[:middle], samples[middle:]))
    return abs(first - second) > MOST_MOVED * min(first, second)


def _refusal(sample: Sample, line: Line, honest: Honest) -> str:
    """Why a sample does not count; empty if it does."""
    if sample.second_s > honest.second_s + MOST_SECOND_S:
        return "the GPU still worked when the answer was said to be there"
    if honest.early(sample) > MOST_EARLY:
        return EARLY
    if line.residual(sample) > MOST_RESIDUAL:
        return "calls take other times in small samples than in large ones, or from sample to sample"
    return ""


def _doubted(line: Line, whole_s: float, refusals: tuple[str, ...], doubt: str) -> Timing:
    return Timing(line.slope_s, line.iqr_s, line.constant_s, line.samples - len(refusals), whole_s, refusals, doubt)


def _middle(samples: Sequence[Sample]) -> float:
    sizes = [sample.calls for sample in samples]
    return (min(sizes) + max(sizes)) / 2


def _ends(samples: Sequence[Sample], middle: float | None = None) -> tuple[list[Sample], list[Sample]]:
    """The small and the large samples."""
    middle = _middle(samples) if middle is None and samples else middle or 0.0
    small = [sample for sample in samples if sample.calls < middle]
    return small, [sample for sample in samples if sample.calls > middle]


def _most(reasons: Sequence[str]) -> str:
    return statistics.mode(reasons) if reasons else "too few are left"
