"""The likely cause: each predicate suspects its own fault, and not the one next to it."""

from collections.abc import Callable

import pytest
import torch

from grader.judge import memory
from grader.judge.cases import Input, every_other, permuted, row_pitch
from grader.judge.causes import Evidence, likely_cause
from grader.judge.expected import Expected
from grader.judge.reference import gelu, softmax
from grader.judge.replies import Access, Place
from grader.judge.tolerance import measure

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
    errors = measure(got, expected.values, expected.tolerance, expected.by_row)
    return Evidence(got, expected, errors, **more)  # type: ignore[arg-type]


def right(expected: Expected) -> torch.Tensor:
    """The right answer, to be spoiled."""
    return expected.values.to(expected.dtype).clone()


def from_bits(pattern: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The number with these bits."""
    return torch.tensor([pattern], dtype=torch.int32 if dtype == torch.float32 else torch.int16).view(dtype)


FRESH = from_bits(memory.FILL_BITS[torch.float32])
POISON = from_bits(memory.POISON_BITS[torch.float32])


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
    """NaN that was computed: a GPU's, with other bits than fresh memory and red zones have."""
    expected = gelu.gelu(draw(100))
    got = right(expected)
    got[::7] = from_bits(0x7FFFFFFF)
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


# the cause's name, evidence that has it, and evidence of the fault next to it
CAUSES: list[tuple[str, Callable[[], Evidence], Callable[[], Evidence]]] = [
    ("strides_ignored", input_read_as_contiguous, output_written_as_contiguous),
    ("strides_ignored", columns_read_as_neighbours, half_rows_with_a_factor),
    ("strides_ignored", incoming_gradient_read_as_contiguous, output_written_as_contiguous),
    ("output_strides_ignored", output_written_as_contiguous, input_read_as_contiguous),
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
]

MISTAKES = [
    *((gelu.gelu, mistake) for mistake in gelu.MISTAKES),
    *((softmax.softmax, mistake) for mistake in softmax.MISTAKES),
    *((softmax.gradient, mistake) for mistake in softmax.GRADIENT_MISTAKES),
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


def arguments_for(name: str) -> tuple[torch.Tensor, ...]:
    """Inputs on which a mistake shows."""
    x = draw(4, 5, 33)
    if name == "missing_maximum":
        x[..., 7] = 1e4
    if name == "global_maximum":
        x[::2] += 300
    if name == "empty_row":
        x[-1] = -float("inf")
    return x, draw(4, 5, 33)


@pytest.mark.parametrize(("reference", "mistake"), MISTAKES, ids=lambda value: getattr(value, "name", ""))
def test_a_known_mistake_is_told(reference, mistake):
    arguments = arguments_for(mistake.name)[: 2 if reference is softmax.gradient else 1]
    assert name_of(evidence(reference(*arguments), mistake.formula(*arguments))) == mistake.name


@pytest.mark.parametrize(("reference", "mistake"), MISTAKES, ids=lambda value: getattr(value, "name", ""))
def test_a_value_between_right_and_mistaken_is_not_taken_for_the_mistake(reference, mistake):
    arguments = arguments_for(mistake.name)[: 2 if reference is softmax.gradient else 1]
    expected, wrong = reference(*arguments), mistake.formula(*arguments).double()
    assert name_of(evidence(expected, 0.5 * expected.values + 0.5 * wrong.nan_to_num(0.0))) != mistake.name


def test_an_infinity_in_the_same_places_is_no_proof_when_the_numbers_differ():
    [x, _] = arguments_for("empty_row")
    expected = softmax.softmax(x)
    got = 0.7 * softmax.softmax(x.flip(-1)).values.nan_to_num(0.0)
    assert name_of(evidence(expected, got)) != "empty_row"


def test_a_layout_that_is_read_right_is_not_suspected():
    x = draw(37, 100, layout=every_other(0))
    got = right(gelu.gelu(x))
    got[30:] = 0
    assert name_of(evidence(gelu.gelu(x), got)) == "wrong_tail"


def test_a_stray_load_is_told_with_program_lanes_and_line():
    cause = likely_cause(load_seen_outside())
    assert cause is not None
    assert "program (2, 0, 0) reads outside every tensor: lanes 5 to 31, the first at element 101 of `x`" in cause.why
    assert str(cause.where) == "assignment/gelu.py:14"
    assert "mask this load" in cause.hint


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


def test_a_known_mistake_is_told_in_float16_where_rounding_hides_it_from_the_rms():
    x = torch.randn(4000, generator=torch.Generator().manual_seed(1)).half()
    erf = torch.nn.functional.gelu(x.double()).half()
    chain = 0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))
    assert likely_cause(evidence(gelu.gelu(x), erf)).name == "erf_form"
    assert likely_cause(evidence(gelu.gelu(x), chain)).name == "lower_precision"
