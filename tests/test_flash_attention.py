"""Public checks of `flash_attention`: a ladder of four functions. Shapes are fixed, values are drawn anew at every run.

Each function gets the judge's inputs: the backward a right o and lse, whatever the student's forward gives.
"""

from dataclasses import replace

import pytest
import torch

from grader.clock import works
from grader.judge.cases import Heads, Input, constant, drifting, every_other, expanded, normal, permuted, row_pitch
from grader.judge.causes import ORDER_DEPENDENT, OTHER_STREAM
from grader.judge.compare import assert_allowed, assert_footprint, assert_matches, assert_raises
from grader.judge.reference import flash_attention as reference
from grader.judge.tolerance import Tolerance

FLOAT16, BFLOAT16 = torch.float16, torch.bfloat16
HEADS_INSIDE = permuted(0, 2, 1, 3)  # (b, h, n, d), as a view of (b, n, h, d)
NEEDS_BFLOAT16 = pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))

WHOLE_TILES = [Heads(128, 256), Heads(256, 128)]
PADDED = [Heads(100, 100), Heads(64, 129), Heads(129, 70)]
CAUSAL = [Heads(n_q, n_k, is_causal=True) for n_q, n_k in ((100, 100), (64, 128), (129, 100), (128, 128))]
SMALL = [Heads(1, 1, 16), Heads(8, 17, 16), Heads(17, 8, 16, is_causal=True), Heads(1, 200, 16)]
EMPTY = [Heads(5, 0, 16), Heads(0, 5, 16), *(Heads(4, 4, 16, leading=leading) for leading in ((0, 2), (2, 0)))]
EMPTY += [Heads(4, 0, 16, leading=(2, 1, 2))]
HEAD_DIMENSIONS = [Heads(70, 50, d) for d in (48, 80, 128, 8, 3, 1)] + [Heads(40, 30, 256, is_causal=True)]
LEADING = [Heads(40, 50, 32, leading=leading) for leading in ((), (3,), (2, 3), (2, 1, 3))]
LAYOUTS = [
    Heads(50, 60, 32, leading=(2, 3), layout=HEADS_INSIDE),
    Heads(50, 60, 32, leading=(2,), layout=row_pitch(96), is_causal=True),
    Heads(50, 60, 32, leading=(2, 2), layout=permuted(0, 1, 3, 2)),
    Heads(50, 60, 32, leading=(2, 2), layout=expanded(1)),
    Heads(50, 60, 32, leading=(2,), v_layout=permuted(0, 2, 1)),
]
SEVERAL_TILES = Heads(64, 300)  # three of 128 keys: a sum that is not rescaled shows, whatever the tile
HALVES = [Heads(100, 100, dtype=FLOAT16), Heads(64, 130, 48, dtype=FLOAT16, is_causal=True)]
HALF_SUMS = [Heads(64, 2048, dtype=FLOAT16), Heads(100, 100, dtype=FLOAT16)]
BFLOATS = [Heads(64, 2048, dtype=BFLOAT16), Heads(100, 100, dtype=BFLOAT16, is_causal=True)]
SCALES = [Heads(50, 60, 48), Heads(50, 60, 64, scale=0.3), Heads(50, 60, 32, scale=-0.5, is_causal=True)]
LIKE_ONES = normal(0.1, 1.0)  # queries whose product with a key is the sum of its elements, nearly
DRIFTING = [
    Heads(64, 700, q_values=LIKE_ONES, k_values=drifting(28.0)),  # from a score of -224 to one of 224
    Heads(70, 700, q_values=LIKE_ONES, k_values=drifting(-28.0)),
    Heads(64, 700, dtype=FLOAT16, q_values=LIKE_ONES, k_values=drifting(4.0)),
]
NEGATIVE = Heads(50, 70, 32, q_values=LIKE_ONES, k_values=normal(1.0, -27.0))  # scores and lse around -150
LARGE_LOGITS = [Heads(64, 100, q_values=normal(30.0)), Heads(100, 64, is_causal=True, q_values=normal(30.0))]
LOG_SUMS = [*PADDED[:2], CAUSAL[1], SCALES[2], HALVES[0], LARGE_LOGITS[0], *EMPTY]

