"""Hidden checks of `ddp`: other networks, batches and ranks, the same kinds as in the public ones."""

import pytest

from grader.judge.distributed import assert_overlaps, assert_sent
from grader.judge.training import Plan, Training, batch_norm, gate, linear, tanh

MLP = Plan("two layers", (linear("first", 12, 16), tanh("bend"), linear("last", 16, 8)))
EVERYTHING = Plan(
    "a network with branches, buffers, tied and frozen parameters",
    (
        linear("first", 10, 20), tanh("bend"), linear("left", 20, 20), linear("right", 20, 20, bias=False),
        batch_norm("norm", 20), linear("back", 20, 10), tanh("turn"), linear("again", 10, 20), linear("last", 20, 6),
    ),
    tied=(("again.weight", "first.weight"),),
    frozen=("left.bias", "last.bias"),
)  # fmt: skip
START, END = ("first", "bend"), ("norm", "back", "turn", "again", "last")
LEFT, RIGHT = (*START, "left", *END), (*START, "right", *END)
BOTH, NEITHER, SHORT = (*START, "left", "right", *END), (*START, *END), ("first", "bend", "last")
TURNS = ((LEFT, RIGHT, BOTH), (NEITHER, NEITHER, NEITHER), (SHORT, LEFT, NEITHER), (RIGHT,))

UNEVEN = Plan(
    "five layers of several sizes",
    (
        linear("first", 24, 64), gate(0), linear("second", 64, 64), gate(1), linear("third", 64, 48), gate(2),
        linear("fourth", 48, 64), gate(3), linear("fifth", 64, 40), gate(4),
    ),
)  # fmt: skip

BATCHES = [
    Training(MLP, world=3, rows=(2, 5, 9), note="each rank another number of rows"),
    Training(MLP, world=2, rows=(1, 7), steps=3, note="each rank another number of rows"),
]
TOGETHER = [
    Training(
        EVERYTHING,
        rows=(16, 20),
        world=3,
        steps=4,
        routes=TURNS,
        bucket_bytes=900,
        note="each rank its own way in each step",
    ),
    Training(EVERYTHING, rows=(16, 20), world=4, steps=3, routes=TURNS, form="tuple", begins_with="evaluate"),
    Training(EVERYTHING, rows=(16, 20), world=3, group=(0, 2), steps=2, bucket_bytes=1, begins_with="load"),
]
ACCUMULATED = [
    Training(
        EVERYTHING,
        rows=(16, 20),
        world=2,
        steps=2,
        backwards=3,
        routes=((LEFT, BOTH), (RIGHT, NEITHER)),
        bucket_bytes=900,
    ),
    Training(MLP, world=4, steps=3, backwards=2, rows=(3, 4)),
]
BY_FUNCTION = [
    Training(EVERYTHING, rows=(16, 20), world=3, steps=3, routes=TURNS, function=function)
    for function in ("all_reduce_gradients", "all_reduce_gradients_flat")
]


@pytest.mark.parametrize("case", BATCHES, ids=str)
def test_batch_sizes(ranks, case):
    """Batches of different sizes: the mean of the ranks' means."""
    ranks.train(case)


@pytest.mark.parametrize("case", TOGETHER, ids=str)
def test_everything_at_once(ranks, case):
    """DDP with branches, buffers, tied and frozen parameters in one network."""
    ranks.train(case)


@pytest.mark.parametrize("case", ACCUMULATED, ids=str)
def test_accumulated_gradients(ranks, case):
    """no_sync() where ranks use different parameters, in several steps."""
    ranks.train(case)


@pytest.mark.parametrize("case", BY_FUNCTION, ids=str)
def test_after_the_backward(ranks, case):
    """all_reduce_gradients and all_reduce_gradients_flat on a network with branches, tied and frozen parameters."""
    ranks.train(case)


@pytest.mark.parametrize(
    "case", [Training(EVERYTHING, rows=(16, 20), world=3, bucket_bytes=2000, backwards=2)], ids=str
)
def test_other_traffic(ranks, case):
    """Traffic of one step: the trainable gradients, once."""
    assert_sent(ranks.traffic(case), case.plan, most_collectives=14, largest=2000)


@pytest.mark.parametrize("case", [Training(UNEVEN, world=3, bucket_bytes=13_000)], ids=str)
def test_other_overlap(ranks, case):
    """Overlap in a network whose layers have different sizes."""
    assert_overlaps(ranks.overlap(case), case.plan)
