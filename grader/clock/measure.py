"""One function's time, and that of its baseline, sample by sample in turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grader.clock.line import Honest, Line, Sample, Timing, has_moved, timing

SAMPLE_S = 0.020  # of a large sample's calls, where there are arguments for so many
SMALL, SPREAD = 1 / 4, 2  # a small sample, as a part of a large one; how much sizes vary at either end
SAMPLES, ALONE = 24, 12  # of each, and of a baseline before there is a submission; half of them small
LEAST_LARGE = 4 * (SPREAD + 1)
TRIES = 2  # where the baseline moves, or a time is in doubt
MOST_DRIFT = 0.04  # of the ratio
MOST_SLOWER = 1.05  # times its time alone, for a baseline beside the submission

Take = Callable[[int], Sample]  # one sample of so many calls
Draw = Callable[[int, int], int]  # a number that nobody can foresee, both ends included


@dataclass(frozen=True)
class Measured:
    """The time of a function beside that of its baseline."""

    theirs: Timing
    baseline: Timing
    alone_s: float  # the baseline's time before there was a submission
    moved: bool  # the baseline's time changed meanwhile, and the ratio of the two with it, also at the last try

    @property
    def ratio(self) -> float:
        """How much faster than its baseline the function is."""
        return self.baseline.time_s / self.theirs.time_s

    def uneven(self, after_s: float = 0.0) -> str:
        """Why nothing can be compared; empty if it can. `after_s`: the baseline's time alone afterwards, if known.

        A GPU that has become warm is slower for both, which their ratio does not show.
        """
        longer = self.baseline.time_s / max(self.alone_s, after_s) - 1
        if self.moved:
            return "a baseline's time moved, twice"
        if longer > MOST_SLOWER - 1:
            return f"a baseline took {longer:.0%} longer beside it than alone"
        return self.baseline.doubt


@dataclass(frozen=True)
class Sizes:
    """How many calls small and large samples have, at least and at most."""

    small: tuple[int, int]
    large: tuple[int, int]

    @classmethod
    def for_calls(cls, call_s: float, most: int) -> Sizes:
        """For calls of about this time, with arguments for no more than `most` of them."""
        large = min(most, max(math.ceil(SAMPLE_S / call_s), LEAST_LARGE))
        small = max(1, round(SMALL * large) - SPREAD // 2)
        return cls((small, small + SPREAD), (large - SPREAD, large))

    def drawn(self, samples: int, draw: Draw) -> list[int]:
        """Sizes of so many samples, as many small as large ones, in an order that nobody can foresee.

        Both halves of them have small and large ones, or they could not be compared.
        """
        sizes = [draw(*ends) for ends in (self.small, self.large) for _ in range(samples // 2)]
        for last in range(len(sizes) - 1, 0, -1):  # Fisher and Yates
            other = draw(0, last)
            sizes[last], sizes[other] = sizes[other], sizes[last]
        kinds = {size <= self.small[1] for size in sizes[: samples // 2]}
        return sizes if len(kinds) == 2 else self.drawn(samples, draw)


def alone(baseline: Take, most: int, draw: Draw, samples: int = ALONE) -> list[Sample]:
    """Samples of the baseline while there is no submission: what an honest runner shows."""
    return [baseline(calls) for calls in _sizes(baseline, most).drawn(samples, draw)]


def measure(
    theirs: Take, baseline: Take, before: Sequence[Sample], most: int, draw: Draw, samples: int = SAMPLES
) -> Measured:
    """Time both in turns, with sizes that nobody can foresee; `before` are the baseline's samples alone."""
    sizes, honest = {take: _sizes(take, most) for take in (theirs, baseline)}, Honest.of(before)
    for last in (number == TRIES - 1 for number in range(TRIES)):
        taken: dict[Take, list[Sample]] = {theirs: [], baseline: []}
        for pair in zip(*(sizes[take].drawn(samples, draw) for take in taken), strict=True):
            for take, calls in zip(taken, pair, strict=True):
                taken[take].append(take(calls))
        of_theirs, of_baseline = timing(taken[theirs], honest), timing(taken[baseline], honest)
        moved = has_moved(taken[baseline])
        if last or not (moved or of_theirs.doubt or of_baseline.doubt):
            break
    moved = moved and drift(taken[theirs], taken[baseline]) > MOST_DRIFT
    return Measured(of_theirs, of_baseline, Line.through(before).slope_s, moved)


def drift(theirs: Sequence[Sample], baseline: Sequence[Sample]) -> float:
    """By how much the ratio of the two differs between the halves of their samples."""
    halves = [(samples[: len(samples) // 2], samples[len(samples) // 2 :]) for samples in (theirs, baseline)]
    first, second = (Line.through(b).slope_s / Line.through(a).slope_s for a, b in zip(*halves, strict=True))
    return abs(first / second - 1)


def _sizes(take: Take, most: int) -> Sizes:
    """For calls of the time that a few samples show."""
    few = max(2, most // 8)
    samples = [take(calls) for calls in (few, most, few, most)]
    return Sizes.for_calls(max(Line.through(samples).slope_s, 1e-6), most)
