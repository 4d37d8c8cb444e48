"""Watches the Triton interpreter: which addresses a kernel touches, and in which order programs run.

Advice for the student, worth no points. A load outside every tensor gives NaN (the largest value for
integers), as the judge's red zones do. A store outside is carried out where it lands in the judge's
storage, so that the judge sees it; anywhere else it would corrupt this process, so it raises.
"""

import gc
import random
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as interpreter
from numpy.typing import NDArray

REPORTS = 8  # accesses described in a reply; more are only counted
POISON = {2: 0x7FC1, 4: 0x7FC0DEAD, 8: 0x7FF8DEADDEADDEAD}  # bits; a NaN for every float of that size


class StrayStore(RuntimeError):
    """A kernel stores to memory that belongs to no tensor."""


@dataclass
class Region:
    """Memory that a kernel may touch: `owned` tells which elements, or None for all of them."""

    name: str
    start: int
    end: int
    itemsize: int = 1
    owned: NDArray[np.bool_] | None = None

    def allows(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        inside = (addresses >= self.start) & (addresses < self.end)
        if self.owned is None:
            return inside
        element = np.where(inside, (addresses - np.uint64(self.start)) // np.uint64(self.itemsize), 0)
        allowed: NDArray[np.bool_] = inside & self.owned[element.astype(np.int64)]
        return allowed


class Watch:
    """Installed once in a runner's process; `begin` is called before each call of the student's function."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.guarded: list[Region] = []
        self.reports: list[dict[str, Any]] = []
        self.launch: list[Region] = []
        self.order = "forward"
        self.shuffle_seed = 0
        self.ranks: list[int] = []

    def begin(self, guarded: list[Region], order: str, shuffle_seed: int) -> None:
        """From now on these storages are guarded, and programs run in this order."""
        self.guarded, self.order, self.shuffle_seed = guarded, order, shuffle_seed
        self.reports = []

    def install(self) -> None:
        """Stand between Triton's interpreter and its memory accesses. The names are those of triton 3.6 and 3.7."""
        native = interpreter._interpreter
        interpreter._interpreter = _Accesses(native, self)
        original = interpreter.GridExecutor._init_args_hst
        builder = interpreter.interpreter_builder

        def arguments_on_host(executor: Any, args_dev: Any, kwargs: Any) -> Any:
            args, keywords = original(executor, args_dev, kwargs)
            self.launch = [*_regions(dict(zip(executor.arg_names, args, strict=False)) | keywords)]
            return args, keywords

        def set_grid_dim(*dimensions: int) -> None:
            type(builder).set_grid_dim(builder, *dimensions)
            self.ranks = list(range(dimensions[0] * dimensions[1] * dimensions[2]))
            if self.order == "reversed":
                self.ranks.reverse()
            elif self.order == "shuffled":
                random.Random(self.shuffle_seed).shuffle(self.ranks)

        def set_grid_idx(x: int, y: int, z: int) -> None:
            _, ny, nz = builder.grid_dim
            rank = self.ranks[(x * ny + y) * nz + z]
            type(builder).set_grid_idx(builder, rank // (ny * nz), rank // nz % ny, rank % nz)

        interpreter.GridExecutor._init_args_hst = arguments_on_host
        builder.set_grid_dim, builder.set_grid_idx = set_grid_dim, set_grid_idx

    def stray_lanes(self, kind: str, pointers: Any, mask: Any, itemsize: int) -> NDArray[np.bool_] | None:
        """The lanes that touch memory which belongs to no tensor, reported; None if there are none."""
        addresses, active = np.broadcast_arrays(np.asarray(pointers), np.asarray(mask))
        allowed = ~active
        guards = [region for region in self.guarded if region.owned is not None]
        starts = {region.start for region in guards}
        for region in (*guards, *(region for region in self.launch if region.start not in starts)):
            if allowed.all():
                return None
            allowed = allowed | region.allows(addresses)
        if not allowed.all():
            allowed = allowed | self._elsewhere(addresses[~allowed], addresses, starts)
        if allowed.all():
            return None
        self._report(kind, addresses, ~allowed, itemsize)
        return ~allowed

    def _elsewhere(
        self, strays: NDArray[np.uint64], addresses: NDArray[np.uint64], guarded: set[int]
    ) -> NDArray[np.bool_]:
        """Lanes that lie in some other living tensor: a kernel may get a pointer as a number."""
        found = np.zeros(addresses.shape, dtype=bool)
        low, high = int(strays.min()), int(strays.max())
        for tensor in [thing for thing in gc.get_objects() if type(thing) is torch.Tensor]:
            if tensor.layout is not torch.strided:
                continue
            storage = tensor.untyped_storage()
            start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
            if start not in guarded and start <= high and low < end:
                found |= (addresses >= start) & (addresses < end)
        return found

    def lands_in_guard(self, addresses: NDArray[np.uint64], stray: NDArray[np.bool_]) -> bool:
        """Whether every stray lane lies in a storage of the judge, where a store can be seen and harms nobody."""
        outside = stray.copy()
        for region in self.guarded:
            outside &= ~((addresses >= region.start) & (addresses < region.end))
        return not outside.any()

    def _report(self, kind: str, addresses: NDArray[np.uint64], stray: NDArray[np.bool_], itemsize: int) -> None:
        if len(self.reports) >= REPORTS:
            return
        where = _student_line(sys._getframe(1), self.folder)
        if any(report["where"] == where and report["kind"] == kind for report in self.reports):
            return
        lanes = np.flatnonzero(stray)
        first = int(addresses.reshape(-1)[lanes[0]])
        region = min((*self.guarded, *self.launch), key=lambda r: max(r.start - first, first - r.end, 0), default=None)
        builder = interpreter.interpreter_builder
        self.reports.append({
            "kind": kind,
            "program": [int(index) for index in builder.grid_idx],
            "lanes": [int(lanes[0]), int(lanes[-1])],
            "count": int(lanes.size),
            "tensor": region.name if region else None,
            "element": _element(region, first, itemsize) if region else None,
            "where": where,
        })  # fmt: skip


class _Accesses:
    """Stands in for Triton's native load, store and atomics; all other names pass through."""

    def __init__(self, native: Any, watch: Watch) -> None:
        self._native, self._watch = native, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        stray = self._watch.stray_lanes("read", pointers, mask, np.dtype(dtype).itemsize)
        if stray is None:
            return self._native.load(pointers, mask, other, dtype)
        loaded = self._native.load(pointers, np.ascontiguousarray(mask & ~stray), other, dtype)
        loaded[stray] = _poison(loaded.dtype)
        return loaded

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._guard_store(pointers, mask, value.dtype.itemsize)
        return self._native.store(pointers, value, mask)

    def atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, semantics: Any) -> Any:
        self._guard_store(pointers, mask, value.dtype.itemsize)
        return self._native.atomic_rmw(operation, pointers, value, mask, semantics)

    def atomic_cas(self, pointers: Any, compare: Any, value: Any, semantics: Any) -> Any:
        self._guard_store(pointers, np.ones(np.shape(pointers), dtype=bool), value.dtype.itemsize)
        return self._native.atomic_cas(pointers, compare, value, semantics)

    def _guard_store(self, pointers: Any, mask: Any, itemsize: int) -> None:
        stray = self._watch.stray_lanes("write", pointers, mask, itemsize)
        if stray is not None and not self._watch.lands_in_guard(np.asarray(pointers), stray):
            raise StrayStore("a store outside every tensor of the launch")


def _poison(dtype: Any) -> Any:
    if dtype.kind == "b":
        return True
    if dtype.kind in "iu" and dtype.itemsize != 2:  # bfloat16 is carried as uint16
        return np.iinfo(dtype).max
    return np.array([POISON[dtype.itemsize]], dtype=f"u{dtype.itemsize}").view(dtype)[0]


def _element(region: Region, address: int, itemsize: int) -> int:
    """The element that an address would be, counted from the region's first owned element."""
    first = region.start
    if region.owned is not None and region.owned.any():
        first += int(np.argmax(region.owned)) * region.itemsize
    return (address - first) // itemsize


def _regions(arguments: dict[str, Any]) -> list[Region]:
    """The storages of a launch's tensor arguments."""
    found = []
    for name, argument in arguments.items():
        tensor = getattr(argument, "base", argument)
        if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes():
            storage = tensor.untyped_storage()
            found.append(Region(name, storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
    return found


def _student_line(frame: FrameType | None, folder: str) -> dict[str, Any] | None:
    """The innermost line of the submission on the stack."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            return {"file": frame.f_code.co_filename[len(folder) :].lstrip("/"), "line": frame.f_lineno}
        frame = frame.f_back
    return None


def guarded_regions(
    blocks: list[torch.Tensor], named: list[tuple[int, str, torch.Tensor]]
) -> list[Region]:
    """One region for each storage of the judge, owning exactly the elements of the tensors that lie in it."""
    regions = []
    for index, block in enumerate(blocks):
        views = [(name, tensor) for place, name, tensor in named if place == index]
        itemsize = views[0][1].element_size() if views else 1
        owned = torch.zeros(block.numel() // itemsize, dtype=torch.bool)
        for _, tensor in views:
            if tensor.numel():
                owned.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
        name = " and ".join(name for name, _ in views) or "memory"
        start = block.data_ptr()
        regions.append(Region(name, start, start + block.numel(), itemsize, owned.numpy()))
    return regions
