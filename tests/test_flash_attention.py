"""Public checks of `flash_attention`: a ladder of four functions. Shapes are fixed, values are drawn anew at every run.

Each function gets the judge's inputs: the backward a right o and lse, whatever the student's forward gives.
"""

import pytest
import torch

from grader.judge.cases import Heads, constant, expanded, normal, permuted, row_pitch
from grader.judge.causes import ORDER_DEPENDENT, OTHER_STREAM
from grader.judge.compare import assert_allowed, assert_footprint, assert_matches, assert_raises
from grader.judge.reference import flash_attention as reference

FLOAT16, BFLOAT16 = torch.float16, torch.bfloat16
HEADS_INSIDE = permuted(0, 2, 1, 3)  # (b, h, n, d), as a view of (b, n, h, d)
NEEDS_BFLOAT16 = pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))

WHOLE_TILES = [Heads(128, 256), Heads(256, 128)]
PADDED = [Heads(100, 100), Heads(64, 129), Heads(129, 70)]
CAUSAL = [Heads(n_q, n_k, is_causal=True) for n_q, n_k in ((100, 100), (64, 128), (129, 100), (128, 128))]
SMALL = [Heads(1, 1, 16), Heads(8, 17, 16), Heads(17, 8, 16, is_causal=True), Heads(1, 200, 16)]
EMPTY = [Heads(5, 0, 16), Heads(0, 5, 16), Heads(4, 4, 16, leading=(0, 2)), Heads(4, 0, 16, leading=(2, 1, 2))]
HEAD_DIMENSIONS = [Heads(70, 50, d) for d in (48, 80, 128, 8, 3, 1)] + [Heads(40, 30, 256, is_causal=True)]
LEADING = [Heads(40, 50, 32, leading=leading) for leading in ((), (3,), (2, 3), (2, 1, 3))]
LAYOUTS = [
    Heads(50, 60, 32, leading=(2, 3), layout=HEADS_INSIDE),
    Heads(50, 60, 32, leading=(2,), layout=row_pitch(96), is_causal=True),
    Heads(50, 60, 32, leading=(2, 2), layout=permuted(0, 1, 3, 2)),
    Heads(50, 60, 32, leading=(2, 2), layout=expanded(1)),
    Heads(50, 60, 32, leading=(2,), v_layout=permuted(0, 2, 1)),
]
HALVES = [Heads(100, 100, dtype=FLOAT16), Heads(64, 130, 48, dtype=FLOAT16, is_causal=True)]
HALF_SUMS = [Heads(64, 2048, dtype=FLOAT16), Heads(100, 100, dtype=FLOAT16)]
BFLOATS = [Heads(64, 2048, dtype=BFLOAT16), Heads(100, 100, dtype=BFLOAT16, is_causal=True)]
SCALES = [Heads(50, 60, 48), Heads(50, 60, 64, scale=0.3), Heads(50, 60, 32, scale=-0.5, is_causal=True)]
LARGE_LOGITS = [Heads(64, 100, q_values=normal(30.0)), Heads(100, 64, is_causal=True, q_values=normal(30.0))]
LOG_SUMS = [*PADDED[:2], CAUSAL[1], SCALES[2], HALVES[0], LARGE_LOGITS[0]]

GRADIENTS = [Heads(64, 64), Heads(100, 100), Heads(64, 129, 32), Heads(129, 70, 48)]
CAUSAL_GRADIENTS = [Heads(n_q, n_k, 32, is_causal=True) for n_q, n_k in ((100, 100), (64, 130), (130, 64))]
GRADIENT_LAYOUTS = [
    Heads(50, 60, 32, leading=(2, 3), layout=HEADS_INSIDE, do_layout=HEADS_INSIDE),
    Heads(50, 60, 32, leading=(2,), do_layout=row_pitch(64)),
    Heads(50, 60, 32, leading=(2,), do_layout=permuted(0, 2, 1)),
    Heads(50, 60, 32, leading=(2,), v_layout=row_pitch(48)),
    Heads(50, 60, 32, leading=(2, 2), do_layout=expanded(0), is_causal=True),
]
HALF_GRADIENTS = [Heads(512, 512, dtype=FLOAT16), Heads(100, 70, 48, dtype=FLOAT16, is_causal=True)]
BFLOAT_GRADIENTS = [Heads(512, 512, dtype=BFLOAT16), Heads(100, 70, 48, dtype=BFLOAT16, is_causal=True)]
OTHER_GRADIENTS = [
    Heads(50, 60, 48, scale=0.4),
    Heads(40, 50, 80),
    Heads(5, 0, 16),
    Heads(0, 5, 16),
    Heads(60, 70, 32, do_values=constant(0.0)),
    LARGE_LOGITS[0],
]

