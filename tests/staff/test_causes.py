"""The likely cause: each predicate suspects its own fault, and not the one next to it."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import pytest
import torch

from grader.judge import memory
from grader.judge.cases import Heads, Input, Matrices, every_other, normal, permuted, row_pitch
from grader.judge.causes import Evidence, likely_cause
from grader.judge.evidence import NEXT_TO
from grader.judge.expected import Expected
from grader.judge.reference import flash_attention, gelu, matmul, softmax
from grader.judge.replies import Access, Place

GENERATOR = torch.Generator().manual_seed(20)
NAN = float("nan")
LOAD = Access(
    kind="read", program=[2, 0, 0], lanes=[5, 31], count=27, tensor="x", element=101,
    where=Place(file="gelu.py", line=14),
)  # fmt: skip


def draw(*shape: int, **more: object) -> torch.Tensor:
    """Standard normal values in guarded memory."""
    return Input(shape, **more).draw(GENERATOR)  # type: ignore[arg-type]


def evidence(expected: Expected, got: torch.Tensor, **more: object) -> Evidence:
    """What a check would hand over for this answer."""
    got = got.to(expected.dtype)
    errors = expected.errors(got)
    return Evidence(got, expected, errors, **more)  # type: ignore[arg-type]


def right(expected: Expected) -> torch.Tensor:
    """The right answer, to be spoiled."""
    return expected.values.to(expected.dtype).clone()


def from_bits(pattern: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The number with these bits."""
    return torch.tensor([pattern], dtype=torch.int32 if dtype == torch.float32 else torch.int16).view(dtype)


FRESH = from_bits(memory.FILL_BITS[torch.float32])
POISON = from_bits(memory.POISON_BITS[torch.float32])
COMPUTED_NAN = from_bits(0x7FFFFFFF)  # as a GPU makes it


def input_read_as_contiguous() -> Evidence:
    x = draw(40, 50, layout=permuted(1, 0))
    return evidence(gelu.gelu(x), gelu.gelu(x.t().contiguous().view(40, 50)).values)


def columns_read_as_neighbours() -> Evidence:
    x = draw(6, 50, layout=permuted(1, 0))
    return evidence(softmax.softmax(x), softmax.softmax(x.as_strided((6, 50), (1, 1))).values)


def incoming_gradient_read_as_contiguous() -> Evidence:
    x, dy = draw(6, 50), draw(6, 50, layout=permuted(1, 0))
    return evidence(softmax.gradient(x, dy), softmax.gradient(x, dy.t().contiguous().view(6, 50)).values)


def output_written_as_contiguous() -> Evidence:
    x = draw(40, 50, layout=permuted(1, 0))
    return evidence(gelu.gelu(x), gelu.gelu(x).values.flatten().view(50, 40).t())


def output_written_row_by_row() -> Evidence:
    x = draw(40, 50, layout=permuted(1, 0))
    values, memory = gelu.gelu(x).values, torch.full((2000,), NAN, dtype=torch.float64)
    for row in range(40):
        memory[row : row + 50] = values[row]  # row * stride(0) + column, where the strides are 1 and 40
    return evidence(gelu.gelu(x), memory.as_strided((40, 50), (1, 40)))


def everything_infinite() -> Evidence:
    return evidence(gelu.gelu(draw(100)), torch.full((100,), float("inf")))


def load_seen_outside() -> Evidence:
    x = draw(100)
    return evidence(gelu.gelu(x), right(gelu.gelu(x)).index_fill_(0, torch.tensor([99]), NAN), accesses=(LOAD,))


def load_seen_in_a_gap() -> Evidence:
    x = draw(3, 100, layout=row_pitch(128))
    return evidence(gelu.gelu(x), torch.full((3, 100), NAN), accesses=(LOAD,))


def poison_in_the_answer() -> Evidence:
    expected = gelu.gelu(draw(100))
    got = right(expected)
    got[97:] = POISON
    return evidence(expected, got)


def nan_in_the_answer() -> Evidence:
    """NaN that was computed, with other bits than fresh memory and red zones have."""
    expected = gelu.gelu(draw(100))
    got = right(expected)
    got[::7] = COMPUTED_NAN
    return evidence(expected, got)


def rows_that_begin_with_minus_infinity() -> tuple[torch.Tensor, Expected]:
    x = draw(4, 60)
    x[:, ::3] = -float("inf")
    x[0, :40] = -float("inf")
    return x, softmax.softmax(x)


