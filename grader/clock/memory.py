"""Device memory between judge and runner: blocks of the judge's, and what may be read of the runner's.

What the runner says about where an answer lies is checked against the true size of the block before anything is read.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from grader.judge.replies import PlaceEntry
from grader.runner import blocks
from grader.runner.protocol import Malformed
from grader.runner.tensors import DTYPES

BLOCK_BYTES = 2 << 20  # a handle exposes whole blocks of this size
ALIGNMENT_BYTES = 512  # of a tensor in a block, as PyTorch's allocator gives


@dataclass(frozen=True)
class Spec:
    """A contiguous tensor of shape `shape`."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def strides(self) -> list[int]:
        return list(torch.empty(self.shape, device="meta").stride())


class Block:
    """Device memory of the judge's own for some tensors, one after the other. Raises `CudaFailed`."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self.specs, self.offsets, at = tuple(specs), list[int](), 0
        for spec in specs:
            self.offsets.append(at)
            at += -(-spec.nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        self.size = -(-at // BLOCK_BYTES) * BLOCK_BYTES
        address = ctypes.c_uint64()
        blocks.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(self.size))
        self.address = address.value
        self.handle = blocks.handle_of(self.address)
        content = blocks.bytes_at(self.address, self.size)
        self.tensors = [
            content[at : at + spec.nbytes].view(spec.dtype).view(spec.shape)
            for spec, at in zip(self.specs, self.offsets, strict=True)
        ]

    def described(self, block: int, requires_grad: Sequence[bool]) -> list[dict[str, object]]:
        """Its tensors for the runner, which knows it by a number."""
        return [
            {"block": block, "offset": at // spec.dtype.itemsize, "shape": list(spec.shape), "strides": spec.strides,
             "dtype": str(spec.dtype).removeprefix("torch."), "requires_grad": grad}
            for spec, at, grad in zip(self.specs, self.offsets, requires_grad, strict=True)
        ]  # fmt: skip

    def free(self) -> None:
        """Give the memory back; nothing may use its tensors any more."""
        self.tensors = []
        blocks.call("cuMemFree_v2", ctypes.c_uint64(self.address))


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of cuda.h."""

    _fields_ = [
        (f"{end}{name}", kind)
        for end in ("src", "dst")
        for name, kind in (
            ("XInBytes", ctypes.c_size_t), ("Y", ctypes.c_size_t), ("MemoryType", ctypes.c_int),
            ("Host", ctypes.c_void_p), ("Device", ctypes.c_uint64), ("Array", ctypes.c_void_p),
            ("Pitch", ctypes.c_size_t),
        )
    ] + [("WidthInBytes", ctypes.c_size_t), ("Height", ctypes.c_size_t)]  # fmt: skip


HOST, DEVICE = 1, 2  # CUmemorytype


@dataclass(frozen=True)
class Fetch:
    """A copy of a matrix to host memory, prepared so that starting it takes microseconds."""

    seen: torch.Tensor  # equal to the matrix once the copy is done
    start: Callable[[], object]  # waits for nothing on a GPU


def fetch(copy: torch.Tensor, matrix: torch.Tensor) -> Fetch:
    """Prepare to bring a matrix to `copy`, which is contiguous and has room for it.

    Where the rows of a matrix on the device, or its columns, lie in one piece each, the copy engine brings them.
    PyTorch would let a kernel gather those with gaps between them, which waits for the kernels of other processes.
    """
    rows, columns = matrix.shape
    across, down = matrix.stride()
    place = copy.view(-1)[: matrix.numel()]
    if matrix.is_cuda and down == 1 and across >= columns:
        return _fetch_2d(place.view(rows, columns), matrix, across)
    if matrix.is_cuda and across == 1 and down >= rows:
        turned = _fetch_2d(place.view(columns, rows), matrix, down)
        return Fetch(turned.seen.t(), turned.start)
    seen = place.view(rows, columns)
    return Fetch(seen, lambda: seen.copy_(matrix, non_blocking=True))


def _fetch_2d(copy: torch.Tensor, matrix: torch.Tensor, pitch: int) -> Fetch:
    """Pieces of the length of the copy's rows, so many elements apart in device memory."""
    height, width = copy.shape
    each = matrix.element_size()
    what = _Copy2D(
        srcMemoryType=DEVICE, srcDevice=matrix.data_ptr(), srcPitch=pitch * each,
        dstMemoryType=HOST, dstHost=copy.data_ptr(), dstPitch=width * each, WidthInBytes=width * each, Height=height,
    )  # fmt: skip
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    return Fetch(copy, partial(blocks.call, "cuMemcpy2DAsync_v2", ctypes.byref(what), stream))


class TheirBlocks:
    """The runner's blocks, in the order in which it named them."""

    def __init__(self) -> None:
        self.opened: list[blocks.Opened] = []

    def open(self, handles: Sequence[str]) -> None:
        """Map more of them. Raises `Malformed` where a handle is none."""
        for handle in handles:
            try:
                self.opened.append(blocks.Opened(handle))
            except blocks.CudaFailed as error:
                raise Malformed(f"a handle of device memory that cannot be opened ({error})") from None

    def tensor(self, place: PlaceEntry) -> torch.Tensor:
        """What lies at a place. Raises `Malformed` where that is not inside the block."""
        if place.block >= len(self.opened):
            raise Malformed("an answer in a block that was not named")
        content = self.opened[place.block].content
        first, last = extent(place, content.numel())
        dtype = DTYPES[place.dtype]
        typed = content[first:last].view(dtype)
        return typed.as_strided(place.shape, place.strides)

    def close(self) -> None:
        """Give all mappings back: the memory of a dead runner stays in use for as long as it is mapped."""
        for one in self.opened:
            one.close()
        self.opened = []


def extent(place: PlaceEntry, size: int) -> tuple[int, int]:
    """The bytes of a block of `size` bytes from the first to the last element at a place.

    Raises `Malformed` where these are not all in the block, or where the place makes no sense.
    """
    if place.dtype not in DTYPES:
        raise Malformed("an answer of an unknown dtype")
    item = DTYPES[place.dtype].itemsize
    if len(place.strides) != len(place.shape) or any(stride < 0 for stride in place.strides):
        raise Malformed("an answer whose strides do not go with its shape")
    if place.offset % item:
        raise Malformed("an answer that is not aligned to its elements")
    reach = sum((length - 1) * stride for length, stride in zip(place.shape, place.strides, strict=True))
    last = place.offset + (reach + 1) * item if math.prod(place.shape) else place.offset
    if last > size:
        raise Malformed("an answer that reaches beyond its block")
    return place.offset, last