GRADIENTS = [Heads(64, 64), Heads(100, 100), Heads(64, 129, 32), Heads(129, 70, 48)]
CAUSAL_GRADIENTS = [Heads(n_q, n_k, 32, is_causal=True) for n_q, n_k in ((100, 100), (64, 130), (130, 64))]
GRADIENT_LAYOUTS = [
    Heads(50, 60, 32, leading=(2, 3), layout=HEADS_INSIDE, do_layout=HEADS_INSIDE),
    Heads(50, 60, 32, leading=(2,), do_layout=row_pitch(64)),
    Heads(50, 60, 32, leading=(2,), do_layout=permuted(0, 2, 1)),
    Heads(50, 60, 32, leading=(2,), v_layout=row_pitch(48)),
    Heads(50, 60, 32, leading=(2, 2), do_layout=expanded(0), is_causal=True),
    Heads(50, 60, 32, leading=(2, 3), layout=HEADS_INSIDE, o_layout=HEADS_INSIDE),
    Heads(50, 60, 32, leading=(2,), o_layout=row_pitch(40), lse_layout=every_other(-1), is_causal=True),
]
HALF_GRADIENTS = [Heads(512, 512, dtype=FLOAT16), Heads(100, 70, 48, dtype=FLOAT16, is_causal=True)]
BFLOAT_GRADIENTS = [Heads(512, 512, dtype=BFLOAT16), Heads(100, 70, 48, dtype=BFLOAT16, is_causal=True)]
OTHER_GRADIENTS = [
    Heads(50, 60, 48, scale=0.4),
    Heads(5, 0, 16),
    Heads(0, 5, 16),
    Heads(50, 60, 32, scale=-0.5, is_causal=True),
    Heads(60, 70, 32, leading=()),
    Heads(60, 70, 32, do_values=constant(0.0)),
    LARGE_LOGITS[0],
    NEGATIVE,
]
WIDE_GRADIENTS = [Heads(70, 50, d) for d in (128, 80, 8, 3, 1)] + [Heads(40, 30, 256, is_causal=True)]

GRADIENT_NAMES = ("dq", "dk", "dv")
SHARED_KEYS = [
    Heads(40, 50, 16, leading=(2, 4), key_leading=(2, 2)),
    Heads(40, 50, 16, leading=(6,), key_leading=(1,), is_causal=True),
]
# Scores take 16 and 10 MiB, what is given and returned 2 and 1 to 3. Few queries leave a kernel few tiles. The average
# of so many values around 0 would be as small as what rounding leaves of each.
AROUND_ONE = normal(1.0, 1.0)
TILED_MEMORY, MEMORY = Heads(16, 262_147, 1, v_values=AROUND_ONE), Heads(64, 40_963, 4, v_values=AROUND_ONE)
ORDERS = pytest.mark.parametrize("order", ["reversed", "shuffled"], ids="programs run in {} order".format)


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


def several_tiles(case):
    """The same with few keys, so that a call of a new process loads all that it needs."""
    return replace(case, keys=643)


def loosely(expected):
    """The same, ten times as far off: sums over thousands of tiles are rounded as often."""
    most, rms = 10 * expected.tolerance.max, 10 * (expected.tolerance.rms or 0.0)
    return replace(expected, tolerance=Tolerance(most, rms or None))


def large_enough(submission, case):
    """The same, on a GPU with more queries: there PyTorch takes memory in blocks of 20 MiB."""
    return replace(case, queries=16 * case.queries) if submission.on_gpu else case


