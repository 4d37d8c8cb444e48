"""Guarded memory: inputs lie between red zones, and gaps between their elements are poisoned, too.

A tensor made by `guarded` is a view into a storage of its own. The storage travels to the runner whole and
comes back whole, and `first_change` compares the two to the bit. Poison is a NaN (for integers the largest
value), so an element read by mistake shows in the answer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch

ZONE_BYTES = 64 * 1024  # on both sides; more than any sensible tile reaches over an edge

# Quiet NaN whose payloads are not the processor's own: of what lies around the inputs, which also stands in
# `grader/runner/watch.py`, and of memory that a submission has just got, which also stands in `operators.py` there.
POISON_BITS = {
    torch.float16: 0x7FC1,
    torch.bfloat16: 0x7FC1,
    torch.float32: 0x7FC0DEAD,
    torch.float64: 0x7FF8DEADDEADDEAD,
}
FILL_BITS = {
    torch.float16: 0x7FC2,
    torch.bfloat16: 0x7FC2,
    torch.float32: 0x7FC0F111,
    torch.float64: 0x7FF8F111F111F111,
}

_INTEGER = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The elements as integers of the same size."""
    return tensor.contiguous().view(_INTEGER[tensor.element_size()])


def guarded(shape: Sequence[int], dtype: torch.dtype, strides: Sequence[int], offset: int = 0) -> torch.Tensor:
    """An uninitialised tensor of `shape` and `strides` (in elements) in the middle of a poisoned storage.

    Its first element lies 64-byte aligned, as PyTorch's allocations do, plus `offset` elements.
    """
    itemsize = dtype.itemsize
    zone = ZONE_BYTES // itemsize
    span = 0 if 0 in shape else 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    memory = torch.empty(zone + offset + span + zone, dtype=_INTEGER[itemsize])
    memory.fill_(_signed(POISON_BITS[dtype], itemsize) if dtype in POISON_BITS else torch.iinfo(memory.dtype).max)
    return memory.view(dtype).as_strided(tuple(shape), tuple(strides), zone + offset)


def storage_bytes(tensor: torch.Tensor) -> memoryview:
    """The whole storage that a tensor lies in, without a copy."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    return memoryview((ctypes.c_uint8 * size).from_address(storage.data_ptr()) if size else b"").cast("B")


@dataclass(frozen=True)
class Change:
    """The first element of a storage that differs after a call."""

    index: tuple[int, ...] | None  # in the tensor; None for a red zone or a gap
    elements_past_end: int  # beyond the last element (positive) or before the first (negative); 0 within
    count: int  # elements changed in all


def first_change(tensor: torch.Tensor, returned: memoryview) -> Change | None:
    """Compare the storage of `tensor` with what came back from the runner; None if not a bit has changed."""
    integer = _INTEGER[tensor.element_size()]
    before, after = (torch.frombuffer(memory, dtype=integer) for memory in (storage_bytes(tensor), returned))
    if torch.equal(before, after):
        return None
    changed = (before != after).nonzero().flatten()
    positions = torch.arange(len(before)).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    first = int(changed[0])
    if tensor.numel():
        inside = torch.isin(changed, positions.flatten())
        if inside.any():
            where = (positions == int(changed[inside][0])).nonzero()[0]
            return Change(tuple(where.tolist()), 0, len(changed))
        low, high = int(positions.min()), int(positions.max())
        past = first - high if first > high else min(first - low, 0)
        return Change(None, past, len(changed))
    return Change(None, first - int(tensor.storage_offset()) + 1, len(changed))


def _signed(pattern: int, itemsize: int) -> int:
    """The bit pattern as the signed integer that has it."""
    return int.from_bytes(pattern.to_bytes(itemsize, "little"), "little", signed=True)
