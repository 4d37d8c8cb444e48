"""Public checks of `matmul`. Shapes are fixed, values are drawn anew at every run."""

import pytest
import torch

from grader.clock import works
from grader.judge.cases import (
    Input,
    Matrices,
    Values,
    constant,
    every_other,
    expanded,
    normal,
    permuted,
    row_pitch,
    shifted,
)
from grader.judge.causes import ANSWER_OVERWRITTEN, ORDER_DEPENDENT, OTHER_STREAM
from grader.judge.compare import assert_allowed, assert_matches, assert_raises
from grader.judge.reference import matmul as reference

TRANSPOSED = permuted(1, 0)


def one_row_of_forties(shape, generator):
    """Standard normal values, and a row of 40."""
    values = torch.randn(shape, generator=generator)
    values[1] = 40
    return values


def one_column_of_forties(shape, generator):
    """Standard normal values, and a column of 40."""
    values = torch.randn(shape, generator=generator)
    values[:, 2] = 40
    return values


SIZES = [
    Matrices(100, 70, 50),
    Matrices(1, 33, 17),
    Matrices(33, 1, 65),
    Matrices(1, 1, 17),
    Matrices(127, 65, 511),
    Matrices(64, 64, 64),
    Matrices(5, 200, 3),
    Matrices(120, 248, 72, torch.float16),
]
DEPTHS = [Matrices(64, 64, k) for k in (100, 130, 1, 17)] + [Matrices(32, 32, 1000)]
EMPTY = [Matrices(8, 9, 0), Matrices(8, 9, 1), Matrices(0, 9, 8), Matrices(8, 0, 9)]
LAYOUTS = [
    Matrices(50, 40, 70, a_layout=TRANSPOSED),
    Matrices(50, 40, 70, b_layout=TRANSPOSED),
    Matrices(50, 40, 70, a_layout=TRANSPOSED, b_layout=TRANSPOSED),
    Matrices(50, 40, 70, a_layout=row_pitch(96), b_layout=row_pitch(51)),
    Matrices(50, 40, 70, a_layout=every_other(-1), b_layout=every_other(0)),
    Matrices(50, 40, 70, a_layout=expanded(0), b_layout=shifted(3)),
    Matrices(64, 64, 72, torch.float16, TRANSPOSED, row_pitch(128)),
]
ACTIVATIONS = [
    ("relu", Matrices(70, 50, 100)),
    ("gelu", Matrices(70, 50, 100, b_values=normal(0.1))),
    ("gelu", Matrices(20, 30, 100, b_values=normal(2.0))),
    ("relu", Matrices(64, 64, 128, torch.float16)),
    ("gelu", Matrices(64, 64, 128, torch.float16, b_values=normal(0.1))),
]
BFLOAT_ACTIVATIONS = [
    ("relu", Matrices(64, 64, 128, torch.bfloat16)),
    ("gelu", Matrices(70, 50, 100, torch.bfloat16, b_values=normal(0.1))),
]
FLOATS = [Matrices(64, 64, 1024), Matrices(32, 48, 100)]
HUNDREDTHS = {"a_values": constant(0.01), "b_values": constant(1.0)}  # their sum in half precision goes astray
HALVES = [Matrices(64, 64, 1024, torch.float16), Matrices(16, 16, 8192, torch.float16, **HUNDREDTHS)]
BFLOATS = [
    Matrices(64, 64, 1024, torch.bfloat16),
    Matrices(100, 70, 50, torch.bfloat16),
    Matrices(64, 64, 72, torch.bfloat16, TRANSPOSED, row_pitch(128)),
    Matrices(16, 16, 8192, torch.bfloat16, **HUNDREDTHS),
]
OVERFLOW = Matrices(
    8, 16, 64, torch.float16, a_values=Values("a row of 40", one_row_of_forties),
    b_values=Values("a column of 40", one_column_of_forties),
)  # fmt: skip
FAR_APART = [
    Matrices(3, 64, 80, torch.float16, a_layout=row_pitch(2**30 + 64)),
    Matrices(64, 80, 3, torch.float16, b_layout=row_pitch(2**30 + 64)),
]
REFUSED = {  # what: the two inputs, the words that name it, and for what ValueError is due
    "inner sizes 48 and 40": (
        Input((16, 48)), Input((40, 16)), ("48", "40"), "a with another number of columns than b has rows",
    ),
    "a float32, b float16": (
        Input((16, 48)), Input((48, 16), torch.float16), ("float32", "float16"), "two different dtypes",
    ),
    "both float64": (
        Input((16, 48), torch.float64), Input((48, 16), torch.float64), ("float64",),
        "every dtype but float32, float16 and bfloat16",
    ),
    "a of three dimensions": (Input((2, 16, 48)), Input((48, 16)), ("dimension",), "all but two dimensions"),
    "b of one dimension": (Input((16, 48)), Input((48,)), ("dimension",), "all but two dimensions"),
}  # fmt: skip
ALLOWED = Matrices(16, 16, 48)


@pytest.mark.parametrize("case", SIZES, ids=str)
def test_sizes(submission, draw, case):
    """Sizes need not be multiples of a tile, and all three may differ."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", DEPTHS, ids=str)
def test_depth(submission, draw, case):
    """The sums run over all of k, also where k is no multiple of a step."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", EMPTY, ids=str)
def test_empty(submission, draw, case):
    """With no rows or no columns the result is empty; with k = 0 it is zero, with k = 1 one product each."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", LAYOUTS, ids=str)
def test_layouts(submission, draw, case):
    """Strided, sliced, transposed and expanded inputs are read where their elements lie."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize(("activation", "case"), ACTIVATIONS, ids=["; ".join(map(str, row)) for row in ACTIVATIONS])
