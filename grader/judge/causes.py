"""The likely cause of a wrong answer: a table of small predicates, asked in order; the first that fits is told.

A predicate suspects only what the numbers show. None of this decides anything: the answer was wrong before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.judge import memory
from grader.judge.expected import Expected
from grader.judge.output import clean
from grader.judge.replies import Access
from grader.judge.tolerance import ROUNDOFF, Errors, measure
from grader.judge.verdict import Where

# A rival formula explains an answer that lies this much closer to it than to the right one, by rms.
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
    verb = "reads" if access.kind == "read" else "writes"
    lanes = f"lane {access.lanes[0]}" if access.count == 1 else f"lanes {access.lanes[0]} to {access.lanes[1]}"
    of = f"element {access.element} of `{clean(access.tensor, 80)}`" if access.tensor else "memory of no tensor"
    return Cause(
        "out_of_bounds_read" if access.kind == "read" else "out_of_bounds_write",
        f"program {tuple(access.program)} {verb} outside every tensor: {lanes}, the first at {of}"
        + (f" (line {place.line} of {place.file})" if place else ""),
        f"mask this {'load' if access.kind == 'read' else 'store'}: an index must be smaller than the size it runs over",
        place,
    )


def _never_written(evidence: Evidence) -> Cause | None:
    fill = memory.FILL_BITS.get(evidence.got.dtype)
    if fill is None:
        return None
    untouched = (memory.bits(evidence.got) == fill) & evidence.wrong
    if not untouched.any():
        return None
    first = _first(untouched)
    return Cause(
        "never_written", f"{_count(untouched)} never written, the first is {first}",
        "check the grid (does a program exist for every element?) and the mask of the store",
    )  # fmt: skip


def _out_of_bounds(evidence: Evidence) -> Cause | None:
    return describe_access(evidence.accesses[0]) if evidence.accesses else None


def _red_zone_read(evidence: Evidence) -> Cause | None:
    """NaN with the red zones' bits: the interpreter and the CPU carry them through arithmetic, a GPU does not."""
    poison = memory.POISON_BITS.get(evidence.got.dtype)
    if poison is None or not (memory.bits(evidence.got) & 0x7FFFFFFF == poison).any():
        return None
    return Cause(
        "red_zone_read", "the answer holds values from outside the input (they are NaN there)",
        "mask the load of the last block, and load with `other=` where the masked lanes enter a sum or a maximum",
    )  # fmt: skip


def _known_mistake(evidence: Evidence) -> Cause | None:
    for mistake in evidence.expected.mistakes:
        if _explains(mistake.formula(*evidence.expected.arguments), evidence):
            return Cause(mistake.name, mistake.why, mistake.hint)
    return None


def _strides_ignored(evidence: Evidence) -> Cause | None:
    arguments = evidence.expected.arguments
    misread = tuple(_as_if_contiguous(argument) for argument in arguments)
    for index, argument in enumerate(arguments):
        if argument.is_contiguous():
            continue
        variants = (*arguments[:index], misread[index], *arguments[index + 1 :]), misread
        if any(_explains(evidence.expected.formula(*variant), evidence) for variant in variants):
            strides = " and ".join(str(stride) for stride in argument.stride())
            return Cause(
                "strides_ignored", f"the input is read as if it were contiguous, but its strides are {strides}",
                "pass x.stride() to the kernel and multiply each index by its own stride, or call x.contiguous()",
            )  # fmt: skip
    return None


def _stale(evidence: Evidence) -> Cause | None:
    if evidence.previous is None or not _explains(evidence.previous, evidence):
        return None
    return Cause(
        "previous_answer", "this is the right answer to the call before",
        "compute from the content of the input at every call; the same address may hold new values",
    )  # fmt: skip


def _half_precision(evidence: Evidence) -> Cause | None:
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


def _wrong_tail(evidence: Evidence) -> Cause | None:
    """Right up to some index of the last dimension or of the whole tensor, wrong from there on."""
    wrong = evidence.wrong
    columns = wrong if wrong.dim() == 1 else wrong.reshape(-1, wrong.shape[-1]) if wrong.dim() else wrong.reshape(1)
    for along, kind in ((columns.any(0) if columns.dim() == 2 else columns, "index"), (wrong.flatten(), "element")):
        first = int(along.nonzero()[0]) if along.any() else 0
        if first and bool(along[first:].float().mean() > 0.9):
            return Cause(
                "wrong_tail", f"right before {kind} {first}, wrong from there on: the last block is cut off or not masked",
                "compare with a size that fills the block; the last block needs its mask, and a program of its own",
            )  # fmt: skip
    return None


def _constant(evidence: Evidence) -> Cause | None:
    got = evidence.got
    if got.numel() > 1 and bool((got == got.flatten()[0]).all()):
        return Cause("constant", f"every element is {float(got.flatten()[0]):g}", "is the result stored at all?")
    return None


# Asked in this order: what is certain first, what is only likely last.
PREDICATES: tuple[Predicate, ...] = (
    _out_of_bounds, _red_zone_read, _never_written, _stale, _constant, _strides_ignored, _known_mistake,
    _half_precision, _wrong_tail,
)  # fmt: skip


def _explains(rival: torch.Tensor, evidence: Evidence) -> bool:
    """Whether the answer is that of another formula: the same NaN and infinities, and much closer than to the right one."""
    got, values = evidence.got, evidence.expected.values
    if rival.shape != got.shape:
        return False
    rival = rival.to(got.dtype)
    if not bool((rival.isnan() == got.isnan()).all()) or not bool((rival.isinf() == got.isinf()).all()):
        return False
    if not bool((values.to(got.dtype).isfinite() == got.isfinite()).all()):
        return True  # the NaN and infinities are the fault, and the rival has the same
    loose = measure(got, rival.double(), evidence.expected.tolerance, evidence.expected.by_row)
    strict = evidence.errors
    return loose.rms * CLOSER < strict.rms or (loose.rms == 0 < strict.rms)


def _as_if_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """What a kernel reads that takes a pointer and assumes row-major order."""
    room = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    if tensor.numel() > room:
        return tensor
    flat = tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())
    return flat.reshape(tensor.shape)


def _first(mask: torch.Tensor) -> str:
    return str(mask.nonzero()[0].tolist()) if mask.dim() else "[]"


def _count(mask: torch.Tensor) -> str:
    count = int(mask.sum())
    return "1 element was" if count == 1 else f"{count} elements were"
