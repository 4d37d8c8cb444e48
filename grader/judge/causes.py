"""The likely cause of a wrong answer: a table of small predicates, asked in order; the first that fits is told.

A predicate suspects only what the numbers show. None of this decides anything: the answer was wrong before.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from grader.judge import memory
from grader.judge.expected import Expected
from grader.judge.output import clean
from grader.judge.replies import Access
from grader.judge.tolerance import ROUNDOFF, Errors
from grader.judge.verdict import Where

# A rival explains an answer that lies next to it (this far by rms, room for half precision), and this much closer
# to it than to the right one.
NEXT_TO = 5e-3
CLOSER = 50.0
# float32 answers off by this much of their size look like float16 or TF32 inside (10 and 10 bits of fraction).
HALF_PRECISION_RMS = (2e-5, 5e-3)


@dataclass(frozen=True)
class Cause:
    """Why an answer is probably wrong, and what to try."""

    name: str
    why: str
    hint: str = ""
    where: Where | None = None


# What a check can know by its design, however the wrong numbers look.
ORDER_DEPENDENT = Cause(
    "order_dependent",
    "it is right when the programs run one after another, and wrong in another order: one program uses what another "
    "has written, or two write to the same elements",
    "a program may read only the inputs and what it wrote itself, and store only to its own elements: what all "
    "programs need comes from a launch before",
)
ANSWER_OVERWRITTEN = Cause(
    "answer_overwritten", "it was right, and has been overwritten by a later call",
    "allocate the output anew at every call: a caller may still hold the last one",
)  # fmt: skip


@dataclass(frozen=True)
class Evidence:
    """Everything that a predicate may look at."""

    got: torch.Tensor
    expected: Expected
    errors: Errors
    accesses: tuple[Access, ...] = ()  # what the runner's watch saw: advice
    previous: torch.Tensor | None = None  # the right answer of the call before, where it has the same shape

    @property
    def wrong(self) -> torch.Tensor:
        return self.errors.wrong


Predicate = Callable[[Evidence], Cause | None]


def likely_cause(evidence: Evidence) -> Cause | None:
    """The first cause that fits."""
    return next((cause for predicate in PREDICATES if (cause := predicate(evidence))), None)


def describe_access(access: Access) -> Cause:
    """A sentence on memory that a kernel touched and that belongs to no tensor."""
    place = Where(f"assignment/{clean(access.where.file)}", access.where.line) if access.where else None
    verb, access_name = ("reads", "load") if access.kind == "read" else ("writes", "store")
    lanes = f"lane {access.lanes[0]}" if access.count == 1 else f"lanes {access.lanes[0]} to {access.lanes[1]}"
    of = f"element {access.element} of `{clean(access.tensor, 80)}`" if access.tensor else "memory of no tensor"
    return Cause(
        "out_of_bounds_read" if access.kind == "read" else "out_of_bounds_write",
        f"program {tuple(access.program)} {verb} outside every tensor: {lanes}, the first at {of}"
        + (f" (line {place.line} of {place.file})" if place else ""),
        f"mask this {access_name}: an index must be smaller than the size it runs over",
        place,
    )


def _strides_ignored(evidence: Evidence) -> Cause | None:
    if not evidence.got.isfinite().any():
        return None  # NaN throughout fits too many stories
    arguments = evidence.expected.arguments
    for index, argument in enumerate(arguments):
        for words, misread in _misreadings(argument):
            if _explains(evidence.expected.formula(*arguments[:index], misread, *arguments[index + 1 :]), evidence):
                return Cause(
                    "strides_ignored",
                    f"{_words_for(evidence, index)} is read as if {words}, but its strides are {_strides(argument)}",
                    "pass its own strides to the kernel and multiply each index by its own stride, "
                    "or make it contiguous: .contiguous()",
                )  # fmt: skip
    return None


def _output_strides_ignored(evidence: Evidence) -> Cause | None:
    values = evidence.expected.values
    for argument in evidence.expected.arguments:
        output = torch.empty_like(argument, dtype=values.dtype)
        if argument.shape != values.shape or output.is_contiguous():
            continue
        output.as_strided((values.numel(),), (1,)).copy_(values.flatten())
        if _explains(output, evidence):
            return Cause(
                "output_strides_ignored",
                f"the right values are stored as if the output were contiguous, but its strides are {_strides(output)}",
                "torch.empty_like keeps the strides of a transposed input: "
                "allocate with torch.empty(x.shape, dtype=x.dtype, device=x.device), or after x = x.contiguous()",
            )  # fmt: skip
    return None


def _out_of_bounds(evidence: Evidence) -> Cause | None:
    if not evidence.accesses:
        return None
    access = evidence.accesses[0]
    found = describe_access(access)
    for index, argument in enumerate(evidence.expected.arguments):
        if access.kind == "read" and _lies_in_gap(argument, access.element):
            gap = f"this is a gap between the elements of {_words_for(evidence, index)}"
            return replace(
                found, hint=f"{gap}: multiply each index by its own stride (they are {_strides(argument)}), "
                "and mask the columns that do not exist",
            )  # fmt: skip
    return found


def _red_zone_read(evidence: Evidence) -> Cause | None:
    """NaN with the red zones' bits: the interpreter and the CPU carry them through arithmetic, a GPU does not."""
    poison = memory.POISON_BITS.get(evidence.got.dtype)
    if poison is None or not (memory.bits(evidence.got) & 0x7FFFFFFF == poison).any():
        return None
    return Cause(
        "red_zone_read", "the answer holds values from outside the input (they are NaN there)",
        "mask the load of the last block, and load with `other=` where the masked lanes enter a sum or a maximum",
    )  # fmt: skip


