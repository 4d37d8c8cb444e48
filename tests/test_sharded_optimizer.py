"""Public checks of `sharded_optimizer`: one to four ranks, compared with the optimizer itself on one.

Unless a case says otherwise, all ranks have the same parameters and the same gradients.
"""

import sys

import pytest

from grader.judge.optimization import Group, Optimization
from grader.judge.sharding import (
    assert_holds_its_share,
    assert_optimizes,
    assert_saves_its_share,
    assert_sends_once,
    assert_sharded,
)

NETWORK = ((24, 16), (24,), (8, 24), (8,))  # two layers
WIDE = ((96, 64), (96,), (32, 96), (32,))  # whose state is most of a file
MANY = ((40, 30), (30,), (30, 20), (20,), (20, 20), (20,), (20, 10), (10,), (7,))
TWO_GROUPS = (Group((0, 2), {"lr": 0.02, "weight_decay": 0.3}), Group((1, 3), {"lr": 0.005, "weight_decay": 0.0}))
MOMENTUM = {"lr": 0.1, "momentum": 0.9}

STEPS = [
    *(Optimization(NETWORK, world=world) for world in (1, 2, 3)),
    Optimization(NETWORK, generator=True, note="parameters from a generator"),
]
OPTIMIZERS = [
    Optimization(NETWORK, optimizer="SGD", options=MOMENTUM),
    Optimization(NETWORK, optimizer="SignMomentum", world=3, note="an optimizer of the grader's own"),
]
GROUPS = [Optimization(NETWORK, groups=TWO_GROUPS), Optimization(NETWORK, groups=TWO_GROUPS, optimizer="SGD", world=3)]
ADDED = [
    Optimization(NETWORK, groups=(Group((0, 1)),), added=Group((2, 3), {"lr": 0.05})),
    Optimization(NETWORK, groups=(Group((0, 1)),), added=Group((2, 3)), optimizer="SGD", options=MOMENTUM, world=3),
]
SCHEDULES = [
    Optimization(NETWORK, schedule={"step_size": 1, "gamma": 0.5}, steps=5),
    Optimization(NETWORK, schedule={"step_size": 2, "gamma": 0.1}, groups=TWO_GROUPS, steps=5),
]
CLOSURES = [Optimization(NETWORK, closure=True), Optimization(NETWORK, closure=True, world=3, optimizer="SGD")]
FEW = [Optimization(((5, 4),), world=3), Optimization(((5, 4), (4,)), world=4, optimizer="SGD", options=MOMENTUM)]
SHARDED = [Optimization(MANY, world=world, steps=1) for world in (2, 3)]
RELOADED = [
    Optimization(WIDE, reloaded=True, steps=5, note="saved and loaded after step 2"),
    Optimization(WIDE, reloaded=True, steps=5, optimizer="SGD", options=MOMENTUM, world=3, note="saved and loaded"),
]
MISSING = [Optimization(NETWORK, missing=(1,), note="one has no gradient")]
SUBGROUPS = [Optimization(NETWORK, world=3, group=(1, 2))]
AVERAGED = [Optimization(NETWORK, averaged=True, world=3, steps=4, note="the mean of each rank's own gradients")]


@pytest.mark.parametrize("case", [*STEPS, *OPTIMIZERS], ids=str)
def test_steps(ranks, case):
    """After each step every rank has the parameters that the optimizer itself would give."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", SHARDED, ids=str)
def test_shares(ranks, case):
    """Each parameter's state is on one rank, and no rank has much more than another."""
    assert_sharded(ranks, case)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: a process's memory is looked at in /proc")
def test_memory(ranks):
    """A rank's memory holds its share of the state, and no more."""
    assert_holds_its_share(ranks, world=4)


def test_traffic(ranks):
    """A step sends each parameter about once."""
    assert_sends_once(ranks, Optimization(MANY, world=4))


@pytest.mark.parametrize("case", GROUPS, ids=str)
def test_groups(ranks, case):
    """Parameter groups with learning rates and decays of their own."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", ADDED, ids=str)
def test_added_group(ranks, case):
    """add_param_group after the first step."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", SCHEDULES, ids=str)
def test_scheduler(ranks, case):
    """A learning-rate scheduler on it is obeyed."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", CLOSURES, ids=str)
def test_closure(ranks, case):
    """step(closure) calls the closure once, and returns its loss."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", FEW, ids=str)
def test_few_parameters(ranks, case):
    """Fewer parameters than ranks: some shares are empty."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", RELOADED, ids=str)
def test_state_dict(ranks, case):
    """Each rank saves its share only, and another optimizer that loads it goes on as if nothing had been."""
    assert_optimizes(ranks, case)
    assert_saves_its_share(ranks, case)


@pytest.mark.parametrize("case", MISSING, ids=str)
def test_missing_gradients(ranks, case):
    """A parameter without a gradient is left alone."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", SUBGROUPS, ids=str)
def test_process_group(ranks, case):
    """In a group of some of the ranks: an owner is a rank of the group."""
    assert_optimizes(ranks, case)


@pytest.mark.parametrize("case", AVERAGED, ids=str)
def test_averaged_gradients(ranks, case):
    """Together with averaged gradients: each rank has data of its own, and all end with the same weights."""
    assert_optimizes(ranks, case)