def check_memory(function, draw, case):
    """A forward takes much less memory than a matrix of scores."""
    arguments, after = inputs(draw, case), inputs(draw, several_tiles(case))
    results, taken = function.footprint(*arguments, after=after)
    o, lse = results.named(("o", "lse"))
    assert_matches(o, loosely(reference.output(*arguments)))
    assert_matches(lse, loosely(reference.log_sum_exp(*arguments)))
    assert_footprint(taken, case.queries * case.keys * 4)


def check_second_call(function, draw, case):
    """A second forward at the same addresses computes anew, and leaves the first answer alone."""
    first, second = inputs(draw, case), inputs(draw, case)
    before = reference.output(*first), reference.log_sum_exp(*first)
    for result, expected in zip(function.values(("o", "lse"), *first), before, strict=True):
        assert_matches(result, expected)
    new, old = function.values_again(("o", "lse"), *second)
    assert_matches(new[0], reference.output(*second), previous=before[0])
    assert_matches(new[1], reference.log_sum_exp(*second), previous=before[1])
    for result, expected in zip(old, before, strict=True):
        assert_matches(result, expected)


def backward_arguments(draw, case):
    """do, q, k, v, and a right o and lse."""
    q, k, v = inputs(draw, case)
    o, lse = reference.output(q, k, v, **case.options), reference.log_sum_exp(q, k, v, **case.options)
    given = draw(o.values.to(o.dtype), "o", case.o_layout), draw(lse.values.to(lse.dtype), "lse", case.lse_layout)
    return draw(case.do, "do"), q, k, v, *given


def backward(submission, draw, case):
    """dq, dk and dv of the submission, each with what is right."""
    arguments = backward_arguments(draw, case)
    got = submission.flash_attention_backward.values(GRADIENT_NAMES, *arguments, **case.options)
    return zip(got, reference.gradients(*arguments[:4], **case.options), strict=True)


def check_gradients(submission, draw, case):
    """dq, dk and dv."""
    for got, expected in backward(submission, draw, case):
        assert_matches(got, expected)


# attention_tiled


@pytest.mark.parametrize("case", [*PADDED, SEVERAL_TILES, *(one for one in SMALL if not one.is_causal)], ids=str)
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


@pytest.mark.parametrize("case", [*EMPTY, *SCALES, *LEADING, *LAYOUTS, *HEAD_DIMENSIONS[2:4]], ids=str)
def test_tiled_other_inputs(submission, draw, case):
    """attention_tiled: empty inputs, a given scale, other dimensions and layouts."""
    check_output(submission.attention_tiled, draw, case)


@pytest.mark.parametrize("case", [*LARGE_LOGITS, *DRIFTING, NEGATIVE], ids=str)
def test_tiled_large_scores(submission, draw, case):
    """attention_tiled: scores may be large, and rise or fall along the keys."""
    check_output(submission.attention_tiled, draw, case)


def test_tiled_memory(submission, draw):
    """attention_tiled: the matrix of scores is never held."""
    check_memory(submission.attention_tiled, draw, large_enough(submission, TILED_MEMORY))


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


@pytest.mark.parametrize("case", SCALES, ids=str)
def test_forward_scales(submission, draw, case):
    """flash_attention_forward: the scale is 1/sqrt(d) or what is given."""
    check_output(submission.flash_attention_forward, draw, case)


@pytest.mark.parametrize("case", [*LARGE_LOGITS, *DRIFTING, NEGATIVE], ids=str)
def test_forward_large_scores(submission, draw, case):
    """flash_attention_forward: scores may be large, and rise or fall along the keys."""
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


@ORDERS
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
    check_memory(submission.flash_attention_forward, draw, large_enough(submission, MEMORY))


def test_forward_second_call(submission, draw):
    """flash_attention_forward: a second call computes anew, and leaves the first answer alone."""
    check_second_call(submission.flash_attention_forward, draw, Heads(100, 70, 32))


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
    """flash_attention_backward: a given scale, 2 dimensions, empty inputs, large scores; zeros where do is zero."""
    check_gradients(submission, draw, case)