SHARED_KEYS = [
    Heads(40, 50, 16, leading=(2, 4), key_leading=(2, 2)),
    Heads(40, 50, 16, leading=(6,), key_leading=(1,), is_causal=True),
]
MEMORY, SMALL_HEADS = Heads(2048, 2048, 16), Heads(64, 64, 16)


def inputs(draw, case):
    """q, k and v."""
    return draw(case.q, "q"), draw(case.k, "k"), draw(case.v, "v")


def check_output(function, draw, case):
    """o, from a function that gives o and lse."""
    q, k, v = inputs(draw, case)
    o, _ = function.values(("o", "lse"), q, k, v, **case.options)
    assert_matches(o, reference.output(q, k, v, **case.options))


def check_log_sum_exp(function, draw, case):
    """lse, from a function that gives o and lse."""
    q, k, v = inputs(draw, case)
    _, lse = function.values(("o", "lse"), q, k, v, **case.options)
    assert_matches(lse, reference.log_sum_exp(q, k, v, **case.options))


def check_memory(function, draw):
    """A forward takes much less memory than a matrix of scores."""
    arguments, after = inputs(draw, MEMORY), inputs(draw, SMALL_HEADS)
    results, taken = function.footprint(*arguments, after=after)
    assert_matches(results.outputs[0], reference.output(*arguments))
    assert_footprint(taken, MEMORY.queries * MEMORY.keys * 4)


def forward_of(draw, q, k, v, options):
    """A right o and lse."""
    o, lse = reference.output(q, k, v, **options), reference.log_sum_exp(q, k, v, **options)
    return draw(o.values.to(o.dtype), "o"), draw(lse.values.to(lse.dtype), "lse")


def backward(submission, draw, case):
    """dq, dk and dv of the submission, each with what is right."""
    q, k, v = inputs(draw, case)
    do = draw(case.do, "do")
    o, lse = forward_of(draw, q, k, v, case.options)
    got = submission.flash_attention_backward.values(("dq", "dk", "dv"), do, q, k, v, o, lse, **case.options)
    return zip(got, reference.gradients(do, q, k, v, **case.options), strict=True)


def check_gradients(submission, draw, case):
    """dq, dk and dv."""
    for got, expected in backward(submission, draw, case):
        assert_matches(got, expected)


# attention_tiled


@pytest.mark.parametrize("case", [*PADDED, *SMALL], ids=str)
def test_tiled_output(submission, draw, case):
    """attention_tiled: o for any number of queries and keys."""
    check_output(submission.attention_tiled, draw, case)


@pytest.mark.parametrize("case", CAUSAL, ids=str)
def test_tiled_causal(submission, draw, case):
    """attention_tiled: a causal query i sees keys j <= i, however many keys there are."""
    check_output(submission.attention_tiled, draw, case)


@pytest.mark.parametrize("case", LOG_SUMS, ids=str)
def test_tiled_log_sum_exp(submission, draw, case):
    """attention_tiled: lse is the natural logarithm of the sum of exp(scale * q k), in float32."""
    check_log_sum_exp(submission.attention_tiled, draw, case)


@pytest.mark.precision
@pytest.mark.parametrize("case", HALF_SUMS, ids=str)
def test_tiled_float16(submission, draw, case):
    """attention_tiled: float16 comes back as float16, with sums kept in float32."""
    check_output(submission.attention_tiled, draw, case)


@pytest.mark.parametrize("case", [*EMPTY, *SCALES, *LARGE_LOGITS, *LEADING[:2]], ids=str)
def test_tiled_other_inputs(submission, draw, case):
    """attention_tiled: empty inputs, a given scale, large logits, other dimensions."""
    check_output(submission.attention_tiled, draw, case)


def test_tiled_memory(submission, draw):
    """attention_tiled: the matrix of scores is never held."""
    check_memory(submission.attention_tiled, draw)


# flash_attention_forward


@pytest.mark.parametrize("case", WHOLE_TILES, ids=str)
def test_forward_whole_tiles(submission, draw, case):
    """flash_attention_forward: o where every tile is whole."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", PADDED, ids=str)
def test_forward_padded_tiles(submission, draw, case):
    """flash_attention_forward: keys that only pad a tile have no weight, and padded queries are not stored."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", CAUSAL, ids=str)
def test_forward_causal(submission, draw, case):
    """flash_attention_forward: a causal query i sees keys j <= i, however many keys there are."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", [*SMALL, *EMPTY], ids=str)
def test_forward_small_and_empty(submission, draw, case):
    """flash_attention_forward: fewer rows than a tile has, one, or none."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", HEAD_DIMENSIONS, ids=str)
def test_forward_head_dimensions(submission, draw, case):
    """flash_attention_forward: any head dimension from 1 to 256."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", [*LEADING, *LAYOUTS], ids=str)
def test_forward_layouts(submission, draw, case):
    """flash_attention_forward: any leading dimensions, and inputs that are not contiguous."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", [*SCALES, *LARGE_LOGITS], ids=str)