def row_that_begins_with_minus_infinity_is_nan() -> Evidence:
    _, expected = rows_that_begin_with_minus_infinity()
    got = right(expected)
    got[0] = NAN
    return evidence(expected, got)


def last_row_is_untouched() -> Evidence:
    _, expected = rows_that_begin_with_minus_infinity()
    got = right(expected)
    got[3] = FRESH
    return evidence(expected, got)


def every_row_is_cut() -> Evidence:
    expected = softmax.softmax(draw(3, 100))
    got = right(expected)
    got[:, 64:] = FRESH
    return evidence(expected, got)


def last_elements_are_untouched() -> Evidence:
    expected = softmax.softmax(draw(3, 100))
    got = right(expected)
    got.view(-1)[256:] = FRESH
    return evidence(expected, got)


def only_element_is_untouched() -> Evidence:
    return evidence(gelu.gelu(draw(1)), FRESH)


def last_elements_are_zero() -> Evidence:
    expected = gelu.gelu(draw(300))
    got = right(expected)
    got[256:] = 0
    return evidence(expected, got)


def scattered_elements_are_zero() -> Evidence:
    expected = gelu.gelu(draw(300))
    got = right(expected)
    got[100::3] = 0
    return evidence(expected, got)


def answer_to_the_call_before() -> Evidence:
    previous = gelu.gelu(draw(100)).values
    return evidence(gelu.gelu(draw(100)), previous, previous=previous)


def sum_of_both_calls() -> Evidence:
    expected, previous = gelu.gelu(draw(100)), gelu.gelu(draw(100)).values
    return evidence(expected, expected.values + previous, previous=previous)


def sum_with_another_call() -> Evidence:
    expected = gelu.gelu(draw(100))
    return evidence(expected, expected.values + gelu.gelu(draw(100)).values)


def erf_form() -> Evidence:
    x = draw(1000)
    return evidence(gelu.gelu(x), torch.nn.functional.gelu(x.double()))


def half_way_to_the_erf_form() -> Evidence:
    x = draw(1000)
    return evidence(gelu.gelu(x), (torch.nn.functional.gelu(x.double()) + gelu.gelu(x).values) / 2)


def zeros() -> Evidence:
    return evidence(gelu.gelu(draw(100)), torch.zeros(100))


def one_zero_is_the_whole_answer() -> Evidence:
    return evidence(gelu.gelu(torch.ones(1)), torch.zeros(1))


def zeros_but_for_one_element() -> Evidence:
    got = torch.zeros(100)
    got[50] = 1
    return evidence(gelu.gelu(draw(100)), got)


def nan_for_large_elements() -> Evidence:
    x = 10 * draw(1000)
    return evidence(gelu.gelu(x), torch.where(x > 10.06, NAN, gelu.gelu(x).values))


def nan_for_some_large_elements() -> Evidence:
    x = 10 * draw(1000)
    got = torch.where(x > 10.06, NAN, gelu.gelu(x).values)
    got[x.argmax()] = float(x.max())
    return evidence(gelu.gelu(x), got)


def computed_in_half_precision() -> Evidence:
    x = draw(5000)
    return evidence(gelu.gelu(x), torch.nn.functional.gelu(x.half(), approximate="tanh"))


def half_precision_rounded_at_each_step() -> Evidence:
    x = draw(5000, dtype=torch.float16)
    power = (-2 * 0.7978845608 * (x + 0.044715 * x * x * x)).exp()
    return evidence(gelu.gelu(x), x / (1 + power))


def a_tenth_too_large() -> Evidence:
    expected = gelu.gelu(draw(5000))
    return evidence(expected, 1.1 * expected.values)


def a_tenth_too_large_in_float16() -> Evidence:
    expected = gelu.gelu(draw(5000, dtype=torch.float16))
    return evidence(expected, 1.1 * expected.values)


def rows_with_a_factor() -> Evidence:
    expected = softmax.softmax(draw(4, 100))
    return evidence(expected, expected.values * torch.tensor([1.3, 1.0, 1.7, 0.4])[:, None])


def equal_logits_and_twice_the_answer() -> Evidence:
    expected = softmax.softmax(torch.ones(3, 64))
    return evidence(expected, 2 * expected.values)


def half_rows_with_a_factor() -> Evidence:
    expected = softmax.softmax(draw(4, 100))
    got = right(expected)
    got[:, ::2] *= 1.3
    return evidence(expected, got)


TRANSPOSED = permuted(1, 0)