@pytest.mark.parametrize("case", WIDE_GRADIENTS, ids=str)
def test_backward_head_dimensions(submission, draw, case):
    """flash_attention_backward: any head dimension from 1 to 256."""
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
    case = large_enough(submission, MEMORY)
    arguments, after = backward_arguments(draw, case), backward_arguments(draw, several_tiles(case))
    results, taken = submission.flash_attention_backward.footprint(*arguments, after=after)
    for result, expected in zip(results.named(GRADIENT_NAMES), reference.gradients(*arguments[:4]), strict=True):
        assert_matches(result, loosely(expected))
    assert_footprint(taken, case.queries * case.keys * 4)


@ORDERS
def test_backward_any_order(submission, draw, order):
    """flash_attention_backward: the programs of a launch may run in any order."""
    arguments = backward_arguments(draw, Heads(300, 280, 16, leading=(2,)))
    right = reference.gradients(*arguments[:4])
    for result, expected in zip(
        submission.flash_attention_backward.values(GRADIENT_NAMES, *arguments), right, strict=True
    ):
        assert_matches(result, expected)
    reordered = submission.in_order(order).flash_attention_backward
    for result, expected in zip(reordered.values(GRADIENT_NAMES, *arguments), right, strict=True):
        assert_matches(result, expected, cause=ORDER_DEPENDENT)


def test_backward_second_call(submission, draw):
    """flash_attention_backward: a second call computes anew, and leaves the first answer alone."""
    case = Heads(100, 70, 32)
    first, second = backward_arguments(draw, case), backward_arguments(draw, case)
    before, after = reference.gradients(*first[:4]), reference.gradients(*second[:4])
    function = submission.flash_attention_backward
    for result, expected in zip(function.values(GRADIENT_NAMES, *first), before, strict=True):
        assert_matches(result, expected)
    new, old = function.values_again(GRADIENT_NAMES, *second)
    for result, expected, previous in zip(new, after, before, strict=True):
        assert_matches(result, expected, previous=previous)
    for result, expected in zip(old, before, strict=True):
        assert_matches(result, expected)


# flash_attention


@pytest.mark.parametrize("case", [PADDED[0], CAUSAL[1], HALVES[1], LAYOUTS[0], LEADING[0], EMPTY[0]], ids=str)
def test_autograd_output(submission, draw, case):
    """flash_attention: o alone."""
    q, k, v = inputs(draw, case)
    assert_matches(submission.flash_attention(q, k, v, **case.options), reference.output(q, k, v, **case.options))


@pytest.mark.parametrize("case", [GRADIENTS[1], CAUSAL_GRADIENTS[1], *GRADIENT_LAYOUTS[:2], HALF_GRADIENTS[1],
                                  Heads(50, 60, 48, scale=0.4), LEADING[0], *EMPTY[:4]], ids=str)  # fmt: skip
def test_autograd_gradients(submission, draw, case):
    """flash_attention: differentiable with respect to q, k and v."""
    q, k, v = inputs(draw, case)
    do = draw(case.do, "do")
    _, *got = submission.flash_attention.backward(q, k, v, gradient=do, **case.options)
    for result, expected in zip(got, reference.gradients(do, q, k, v, **case.options), strict=True):
        assert_matches(result, expected)


@pytest.mark.parametrize("needing", ["q", "k", "v"], ids="a gradient of {} alone".format)
def test_autograd_one_gradient(submission, draw, needing):
    """flash_attention: differentiable also where only one of q, k and v needs a gradient."""
    case = Heads(60, 50, 32)
    q, k, v = inputs(draw, case)
    do, place = draw(case.do, "do"), "qkv".index(needing)
    _, got = submission.flash_attention.backward(q, k, v, gradient=do, of=((q, k, v)[place],))
    assert_matches(got, reference.gradients(do, q, k, v)[place])


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


# Wrong arguments

