"""Law 6: a tolerance is proven. Run with `-s` to see every check's margins.

Each value check's cases are drawn and its references harvested, without a submission. Then fake answers must be
refused (zeros, a constant, another draw's answer, one moved element, lower precision, ...) and two independent
right implementations must be accepted, by a factor of 1.3 for 16-bit dtypes and 3 for float32.
"""

import importlib.util
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache, partial
from types import ModuleType

import pytest
import torch

from grader.judge import compare
from grader.judge.cases import CONTIGUOUS, Input, Layout, placed
from grader.judge.expected import Expected
from grader.judge.plugin import case_seed
from grader.judge.reference import attention
from grader.judge.reference import gelu as gelu_reference
from grader.judge.reference import matmul as matmul_reference
from grader.judge.reference import softmax as softmax_reference
from tests.staff.conftest import ROOT
from tests.staff.nearly_right import refused, right, right_all_the_same, wrong_in_one_thing

FILES = [
    ROOT / folder / f"test_{problem}.py"
    for folder in ("tests", "grader/hidden")
    for problem in ("gelu", "softmax", "matmul", "flash_attention")
]
DRAWS = 10
# What a check compares values with: a reference, itself or through a function of its module.
COMPARES = (
    "reference.", "check_output(", "check_log_sum_exp(", "check_gradients(", "check_forward(", "check_backward(",
    "backward(submission", "check_second_call(", "check_refused(",
)  # fmt: skip
MEMORY = "_memory"  # in the name of a check whose inputs are large, and compared in another one as well
PRECISION_DRAWS = 50
MARGIN = {torch.float32: 3.0, torch.float16: 1.3, torch.bfloat16: 1.3}


def drawn(
    generator: torch.Generator, case: Input | torch.Tensor, name: str = "x", layout: Layout = CONTIGUOUS
) -> torch.Tensor:
    """What the fixture `draw` gives."""
    return placed(case, layout) if isinstance(case, torch.Tensor) else case.draw(generator)


class Anything:
    """A submission whose functions give nothing: the comparison is replaced by a harvest."""

    def __getattr__(self, name: str) -> "Anything":
        return self

    def __call__(self, *arguments: object, **options: object) -> "Anything":
        return self

    def __iter__(self) -> Iterator[object]:
        return iter((self, self))

    def __getitem__(self, place: int) -> "Anything":
        return self

    def values(self, names: tuple[str, ...], *arguments: object, **options: object) -> list["Anything"]:
        return [self] * len(names)

    def values_again(
        self, names: tuple[str, ...], *arguments: object, **options: object
    ) -> tuple[list["Anything"], list["Anything"]]:
        return [self] * len(names), [self] * len(names)

    def backward(self, *arguments: object, of: Sequence[object] | None = None, **options: object) -> list["Anything"]:
        return [self] * (1 + len(arguments if of is None else of))

    def backward_late(self, first: Sequence[object], *others: object, **options: object) -> list["Anything"]:
        return [self] * len(first)


@pytest.fixture(autouse=True)
def no_search_for_causes(monkeypatch):
    """What is refused matters here, not why."""
    monkeypatch.setattr(compare, "likely_cause", lambda evidence: None)


@dataclass(frozen=True)
class Check:
    """A check function and its parametrisation."""

    module: ModuleType
    name: str

    @property
    def function(self) -> Callable[..., None]:
        return getattr(self.module, self.name)

    @property
    def precision(self) -> bool:
        return any(mark.name == "precision" for mark in getattr(self.function, "pytestmark", ()))

    def __str__(self) -> str:
        return f"{self.module.__name__.removeprefix('test_')}.{self.name.removeprefix('test_')}"

    @property
    def large(self) -> bool:
        """Whether its inputs take gigabytes."""
        marks = getattr(self.function, "pytestmark", ())
        return any(mark.name == "needs_gpu" and mark.kwargs.get("gib") for mark in marks)

    def cases(self) -> Iterator[tuple[str, dict[str, object]]]:
        """Each case in words, and as arguments of the function."""
        marks = [mark for mark in getattr(self.function, "pytestmark", ()) if mark.name == "parametrize"]
        if not marks:
            yield "", {}
        for mark in marks:
            names, values = mark.args
            for value in values:
                yield str(value), {names: value} if isinstance(names, str) else dict(zip(names, value, strict=True))

    def references(self, seed: int) -> list[tuple[str, Expected]]:
        """Every reference that the check compares with, for one draw of all its cases."""
        harvest: list[tuple[str, Expected]] = []
        names = ("assert_matches", "assert_allowed", "assert_raises", "assert_footprint")
        originals = {name: getattr(self.module, name) for name in names if hasattr(self.module, name)}
        self.module.assert_raises = self.module.assert_footprint = lambda *outcome, **named: None
        try:
            for words, arguments in self.cases():
                generator = torch.Generator().manual_seed(case_seed(seed, words))
                self.module.assert_matches = lambda _, expected, w=words, **options: harvest.append((w, expected))
                self.module.assert_allowed = self.module.assert_matches
                self.function(Anything(), partial(drawn, generator), **arguments)
        finally:
            vars(self.module).update(originals)
        return harvest


