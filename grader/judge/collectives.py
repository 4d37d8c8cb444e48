"""What collectives give: each rank's part in, each rank's result out. Tensors are flat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from grader.judge.replies import Request
from grader.runner.tensors import DTYPES

Tensors = list[torch.Tensor]


@dataclass(frozen=True)
class Part:
    """One rank's part in a collective."""

    rank: int  # global
    request: Request
    tensors: Tensors
    gates: int = 0  # that its rank had reached

    @property
    def nbytes(self) -> int:
        """Bytes that it gives or gets, whichever is more."""
        return max(
            sum(count * DTYPES[dtype].itemsize for dtype, count in sizes)
            for sizes in (self.request.inputs, self.request.outputs)
        )


@dataclass
class Disagreement(Exception):
    """Two ranks that are not in the same collective."""

    parts: tuple[Part, Part]


def words_of(part: Part) -> str:
    """A rank's part in a collective as it is told: "an all-reduce of 96 bytes"."""
    kind = part.request.kind.replace("_", "-")
    return f"{'an' if kind[0] == 'a' else 'a'} {kind}" + (f" of {part.nbytes} bytes" if kind != "barrier" else "")


def meet(parts: Sequence[Part], garbled: bool = False) -> list[Tensors]:
    """The results of a collective, by its ranks in the order of the group. Raises `Disagreement`.

    Where traffic is garbled, floating-point numbers that come from another rank arrive as NaN, and so do their bytes.
    """
    first = parts[0]
    for part in parts[1:]:
        if _terms(part) != _terms(first):
            raise Disagreement((first, part))
    root = min(max(first.request.root, 0), len(parts) - 1)
    given, moved = [part.tensors for part in parts], "reduce" not in first.request.kind
    results = []
    for number, part in enumerate(parts):
        try:
            result = RESULTS[first.request.kind](
                [_garbled(tensors, moved) if garbled and other != number else tensors
                 for other, tensors in enumerate(given)],
                root, number, first.request.operation,
            )  # fmt: skip
        except (IndexError, RuntimeError, ValueError):  # sizes or dtypes that do not fit
            raise Disagreement((first, parts[1] if part is first and len(parts) > 1 else part)) from None
        if [(_name(one), one.numel()) for one in result] != list(map(tuple, part.request.outputs)):
            raise Disagreement((first, part if part is not first else parts[-1]))
        results.append(result)
    return results


def _terms(part: Part) -> tuple[object, ...]:
    """What must be the same on all ranks."""
    request = part.request
    if request.kind in ("send", "receive"):
        return ("way",)
    sizes = tuple(map(tuple, request.inputs)) if request.kind in ("all_reduce", "reduce", "reduce_scatter") else ()
    return request.kind, request.operation, request.root, sizes


def _garbled(tensors: Tensors, moved: bool) -> Tensors:
    """Another rank's tensors as NaN. A zero that is added to something tells nothing, and stays.

    Integers of 8 or 16 bits that are only `moved` may be those of floating-point numbers: of a NaN all bits are 1.
    """
    return [
        torch.where(one == 0, one, torch.nan) if one.is_floating_point() else
        torch.where(one == 0, one, ALL_ONES[one.dtype]) if moved and one.dtype in ALL_ONES else
        one
        for one in tensors
    ]  # fmt: skip


def _reduced(tensors: Sequence[torch.Tensor], operation: str) -> torch.Tensor:
    """Their sum, say; 16-bit numbers are added in float32 and rounded once."""
    dtype = tensors[0].dtype
    if any(one.dtype != dtype or one.numel() != tensors[0].numel() for one in tensors):
        raise RuntimeError("tensors that do not fit")
    total = tensors[0].float() if dtype.itemsize == 2 else tensors[0].clone()
    for one in tensors[1:]:
        total = OPERATIONS[operation](total, one.to(total.dtype))
    return total.to(dtype)


ALL_ONES = {torch.uint8: 0xFF, torch.int8: -1, torch.int16: -1}
OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add, "PRODUCT": torch.mul, "MIN": torch.minimum, "MAX": torch.maximum,
    "BAND": torch.bitwise_and, "BOR": torch.bitwise_or, "BXOR": torch.bitwise_xor,
}  # fmt: skip

# From all parts, the root, the rank whose result it is, and the operation.
RESULTS: dict[str, Callable[[Sequence[Tensors], int, int, str], Tensors]] = {
    "all_reduce": lambda parts, root, rank, name: [_reduced(ones, name) for ones in zip(*parts, strict=True)],
    "reduce": lambda parts, root, rank, name: (
        [_reduced(ones, name) for ones in zip(*parts, strict=True)] if rank == root else []
    ),
    "broadcast": lambda parts, root, rank, name: [] if rank == root else parts[root],
    "all_gather": lambda parts, root, rank, name: [part[0] for part in parts],
    "gather": lambda parts, root, rank, name: [part[0] for part in parts] if rank == root else [],
    "scatter": lambda parts, root, rank, name: [parts[root][rank]],
    "reduce_scatter": lambda parts, root, rank, name: [_reduced([part[rank] for part in parts], name)],
    "all_to_all": lambda parts, root, rank, name: [part[rank] for part in parts],
    "barrier": lambda parts, root, rank, name: [],
    "send": lambda parts, root, rank, name: [] if rank == 0 else parts[0],
    "receive": lambda parts, root, rank, name: [] if rank == 0 else parts[0],
}


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
