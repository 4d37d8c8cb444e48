"""One function's time, and that of its baseline, sample by sample in turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from grader.clock.line import Honest, Line, Sample, Timing, has_moved, timing

SAMPLE_S = 0.020  # of a large sample's calls, where there are arguments for so many
SMALL, SPREAD = 1 / 4, 2  # a small sample, as a part of a large one; how much sizes vary at either end
SAMPLES = 24  # of each
LEAST_LARGE = 4 * (SPREAD + 1)
TRIES = 2  # where the baseline moves

Take = Callable[[int], Sample]  # one sample of so many calls
Draw = Callable[[int, int], int]  # a number that nobody can foresee, both ends included


@dataclass(frozen=True)
class Measured:
    """The time of a function beside that of its baseline."""

    theirs: Timing
    baseline: Timing
    moved: bool  # the baseline's time changed meanwhile, also at the last try: compare nothing

    @property
    def ratio(self) -> float:
        """How much faster than its baseline the function is."""
        return self.baseline.time_s / self.theirs.time_s


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


def measure(theirs: Take, baseline: Take, most: int, draw: Draw) -> Measured:
    """Time both in turns, with sizes that nobody can foresee. What warms up has happened before."""
    sizes = {take: Sizes.for_calls(_about(take, most), most) for take in (theirs, baseline)}
    for last in (number == TRIES - 1 for number in range(TRIES)):
        taken: dict[Take, list[Sample]] = {theirs: [], baseline: []}
        for _ in range(SAMPLES):
            for take, samples in taken.items():
                ends = (sizes[take].small, sizes[take].large)
                samples.append(take(draw(*ends[draw(0, 1)])))
        moved = has_moved(taken[baseline])
        if not moved or last:
            break
    honest = Honest.of(taken[baseline])
    return Measured(timing(taken[theirs], honest), timing(taken[baseline], honest), moved)


def _about(take: Take, most: int) -> float:
    """Seconds that a call takes, roughly."""
    few = max(2, most // 8)
    samples = [take(calls) for calls in (few, most, few, most)]
    return max(Line.through(samples).slope_s, 1e-6)
