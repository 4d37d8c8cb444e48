"""Hidden checks of `softmax`: other numbers, the same kinds as in the public ones."""

import pytest
import torch

from grader.judge.cases import Input, Values, every_other, expanded, normal, permuted, row_pitch, shifted
from grader.judge.compare import assert_matches
from grader.judge.reference import softmax as reference


def scale_per_row(shape, generator):
    """Rows whose standard deviation runs from 0.1 to 15, around -150 and 150 in turn.

    So every row has a neighbour whose maximum makes exp(x - maximum) 0 throughout.
    """
    scales = torch.linspace(0.1, 15, shape[0])[:, None]
    centres = 300.0 * (torch.arange(shape[0]) % 2)[:, None] - 150
    return centres + scales * torch.randn(shape, generator=generator)


def one_constant_per_row(shape, generator):
    """Rows of equal logits: each output is one over the number of columns."""
    return torch.randn((shape[0], 1), generator=generator).expand(shape).clone()


def scattered_minus_infinity(shape, generator):
    """Half the logits are -inf at random places, and the first quarter of each row is; one row is -inf throughout."""
    logits = torch.randn(shape, generator=generator)
    logits[torch.rand(shape, generator=generator) < 0.5] = -float("inf")
    logits[..., : shape[-1] // 4] = -float("inf")
    logits[..., -1] = 0.5
    logits[0] = -float("inf")
    return logits


SCALES = Values("each row of its own scale, 0.1 to 15, and far from its neighbours", scale_per_row)
CONSTANT = Values("all logits of a row equal", one_constant_per_row)
SCATTERED = Values("-inf at random places", scattered_minus_infinity)

HALF_SUMS = [
    Input((3, 4096), torch.float16, values=CONSTANT),
    Input((4, 4096), torch.float16, values=SCALES),
    Input((2, 16_384), torch.float16, values=normal(0.5)),
]
OTHER_LAYOUTS = [
    Input((11, 77), layout=row_pitch(131)),
    Input((11, 77), layout=every_other(-1)),
    Input((77, 11), layout=permuted(1, 0)),
    Input((9, 77), layout=expanded(0)),
    Input((3, 5, 4, 21), layout=permuted(2, 0, 3, 1)),
    Input((4, 9, 33), layout=every_other(1)),
    Input((11, 77), torch.float16, layout=shifted(1)),
    Input((4, 5, 33), torch.float16, layout=permuted(1, 2, 0)),
]
OTHER_ROWS = [Input((rows, n)) for rows, n in ((1, 2), (9, 63), (3, 129), (2, 2049), (1, 9001), (1, 70_001), (150, 5))]
OTHER_GRADIENTS = [
    (Input((3, 129)), Input((3, 129), layout=permuted(1, 0))),
    (Input((1, 9001)), Input((1, 9001))),
    (Input((2, 70_001)), Input((2, 70_001))),
    (Input((4, 5, 33), layout=permuted(2, 1, 0)), Input((4, 5, 33), layout=permuted(1, 0, 2))),
    (Input((11, 77), layout=row_pitch(100)), Input((11, 77), layout=expanded(0))),
    (Input((12, 500), torch.float16), Input((12, 500), torch.float16, layout=row_pitch(700))),
]


@pytest.mark.parametrize("case", [Input((24, 500), values=SCALES), Input((6, 3000), values=SCALES)], ids=str)
def test_mixed_scales(submission, draw, case):
    """Rows of different scale in one input."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", HALF_SUMS, ids=str)
def test_half_sums(submission, draw, case):
    """Long float16 rows, summed in float32."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", OTHER_LAYOUTS, ids=str)
def test_other_layouts(submission, draw, case):
    """Layouts and dimensions of every promised kind."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", [Input((5, 333), values=SCATTERED), Input((3, 9000), values=SCATTERED)], ids=str)
def test_random_minus_infinity(submission, draw, case):
    """-inf at random places, in whole blocks and in a whole row."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", OTHER_ROWS, ids=str)
def test_other_rows(submission, draw, case):
    """Row lengths of every promised kind."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", OTHER_GRADIENTS, ids=lambda case: f"{case[0]}; incoming gradient {case[1]}")
def test_other_gradients(submission, draw, case):
    """Gradients in layouts and lengths of every promised kind."""
    x, dy = draw(case[0]), draw(case[1])
    _, dx = submission.softmax.backward(x, gradient=dy)
    assert_matches(dx, reference.gradient(x, dy))