def _overflow(evidence: Evidence) -> Cause | None:
    """An element-wise function that is not finite from some size of its input on."""
    arguments, got = evidence.expected.arguments, evidence.got
    if len(arguments) != 1 or evidence.expected.by_row or arguments[0].shape != got.shape:
        return None
    x, broken = arguments[0].double(), _not_finite(evidence)
    if min(int(broken.sum()), int((~broken).sum())) < 2:
        return None  # one element is the largest by chance
    same_sign = ~broken & torch.isin(x.sign(), x[broken].sign())
    if bool((x[same_sign].abs() >= x[broken].abs().min()).any()):
        return None
    first = x[broken][x[broken].abs().argmin()]
    return Cause(
        "overflow",
        f"every x from {float(first):.3g} on gives {float(got[broken][0]):g}: "
        "an exponential or a power overflows to infinity, and inf / inf is NaN",
        "compute in float32, and rewrite the formula so that the exponent is never large and positive: "
        "1 / (1 + exp(-2u)) has no such quotient, (exp(2u) - 1) / (exp(2u) + 1) has",
    )  # fmt: skip


def _infinity_minus_infinity(evidence: Evidence) -> Cause | None:
    """Whole rows are NaN, and those are the rows that begin with the most -inf."""
    x, broken = evidence.expected.arguments[0], _not_finite(evidence)
    if x.shape != broken.shape or not broken.any() or bool((broken.any(-1) != broken.all(-1)).any()):
        return None
    leading = (x == -torch.inf).long().cumprod(-1).sum(-1)
    fewest, right = int(leading[broken.all(-1)].min()), evidence.got.isfinite().all(-1)
    if fewest == 0 or bool((leading[right] >= fewest).any()):
        return None
    return Cause(
        "infinity_minus_infinity", f"rows that begin with {fewest} or more -inf are NaN: -inf - (-inf) is NaN",
        "while the running maximum is -inf, subtract 0 in its place: exp(-inf - 0) is 0, as it ought to be",
    )  # fmt: skip


def _row_longer_than_block(evidence: Evidence) -> Cause | None:
    """Every row is written up to the same power of two, and not from there on."""
    untouched = _untouched(evidence)
    if not untouched.any() or untouched.dim() < 2:
        return None
    rows = untouched.reshape(-1, untouched.shape[-1])
    columns, block = rows.shape[1], int(rows[0].long().argmax())
    if block == 0 or block & (block - 1) or rows[:, :block].any() or not rows[:, block:].all():
        return None
    return Cause(
        "row_longer_than_block",
        f"a row of {columns} is longer than one block of {block}, and the rest of it was never written",
        "loop over blocks: one pass over the row for the sums, another one that stores",
    )  # fmt: skip