def test_activation(submission, draw, activation, case):
    """An activation is applied to the float32 sums, before they are rounded and stored."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b, activation=activation), reference.matmul(a, b, activation))


@pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))
@pytest.mark.parametrize(
    ("activation", "case"), BFLOAT_ACTIVATIONS, ids=["; ".join(map(str, row)) for row in BFLOAT_ACTIVATIONS]
)
def test_activation_bfloat16(submission, draw, activation, case):
    """An activation on bfloat16 matrices is applied to the float32 sums, too."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b, activation=activation), reference.matmul(a, b, activation))


@pytest.mark.precision
@pytest.mark.parametrize("case", FLOATS, ids=str)
def test_float32(submission, draw, case):
    """float32 is float32 throughout, not TF32."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.precision
@pytest.mark.parametrize("case", HALVES, ids=str)
def test_float16(submission, draw, case):
    """float16 is summed in float32 and rounded once."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.precision
@pytest.mark.needs_gpu("bfloat16 arithmetic is wrong in Triton's interpreter", capability=(8, 0))
@pytest.mark.parametrize("case", BFLOATS, ids=str)
def test_bfloat16(submission, draw, case):
    """bfloat16 is summed in float32 and rounded once."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", [OVERFLOW], ids=str)
def test_overflow(submission, draw, case):
    """A sum that float16 cannot hold is infinite, and its neighbours are right."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.needs_gpu("4 GiB of input take too long in Triton's interpreter", gib=24)
@pytest.mark.parametrize("case", FAR_APART, ids=str)
def test_far_apart(submission, draw, case):
    """Rows may lie so far apart that offsets pass 2^31."""
    a, b = draw(case.a, "a"), draw(case.b, "b")
    assert_matches(submission.matmul(a, b), reference.matmul(a, b))


@pytest.mark.parametrize("case", [Matrices(70, 50, 100), Matrices(64, 64, 64, torch.float16)], ids=str)
def test_second_call(submission, draw, case):
    """A second call at the same addresses computes anew, and leaves the first answer alone."""
    first, second = ((draw(case.a, "a"), draw(case.b, "b")) for _ in range(2))
    assert_matches(submission.matmul(*first), reference.matmul(*first))
    new, old = submission.matmul.again(*second)
    assert_matches(new, reference.matmul(*second), previous=reference.matmul(*first))
    assert_matches(old, reference.matmul(*first), cause=ANSWER_OVERWRITTEN)


@pytest.mark.parametrize("order", ["reversed", "shuffled"], ids="programs run in {} order".format)
def test_any_order(submission, draw, order):
    """The programs of a launch may run in any order."""
    case = Matrices(300, 280, 40)
    a, b = draw(case.a, "a"), draw(case.b, "b")
    right = reference.matmul(a, b)
    assert_matches(submission.matmul(a, b), right)
    assert_matches(
        submission.matmul(a, b), right, previous=right
    )  # so that what is kept between calls is not taken for order
    assert_matches(submission.in_order(order).matmul(a, b), right, cause=ORDER_DEPENDENT)


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_input(submission, draw, case):
    """Sizes, dtypes or dimensions that do not fit raise ValueError, which names what differs."""
    a, b = draw(ALLOWED.a, "a"), draw(ALLOWED.b, "b")
    assert_allowed(submission.matmul(a, b), reference.matmul(a, b))
    wrong_a, wrong_b, naming, refusing = REFUSED[case]
    assert_raises(submission.matmul.exception(draw(wrong_a, "a"), draw(wrong_b, "b")), "ValueError", naming, refusing)


def test_wrong_activation(submission, draw):
    """An activation that does not exist raises ValueError, which names it."""
    a, b = draw(ALLOWED.a, "a"), draw(ALLOWED.b, "b")
    assert_allowed(submission.matmul(a, b), reference.matmul(a, b))
    outcome = submission.matmul.exception(a, b, activation="tanh")
    assert_raises(outcome, "ValueError", ("tanh",), 'every activation but None, "relu" and "gelu"')


def test_two_devices(submission, draw):
    """Matrices on different devices raise ValueError, which names both."""
    a, b = draw(ALLOWED.a, "a"), draw(ALLOWED.b, "b")
    first = submission.matmul(a, b)
    assert_allowed(first, reference.matmul(a, b))
    outcome = submission.matmul.exception(a, b, elsewhere=b)
    refusing = "two devices (b is on meta here, PyTorch's device without memory)"
    assert_raises(outcome, "ValueError", ("meta", first.device), refusing)


@pytest.mark.needs_gpu("a CPU has no streams")
def test_current_stream(submission, draw):
    """The kernel runs on the current stream, after what is queued there, and so does whoever reads the answer."""
    case = Matrices(300, 200, 100)
    a, b = draw(case.a, "a"), draw(case.b, "b")
    right = reference.matmul(a, b)
    assert_matches(submission.matmul(a, b), right)
    assert_matches(submission.matmul.on_own_stream(a, b), right, cause=OTHER_STREAM)


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_bfloat16(clock):
    """matmul: the time of an 8192 x 8192 x 8192 product in bfloat16, beside that of cuBLAS."""
    clock.time(works.matmul(8192, 8192, 8192))


@pytest.mark.needs_gpu("speed is measured there", gib=70)
def test_speed_float32(clock):
    """matmul: the time of a 4096 x 4096 x 4096 product in float32, beside that of cuBLAS."""
    clock.time(works.matmul(4096, 4096, 4096, torch.float32))
