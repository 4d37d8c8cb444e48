"""Hidden checks of `ddp`: other networks and batches, the same kinds as in the public ones."""

import pytest

from grader.judge.training import Plan, Training, linear, tanh

MLP = Plan("a network of two layers", (linear("first", 12, 16), tanh("activation"), linear("last", 16, 8)))


@pytest.mark.parametrize(
    "case", [Training(MLP, world=3, rows=(2, 5, 9), note="each rank another number of rows")], ids=str
)
def test_batch_sizes(ranks, case):
    """Batches of different sizes: the mean of the ranks' means."""
    ranks.train(case)