def test_forward_scores(submission, draw, case):
    """flash_attention_forward: the scale is 1/sqrt(d) or what is given, and large scores do not overflow."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", LOG_SUMS, ids=str)
def test_forward_log_sum_exp(submission, draw, case):
    """flash_attention_forward: lse is the natural logarithm of the sum of exp(scale * q k), in float32."""
    check_log_sum_exp(submission.flash_attention_forward, draw, case)


@pytest.mark.precision
@pytest.mark.parametrize("case", [Heads(64, 300), *CAUSAL[:1]], ids=str)
def test_forward_float32(submission, draw, case):
    """flash_attention_forward: float32 is computed in float32."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.precision
@pytest.mark.parametrize("case", [*HALVES, *HALF_SUMS[:1]], ids=str)
def test_forward_float16(submission, draw, case):
    """flash_attention_forward: float16 comes back as float16, with sums kept in float32."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.precision
@NEEDS_BFLOAT16
@pytest.mark.parametrize("case", BFLOATS, ids=str)
def test_forward_bfloat16(submission, draw, case):
    """flash_attention_forward: bfloat16 comes back as bfloat16, with sums kept in float32."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("order", ["reversed", "shuffled"], ids="programs run in {} order".format)
def test_forward_any_order(submission, draw, order):
    """flash_attention_forward: the programs of a launch may run in any order."""
    case = Heads(300, 200, 16, leading=(2,), is_causal=True)
    q, k, v = inputs(draw, case)
    right = reference.output(q, k, v, **case.options)
    o, _ = submission.flash_attention_forward.values(("o", "lse"), q, k, v, **case.options)
    assert_matches(o, right)
    o, _ = submission.in_order(order).flash_attention_forward.values(("o", "lse"), q, k, v, **case.options)
    assert_matches(o, right, cause=ORDER_DEPENDENT)


def test_forward_memory(submission, draw):
    """flash_attention_forward: the matrix of scores is never held."""
    check_memory(submission.flash_attention_forward, draw)


@pytest.mark.needs_gpu("a CPU has no streams")
def test_forward_current_stream(submission, draw):
    """flash_attention: the kernel runs on the current stream, after what is queued there."""
    case = Heads(200, 300)
    q, k, v = inputs(draw, case)
    right = reference.output(q, k, v)
    assert_matches(submission.flash_attention(q, k, v), right)
    assert_matches(submission.flash_attention.on_own_stream(q, k, v), right, cause=OTHER_STREAM)


# flash_attention_backward


@pytest.mark.parametrize("case", GRADIENTS[:2], ids=str)
def test_backward_dq(submission, draw, case):
    """flash_attention_backward: dq, the gradient of q, scale * ds k, by itself."""
    dq, _, _ = backward(submission, draw, case)
    assert_matches(*dq)


@pytest.mark.parametrize("case", GRADIENTS[:2], ids=str)
def test_backward_dk(submission, draw, case):
    """flash_attention_backward: dk, the gradient of k, scale * ds^T q, by itself."""
    _, dk, _ = backward(submission, draw, case)
    assert_matches(*dk)


@pytest.mark.parametrize("case", GRADIENTS[:2], ids=str)
def test_backward_dv(submission, draw, case):
    """flash_attention_backward: dv, the gradient of v, p^T do, by itself."""
    _, _, dv = backward(submission, draw, case)
    assert_matches(*dv)


@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_backward_sizes(submission, draw, case):
    """flash_attention_backward: padded queries and keys leak into no gradient."""
    check_gradients(submission, draw, case)


@pytest.mark.parametrize("case", CAUSAL_GRADIENTS, ids=str)
def test_backward_causal(submission, draw, case):
    """flash_attention_backward: what a causal query does not see gets no gradient from it."""
    check_gradients(submission, draw, case)


@pytest.mark.parametrize("case", GRADIENT_LAYOUTS, ids=str)
def test_backward_layouts(submission, draw, case):
    """flash_attention_backward: do has strides of its own, and so have the inputs."""
    check_gradients(submission, draw, case)


@pytest.mark.parametrize("case", OTHER_GRADIENTS, ids=str)
def test_backward_other_inputs(submission, draw, case):
    """flash_attention_backward: a given scale, head dimensions, empty inputs, large scores; zeros where do is zero."""
    check_gradients(submission, draw, case)


@pytest.mark.precision
@pytest.mark.parametrize("case", [Heads(100, 200)], ids=str)
def test_backward_float32(submission, draw, case):
    """flash_attention_backward: float32 is computed in float32."""
    check_gradients(submission, draw, case)


@pytest.mark.precision
@pytest.mark.parametrize("case", HALF_GRADIENTS, ids=str)
def test_backward_float16(submission, draw, case):
    """flash_attention_backward: float16 gradients, with sums kept in float32."""
    check_gradients(submission, draw, case)


