"""Causes in memory: which elements a kernel reads and writes. Strides, masks, grids."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from grader.judge import memory
from grader.judge.evidence import NEXT_TO, Cause, Evidence, strides_of
from grader.judge.output import clean
from grader.judge.replies import Access
from grader.judge.verdict import Where

TILES = (256, 128, 64, 32, 16)  # sides of a tile, tried where something was never written
SIZE_WORDS = {"m": "the number of rows of `a`", "n": "the number of columns of `b`", "k": "the length of the sums"}


def describe_access(access: Access) -> Cause:
    """A sentence on memory that a kernel touched and that belongs to no tensor."""
    place = Where(f"assignment/{clean(access.where.file)}", access.where.line) if access.where else None
    verb, access_name = ("reads", "load") if access.kind == "read" else ("writes", "store")
    lanes = f"lane {access.lanes[0]}" if access.count == 1 else f"lanes {access.lanes[0]} to {access.lanes[1]}"
    of = f"element {access.element} of `{clean(access.tensor, 80)}`" if access.tensor else "memory of no tensor"
    too_small = "" if access.kind == "read" else "; if it is, that tensor is too small: compare its shape"
    return Cause(
        "out_of_bounds_read" if access.kind == "read" else "out_of_bounds_write",
        f"program {tuple(access.program)} {verb} outside every tensor: {lanes}, the first at {of}"
        + (f" (line {place.line} of {place.file})" if place else ""),
        f"mask this {access_name} by the very index that goes into its address: it must be smaller than the size it "
        f"runs over{too_small}",
        place,
    )


@dataclass(frozen=True)
class Misreading:
    """What a kernel reads that takes other strides for an input's own."""

    name: str
    why: str
    hint: str
    of: Callable[[torch.Tensor], torch.Tensor | None]  # the input, misread; None where this cannot be


