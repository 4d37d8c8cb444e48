"""Hidden checks of `matmul`: other numbers, the same kinds as in the public ones."""

import pytest
import torch

from grader.judge.cases import Matrices, every_other, expanded, normal, permuted, row_pitch, shifted
from grader.judge.compare import assert_matches
from grader.judge.reference import matmul as reference

TRANSPOSED = permuted(1, 0)


OTHER_SIZES = [
    Matrices(33, 129, 70), Matrices(1, 200, 65), Matrices(200, 1, 31), Matrices(129, 130, 5), Matrices(2, 3, 2000),
    Matrices(45, 77, 131, torch.float16), Matrices(112, 232, 40, torch.float16),
]  # fmt: skip
STEPS_AND_A_REST = [Matrices(40, 40, k) for k in (33, 65, 97, 129, 193, 257, 385, 513, 769)]
OTHER_LAYOUTS = [
    Matrices(77, 45, 60, a_layout=TRANSPOSED, b_layout=row_pitch(70)),
    Matrices(77, 45, 60, a_layout=every_other(0), b_layout=TRANSPOSED),
    Matrices(77, 45, 60, a_layout=row_pitch(61), b_layout=every_other(-1)),
    Matrices(77, 45, 60, a_layout=shifted(1), b_layout=expanded(0)),
    Matrices(80, 48, 64, torch.float16, row_pitch(80), TRANSPOSED),
    Matrices(80, 48, 64, torch.float16, TRANSPOSED, TRANSPOSED),
    Matrices(77, 45, 60, torch.float16, row_pitch(61), shifted(1)),
]
HALF_SUMS = [Matrices(48, 48, 2048, torch.float16), Matrices(32, 32, 1500, torch.float16, TRANSPOSED, TRANSPOSED)]
OTHER_ACTIVATIONS = [
    ("relu", Matrices(33, 90, 300)),
    ("gelu", Matrices(33, 90, 300, b_values=normal(0.05))),
    ("gelu", Matrices(80, 80, 264, torch.float16, b_values=normal(0.05))),
    ("gelu", Matrices(20, 30, 40, b_values=normal(10.0))),
]
EMPTY = [("relu", Matrices(0, 17, 5)), ("gelu", Matrices(6, 7, 0)), ("relu", Matrices(6, 7, 1))]


@pytest.mark.parametrize("case", OTHER_SIZES, ids=str)
def test_other_sizes(submission, draw, case):
    """Sizes of every promised kind."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", STEPS_AND_A_REST, ids=str)
def test_steps_and_a_rest(submission, draw, case):
    """k of two and more steps, and one element over."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", OTHER_LAYOUTS, ids=str)
def test_other_layouts(submission, draw, case):
    """Layouts of every promised kind."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", HALF_SUMS, ids=str)
def test_half_sums(submission, draw, case):
    """Long sums of float16 products, kept in float32."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize(
    ("activation", "case"), OTHER_ACTIVATIONS, ids=["; ".join(map(str, row)) for row in OTHER_ACTIVATIONS]
)
def test_other_activations(submission, draw, activation, case):
    """Activations at other sizes and scales."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b, activation=activation), reference.matmul(a, b, activation))


@pytest.mark.parametrize(("activation", "case"), EMPTY, ids=["; ".join(map(str, row)) for row in EMPTY])
def test_empty_activations(submission, draw, activation, case):
    """An activation of nothing, and of single products."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b, activation=activation), reference.matmul(a, b, activation))