def _never_written(evidence: Evidence) -> Cause | None:
    untouched = _untouched(evidence)
    if not untouched.any():
        return None
    return Cause(
        "never_written", f"{_count(untouched)} never written, the first is {_first(untouched)}",
        "check the grid (does a program exist for every element?) and the mask of the store",
    )  # fmt: skip


def _previous_answer(evidence: Evidence) -> Cause | None:
    if evidence.previous is None or not _explains(evidence.previous, evidence):
        return None
    return Cause(
        "previous_answer", "this is the right answer to the call before",
        "compute from the content of the input at every call; the same address may hold new values",
    )  # fmt: skip


def _known_mistake(evidence: Evidence) -> Cause | None:
    for mistake in evidence.expected.mistakes:
        if _explains(mistake.formula(*evidence.expected.arguments), evidence):
            return Cause(mistake.name, mistake.why, mistake.hint)
    return None


def _constant(evidence: Evidence) -> Cause | None:
    got, values = evidence.got, evidence.expected.values
    value = float(got.flatten()[0])
    if bool((got == value).all()) and (value == 0 or not bool((values == values.flatten()[0]).all())):
        return Cause("constant", f"every element is {value:g}", "is the result stored at all?")
    return None


def _lower_precision(evidence: Evidence) -> Cause | None:
    got, errors = evidence.got, evidence.errors
    if not bool(torch.isfinite(got).eq(torch.isfinite(evidence.expected.values)).all()):
        return None
    low, high = HALF_PRECISION_RMS
    if got.dtype == torch.float32 and low < errors.rms < high and errors.max < 0.1:
        return Cause(
            "lower_precision",
            f"the error is {errors.rms:.0e} of the answer's size, as half precision or TF32 inside gives",
            "keep every step in float32: .to(tl.float32) after the load, input_precision=\"ieee\" in tl.dot",
        )  # fmt: skip
    if got.dtype in (torch.float16, torch.bfloat16) and errors.max < 100 * ROUNDOFF[got.dtype]:
        return Cause(
            "lower_precision",
            f"the answer is close, but {errors.max / ROUNDOFF[got.dtype]:.1f} roundings off where 1 is right: "
            "sums or products are kept in half precision",
            "compute in float32 (.to(tl.float32) after the load) and round once, at the store",
        )  # fmt: skip
    return None


def _kept_between_calls(evidence: Evidence) -> Cause | None:
    if evidence.previous is None:
        return None
    return Cause(
        "kept_between_calls", "the first call was right, this one is of the same form: something is kept between calls",
        "allocate scratch memory anew at every call, and zero what you add to",
    )  # fmt: skip


def _unexpected_nan(evidence: Evidence) -> Cause | None:
    """On a GPU a NaN loses its bits in the first operation, so a load from the red zones can only be guessed."""
    if not bool((_not_finite(evidence) & evidence.got.isnan()).any()):
        return None
    return Cause(
        "unexpected_nan", "NaN where a number is due: the memory around every input is NaN, so a stray load gives it",
        "mask the load of the last block, with `other=` where masked lanes enter a sum or a maximum; "
        "if that is right, look for inf - inf, inf / inf and 0 * inf",
    )  # fmt: skip


def _row_sum(evidence: Evidence) -> Cause | None:
    """Each row is right but for a factor of its own."""
    got, values = evidence.got.double(), evidence.expected.values
    if not (evidence.expected.by_row and got.dim() and bool((got.isfinite() & values.isfinite()).all())):
        return None
    factor = (got * values).sum(-1, keepdim=True) / values.square().sum(-1, keepdim=True)
    if bool(((got - factor * values).norm(dim=-1) > NEXT_TO * got.norm(dim=-1)).any()):
        return None
    factors = factor.flatten()
    row = int((factors - 1).abs().argmax())
    times = f"row {row} comes out {float(factors[row]):.3g} times its size"
    return Cause(
        "row_sum", f"the sum that each row is divided by is wrong: {times}",
        "sum in float32 over every block of the row and nothing else (load with other=-float('inf')), "
        "and rescale the sum when a block brings a larger maximum",
    )  # fmt: skip