def _with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor | None:
    """What lies at other strides, also outside of the tensor; None where these are its own, or where nothing lies."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True))
    room = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    return tensor.as_strided(tensor.shape, strides) if reach <= room and strides != tensor.stride() else None


def _row_major(tensor: torch.Tensor) -> torch.Tensor | None:
    return _with_strides(tensor, torch.empty(tensor.shape, device="meta").stride())


def _last_stride_one(tensor: torch.Tensor) -> torch.Tensor | None:
    return _with_strides(tensor, (*tensor.stride()[:-1], 1)) if tensor.dim() else None


def _last_two_swapped(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.dim() < 2:
        return None
    *outer, rows, columns = tensor.stride()
    return _with_strides(tensor, (*outer, columns, rows))


def _copied(tensor: torch.Tensor) -> torch.Tensor | None:
    return None if tensor.is_contiguous() else _with_strides(tensor.contiguous(), tensor.stride())


OWN_STRIDES = (
    "pass its own strides to the kernel and multiply each index by its own stride, or make it contiguous: .contiguous()"
)
MISREADINGS = (
    Misreading(
        "strides_ignored", "read as if it were contiguous, but its strides are {strides}", OWN_STRIDES, _row_major
    ),
    Misreading(
        "strides_ignored", "read as if its last stride were 1, but its strides are {strides}", OWN_STRIDES,
        _last_stride_one,
    ),
    Misreading(
        "strides_swapped", "read with its last two strides swapped: they are {strides}",
        "stride(0) goes with the first index and stride(1) with the second: compare the order in which the strides are "
        "passed with the order in which the kernel takes them", _last_two_swapped,
    ),
    Misreading(
        "old_strides", "read as a contiguous copy, but with the strides it had before the copy, {strides}",
        "take the strides after .contiguous(), from the copy: they are its own", _copied,
    ),
)  # fmt: skip


def strides_ignored(evidence: Evidence) -> Cause | None:
    """Inputs are read by other strides than their own: one of them, or all in the same way."""
    if not evidence.got.isfinite().any() or (evidence.untouched.any() and not evidence.accesses):
        return None  # NaN throughout fits too many stories, and what was never written tells another one
    arguments = evidence.expected.arguments
    for misreading in MISREADINGS:
        misread = {index: other for index, x in enumerate(arguments) if (other := misreading.of(x)) is not None}
        alone, together = [[index] for index in misread], [[*misread]] if len(misread) > 1 else []
        for chosen in (*alone, *together):
            changed = [misread[index] if index in chosen else x for index, x in enumerate(arguments)]
            if evidence.is_explained_by(evidence.expected.formula(*changed)):
                first, *others = chosen
                why = misreading.why.format(strides=strides_of(arguments[first]))
                likewise = "".join(f"; so is {evidence.words_for(index)}" for index in others)
                return Cause(misreading.name, f"{evidence.words_for(first)} is {why}{likewise}", misreading.hint)
    return _strides_of_another(evidence)


def _strides_of_another(evidence: Evidence) -> Cause | None:
    """An input is read by the strides of another one."""
    arguments = evidence.expected.arguments
    for (index, x), (other, y) in itertools.permutations(enumerate(arguments), 2):
        misread = _with_strides(x, y.stride()) if x.dim() == y.dim() and x.numel() and y.numel() else None
        if misread is None:
            continue
        changed = [misread if place == index else argument for place, argument in enumerate(arguments)]
        if evidence.is_explained_by(evidence.expected.formula(*changed)):
            return Cause(
                "strides_of_another",
                f"{evidence.words_for(index)} is read with the strides of {evidence.words_for(other)}: "
                f"they are {strides_of(y)}, and its own are {strides_of(x)}",
                "pass each tensor's own strides, and compare the order in which they are passed with that in which the "
                "kernel takes them",
            )  # fmt: skip
    return None


def output_strides_ignored(evidence: Evidence) -> Cause | None:
    """An output allocated by `empty_like` has the strides of its input, and is written by others."""
    values = evidence.expected.values
    for argument in evidence.expected.arguments:
        output = torch.empty_like(argument, dtype=values.dtype)
        if argument.shape != values.shape or output.is_contiguous():
            continue
        found = [words for words, stored in STORED if evidence.is_explained_by(stored(output, values))]
        if not found:
            continue
        return Cause(
            "output_strides_ignored",
            f"the right values are stored {found[0]}, but the output's strides are {strides_of(output)}",
            "torch.empty_like keeps the strides of a transposed input: "
            "allocate with torch.empty(x.shape, dtype=x.dtype, device=x.device), or after x = x.contiguous()",
        )  # fmt: skip
    return None


def _stored_in_one_piece(output: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """What an output holds into whose memory the values are written one after the other."""
    output.as_strided((values.numel(),), (1,)).copy_(values.flatten())
    return output


def _stored_row_by_row(output: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """What an output holds whose rows begin where its strides say, and whose elements then lie side by side."""
    if values.dim() != 2:
        return torch.empty(0)
    (rows, columns), memory = values.shape, output.fill_(torch.nan).as_strided((values.numel(),), (1,))
    if (rows - 1) * output.stride(0) + columns > values.numel():
        return torch.empty(0)
    for row in range(rows):
        memory[row * output.stride(0) :][:columns] = values[row]
    return output


STORED = (
    ("as if the output were contiguous", _stored_in_one_piece),
    ("with a column stride of 1", _stored_row_by_row),
)


def output_strides_swapped(evidence: Evidence) -> Cause | None:
    """Element (m, n) of a product is stored at m + n * columns: some elements over others, and some nowhere."""
    if evidence.product is None or min(evidence.got.shape) < 2:
        return None
    rows, columns = evidence.got.shape
    place = (torch.arange(rows)[:, None] + torch.arange(columns) * columns).flatten()
    if int(place[-1]) >= rows * columns:
        return None  # a store outside of the output, which is seen otherwise
    stored, values = evidence.got.flatten()[place].double(), evidence.expected.values.flatten()
    right = torch.isclose(stored, values, rtol=NEXT_TO, atol=NEXT_TO * float(values.square().mean().sqrt()))
    written, rightly_written = torch.zeros(2, rows * columns, dtype=torch.bool)
    written[place], rightly_written[place[right]] = True, True
    if not rightly_written.equal(written):
        return None
    return Cause(
        "output_strides_swapped", "the right values are stored with the output's two strides swapped",
        "element (m, n) of the result lies at m * output.stride(0) + n * output.stride(1): compare the order in which "
        "the strides are passed with the order in which the kernel takes them",
    )  # fmt: skip


def out_of_bounds(evidence: Evidence) -> Cause | None:
    """The first stray load that the runner's watch saw."""
    if not evidence.accesses:
        return None
    access = evidence.accesses[0]
    found = describe_access(access)
    if access.kind != "read":
        return found
    for index, argument in enumerate(evidence.expected.arguments):
        if _lies_in_gap(argument, access.element):
            gap = f"this is a gap between the elements of {evidence.words_for(index)}"
            return replace(
                found, hint=f"{gap}: multiply each index by its own stride (they are {strides_of(argument)}), "
                "and mask the columns that do not exist",
            )  # fmt: skip
    if evidence.product and access.lanes[0] == 0:
        return replace(
            found, hint="even the first element of this tile lies outside: multiply each index by its own stride; a "
            "step along k moves a's pointers by BLOCK * a.stride(1), and b's by BLOCK * b.stride(0)",
        )  # fmt: skip
    if evidence.product:
        return replace(found, hint=f"{found.hint}; along k both operands need it, since 0 * NaN is NaN")
    return found


