"""Public checks of `softmax` and its gradient. Shapes are fixed, values are drawn anew at every run."""

import pytest
import torch

from grader.clock import works
from grader.judge.cases import Input, Values, every_other, expanded, normal, permuted, row_pitch, shifted, uniform
from grader.judge.causes import ANSWER_OVERWRITTEN, ORDER_DEPENDENT, OTHER_STREAM
from grader.judge.compare import assert_allowed, assert_matches, assert_raises
from grader.judge.reference import softmax as reference


def one_large_logit(shape, generator):
    """Standard normal logits, and one of 1e4 in each row."""
    logits = torch.randn(shape, generator=generator)
    logits[..., shape[-1] // 3] = 1e4
    return logits


def rows_far_apart(shape, generator):
    """Standard normal logits around 1e4 and -1e4 in turn."""
    logits = torch.randn(shape, generator=generator)
    logits[::2] += 1e4
    logits[1::2] -= 1e4
    return logits


def some_minus_infinity(shape, generator):
    """Standard normal logits, each third one -inf, and most of the first row; the last row is -inf throughout."""
    logits = torch.randn(shape, generator=generator)
    logits[..., ::3] = -float("inf")
    logits[0, : shape[-1] * 3 // 4] = -float("inf")
    logits[-1] = -float("inf")
    return logits


LARGE = Values("one logit of 1e4 in each row", one_large_logit)
FAR_APART = Values("rows around 1e4 and -1e4 in turn", rows_far_apart)
MASKED = Values("some logits -inf, the first row begins with them, the last has no others", some_minus_infinity)

COLUMNS = [Input((rows, n)) for rows, n in ((4, 1), (1, 1), (3, 17), (5, 100), (2, 1000), (130, 64))]
COLUMNS += [Input((0, 7)), Input((3, 0))]
LONG_ROWS = [Input((2, 5000)), Input((1, 40_000))]
VERY_LONG_ROWS = [Input((3, 131_072)), Input((2, 250_001)), Input((2, 131_072), torch.float16)]
LAYOUTS = [
    Input((13, 100), layout=row_pitch(128)),
    Input((13, 100), layout=every_other(0)),
    Input((13, 100), layout=permuted(1, 0)),
    Input((13, 100), layout=every_other(-1)),
    Input((6, 100), layout=expanded(0)),
    Input((5, 101), layout=shifted(3)),
    Input((13, 100), torch.float16, layout=permuted(1, 0)),
]
DIMENSIONS = [
    Input((50,)),
    Input((3, 4, 33)),
    Input((2, 3, 4, 20)),
    Input((3, 4, 33), layout=permuted(1, 0, 2)),
    Input((3, 4, 33), layout=permuted(2, 0, 1)),
]
LARGE_LOGITS = [
    Input((6, 100), values=normal(30.0, centre=1e4)),
    Input((6, 100), values=normal(30.0, centre=-1e4)),
    Input((6, 100), values=LARGE),
    Input((6, 100), values=FAR_APART),
    Input((6, 100), torch.float16, values=LARGE),
]
FLOATS = [Input((8, 3000)), Input((4, 8192)), Input((16, 300), values=normal(4.0))]
HALVES = [Input((8, 3000), torch.float16), Input((2, 20_000), torch.float16), Input((16, 300), torch.float16)]
BFLOATS = [
    Input((8, 3000), torch.bfloat16),
    Input((2, 20_000), torch.bfloat16),
    Input((16, 300), torch.bfloat16, row_pitch(304)),
]
OTHER_DTYPES = "every dtype but float32, float16 and bfloat16"
REFUSED = {
    Input((4, 16), torch.float64): ("float64", OTHER_DTYPES),
    Input((4, 16), torch.int32): ("int32", OTHER_DTYPES),
    Input(()): ("dimension", "a tensor without dimensions"),
}
GRADIENTS = [Input((rows, n)) for rows, n in ((5, 17), (7, 100), (2, 1000), (2, 5000), (2, 20_000), (1, 1))]
GRADIENTS += [Input((2, 3, 65), layout=permuted(1, 0, 2)), Input((0, 9)), Input((3, 0))]
HALF_GRADIENTS = [Input(shape, torch.float16, values=uniform(2)) for shape in ((8, 1000), (2, 6000))]
BFLOAT_GRADIENTS = [Input(shape, torch.bfloat16, values=uniform(2)) for shape in ((8, 1000), (2, 6000))]
INCOMING = [
    Input((9, 100), layout=permuted(1, 0)),
    Input((9, 100), layout=row_pitch(250)),
    Input((9, 100), layout=expanded(0)),
    Input((9, 100), layout=every_other(-1)),
]
MEAN_OF_EIGHT = normal(centre=8.0)  # makes half precision inside visible: see the tolerances' derivation


@pytest.mark.parametrize("case", COLUMNS, ids=str)
def test_columns(submission, draw, case):
    """Rows of any length sum to one over their own elements only."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", LONG_ROWS, ids=str)
def test_long_rows(submission, draw, case):
    """A row may be longer than one block."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.needs_gpu("rows of over 100,000 elements take too long in Triton's interpreter")
@pytest.mark.parametrize("case", VERY_LONG_ROWS, ids=str)
def test_very_long_rows(submission, draw, case):
    """A row may have over 100,000 elements."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_layouts(submission, draw, case):
    """Strided, sliced, transposed and expanded inputs are read where their elements lie."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", DIMENSIONS, ids=str)
def test_dimensions(submission, draw, case):
    """Any number of dimensions is right: softmax runs over the last one."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", LARGE_LOGITS, ids=str)
def test_large_logits(submission, draw, case):
    """Logits around 1e4 or -1e4, in all rows or in some, or one in a row, do not overflow."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", [Input((4, 100), values=MASKED), Input((3, 40_000), values=MASKED)], ids=str)