def _wrong_tail(evidence: Evidence) -> Cause | None:
    """Right up to some index of the last dimension or of the whole tensor, wrong from there on."""
    wrong = evidence.wrong
    columns = wrong if wrong.dim() == 1 else wrong.reshape(-1, wrong.shape[-1]) if wrong.dim() else wrong.reshape(1)
    for along, kind in ((columns.any(0) if columns.dim() == 2 else columns, "index"), (wrong.flatten(), "element")):
        first = int(along.nonzero()[0]) if along.any() else 0
        if first and bool(along[first:].float().mean() > 0.9):
            return Cause(
                "wrong_tail",
                f"right before {kind} {first}, wrong from there on: the last block is cut off or not masked",
                "compare with a size that fills the block; the last block needs its mask, and a program of its own",
            )  # fmt: skip
    return None


# Asked in this order: what is certain first, what is only likely last. A misread input explains the same values that
# a load from its gaps reports, so it comes before that; and a NaN that was computed may have the bits of fresh memory,
# so what tells of such NaN comes before `_never_written`.
PREDICATES: tuple[Predicate, ...] = (
    _strides_ignored, _output_strides_ignored, _out_of_bounds, _red_zone_read, _overflow, _infinity_minus_infinity,
    _row_longer_than_block, _never_written, _previous_answer, _known_mistake, _constant, _lower_precision,
    _kept_between_calls, _unexpected_nan, _row_sum, _wrong_tail,
)  # fmt: skip


def _explains(rival: torch.Tensor, evidence: Evidence) -> bool:
    """Whether the answer is that of another formula: its NaN and infinities, its values, and not the right ones."""
    got, expected = evidence.got, evidence.expected
    if rival.shape != got.shape:
        return False
    rounded = rival.to(got.dtype)
    if not bool((rounded.isnan() == got.isnan()).all()) or not bool((rounded.isinf() == got.isinf()).all()):
        return False
    near = expected.errors(got, rival.double()).rms
    if near > NEXT_TO:
        return False
    right = expected.values.to(got.dtype)
    if bool((right.isfinite() != got.isfinite()).any()) or near * CLOSER < evidence.errors.rms:
        return True
    # Rounding to 16 bits hides a small difference from the rms, but not from the share of equal elements.
    return got.dtype != torch.float32 and _share(got == rounded) > 0.97 and _share(got == right) < 0.9


def _share(mask: torch.Tensor) -> float:
    return float(mask.double().mean()) if mask.numel() > 100 else 0.5


def _misreadings(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """What a kernel reads that takes a pointer and ignores some strides, with words for the mistake."""
    if tensor.is_contiguous():
        return
    row_major = torch.empty(tensor.shape, device="meta").stride()
    variants = (("it were contiguous", row_major), ("its last stride were 1", (*tensor.stride()[:-1], 1)))
    room = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    for words, strides in variants:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
        if reach <= room and strides != tensor.stride():
            yield words, tensor.as_strided(tensor.shape, strides)


def _lies_in_gap(tensor: torch.Tensor, element: int | None) -> bool:
    """Whether this element, counted from the first, lies within the reach of a tensor that is not contiguous."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return element is not None and 0 < element < reach and not tensor.is_contiguous()


def _untouched(evidence: Evidence) -> torch.Tensor:
    """The wrong elements that still hold the bits of fresh memory."""
    fill = memory.FILL_BITS.get(evidence.got.dtype)
    return evidence.wrong & False if fill is None else (memory.bits(evidence.got) == fill) & evidence.wrong


def _not_finite(evidence: Evidence) -> torch.Tensor:
    """The elements that are NaN or infinite and ought not to be."""
    return ~evidence.got.isfinite() & evidence.expected.values.to(evidence.got.dtype).isfinite()


def _words_for(evidence: Evidence, index: int) -> str:
    """The argument as a student knows it, from the names in the reference's formula."""
    name = [*inspect.signature(evidence.expected.formula).parameters][index]
    return "the incoming gradient" if name.startswith("d") else f"`{name}`"


def _strides(tensor: torch.Tensor) -> str:
    return " and ".join(str(stride) for stride in tensor.stride())


def _first(mask: torch.Tensor) -> str:
    return str(mask.nonzero()[0].tolist()) if mask.dim() else "[]"


def _count(mask: torch.Tensor) -> str:
    count = int(mask.sum())
    return "1 element was" if count == 1 else f"{count} elements were"