def red_zone_read(evidence: Evidence) -> Cause | None:
    """NaN with the red zones' bits: the interpreter and the CPU carry them through arithmetic, a GPU does not."""
    poison = memory.POISON_BITS.get(evidence.got.dtype)
    if evidence.without_kernel or poison is None or not (memory.bits(evidence.got) & 0x7FFFFFFF == poison).any():
        return None
    return Cause(
        "red_zone_read", "the answer holds values from outside the input (they are NaN there)",
        "mask the load of the last block, and load with `other=` where the masked lanes enter a sum or a maximum",
    )  # fmt: skip


def row_longer_than_block(evidence: Evidence) -> Cause | None:
    """Every row is written up to the same power of two, and not from there on."""
    untouched = evidence.untouched
    if evidence.product or evidence.without_kernel or not untouched.any() or untouched.dim() < 2:
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


def masked_by_other_size(evidence: Evidence) -> Cause | None:
    """A product is right up to a row or column that is another of its sizes, and no border of tiles."""
    if evidence.product is None:
        return None
    sizes = dict(zip("mnk", evidence.product, strict=True))
    untouched, wrong = evidence.untouched, evidence.wrong
    spoilt = wrong | (evidence.got == 0)  # under relu half of the zeros are right
    for index, across, word in (("m", 1, "row"), ("n", 0, "column")):
        shares = untouched.any(across).double(), spoilt.double().mean(across)
        for state, bad, share in zip(("never written", "wrong"), (untouched, wrong), shares, strict=True):
            first = int(bad.any(across).long().argmax()) if bad.any() else 0
            others = [name for name, size in sizes.items() if size == first and name != index]
            if others and first % min(TILES) and bool((share[first:] > 0.9).all()):
                return Cause(
                    "masked_by_other_size",
                    f"{state} from {word} {first} on, and {first} is {SIZE_WORDS[others[0]]}: "
                    f"is {index} compared with {others[0].upper()} in a mask?",
                    "in every mask compare rows with M, columns with N, and the index along the sums with K",
                )  # fmt: skip
    return None


def tiles_missing(evidence: Evidence) -> Cause | None:
    """What was never written of a product are whole tiles."""
    untouched = evidence.untouched
    if evidence.product is None or not untouched.any() or untouched.all():
        return None
    for height, width in itertools.product(TILES, TILES):
        missing, touched = (_tiles_with(mask, height, width) for mask in (untouched, ~untouched))
        if not (missing & touched).any():
            spans = zip(missing.nonzero()[0].tolist(), (height, width), untouched.shape, strict=True)
            rows, columns = (f"{n * side} to {min((n + 1) * side, size) - 1}" for n, side, size in spans)
            more = ", and others" if int(missing.sum()) > 1 else ""
            return Cause(
                "tiles_missing",
                f"whole tiles were never written: rows {rows} of columns {columns}{more}",
                "are there cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N) programs, and does each have a tile of its own? "
                "In a grouped order the last group can be lower: min(num_pid_m - first_pid_m, GROUP_M)",
            )  # fmt: skip
    return None


def never_written(evidence: Evidence) -> Cause | None:
    """Some elements hold the NaN that fresh memory is filled with."""
    untouched = evidence.untouched
    if not untouched.any():
        return None
    if evidence.product and evidence.product[2] == 0:
        return Cause(
            "never_written", "with k = 0 each sum is 0, and here nothing was stored",
            "leave k = 0 to the kernel, whose loop then takes no step and stores zeros, or return torch.zeros",
        )  # fmt: skip
    if evidence.without_kernel:
        return Cause(
            "never_written",
            "no element was ever written, and no kernel was launched"
            if untouched.all() and untouched.numel() > 1
            else f"{_count(untouched)} never written, the first is {_first(untouched)}",
            "is every tile of the result assigned, o[..., first:last, :] = ..., the last one, too?"
            if evidence.attention
            else "launch the kernel, kernel[grid](...), or assign every element",
        )  # fmt: skip
    check_the_grid = "check the grid (does a program exist for every element?) and the mask of the store"
    if untouched.all() and untouched.numel() > 1:
        return Cause(
            "never_written", "no element was ever written, or each was added to fresh memory, which holds NaN",
            f"{check_the_grid}; what is added to (tl.atomic_add) must begin as torch.zeros",
        )  # fmt: skip
    return Cause(
        "never_written", f"{_count(untouched)} never written, the first is {_first(untouched)}", check_the_grid
    )


def _lies_in_gap(tensor: torch.Tensor, element: int | None) -> bool:
    """Whether this element, counted from the first, lies within the reach of a tensor that is not contiguous."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return element is not None and 0 < element < reach and not tensor.is_contiguous()


def _tiles_with(mask: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """The tiles in which a mask is set somewhere."""
    return torch.nn.functional.max_pool2d(mask[None].float(), (height, width), ceil_mode=True)[0] > 0


def _first(mask: torch.Tensor) -> str:
    return str(mask.nonzero()[0].tolist()) if mask.dim() else "[]"


def _count(mask: torch.Tensor) -> str:
    count = int(mask.sum())
    return "1 element was" if count == 1 else f"{count} elements were"
