"""Public checks of `ddp`: one to four ranks, each with its own weights at first and its own batches.

Every rank is compared after every step with one process that has all batches.
"""

import pytest

from grader.judge.distributed import assert_overlaps, assert_sent
from grader.judge.training import Plan, Training, batch_norm, gate, linear, tanh

MLP = Plan("two layers", (linear("first", 12, 16), tanh("bend"), linear("last", 16, 8)))
SINGLE = Plan("one layer without a bias", (linear("only", 12, 8, bias=False),))
FROZEN = Plan("two layers, one bias and one weight frozen", MLP.layers, frozen=("first.bias", "last.weight"))
NORMED = Plan(
    "two layers with a batch norm between",
    (linear("first", 12, 16, bias=False), batch_norm("norm", 16), linear("last", 16, 8)),
)
TIED = Plan(
    "four layers, the third tied to the first",
    (
        linear("first", 12, 16), tanh("bend"), linear("second", 16, 12), tanh("turn"), linear("third", 12, 16),
        linear("last", 16, 8),
    ),
    tied=(("third.weight", "first.weight"),),
)  # fmt: skip
STRIDED = Plan(
    "two layers, the first weight a transposed matrix",
    (linear("first", 12, 16, transposed=True), tanh("bend"), linear("last", 16, 8)),
)
FORKED = Plan(
    "a network with a left and a right branch",
    (linear("first", 12, 16), tanh("bend"), linear("left", 16, 16), linear("right", 16, 16), linear("last", 16, 8)),
)
LEFT, RIGHT = ("first", "bend", "left", "last"), ("first", "bend", "right", "last")
NEITHER = ("first", "bend", "last")
LAYERED = Plan(
    "eight layers",
    (
        linear("first", 12, 16),
        *(layer for n in range(6) for layer in (tanh(f"bend{n}"), linear(f"layer{n}", 16, 16))),
        linear("last", 16, 8),
    ),
)
MIXED = Plan(
    "three layers, the second in bfloat16",
    (linear("first", 12, 16), linear("second", 16, 16, dtype="bfloat16"), linear("last", 16, 8)),
)

# Eight equal layers; the gradients of a layer exist once the gate behind it has opened, the last one's first.
GATED = Plan(
    "eight layers of 16 KiB",
    tuple(layer for n in range(8) for layer in (linear(f"layer{n}", 64, 64, bias=False), gate(n))),
)

START = [
    Training(FROZEN, world=1, steps=0), Training(FROZEN, world=2, steps=0), Training(TIED, world=3, steps=0),
    Training(NORMED, world=2, steps=0, note="its statistics are buffers"),
]  # fmt: skip
MEANS = [*(Training(MLP, world=world) for world in (1, 2, 3)), Training(SINGLE)]
UNEQUAL = Training(MLP, world=2, rows=(3, 8), note="each rank another number of rows")
UNUSED = [
    Training(FORKED, world=2, routes=((LEFT,),), note="all go left"),
    Training(FORKED, world=2, routes=((LEFT, RIGHT),), note="one goes left, one right"),
    Training(FORKED, world=3, routes=((NEITHER, NEITHER, RIGHT),), note="only the last one goes right"),
]
BRANCHES = [
    Training(FORKED, world=2, routes=((LEFT, RIGHT),), bucket_bytes=600, note="one goes left, one right"),
    Training(
        FORKED, world=3, routes=((LEFT, RIGHT), (RIGHT, NEITHER)), steps=2, bucket_bytes=600, note="each its own way"
    ),
]
STEPS = [Training(MLP, world=2, steps=5), Training(LAYERED, world=3, steps=5, bucket_bytes=2000)]
BUCKETS = [
    Training(LAYERED, world=2, steps=2, bucket_bytes=1, note="less than any parameter"),
    Training(LAYERED, world=2, steps=2, bucket_bytes=1500, note="the last bucket is not full"),
    Training(LAYERED, world=2, steps=2, bucket_bytes=10**9, note="more than the whole network"),
]
NO_SYNC = [
    Training(MLP, world=2, steps=2, backwards=3),
    Training(MLP, world=3, steps=2, backwards=2),
    Training(
        FORKED, world=2, backwards=2, local_route=LEFT, routes=((RIGHT,),), note="left in no_sync(), right outside"
    ),
]
WRAPPED = [
    Training(NORMED, world=2, begins_with="evaluate", note="in evaluation mode first"),
    Training(MLP, world=2, form="dict", note="the output in a dict"),
    Training(MLP, world=2, begins_with="load", note="weights loaded by their names, `module.first.weight` and so on"),
]
GROUPS = [Training(MLP, world=3, group=(1, 2), steps=2)]
KINDS = [Training(FROZEN), Training(MIXED)]
SMALL_GROUPS = [Training(FROZEN, world=3, group=(1, 2), steps=0)]


