"""Public checks of `gelu`. Shapes are fixed, values are drawn anew at every run."""

import pytest
import torch

from grader.clock import works
from grader.judge.cases import Input, every_other, expanded, normal, permuted, row_pitch, shifted, uniform
from grader.judge.causes import ANSWER_OVERWRITTEN, ORDER_DEPENDENT, OTHER_STREAM
from grader.judge.compare import assert_allowed, assert_matches, assert_raises
from grader.judge.reference import gelu as reference

SIZES = [Input((n,)) for n in (1, 8, 127, 1000, 1024, 1025, 20_000)] + [Input((0,)), Input((0, 5))]
SHAPES = [Input(()), Input((7, 33)), Input((3, 5, 129)), Input((2, 3, 4, 50))]
LAYOUTS = [
    Input((37, 100), layout=row_pitch(128)),
    Input((37, 100), layout=every_other(0)),
    Input((1000,), layout=every_other(0)),
    Input((37, 100), layout=permuted(1, 0)),
    Input((5, 6, 40), layout=permuted(1, 2, 0)),
    Input((6, 100), layout=expanded(0)),
    Input((1001,), layout=shifted(3)),
    Input((37, 100), torch.float16, layout=row_pitch(128)),
]
LARGE_VALUES = [
    Input((2000,), values=uniform(20)),
    Input((2000,), values=uniform(100)),
    Input((2000,), values=uniform(1e4)),
    Input((2000,), values=uniform(1e30)),
    Input((2000,), torch.float16, values=uniform(100)),
    Input((2000,), torch.float16, values=uniform(6e4)),
]
STANDARD = [Input((20_000,)), Input((100, 77), values=normal(2.0))]
HALVES = [Input((20_000,), torch.float16), Input((100, 77), torch.float16, values=normal(2.0))]
BFLOATS = [Input((20_000,), torch.bfloat16), Input((100, 77), torch.bfloat16, row_pitch(80), normal(2.0))]


@pytest.mark.parametrize("case", SIZES, ids=str)
def test_sizes(submission, draw, case):
    """Any number of elements is right: none, one, less than a block, not a multiple of a block."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_shapes(submission, draw, case):
    """Any number of dimensions is right, and the result has the input's shape."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_layouts(submission, draw, case):
    """Strided, sliced, transposed and expanded inputs are read where their elements lie."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", LARGE_VALUES, ids=str)
def test_large_values(submission, draw, case):
    """Large values of either sign give x or zero, never NaN."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.precision
@pytest.mark.parametrize("case", STANDARD, ids=str)
def test_tanh_form(submission, draw, case):
    """The tanh form is computed, and in float32 throughout."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.precision
@pytest.mark.parametrize("case", HALVES, ids=str)
def test_float16(submission, draw, case):
    """float16 comes back as float16, computed in float32 and rounded once."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.precision
@pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))
@pytest.mark.parametrize("case", BFLOATS, ids=str)
def test_bfloat16(submission, draw, case):
    """bfloat16 comes back as bfloat16, computed in float32 and rounded once."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", [Input((1000,)), Input((33, 65), torch.float16)], ids=str)
def test_second_call(submission, draw, case):
    """A second call at the same addresses computes anew, and leaves the first answer alone."""
    first, second = draw(case), draw(case)
    assert_matches(submission.gelu(first), reference.gelu(first))
    new, old = submission.gelu.again(second)
    assert_matches(new, reference.gelu(second), previous=reference.gelu(first))
    assert_matches(old, reference.gelu(first), cause=ANSWER_OVERWRITTEN)


@pytest.mark.parametrize("order", ["reversed", "shuffled"], ids="programs run in {} order".format)
def test_any_order(submission, draw, order):
    """The programs of a launch may run in any order."""
    x = draw(Input((50_001,)))
    right = reference.gelu(x)
    assert_matches(submission.gelu(x), right)
    assert_matches(
        submission.gelu(x), right, previous=right
    )  # so that what is kept between calls is not taken for order
    assert_matches(submission.in_order(order).gelu(x), right, cause=ORDER_DEPENDENT)


@pytest.mark.parametrize("case", [Input((16,), torch.float64), Input((16,), torch.int32)], ids=str)
def test_wrong_dtype(submission, draw, case):
    """A dtype that is not supported raises ValueError and is named."""
    supported, x = draw(Input(case.shape)), draw(case)
    assert_allowed(submission.gelu(supported), reference.gelu(supported))
    outcome = submission.gelu.exception(x)
    dtype = str(case.dtype).removeprefix("torch.")
    assert_raises(outcome, "ValueError", (dtype,), "every dtype but float32, float16 and bfloat16")


@pytest.mark.needs_gpu("a CPU has no streams")
def test_current_stream(submission, draw):
    """The kernel runs on the current stream, after what is queued there, and so does whoever reads the answer."""
    x = draw(Input((40, 3000)))
    right = reference.gelu(x)
    assert_matches(submission.gelu(x), right)
    assert_matches(submission.gelu.on_own_stream(x), right, cause=OTHER_STREAM)


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_bfloat16(clock):
    """gelu: the time of 2^29 bfloat16 numbers, beside that of copying them."""
    clock.time(works.gelu(1 << 29))
