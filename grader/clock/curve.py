"""What a speed is worth: a part of a check's points, from the ratio of the baseline's time to the submission's.

The curve is linear in the logarithm of the ratio, so that twice as fast earns the same wherever one starts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """Ratios of the baseline's time to the submission's, between which points grow. Refuses, with `ValueError`, others.

    >>> Threshold(none=0.5, full=0.9)
    Traceback (most recent call last):
    ValueError: full is 0.9, and must be 1 or more: twice as much as none, or the clock's noise decides
    """

    none: float  # the highest ratio that earns nothing
    full: float  # the lowest that earns all

    def __post_init__(self) -> None:
        if not 0 < self.none < math.inf:
            raise ValueError(f"none is {self.none:g}, and must be a number above 0")
        if not 2 * self.none <= self.full < math.inf:
            least = f"{2 * self.none:g} or more: twice as much as none, or the clock's noise decides"
            raise ValueError(f"full is {self.full:g}, and must be {least}")


def share(ratio: float, threshold: Threshold) -> float:
    """The part of the points, from 0 to 1, that a ratio above 0 earns; to nine digits, so that half is 0.5.

    >>> quarter = Threshold(none=0.25, full=1.0)
    >>> [share(ratio, quarter) for ratio in (0.1, 0.25, 0.5, 1.0, 3.0)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    """
    grown = math.log(ratio / threshold.none) / math.log(threshold.full / threshold.none)
    return round(min(max(grown, 0.0), 1.0), 9)
