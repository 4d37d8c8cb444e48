"""What a speed is worth: the curve, points to the hundredth, the checks it needs, the floor. No GPU and no clock."""

import doctest
import math

import pytest

from grader.clock import curve
from grader.clock.curve import Threshold, share

TENTH = Threshold(none=0.1, full=10.0)  # two decades: a factor of ten is half


def test_the_examples_in_the_curves_docstrings_hold():
    tried = doctest.testmod(curve)
    assert (tried.failed, tried.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("ratio", "part"), [(0.001, 0), (0.1, 0), (1.0, 0.5), (math.sqrt(0.1), 0.25), (10.0, 1), (10.1, 1), (1e9, 1)]
)
def test_points_grow_with_the_logarithm_between_none_and_full(ratio, part):
    assert share(ratio, TENTH) == part


@pytest.mark.parametrize(("none", "full"), [(0.4, 0.85), (0.35, 0.8), (0.45, 1.0), (0.3, 0.7), (0.07, 1.9)])
def test_the_geometric_mean_of_none_and_full_earns_exactly_half(none, full):
    assert share(math.sqrt(none * full), Threshold(none, full)) == 0.5


@pytest.mark.parametrize(
    ("none", "full"), [(0.4, 0.79), (0.4, 0.4), (0.8, 0.4), (0, 1), (-1, 1), (math.nan, 1), (1, math.inf)]
)
def test_thresholds_that_leave_no_room_between_them_cannot_be_made(none, full):
    with pytest.raises(ValueError, match="must be"):
        Threshold(none, full)
