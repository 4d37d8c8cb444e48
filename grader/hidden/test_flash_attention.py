"""Hidden checks of `flash_attention`: other numbers, the same kinds as in the public ones."""

import pytest
import torch

from grader.judge.cases import Heads, drifting, every_other, expanded, normal, permuted, row_pitch
from grader.judge.compare import assert_matches
from grader.judge.reference import flash_attention as reference

FLOAT16 = torch.float16
HEADS_INSIDE = permuted(0, 2, 1, 3)

OTHER_SIZES = [Heads(33, 65), Heads(130, 31, 16), Heads(1, 129, 32), Heads(257, 17, 16), Heads(90, 300, 96)]
OTHER_CAUSAL = [
    Heads(n_q, n_k, 32, is_causal=True) for n_q, n_k in ((33, 200), (200, 33), (129, 129), (1, 50), (97, 96))
]
OTHER_LAYOUTS = [
    Heads(45, 33, 40, leading=(3, 2), layout=HEADS_INSIDE, do_layout=permuted(0, 2, 1, 3), is_causal=True),
    Heads(45, 33, 40, leading=(2,), layout=row_pitch(77), do_layout=expanded(1)),
    Heads(45, 33, 24, leading=(2, 1, 2), do_layout=row_pitch(50), o_layout=row_pitch(31)),
    Heads(45, 133, 200, leading=(), lse_layout=every_other(-1)),
    Heads(45, 33, 24, leading=(3,), layout=expanded(0), dtype=FLOAT16),
]
OTHER_SCORES = [
    Heads(60, 90, 20, scale=1.5),
    Heads(60, 90, 64, scale=0.0),
    Heads(90, 60, 64, q_values=normal(20.0, 3.0), is_causal=True),
    Heads(60, 500, 16, q_values=normal(0.1, -1.0), k_values=drifting(30.0)),
    Heads(60, 77, 32, q_values=normal(0.1, 1.0), k_values=normal(1.0, -20.0)),
]
OTHER_TILED = [
    Heads(33, 65, 200),
    Heads(130, 31, 5, leading=()),
    Heads(45, 33, 40, leading=(3, 2), layout=HEADS_INSIDE, is_causal=True),
    Heads(45, 133, 24, leading=(2, 1, 2), layout=row_pitch(77), v_layout=row_pitch(25), scale=-0.3),
    Heads(45, 33, 24, leading=(3,), layout=expanded(0), dtype=FLOAT16),
]
OTHER_KEY_HEADS = [
    Heads(40, 50, 24, leading=(2, 6), key_leading=(2, 2), layout=HEADS_INSIDE, do_layout=HEADS_INSIDE, scale=0.3),
    Heads(100, 120, 64, leading=(4,), key_leading=(2,), dtype=FLOAT16),
]
HALF_SUMS = [Heads(48, 1500, 64, dtype=FLOAT16), Heads(48, 700, 96, dtype=FLOAT16, is_causal=True)]
HALF_GRADIENTS = [Heads(300, 400, 64, dtype=FLOAT16), Heads(130, 60, 80, dtype=FLOAT16, is_causal=True)]


def inputs(draw, case):
    """q, k and v."""
    return draw(case.q, "q"), draw(case.k, "k"), draw(case.v, "v")


def check_forward(function, draw, case):
    """o and lse."""
    q, k, v = inputs(draw, case)
    o, lse = function.values(("o", "lse"), q, k, v, **case.options)
    assert_matches(o, reference.output(q, k, v, **case.options))
    assert_matches(lse, reference.log_sum_exp(q, k, v, **case.options))


def check_backward(submission, draw, case):
    """dq, dk and dv of the kernels."""
    q, k, v = inputs(draw, case)
    do = draw(case.do, "do")
    right = reference.output(q, k, v, **case.options), reference.log_sum_exp(q, k, v, **case.options)
    placed = zip(right, ("o", "lse"), (case.o_layout, case.lse_layout), strict=True)
    o, lse = (draw(expected.values.to(expected.dtype), name, layout) for expected, name, layout in placed)
    got = submission.flash_attention_backward.values(("dq", "dk", "dv"), do, q, k, v, o, lse, **case.options)
    for result, expected in zip(got, reference.gradients(do, q, k, v, **case.options), strict=True):
        assert_matches(result, expected)


@pytest.mark.parametrize("case", OTHER_TILED, ids=str)
def test_other_tiled(submission, draw, case):
    """attention_tiled with other sizes, layouts and scales."""
    check_forward(submission.attention_tiled, draw, case)


@pytest.mark.parametrize("case", [*OTHER_SIZES, *OTHER_CAUSAL], ids=str)
def test_other_sizes(submission, draw, case):
    """The forward at other sizes."""
    check_forward(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", [*OTHER_LAYOUTS, *OTHER_SCORES], ids=str)
def test_other_inputs(submission, draw, case):
    """The forward with other layouts and scores."""
    check_forward(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", HALF_SUMS, ids=str)
def test_half_sums(submission, draw, case):
    """The forward over many float16 keys."""
    check_forward(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", [*OTHER_SIZES, *OTHER_CAUSAL], ids=str)
def test_other_gradients(submission, draw, case):
    """The backward at other sizes."""
    check_backward(submission, draw, case)


@pytest.mark.parametrize("case", [*OTHER_LAYOUTS, *OTHER_SCORES, *HALF_GRADIENTS], ids=str)
def test_gradients_of_other_inputs(submission, draw, case):
    """The backward with other layouts, scores and dtypes."""
    check_backward(submission, draw, case)


@pytest.mark.parametrize("case", OTHER_KEY_HEADS, ids=str)
def test_other_key_heads(submission, draw, case):
    """Fewer heads of keys, with other layouts, scales and dtypes."""
    q, k, v = inputs(draw, case)
    do = draw(case.do, "do")
    o, *got = submission.flash_attention.backward(q, k, v, gradient=do, **case.options)
    assert_matches(o, reference.output(q, k, v, **case.options))
    for result, expected in zip(got, reference.gradients(do, q, k, v, **case.options), strict=True):
        assert_matches(result, expected)