@pytest.mark.precision
@NEEDS_BFLOAT16
@pytest.mark.parametrize("case", BFLOAT_GRADIENTS, ids=str)
def test_backward_bfloat16(submission, draw, case):
    """flash_attention_backward: bfloat16 gradients, with sums kept in float32."""
    check_gradients(submission, draw, case)


def test_backward_memory(submission, draw):
    """flash_attention_backward: no matrix of probabilities is ever held."""
    arguments, after = [], []
    for case, found in ((MEMORY, arguments), (SMALL_HEADS, after)):
        q, k, v = inputs(draw, case)
        found += [draw(case.do, "do"), q, k, v, *forward_of(draw, q, k, v, {})]
    results, taken = submission.flash_attention_backward.footprint(*arguments, after=tuple(after))
    assert_matches(results.outputs[0], reference.gradients(*arguments[:4])[0])
    assert_footprint(taken, MEMORY.queries * MEMORY.keys * 4)


# flash_attention


@pytest.mark.parametrize("case", [PADDED[0], CAUSAL[1], HALVES[1], LAYOUTS[0], EMPTY[0]], ids=str)
def test_autograd_output(submission, draw, case):
    """flash_attention: o alone."""
    q, k, v = inputs(draw, case)
    assert_matches(submission.flash_attention(q, k, v, **case.options), reference.output(q, k, v, **case.options))


@pytest.mark.parametrize("case", [GRADIENTS[1], CAUSAL_GRADIENTS[1], GRADIENT_LAYOUTS[1], HALF_GRADIENTS[1],
                                  Heads(50, 60, 48, scale=0.4)], ids=str)  # fmt: skip
def test_autograd_gradients(submission, draw, case):
    """flash_attention: differentiable with respect to q, k and v."""
    q, k, v = inputs(draw, case)
    do = draw(case.do, "do")
    _, *got = submission.flash_attention.backward(q, k, v, gradient=do, **case.options)
    for result, expected in zip(got, reference.gradients(do, q, k, v, **case.options), strict=True):
        assert_matches(result, expected)


def test_autograd_second_call(submission, draw):
    """flash_attention: a second call at the same addresses computes anew, and leaves the first answer alone."""
    case = Heads(100, 70, 32)
    first, second = inputs(draw, case), inputs(draw, case)
    before = reference.output(*first)
    assert_matches(submission.flash_attention(*first), before)
    new, old = submission.flash_attention.again(*second)
    assert_matches(new, reference.output(*second), previous=before)
    assert_matches(old, before)


def test_autograd_two_calls(submission, draw):
    """flash_attention: a backward belongs to its own call, also after another one."""
    case = Heads(60, 50, 32)
    first, second, do = inputs(draw, case), inputs(draw, case), draw(case.do, "do")
    got = submission.flash_attention.backward_late(first, second, do)
    for result, expected in zip(got, reference.gradients(do, *first), strict=True):
        assert_matches(result, expected)


ALLOWED = Heads(4, 6, 8)
REFUSED = {
    "q float32, k and v float16": (ALLOWED.q, Heads(4, 6, 8, dtype=FLOAT16).k, ("float32", "float16")),
    "q of d = 8, k and v of d = 9": (ALLOWED.q, Heads(4, 6, 9).k, ("8", "9")),
    "q of one head, k and v of two": (Heads(4, 6, 8, leading=(1,)).q, Heads(4, 6, 8, leading=(2,)).k, ("1", "2")),
    "float64": (Heads(4, 6, 8, dtype=torch.float64).q, Heads(4, 6, 8, dtype=torch.float64).k, ("float64",)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments(submission, draw, case):
    """Arguments that do not fit each other raise ValueError, which names what differs."""
    right = inputs(draw, ALLOWED)
    assert_allowed(submission.flash_attention(*right), reference.output(*right))
    q_input, k_input, naming = REFUSED[case]
    q, k, v = draw(q_input, "q"), draw(k_input, "k"), draw(k_input, "v")
    assert_raises(submission.flash_attention.exception(q, k, v), "ValueError", naming, case)
    assert_allowed(submission.flash_attention(*right), reference.output(*right))  # a refused call leaves nothing behind


# A bonus


@pytest.mark.parametrize("case", SHARED_KEYS, ids=str)
def test_fewer_key_heads(submission, draw, case):
    """flash_attention: several heads of queries may share one of keys and values."""
    q, k, v = inputs(draw, case)
    do = draw(case.do, "do")
    o, *got = submission.flash_attention.backward(q, k, v, gradient=do, **case.options)
    assert_matches(o, reference.output(q, k, v, **case.options))
    for result, expected in zip(got, reference.gradients(do, q, k, v, **case.options), strict=True):
        assert_matches(result, expected)
