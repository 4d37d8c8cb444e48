"""Hidden checks of `sharded_optimizer`: other parameters and steps, the same kinds as in the public ones."""

import pytest

from grader.judge.optimization import Group, Optimization
from grader.judge.sharding import assert_optimizes, assert_sharded

ONE_LARGE = ((50, 40), (5, 5), (5,), (5, 5), (5,), (3,), (2, 9))
ALIKE = ((12, 12),) * 10
MOMENTUM = {"lr": 0.1, "momentum": 0.9}

EVERYTHING = [
    Optimization(
        ONE_LARGE, world=3, steps=6, groups=(Group((0, 3, 5), {"lr": 0.03}), Group((1, 2))),
        added=Group((4, 6), {"weight_decay": 0.2}), schedule={"step_size": 2, "gamma": 0.3}, missing=(2,),
    ),
    Optimization(
        ALIKE, world=4, steps=5, optimizer="SGD", options=MOMENTUM, schedule={"step_size": 1, "gamma": 0.9},
        averaged=True,
    ),
]  # fmt: skip
SHARES = [Optimization(ONE_LARGE, world=2, steps=1), Optimization(ALIKE, world=4, steps=1)]
RELOADED = [Optimization(ONE_LARGE, world=3, steps=5, reloaded=True, optimizer="SignMomentum", missing=(3,))]


@pytest.mark.parametrize("case", EVERYTHING, ids=str)
def test_everything_at_once(ranks, case):
    """Groups, a scheduler, an added group and missing gradients in one training."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", SHARES, ids=str)
def test_other_shares(ranks, case):
    """State on one rank each, by size, for other parameters."""
    assert_sharded(ranks, case)


@pytest.mark.parametrize("case", RELOADED, ids=str)
def test_other_state(ranks, case):
    """A share of another optimizer's state, saved and loaded."""
    assert_optimizes(ranks, case)