def value_checks() -> list[Check]:
    """All checks that compare values."""
    found = []
    for path in FILES:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        names = [name for name, _ in inspect.getmembers(module, inspect.isfunction) if name.startswith("test_")]
        sources = {name: inspect.getsource(getattr(module, name)) for name in names if not name.endswith(MEMORY)}
        found += [Check(module, name) for name, source in sources.items() if any(word in source for word in COMPARES)]
    return found


CHECKS = [check for check in value_checks() if not check.large]


@cache
def references(check: Check) -> list[tuple[str, Expected]]:
    return check.references(seed=1)


def telling(expected: Expected) -> bool:
    """Whether a reference has elements, and a size to be relative to."""
    finite = expected.values[expected.values.isfinite()]
    return finite.numel() > 1 and bool((finite != finite[0]).any())


def constant(expected: Expected) -> torch.Tensor:
    finite = expected.values[expected.values.isfinite()]
    return torch.full_like(right(expected), float(finite.mean()))


def rows_swapped(expected: Expected) -> torch.Tensor:
    answer = right(expected)
    return answer.flip(-2 if answer.dim() > 1 and answer.shape[-2] > 1 else -1)


FAKES = {
    "zeros": lambda expected: torch.zeros_like(right(expected)),
    "the mean": constant,
    "rows swapped": rows_swapped,
    "float64": lambda expected: expected.values,
    "one row too few": lambda expected: right(expected)[:-1],
    "a broadcastable shape": lambda expected: right(expected)[None],
}


@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("fake", FAKES)
def test_every_value_check_refuses_a_fake_answer(check, fake):
    told = [expected for _, expected in references(check) if telling(expected) and expected.values.dim()]
    assert told, "a check without a telling case checks nothing"
    assert any(refused(FAKES[fake](expected), expected) for expected in told)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_every_value_check_refuses_the_answer_to_another_draw(check):
    others = check.references(seed=2)
    pairs = zip(references(check), others, strict=True)
    assert any(telling(mine) and refused(right(other), mine) for (_, mine), (_, other) in pairs)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_every_case_refuses_what_is_wrong_in_one_thing(check):
    for words, expected in references(check):
        for what, answer in wrong_in_one_thing(expected):
            assert refused(answer, expected), f"{words}: {what}"


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_every_case_accepts_negative_zeros_and_any_strides(check):
    for words, expected in references(check):
        for what, answer in right_all_the_same(expected):
            assert not refused(answer, expected), f"{words}: {what}"


@pytest.mark.parametrize("x", [-8.0, -5.0, -3.0, -0.5])
def test_a_single_negative_number_is_right_by_either_formula(x):
    lonely = torch.tensor(x)
    for implementation in RIGHT[gelu_reference.tanh_form]:
        assert not refused(implementation(lonely), gelu_reference.gelu(lonely)), implementation.__name__


def test_a_single_sum_whose_terms_cancel_is_right_in_any_order():
    for seed in range(300):
        generator = torch.Generator().manual_seed(seed)
        a, b = torch.randn(1, 33, generator=generator), torch.randn(33, 1, generator=generator)
        for product in (matmul_by_library, matmul_by_steps):
            assert not refused(product(a, b), matmul_reference.matmul(a, b)), seed


def test_where_the_reference_is_zero_only_zero_is_right():
    x = torch.zeros(10)
    expected = gelu_reference.gelu(x)
    assert not refused(torch.zeros(10), expected)
    assert not refused(-torch.zeros(10), expected)
    assert refused(torch.full((10,), 1e-30), expected)


@pytest.mark.parametrize(("columns", "right"), [(1364, {1537, 1538}), (1608, {1304}), (2013, {1042})])
def test_a_row_of_equal_elements_between_two_numbers_may_be_rounded_to_either(columns, right):
    """1/n in units of 2^-21, the distance of float16 numbers there: 1537.501 for 1364, 1304.199, 1041.804."""
    x = torch.zeros(1, columns, dtype=torch.float16)
    expected = softmax_reference.softmax(x)
    below = math.floor(2**21 / columns)
    accepted = {units for units in (below, below + 1) if not refused(torch.full_like(x, units * 2.0**-21), expected)}
    assert accepted == right