def by(function, cases):
    """The same trainings with another function of the ladder."""
    return [case.by(function) for case in cases]


@pytest.mark.parametrize("case", by("broadcast_module", [*START, *SMALL_GROUPS, Training(STRIDED, steps=0)]), ids=str)
def test_broadcast(ranks, case):
    """broadcast_module gives all ranks the parameters and the buffers of the first, frozen ones too."""
    ranks.train(case)


@pytest.mark.parametrize("case", by("all_reduce_gradients", [*MEANS, *GROUPS]), ids=str)
def test_naive_mean(ranks, case):
    """all_reduce_gradients leaves the mean of the gradients on every rank."""
    ranks.train(case)


@pytest.mark.parametrize("case", by("all_reduce_gradients", UNUSED), ids=str)
def test_naive_unused(ranks, case):
    """all_reduce_gradients: unused on all ranks stays None, unused on some counts as zero."""
    ranks.train(case)


@pytest.mark.parametrize("case", by("all_reduce_gradients_flat", [*MEANS, *GROUPS, *KINDS]), ids=str)
def test_flat_mean(ranks, case):
    """all_reduce_gradients_flat leaves the mean of the gradients on every rank."""
    ranks.train(case)


@pytest.mark.parametrize("case", by("all_reduce_gradients_flat", UNUSED), ids=str)
def test_flat_unused(ranks, case):
    """all_reduce_gradients_flat: unused on all ranks stays None, unused on some counts as zero."""
    ranks.train(case)


@pytest.mark.parametrize("case", by("all_reduce_gradients_flat", [Training(LAYERED)]), ids=str)
def test_flat_traffic(ranks, case):
    """all_reduce_gradients_flat sends all gradients at once, and each of them once."""
    assert_sent(ranks.traffic(case), case.plan, most_collectives=4)


@pytest.mark.parametrize("case", START, ids=str)
def test_start(ranks, case):
    """DDP gives all ranks the parameters and the buffers of the first, frozen ones too."""
    ranks.train(case)


@pytest.mark.parametrize("case", [*MEANS, UNEQUAL, Training(FROZEN), Training(TIED, world=2, steps=2)], ids=str)
def test_mean(ranks, case):
    """DDP leaves the mean of the gradients on every rank."""
    ranks.train(case)


@pytest.mark.parametrize("case", STEPS, ids=str)
def test_steps(ranks, case):
    """DDP does so in every one of several steps."""
    ranks.train(case)


@pytest.mark.parametrize("case", BUCKETS, ids=str)
def test_buckets(ranks, case):
    """DDP with buckets of any size: smaller than a parameter, larger than the network, the last one not full."""
    ranks.train(case)


def test_bucket_traffic(ranks):
    """DDP sends gradients in buckets of up to bucket_bytes, each of them once."""
    case = Training(LAYERED, bucket_bytes=2500)
    assert_sent(ranks.traffic(case), case.plan, most_collectives=12, largest=2500)


@pytest.mark.parametrize("case", [*UNUSED, *BRANCHES], ids=str)
def test_unused(ranks, case):
    """DDP: unused on all ranks stays None, unused on some counts as zero, and nobody waits for ever."""
    ranks.train(case)


@pytest.mark.parametrize("case", NO_SYNC, ids=str)
def test_no_sync(ranks, case):
    """Backwards in no_sync() add up locally; the next one outside sends their sum."""
    ranks.train(case)


@pytest.mark.parametrize("case", [Training(MLP, backwards=4), Training(FROZEN), Training(TIED)], ids=str)
def test_traffic(ranks, case):
    """DDP sends each gradient once in a step: a tied one once, none of a frozen parameter, nothing in no_sync()."""
    assert_sent(ranks.traffic(case), case.plan)


@pytest.mark.parametrize("case", [Training(MIXED), Training(MIXED, world=3, bucket_bytes=600)], ids=str)
def test_mixed_dtypes(ranks, case):
    """DDP with parameters of float32 and bfloat16: a gradient has the dtype of its parameter."""
    ranks.train(case)


@pytest.mark.parametrize("case", WRAPPED, ids=str)
def test_wrapped_module(ranks, case):
    """DDP is a module around the module: arguments, outputs, names of parameters, train() and eval() pass through."""
    ranks.train(case)


@pytest.mark.parametrize("case", GROUPS, ids=str)
def test_process_group(ranks, case):
    """DDP in a group of some of the ranks: the first one of the group is where weights come from."""
    ranks.train(case)


def test_overlap(ranks):
    """DDP sends the gradients of the last layers while the backward of the first ones goes on."""
    case = Training(GATED, bucket_bytes=64 * 64 * 4)
    assert_overlaps(ranks.overlap(case), case.plan)