ALLOWED, HALF, LONGER = Heads(4, 6, 8), Heads(4, 6, 8, dtype=FLOAT16), Heads(4, 7, 8)
ONE_HEAD, TWO_HEADS = Heads(4, 6, 8, leading=(1,)), Heads(4, 6, 8, leading=(2,))
WIDER, WIDEST, DOUBLE = Heads(4, 6, 9), Heads(4, 6, 257), Heads(4, 6, 8, dtype=torch.float64)
REFUSED = {  # q, k and v, and what the message names
    "q float32, k and v float16": (ALLOWED.q, HALF.k, HALF.v, ("float32", "float16")),
    "v float16, q and k float32": (ALLOWED.q, ALLOWED.k, HALF.v, ("float32", "float16")),
    "q of d = 8, k and v of d = 9": (ALLOWED.q, WIDER.k, WIDER.v, ("8", "9")),
    "q, k and v of d = 257": (WIDEST.q, WIDEST.k, WIDEST.v, ("257",)),
    "6 keys and 7 values": (ALLOWED.q, ALLOWED.k, LONGER.v, ("6", "7")),
    "q of one head, k and v of two": (ONE_HEAD.q, TWO_HEADS.k, TWO_HEADS.v, ("1", "2")),
    "float64": (DOUBLE.q, DOUBLE.k, DOUBLE.v, ("float64",)),
    "k on the device meta, which every machine has": (ALLOWED.q, ALLOWED.k, ALLOWED.v, ("meta",)),
}
ALL_REFUSED = pytest.mark.parametrize("case", REFUSED)


def check_refused(function, draw, case, names, of_backward=False):
    """A call that is allowed, one that is refused, and the allowed one again: a refused call leaves nothing behind."""

    def first_of(*arguments):
        return function.values(names, *arguments)[0] if names else function(*arguments)

    allowed = backward_arguments(draw, ALLOWED) if of_backward else inputs(draw, ALLOWED)
    right = reference.gradients(*allowed[:4])[0] if of_backward else reference.output(*allowed)
    assert_allowed(first_of(*allowed), right)
    q_input, k_input, v_input, naming = REFUSED[case]
    q, k, v = draw(q_input, "q"), draw(k_input, "k"), draw(v_input, "v")
    others = draw(q_input, "do"), draw(q_input, "o"), draw(Input(q_input.shape[:-1]), "lse")
    refused = (others[0], q, k, v, *others[1:]) if of_backward else (q, k, v)
    raised = function.exception(*refused, elsewhere=k if "meta" in naming else None)
    assert_raises(raised, "ValueError", naming, case)
    assert_allowed(first_of(*allowed), right)


@ALL_REFUSED
def test_tiled_wrong_arguments(submission, draw, case):
    """attention_tiled: arguments that do not fit each other raise ValueError, which names what differs."""
    check_refused(submission.attention_tiled, draw, case, ("o", "lse"))


@ALL_REFUSED
def test_forward_wrong_arguments(submission, draw, case):
    """flash_attention_forward: arguments that do not fit each other raise ValueError, which names what differs."""
    check_refused(submission.flash_attention_forward, draw, case, ("o", "lse"))


@ALL_REFUSED
def test_backward_wrong_arguments(submission, draw, case):
    """flash_attention_backward: arguments that do not fit each other raise ValueError, which names what differs."""
    check_refused(submission.flash_attention_backward, draw, case, GRADIENT_NAMES, of_backward=True)


@ALL_REFUSED
def test_wrong_arguments(submission, draw, case):
    """flash_attention: arguments that do not fit each other raise ValueError, which names what differs."""
    check_refused(submission.flash_attention, draw, case, ())


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


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_forward(clock):
    """flash_attention_forward: the time of 64 causal heads of 4096 x 128, beside that of PyTorch's flash kernel."""
    clock.time(works.attention_forward(64, 4096, 128, True))


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_backward(clock):
    """flash_attention_backward: the time of 64 causal heads of 4096 x 128, beside that of PyTorch's flash kernel."""
    clock.time(works.attention_backward(64, 4096, 128, True))