# Right implementations, independent of the reference and of each other: float32 inside, rounded at the end.


def gelu_by_library(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x.float(), approximate="tanh").to(x.dtype)


def gelu_by_exp2(x: torch.Tensor) -> torch.Tensor:
    v = x.float()
    return (v / (1 + torch.exp2(-2.302208198 * (v + 0.044715 * v * v * v)))).to(x.dtype)


def gelu_by_formula(x: torch.Tensor) -> torch.Tensor:
    """½·x·(1 + tanh(u)): cancels for negative x."""
    v = x.float()
    return (0.5 * v * (1 + torch.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)))).to(x.dtype)


def softmax_by_library(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.float(), -1).to(x.dtype)


def softmax_by_blocks(x: torch.Tensor) -> torch.Tensor:
    """exp2(x·c − m·c), summed block by block."""
    c = math.log2(math.e)
    maximum = x.float().amax(-1, keepdim=True)
    power = torch.exp2(x.float() * c - maximum * c)
    total = torch.zeros_like(maximum)
    for block in power.split(128, -1):
        total = total + block.sum(-1, keepdim=True)
    return (power * (1 / total)).to(x.dtype)


def gradient_recomputed(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    y, d = torch.softmax(x.float(), -1), dy.float()
    return (y * (d - (d * y).sum(-1, keepdim=True))).to(x.dtype)


def gradient_from_rounded(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    y, d = softmax_by_blocks(x).float(), dy.float()
    return (y * d - y * (d * y).sum(-1, keepdim=True)).to(x.dtype)


def matmul_by_library(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.float() @ b.float()


def matmul_by_steps(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In steps of 32 along k, from the end."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in reversed(range(0, a.shape[1], 32)):
        total = total + a[:, start : start + 32].float() @ b[start : start + 32].float()
    return total


# Attention: the judge's formula as a record, which says which output it is, causal or not, and with which scale.


def attention_weights(formula, q, k, scores=torch.float32):
    """exp(S - m), m and the sum of the weights, in float32."""
    s = attention.scores(q, k, formula.is_causal, formula.scale).to(scores).float()
    maximum = s.amax(-1, keepdim=True) if s.shape[-1] else s.new_full((*s.shape[:-1], 1), -torch.inf)
    weights = torch.exp(s - maximum)
    return weights, maximum, weights.sum(-1, keepdim=True)


def output_by_one_pass(formula, q, k, v):
    """The weights rounded to v's dtype before their product."""
    weights, _, total = attention_weights(formula, q, k)
    v = attention.heads_like(v, q)
    return ((weights.to(v.dtype).float() @ v.float()) / torch.where(total > 0, total, 1)).to(q.dtype)


def output_by_tiles(formula, q, k, v):
    """Keys 32 at a time, from the end, with a running maximum."""
    s = attention.scores(q, k, formula.is_causal, formula.scale).float()
    v = attention.heads_like(v, q)
    maximum, total = torch.full_like(s[..., :1], -torch.inf) if s.shape[-1] else q[..., :1].float() * 0 - torch.inf, 0.0
    summed = torch.zeros(*q.shape[:-1], v.shape[-1])
    for start in reversed(range(0, s.shape[-1], 32)):
        tile = s[..., start : start + 32]
        new = torch.maximum(maximum, tile.amax(-1, keepdim=True))
        base = torch.where(new == -torch.inf, 0.0, new)
        weights, shrink = torch.exp(tile - base), torch.exp(maximum - base)
        total = total * shrink + weights.sum(-1, keepdim=True)
        summed = summed * shrink + weights.to(v.dtype).float() @ v[..., start : start + 32, :].float()
        maximum = new
    return (summed / torch.where(torch.as_tensor(total) > 0, total, 1.0)).to(q.dtype)


def log_sum_by_one_pass(formula, q, k, v):
    _, maximum, total = attention_weights(formula, q, k)
    return (maximum + torch.log(total))[..., 0]


def log_sum_by_two_to_the(formula, q, k, v):
    """In base 2."""
    s = attention.scores(q, k, formula.is_causal, formula.scale).float() * 1.4426950408889634
    maximum = s.amax(-1, keepdim=True) if s.shape[-1] else s.new_full((*s.shape[:-1], 1), -torch.inf)
    return ((maximum + torch.log2(torch.exp2(s - maximum).sum(-1, keepdim=True))) * 0.6931471805599453)[..., 0]


def gradient_by_products(formula, do, q, k, v, rounded=True, step=None):
    """From D = rowsum(do * o) with a rounded o; P and dS rounded before their products; sums kept in steps if asked."""
    weights, _, total = attention_weights(formula, q, k)
    p = weights / torch.where(total > 0, total, 1)
    o = attention.Output(formula.is_causal, formula.scale)(q, k, v).to(q.dtype)
    row_sums = (do.float() * o.float()).sum(-1, keepdim=True)
    ds = p * (do.float() @ attention.heads_like(v, q).float().mT - row_sums)
    scale = 1 / math.sqrt(q.shape[-1]) if formula.scale is None else formula.scale
    left, right = {"q": (ds, attention.heads_like(k, q)), "k": (ds.mT, q), "v": (p.mT, do)}[formula.of]
    left = left.to(q.dtype).float() if rounded else left
    product = kept_in_steps(left, right.float(), step, q.dtype) if step else left @ right.float()
    product = product * (1.0 if formula.of == "v" else scale)
    like = {"q": q, "k": k, "v": v}[formula.of]
    return attention.over_group(product, like).to(q.dtype)


def gradient_unrounded(formula, do, q, k, v):
    return gradient_by_products(formula, do, q, k, v, rounded=False)


def kept_in_steps(left, right, step, dtype):
    """A product whose sum is rounded to a half type after each step."""
    total = torch.zeros(*left.shape[:-1], right.shape[-1])
    for start in range(0, left.shape[-1], step):
        total = (total + left[..., start : start + step] @ right[..., start : start + step, :]).to(dtype).float()
    return total


def output_low(formula, q, k, v):
    """float32 with operands of float16; 16 bits with the sum rounded after every 16 keys, as tensor cores do it."""
    if q.dtype == torch.float32:
        return output_by_one_pass(formula, *(x.half() for x in (q, k, v))).float()
    weights, _, total = attention_weights(formula, q, k)
    summed = kept_in_steps(weights.to(v.dtype).float(), attention.heads_like(v, q).float(), 16, q.dtype)
    return (summed / total).to(q.dtype)


def attention_gradient_low(formula, do, q, k, v):
    if q.dtype == torch.float32:
        return gradient_by_products(formula, *(x.half() for x in (do, q, k, v))).float()
    return gradient_by_products(formula, do, q, k, v, step=16)


def activated(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], activation: str | None
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """A product in float32, an activation on it, rounded at the end."""
    outer = {None: lambda x: x, "relu": torch.relu, "gelu": gelu_by_formula}[activation]
    return lambda a, b: outer(product(a, b)).to(a.dtype)


RIGHT = {
    attention.Output: (output_by_one_pass, output_by_tiles),
    attention.LogSumExp: (log_sum_by_one_pass, log_sum_by_two_to_the),
    attention.Gradient: (gradient_by_products, gradient_unrounded),
    gelu_reference.tanh_form: (gelu_by_library, gelu_by_exp2, gelu_by_formula),
    softmax_reference._softmax: (softmax_by_library, softmax_by_blocks),
    softmax_reference._gradient: (gradient_recomputed, gradient_from_rounded),
    **{
        formula: tuple(activated(product, activation) for product in (matmul_by_library, matmul_by_steps))
        for activation, formula in matmul_reference.FORMULAS.items()
    },
}


# The next lower precision: float32 computed in float16, and 16 bits computed in 16 bits throughout.


def lower(dtype: torch.dtype) -> torch.dtype:
    return torch.float16 if dtype == torch.float32 else dtype


def gelu_low(x: torch.Tensor) -> torch.Tensor:
    v = x.to(lower(x.dtype))
    return (0.5 * v * (1 + torch.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)))).to(x.dtype)


def softmax_low(x: torch.Tensor) -> torch.Tensor:
    v = x.to(lower(x.dtype))
    power = torch.exp(v - v.amax(-1, keepdim=True))
    return (power / sum_low(power)).to(x.dtype)


def gradient_low(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    y, d = softmax_low(x).to(lower(x.dtype)), dy.to(lower(x.dtype))
    return (y * (d - sum_low(d * y))).to(x.dtype)


def matmul_low(a: torch.Tensor, b: torch.Tensor, step: int = 64) -> torch.Tensor:
    """float32 with float16 operands, as TF32 does it; 16 bits with the accumulator rounded after each step."""
    accumulator = torch.float32 if a.dtype == torch.float32 else a.dtype
    total = torch.zeros(a.shape[0], b.shape[1], dtype=accumulator)
    for start in range(0, a.shape[1], step):
        products = a[:, start : start + step].to(lower(a.dtype)).float() @ (
            b[start : start + step].to(lower(a.dtype)).float()
        )
        total = total + products.to(accumulator)
    return total.to(a.dtype)


def sum_low(terms: torch.Tensor) -> torch.Tensor:
    """Blocks of 128 summed by a tree, added up one after the other, each rounded."""
    total = torch.zeros_like(terms[..., :1])
    for block in terms.split(128, -1):
        total = total + block.sum(-1, keepdim=True)
    return total


LOW = {
    attention.Output: output_low,
    attention.Gradient: attention_gradient_low,
    gelu_reference.tanh_form: gelu_low,
    softmax_reference._softmax: softmax_low,
    softmax_reference._gradient: gradient_low,
    matmul_reference.FORMULAS[None]: matmul_low,
}


def kind_of(expected: Expected) -> object:
    """What the tables above have an entry for: the formula, or its class where it is a record."""
    return type(expected.formula) if is_dataclass(expected.formula) else expected.formula


def computed(implementation: Callable[..., torch.Tensor], expected: Expected) -> torch.Tensor:
    """Its answer to a reference's arguments."""
    formula = [expected.formula] if is_dataclass(expected.formula) else []
    return implementation(*formula, *expected.arguments)


def excess(answer: torch.Tensor, expected: Expected) -> float:
    return expected.errors(answer).excess(expected.tolerance)


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_two_right_implementations_stay_well_under_every_limit(check):
    worst = dict.fromkeys(MARGIN, 0.0)
    for seed in range(PRECISION_DRAWS if check.precision else DRAWS):
        for words, expected in check.references(seed):
            if expected.values.numel() == 0:
                continue
            for implementation in RIGHT[kind_of(expected)]:
                answer = computed(implementation, expected)
                assert not refused(answer, expected), f"{words}: {implementation.__name__}, seed {seed}"
                if telling(expected):
                    worst[expected.dtype] = max(worst[expected.dtype], excess(answer, expected))
    print(f"\n{check}: right implementations reach", *(f"{d}: {w:.2f}" for d, w in worst.items() if w), "of the limit")
    for dtype, reached in worst.items():
        assert reached <= 1 / MARGIN[dtype], f"{dtype}: {reached:.2f} of the limit"


@pytest.mark.parametrize("check", [check for check in CHECKS if check.precision], ids=str)
def test_a_precision_check_refuses_the_next_lower_precision(check):
    least = dict.fromkeys(MARGIN, math.inf)
    for seed in range(PRECISION_DRAWS):
        most: dict[tuple[torch.dtype, object], float] = {}
        for _, expected in check.references(seed):
            if (kind := kind_of(expected)) not in LOW or expected.values.numel() == 0:
                continue
            key = (expected.dtype, getattr(expected.formula, "of", kind))  # dq, dk and dv each for themselves
            answer = computed(LOW[kind], expected)
            most[key] = max(most.get(key, 0.0), excess(answer, expected))
        for (dtype, formula), reached in most.items():
            if formula is not softmax_reference._softmax or "gradient" not in str(check):  # its y is checked elsewhere
                least[dtype] = min(least[dtype], reached)
    print(
        f"\n{check}: lower precision reaches",
        *(f"{d}: {m:.1f}" for d, m in least.items() if m < math.inf),
        "x the limit",
    )
    for dtype, reached in least.items():
        assert reached >= MARGIN[dtype], f"{dtype}: {reached:.2f} times the limit"


def test_hundredths_tell_where_their_sum_was_kept():
    """0.01 in float16 is 0.0100021; 8192 of them are 81.9375, and 80.75 if each 64 are added to a float16 sum."""
    a, b = torch.full((1, 8192), 0.01, dtype=torch.float16), torch.ones((8192, 1), dtype=torch.float16)
    expected = matmul_reference.matmul(a, b)
    assert float(expected.values) == 8192 * 0.01000213623046875 == 81.9375
    kept_in_half = matmul_low(a, b)
    assert float(kept_in_half) == 80.75
    assert refused(kept_in_half, expected)
    assert not refused(right(expected), expected)


def test_each_function_and_dtype_has_a_precision_check():
    covered = {
        (kind_of(expected), expected.dtype) for check in CHECKS if check.precision for _, expected in references(check)
    }
    assert covered >= {(formula, dtype) for formula in LOW for dtype in MARGIN}