def matrices(m: int, n: int, k: int, *more: object) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs of a product."""
    case = Matrices(m, n, k, *more)  # type: ignore[arg-type]
    return case.a.draw(GENERATOR), case.b.draw(GENERATOR)


def product_of(a: torch.Tensor, b: torch.Tensor, misread_a: torch.Tensor, misread_b: torch.Tensor) -> Evidence:
    return evidence(matmul.matmul(a, b), misread_a.double() @ misread_b.double())


def strides_of_b_swapped() -> Evidence:
    a, b = matrices(100, 70, 50)
    return product_of(a, b, a, b.as_strided((50, 70), (1, 70)))


def copy_of_a_read_by_its_old_strides() -> Evidence:
    a, b = matrices(50, 40, 70, torch.float32, TRANSPOSED)
    return product_of(a, b, a.contiguous().as_strided((50, 70), (1, 50)), b)


def both_read_as_contiguous() -> Evidence:
    a, b = matrices(50, 40, 70, torch.float32, TRANSPOSED, TRANSPOSED)
    return product_of(a, b, a.as_strided((50, 70), (70, 1)), b.as_strided((70, 40), (40, 1)))


def product_stored(rows: int, columns: int, row_stride: int, column_stride: int) -> Evidence:
    """The right product of these sizes, stored by these strides, row after row, where there is room."""
    expected = matmul.matmul(*matrices(rows, columns, 30))
    got = FRESH.repeat(rows * columns)
    for row in range(rows):
        for column in range(columns):
            if (place := row * row_stride + column * column_stride) < len(got):
                got[place] = expected.values[row, column]
    return evidence(expected, got.view(rows, columns))


def product_with(spoil: Callable[[torch.Tensor], None], m: int = 100, n: int = 70, k: int = 50) -> Evidence:
    """A product that is right but for what `spoil` does to it."""
    expected = matmul.matmul(*matrices(m, n, k))
    got = right(expected)
    spoil(got)
    return evidence(expected, got)


def rows_from(first: int, value: torch.Tensor | float) -> Callable[[torch.Tensor], None]:
    return lambda got: got[first:].copy_(torch.as_tensor(value))


def zeros_from_row(first: int) -> Evidence:
    """A product under relu, where every other zero is right."""
    expected = matmul.matmul(*matrices(70, 45, 100), "relu")
    got = right(expected)
    got[first:] = 0
    return evidence(expected, got)


def tiles_untouched(got: torch.Tensor) -> None:
    got[:64, 64:] = FRESH
    got[64:, :64] = FRESH


def scattered_rows_untouched(got: torch.Tensor) -> None:
    got[5::7] = FRESH


def half_product(spoil: Callable[[torch.Tensor], None]) -> Evidence:
    """A float16 product whose first element is beyond 65504."""
    a, b = matrices(8, 16, 64, torch.float16)
    a[0], b[:, 0] = 40, 40
    expected = matmul.matmul(a, b)
    got = right(expected)
    spoil(got)
    return evidence(expected, got)


def first_is(value: float) -> Callable[[torch.Tensor], None]:
    return lambda got: got[0, :1].fill_(value)


def a_few_roundings_off(got: torch.Tensor) -> None:
    got[1:] *= 1.003


def first_and_another_are_nan(got: torch.Tensor) -> None:
    got[0, 0] = NAN
    got[3, 5] = NAN


def gelu_of_a_product(broken: Callable[[torch.Tensor], torch.Tensor]) -> Evidence:
    """NaN where `broken` says so of the product."""
    expected = matmul.matmul(*matrices(40, 30, 60), "gelu")
    return evidence(expected, torch.where(broken(expected.values), NAN, expected.values))


def no_products_and_nothing_stored() -> Evidence:
    return evidence(matmul.matmul(*matrices(8, 9, 0)), FRESH.repeat(72).view(8, 9))


def load_of_a_seen(lanes: list[int]) -> Evidence:
    access = LOAD.model_copy(update={"tensor": "a", "lanes": lanes, "element": 6400})
    return replace(product_with(rows_from(64, NAN)), accesses=(access,))


# the cause's name, evidence that has it, and evidence of the fault next to it
CAUSES: list[tuple[str, Callable[[], Evidence], Callable[[], Evidence]]] = [
    ("strides_ignored", input_read_as_contiguous, output_written_as_contiguous),
    ("strides_ignored", columns_read_as_neighbours, half_rows_with_a_factor),
    ("strides_ignored", incoming_gradient_read_as_contiguous, output_written_as_contiguous),
    ("output_strides_ignored", output_written_as_contiguous, input_read_as_contiguous),
    ("output_strides_ignored", output_written_row_by_row, last_row_is_untouched),
    ("out_of_bounds_read", load_seen_outside, nan_in_the_answer),
    ("red_zone_read", poison_in_the_answer, nan_in_the_answer),
    ("infinity_minus_infinity", row_that_begins_with_minus_infinity_is_nan, last_row_is_untouched),
    ("row_longer_than_block", every_row_is_cut, last_elements_are_untouched),
    ("never_written", last_elements_are_untouched, last_elements_are_zero),
    ("never_written", last_row_is_untouched, row_that_begins_with_minus_infinity_is_nan),
    ("never_written", only_element_is_untouched, nan_for_large_elements),
    ("previous_answer", answer_to_the_call_before, sum_of_both_calls),
    ("erf_form", erf_form, half_way_to_the_erf_form),
    ("constant", zeros, zeros_but_for_one_element),
    ("constant", one_zero_is_the_whole_answer, zeros_but_for_one_element),
    ("overflow", nan_for_large_elements, nan_for_some_large_elements),
    ("lower_precision", computed_in_half_precision, a_tenth_too_large),
    ("lower_precision", half_precision_rounded_at_each_step, a_tenth_too_large_in_float16),
    ("kept_between_calls", sum_of_both_calls, sum_with_another_call),
    ("unexpected_nan", nan_in_the_answer, scattered_elements_are_zero),
    ("row_sum", rows_with_a_factor, half_rows_with_a_factor),
    ("row_sum", equal_logits_and_twice_the_answer, zeros),
    ("constant", zeros, equal_logits_and_twice_the_answer),
    ("wrong_tail", last_elements_are_zero, scattered_elements_are_zero),
    ("strides_swapped", strides_of_b_swapped, both_read_as_contiguous),
    ("old_strides", copy_of_a_read_by_its_old_strides, strides_of_b_swapped),
    ("strides_ignored", both_read_as_contiguous, copy_of_a_read_by_its_old_strides),
    ("output_strides_swapped", partial(product_stored, 30, 21, 1, 21), partial(product_stored, 30, 21, 1, 30)),
    ("stored_transposed", partial(product_stored, 30, 21, 1, 30), partial(product_stored, 30, 21, 1, 21)),
    ("masked_by_other_size", partial(product_with, rows_from(70, 0)), partial(product_with, rows_from(71, 0))),
    ("masked_by_other_size", partial(product_with, rows_from(70, FRESH)), partial(product_with, rows_from(64, FRESH))),
    ("masked_by_other_size", partial(zeros_from_row, 45), partial(zeros_from_row, 44)),
    ("tiles_missing", partial(product_with, tiles_untouched), partial(product_with, scattered_rows_untouched)),
    ("never_written", partial(product_with, scattered_rows_untouched), partial(product_with, tiles_untouched)),
    ("never_written", no_products_and_nothing_stored, zeros),
    ("infinity_missing", partial(half_product, first_is(65504)), partial(half_product, rows_from(1, 65504))),
    ("infinity_missing", partial(half_product, first_is(NAN)), partial(half_product, first_and_another_are_nan)),
    ("lower_precision", partial(half_product, a_few_roundings_off), partial(half_product, first_is(65504))),
    ("overflow", partial(gelu_of_a_product, lambda x: x > 10.06), partial(gelu_of_a_product, lambda x: x < 10.06)),
    ("out_of_bounds_read", partial(load_of_a_seen, [28, 31]), partial(product_with, rows_from(64, NAN))),
]

MISTAKES = [
    *((gelu.gelu, mistake) for mistake in gelu.MISTAKES),
    *((softmax.softmax, mistake) for mistake in softmax.MISTAKES),
    *((softmax.gradient, mistake) for mistake in softmax.GRADIENT_MISTAKES),
    *(
        (partial(matmul.matmul, activation=activation), mistake)
        for activation, mistakes in matmul.MISTAKES.items()
        for mistake in {mistake.name: mistake for mistake in reversed(mistakes)}.values()  # those with steps of 16
    ),
]


def name_of(found: Evidence) -> str | None:
    cause = likely_cause(found)
    return cause.name if cause else None


@pytest.mark.parametrize(("name", "fault", "_neighbour"), CAUSES)
def test_a_fault_is_told(name, fault, _neighbour):
    assert name_of(fault()) == name


@pytest.mark.parametrize(("name", "_fault", "neighbour"), CAUSES)
def test_the_fault_next_to_it_is_not_taken_for_it(name, _fault, neighbour):
    assert name_of(neighbour()) != name


def arguments_for(reference: Callable[..., Expected], name: str) -> tuple[torch.Tensor, ...]:
    """Inputs on which a mistake shows."""
    if isinstance(reference, partial):  # a product whose elements are about 1, of three steps of 16 and a rest
        a, b = matrices(70, 30, 56, torch.float16 if name == "activation_of_rounded" else torch.float32)
        return a, b.mul_(0.16)
    x = draw(4, 5, 33)
    if name == "missing_maximum":
        x[..., 7] = 1e4
    if name == "global_maximum":
        x[::2] += 300
    if name == "empty_row":
        x[-1] = -float("inf")
    return (x, draw(4, 5, 33)) if reference is softmax.gradient else (x,)


@pytest.mark.parametrize(("reference", "mistake"), MISTAKES, ids=lambda value: getattr(value, "name", ""))
def test_a_known_mistake_is_told(reference, mistake):
    arguments = arguments_for(reference, mistake.name)
    wrong = mistake.formula(*arguments)
    assert name_of(evidence(reference(*arguments), wrong.where(~wrong.isnan(), COMPUTED_NAN))) == mistake.name


@pytest.mark.parametrize(("reference", "mistake"), MISTAKES, ids=lambda value: getattr(value, "name", ""))
def test_a_value_between_right_and_mistaken_is_not_taken_for_the_mistake(reference, mistake):
    arguments = arguments_for(reference, mistake.name)
    expected, wrong = reference(*arguments), mistake.formula(*arguments).double()
    assert name_of(evidence(expected, 0.5 * expected.values + 0.5 * wrong.nan_to_num(0.0))) != mistake.name


def test_an_infinity_in_the_same_places_is_no_proof_when_the_numbers_differ():
    [x] = arguments_for(softmax.softmax, "empty_row")
    expected = softmax.softmax(x)
    got = 0.7 * softmax.softmax(x.flip(-1)).values.nan_to_num(0.0)
    assert name_of(evidence(expected, got)) != "empty_row"


def test_a_layout_that_is_read_right_is_not_suspected():
    x = draw(37, 100, layout=every_other(0))
    got = right(gelu.gelu(x))
    got[32:] = 0
    assert name_of(evidence(gelu.gelu(x), got)) == "wrong_tail"


def test_a_stray_load_is_told_with_program_lanes_and_line():
    cause = likely_cause(load_seen_outside())
    assert cause is not None
    assert "program (2, 0, 0) reads outside every tensor: lanes 5 to 31, the first at element 101 of `x`" in cause.why
    assert str(cause.where) == "assignment/gelu.py:14"
    assert "mask this load" in cause.hint


def test_a_stray_load_does_not_hide_a_mistake_that_explains_every_number():
    assert name_of(replace(erf_form(), accesses=(LOAD,))) == "erf_form"


def test_a_load_between_the_rows_is_a_matter_of_strides():
    cause = likely_cause(load_seen_in_a_gap())
    assert cause is not None
    assert "a gap between the elements of `x`: multiply each index by its own stride (they are 128 and 1)" in cause.hint


def test_the_argument_whose_strides_are_ignored_is_named():
    answer, gradient = likely_cause(input_read_as_contiguous()), likely_cause(incoming_gradient_read_as_contiguous())
    assert answer is not None
    assert gradient is not None
    assert answer.why == "`x` is read as if it were contiguous, but its strides are 1 and 40"
    assert gradient.why == "the incoming gradient is read as if it were contiguous, but its strides are 1 and 6"


def test_the_block_that_a_row_is_longer_than_is_named():
    cause = likely_cause(every_row_is_cut())
    assert cause is not None
    assert cause.why.startswith("a row of 100 is longer than one block of 64")


def test_inputs_that_are_misread_alike_are_named_together():
    cause = likely_cause(both_read_as_contiguous())
    assert cause is not None
    assert cause.why == "`a` is read as if it were contiguous, but its strides are 1 and 50; so is `b`"


def test_the_tiles_that_are_missing_are_named():
    missing = [likely_cause(product_with(spoil)) for spoil in (tiles_untouched, rows_from(64, FRESH))]
    assert [cause.why.partition(": ")[2] for cause in missing if cause] == [
        "rows 0 to 63 of columns 64 to 69, and others", "rows 64 to 99 of columns 0 to 69",
    ]  # fmt: skip


def test_a_size_that_ends_a_mask_too_early_is_named_with_the_index():
    cause = likely_cause(product_with(rows_from(70, FRESH)))
    assert cause is not None
    assert cause.why.startswith("never written from row 70 on, and 70 is the number of columns of `b`")


def test_a_stray_load_of_a_product_is_a_matter_of_pointers_where_it_begins_with_the_first_lane():
    within, from_the_start = likely_cause(load_of_a_seen([28, 31])), likely_cause(load_of_a_seen([0, 31]))
    assert within is not None
    assert from_the_start is not None
    assert "mask this load" in within.hint
    assert "0 * NaN is NaN" in within.hint
    assert "BLOCK * a.stride(1)" in from_the_start.hint


def test_zeros_under_an_activation_are_no_product_that_misses_something():
    """A kernel that writes relu as a comparison makes zeros of NaN, whatever the NaN came from."""
    expected = matmul.matmul(*matrices(20, 30, 10), "relu")
    assert name_of(evidence(expected, torch.zeros(20, 30))) == "constant"


def test_numbers_that_are_beyond_float16_are_clamped_or_nan():
    clamped, broken = likely_cause(half_product(first_is(65504))), likely_cause(half_product(first_is(NAN)))
    assert clamped is not None
    assert broken is not None
    assert "cut off" in clamped.why
    assert "inf - inf" in broken.why


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_poison_and_fresh_memory_are_told_apart_in_every_dtype(dtype):
    expected = gelu.gelu(draw(100, dtype=dtype))
    for patterns, name in ((memory.POISON_BITS, "red_zone_read"), (memory.FILL_BITS, "never_written")):
        got = right(expected)
        got[97:] = from_bits(patterns[dtype], dtype)
        assert name_of(evidence(expected, got)) == name


GARBAGE = {
    "NaN": lambda shape: torch.full(shape, NAN),
    "infinities": lambda shape: torch.full(shape, float("inf")),
    "large numbers": lambda shape: 1e30 * torch.randn(shape),
    "some NaN": lambda shape: torch.where(torch.rand(shape) < 0.5, NAN, 1.0),
}
FORMS = [Input(()), Input((1,)), Input((7,)), Input((1, 1)), Input((3, 1)), Input((2, 3, 5), layout=permuted(2, 0, 1))]
FORMS += [Input((6, 9), dtype, layout=every_other(-1)) for dtype in (torch.float32, torch.float16, torch.bfloat16)]


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("case", FORMS, ids=str)
def test_no_answer_is_too_strange_to_be_looked_at(case, garbage):
    x, dy = case.draw(GENERATOR), case.draw(GENERATOR)
    expectations = [gelu.gelu(x)] + ([softmax.softmax(x), softmax.gradient(x, dy)] if case.shape else [])
    for expected in expectations:
        likely_cause(evidence(expected, garbage(case.shape), previous=expected.values))


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 9, 0), (5, 5, 5), (33, 17, 40)], ids=str)
def test_no_product_is_too_strange_to_be_looked_at(sizes, dtype, activation, garbage):
    for layouts in ((TRANSPOSED, TRANSPOSED), (row_pitch(50), every_other(0))):
        expected = matmul.matmul(*matrices(*sizes, dtype, *layouts), activation)
        likely_cause(evidence(expected, garbage(expected.values.shape), previous=expected.values))


def test_a_known_mistake_is_told_in_float16_where_rounding_hides_it_from_the_rms():
    x = torch.randn(4000, generator=torch.Generator().manual_seed(1)).half()
    erf = torch.nn.functional.gelu(x.double()).half()
    chain = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    assert likely_cause(evidence(gelu.gelu(x), erf)).name == "erf_form"
    assert likely_cause(evidence(gelu.gelu(x), chain)).name == "lower_precision"


def test_infinity_everywhere_is_not_taken_for_a_missing_store():
    found = likely_cause(everything_infinite())
    assert found.name == "constant"
    assert "too large for its dtype" in found.hint
    assert "stored" in likely_cause(zeros()).hint


def attention(case: Heads) -> dict[str, Expected]:
    """What is right for drawn inputs, by what a student calls it."""
    q, k, v, do = (drawn.draw(GENERATOR) for drawn in (case.q, case.k, case.v, case.do))
    gradients = zip(("dq", "dk", "dv"), flash_attention.gradients(do, q, k, v, **case.options), strict=True)
    return {
        "o": flash_attention.output(q, k, v, **case.options),
        "lse": flash_attention.log_sum_exp(q, k, v, **case.options),
        **dict(gradients),
    }


ATTENTIONS = [
    Heads(70, 100, 16),
    Heads(50, 50, 16, scale=0.4),
    Heads(100, 70, 16, is_causal=True),
    Heads(70, 100, 32, is_causal=True, scale=-0.3),
    Heads(40, 40, 16, leading=(2, 4), key_leading=(2, 2), is_causal=True),
    Heads(20, 50, 64, q_values=normal(30.0)),
]
TELLING = {
    "o": {
        "missing_maximum", "causal_ignored", "causal_off_by_one", "causal_bottom_right", "scale_ignored", "scale_fixed",
        "scale_missing", "scale_twice", "scale_inverted", "heads_in_turns", "not_divided", "exp2_without_log2e",
        "exp_with_log2e", "sums_not_rescaled", "accumulator_not_rescaled", "sum_not_rescaled", "rescaled_upside_down",
        "padded_keys_counted", "last_keys_dropped", "last_keys_only", "hidden_score_zero", "infinity_minus_infinity",
        "diagonal_skipped", "diagonal_not_masked",
    },
    "dk": {
        "scale_missing", "scale_twice", "missing_row_sum", "other_row_sum", "scale_missing_in_scores", "scale_ignored",
        "scale_fixed", "scale_inverted", "lse_missing", "lse_of_base_two", "exp2_without_log2e", "exp_with_log2e",
        "causal_ignored", "causal_off_by_one", "causal_bottom_right", "gradients_swapped", "heads_in_turns",
        "one_head_only", "diagonal_not_masked", "last_queries_dropped",
        "first_queries_skipped", "not_transposed",
    },
}  # fmt: skip
TELLING["lse"] = TELLING["o"] - {"not_divided", "sums_not_rescaled", "accumulator_not_rescaled"} | {
    "base_two", "mixed_logarithms", "maximum_missing", "sum_missing", "logarithm_missing",
}  # fmt: skip
OF_ROW_SUMS = {"missing_row_sum", "other_row_sum", "scale_missing", "scale_twice"}
TELLING["dv"] = TELLING["dk"] - OF_ROW_SUMS | {"scale_twice"}
TELLING["dq"] = TELLING["dk"] - {
    "one_head_only", "last_queries_dropped", "first_queries_skipped", "not_transposed",
} | {"last_keys_dropped", "diagonal_skipped"}  # fmt: skip


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small matrices are slower with several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("what", TELLING)
def test_each_known_mistake_in_attention_is_told_and_half_of_it_is_not(what):
    told: set[str] = set()
    for case in ATTENTIONS:
        expected, here = attention(case)[what], set()
        for mistake in expected.mistakes:
            if mistake.name in here:
                continue
            wrong = mistake.formula(*expected.arguments)
            size = float(wrong.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
            shown = wrong.shape == expected.values.shape and size > NEXT_TO * expected.least_scale
            found = evidence(expected, wrong.where(~wrong.isnan(), COMPUTED_NAN)) if shown else None
            if found is None or (not found.wrong.any() and found.errors.rms < 1e-3):
                continue
            here.add(mistake.name)
            assert name_of(found) == mistake.name, (str(case), mistake)
            between = 0.5 * expected.values + 0.5 * wrong.nan_to_num(0.0, 0.0, 0.0).double()
            assert name_of(evidence(expected, between)) != mistake.name, (str(case), mistake)
        told |= here
    assert told == TELLING[what]


def test_of_two_mistakes_that_both_explain_an_answer_the_nearer_one_is_told():
    """With d = 32, 1 / sqrt(d) * log(2) is nearly 1/8."""
    expected = attention(Heads(70, 100, 32))["lse"]
    q, k, _ = expected.arguments
    got = torch.logsumexp(q.double() @ k.double().mT / 32**0.5 * math.log(2), -1)
    assert name_of(evidence(expected, got)) == "exp2_without_log2e"


def rows_are(case: Heads, what: str, value: torch.Tensor | float, rows: slice = slice(None)) -> Evidence:
    """An answer of attention that is right but for some rows, as PyTorch computed it."""
    expected = attention(case)[what]
    got = right(expected)
    got[:, rows] = torch.as_tensor(value)
    return evidence(expected, got, launches=0)


@pytest.mark.parametrize(
    ("what", "value", "due"),
    [("o", NAN, "0"), ("o", 1.0, "0"), ("lse", NAN, "-inf"), ("lse", 0.0, "-inf"), ("dq", FRESH, "0")],
)
def test_without_keys_it_is_told_what_is_due(what, value, due):
    cause = likely_cause(rows_are(Heads(5, 0, 16), what, value))
    assert cause is not None
    assert cause.name == "no_keys"
    assert f"there are no keys (n_k = 0), so every element is {due}" in cause.why
    assert "o and dq are zeros and lse is -inf" in cause.hint


def test_a_tail_is_the_last_block_and_no_causal_one():
    assert name_of(rows_are(Heads(100, 70, 16), "o", 0.0, slice(64, None))) == "wrong_tail"
    assert name_of(rows_are(Heads(100, 70, 16, is_causal=True), "o", 0.0, slice(64, None))) is None
    assert name_of(rows_are(Heads(100, 70, 16), "o", 0.0, slice(1, None))) is None
    assert name_of(rows_are(Heads(200, 70, 16), "o", 0.0, slice(64, None))) is None


def test_errors_that_all_go_one_way_are_no_rounding():
    expected = attention(Heads(100, 70, 16))["lse"]
    noise = 1e-3 * torch.randn(expected.values.shape, generator=GENERATOR)
    assert name_of(evidence(expected, expected.values + noise)) == "lower_precision"
    assert name_of(evidence(expected, expected.values - noise.abs())) is None


OF_KERNELS = ("load", "store", "grid", "kernel's", "program", "tl.", "TF32", "block")


@pytest.mark.parametrize("case", [Heads(100, 70, 16), Heads(100, 70, 16, is_causal=True)], ids=str)
@pytest.mark.parametrize(
    "value", [COMPUTED_NAN, FRESH, POISON, 0.0, 1.0], ids=["NaN", "fresh", "poison", "zeros", "ones"]
)
@pytest.mark.parametrize("rows", [slice(None), slice(1), slice(64, None), slice(0, None, 3)], ids=str)
def test_what_no_kernel_computed_gets_no_cause_of_a_kernel(case, value, rows):
    expected = attention(case)["o"]
    for got in (rows_are(case, "o", value, rows), evidence(expected, expected.values.half(), launches=0)):
        cause = likely_cause(got)
        said = f"{cause.why} {cause.hint}" if cause else got.expected.advice
        assert not [word for word in OF_KERNELS if word in said], said


def test_nan_throughout_is_no_proof_of_any_mistake():
    case = Heads(64, 100, 16, is_causal=True)
    for what in ("o", "lse"):
        cause = likely_cause(rows_are(case, what, COMPUTED_NAN))
        assert cause is not None
        assert cause.name == "unexpected_nan"
        assert "While every key so far is masked, m is -inf, and m - n is NaN: subtract 0" in cause.hint


def test_where_every_load_was_watched_and_none_strayed_nan_is_none_of_a_stray_load():
    expected = attention(Heads(100, 70, 16))["o"]
    got = right(expected)
    got[:, 3] = COMPUTED_NAN
    watched = likely_cause(evidence(expected, got, launches=1, watched=True))
    unwatched = likely_cause(evidence(expected, got, launches=1))
    assert watched is not None
    assert unwatched is not None
    assert "load" not in watched.why
    assert "stray load" in unwatched.why


def test_an_input_that_is_read_with_the_strides_of_another_is_named_with_it():
    case = Heads(50, 60, 32, leading=(2, 3), layout=permuted(0, 2, 1, 3))
    expected = attention(case)["o"]
    q, k, v = expected.arguments
    got = expected.formula(q, k.as_strided(k.shape, q.stride()), v)
    cause = likely_cause(evidence(expected, got))
    assert cause is not None
    assert cause.why.startswith("`k` is read with the strides of `q`: they are 4800 and 32 and 96 and 1")


def test_nan_that_was_written_is_not_taken_for_fresh_memory(grade, tmp_path):
    """x86 gives some NaN the bits that PyTorch gives fresh memory."""
    for line, cause in (
        ("torch.full_like(x, float('nan'))", "unexpected_nan"),
        ("torch.empty_like(x)", "never_written"),
    ):
        (tmp_path / "gelu.py").write_text(f"import torch\n\n\ndef gelu(x):\n    return {line}\n")
        [check] = grade(tmp_path, "gelu.large_values").checks
        assert check.cause == cause