def test_minus_infinity(submission, draw, case):
    """A logit of -inf gives zero; a row of -inf only gives NaN."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.precision
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_float32(submission, draw, case):
    """float32 is computed in float32 throughout."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.precision
@pytest.mark.parametrize("case", HALVES, ids=str)
def test_float16(submission, draw, case):
    """float16 comes back as float16, computed in float32 and rounded once."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.precision
@pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))
@pytest.mark.parametrize("case", BFLOATS, ids=str)
def test_bfloat16(submission, draw, case):
    """bfloat16 comes back as bfloat16, computed in float32 and rounded once."""
    x = draw(case)
    assert_matches(submission.softmax(x), reference.softmax(x))


@pytest.mark.parametrize("case", [Input((4, 200)), Input((3, 65), torch.float16)], ids=str)
def test_second_call(submission, draw, case):
    """A second call at the same addresses computes anew, and leaves the first answer alone."""
    first, second = draw(case), draw(case)
    assert_matches(submission.softmax(first), reference.softmax(first))
    new, old = submission.softmax.again(second)
    assert_matches(new, reference.softmax(second), previous=reference.softmax(first))
    assert_matches(old, reference.softmax(first), cause=ANSWER_OVERWRITTEN)


@pytest.mark.parametrize("order", ["reversed", "shuffled"], ids="programs run in {} order".format)
def test_any_order(submission, draw, order):
    """The programs of a launch may run in any order."""
    x = draw(Input((40, 300)))
    right = reference.softmax(x)
    assert_matches(submission.softmax(x), right)
    assert_matches(
        submission.softmax(x), right, previous=right
    )  # so that what is kept between calls is not taken for order
    assert_matches(submission.in_order(order).softmax(x), right, cause=ORDER_DEPENDENT)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_wrong_input(submission, draw, case):
    """A dtype that is not supported, or a tensor without dimensions, raises ValueError, which names it."""
    supported, x = draw(Input((4, 16))), draw(case)
    assert_allowed(submission.softmax(supported), reference.softmax(supported))
    word, refusing = REFUSED[case]
    assert_raises(submission.softmax.exception(x), "ValueError", (word,), refusing)


@pytest.mark.precision
@pytest.mark.parametrize("case", [*GRADIENTS, Input((2, 3000), values=normal(0.5))], ids=str)
def test_gradient(submission, draw, case):
    """The gradient is y * (dy - sum(dy * y)), with the input's shape and dtype."""
    x, dy = draw(case), draw(Input(case.shape, values=MEAN_OF_EIGHT))
    y, dx = submission.softmax.backward(x, gradient=dy)
    assert_matches(dx, reference.gradient(x, dy))
    assert_matches(y, reference.softmax(x))


@pytest.mark.parametrize("case", INCOMING, ids="incoming gradient {}".format)
def test_gradient_layouts(submission, draw, case):
    """The incoming gradient may have other strides than the output."""
    x, dy = draw(Input(case.shape)), draw(case)
    _, dx = submission.softmax.backward(x, gradient=dy)
    assert_matches(dx, reference.gradient(x, dy))


@pytest.mark.precision
@pytest.mark.parametrize("case", HALF_GRADIENTS, ids=str)
def test_gradient_float16(submission, draw, case):
    """The gradient of a float16 input is float16, computed in float32 and rounded once."""
    x, dy = draw(case), draw(Input(case.shape, case.dtype, values=MEAN_OF_EIGHT))
    _, dx = submission.softmax.backward(x, gradient=dy)
    assert_matches(dx, reference.gradient(x, dy))


@pytest.mark.precision
@pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))
@pytest.mark.parametrize("case", BFLOAT_GRADIENTS, ids=str)
def test_gradient_bfloat16(submission, draw, case):
    """The gradient of a bfloat16 input is bfloat16, computed in float32 and rounded once."""
    x, dy = draw(case), draw(Input(case.shape, case.dtype, values=MEAN_OF_EIGHT))
    _, dx = submission.softmax.backward(x, gradient=dy)
    assert_matches(dx, reference.gradient(x, dy))


@pytest.mark.needs_gpu("a CPU has no streams")
def test_current_stream(submission, draw):
    """The kernel runs on the current stream, after what is queued there, and so does whoever reads the answer."""
    x = draw(Input((40, 3000)))
    right = reference.softmax(x)
    assert_matches(submission.softmax(x), right)
    assert_matches(submission.softmax.on_own_stream(x), right, cause=OTHER_STREAM)


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_forward(clock):
    """softmax: the time of 65,536 rows of 8192 bfloat16 numbers, beside that of copying them."""
    clock.time(works.softmax(65_536, 8192))


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_backward(clock):
    """softmax, there and back: the time of 65,536 rows of 8192 bfloat16 numbers, beside that of as many bytes."""
    clock.time(works.softmax_step(65_536, 8192))
