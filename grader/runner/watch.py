"""Watches the Triton interpreter: which addresses a kernel touches, and in which order its programs run.

Advice for the student, worth no points. A load outside every tensor gives NaN (the largest value for
integers), as the judge's red zones do. A store outside is carried out where it lands in the judge's
storage, so that the judge sees it; anywhere else it would corrupt this process, so it raises.
"""

import gc
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import loading
import numpy as np
import origins
import torch
import triton.runtime.interpreter as interpreter
from numpy.typing import NDArray
from triton._C import libtriton

REPORTS = 8  # accesses described in a reply
POISON = {2: 0x7FC1, 4: 0x7FC0DEAD, 8: 0x7FF8DEADDEADDEAD}  # bits of a NaN; also in grader/judge/memory.py
Lanes = NDArray[np.bool_]


class StrayStore(RuntimeError):
    """A kernel stores to memory that belongs to no tensor."""


@dataclass
class Region:
    """A storage: `owned` tells which elements a kernel may touch, None for all of them."""

    name: str
    start: int
    end: int
    itemsize: int = 1
    owned: Lanes | None = None
    is_foreign: bool = False  # nothing that is watched has made what is in it
    is_written: bool = False  # by this launch

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor) -> "Region":
        """All of a tensor's storage."""
        storage = tensor.untyped_storage()
        return cls(name, storage.data_ptr(), storage.data_ptr() + storage.nbytes())

    @classmethod
    def guarded(cls, block: torch.Tensor, views: list[tuple[str, torch.Tensor]]) -> "Region":
        """One of the judge's storages, owning exactly the elements of the tensors that lie in it."""
        region = cls.of(" and ".join(name for name, _ in views), block)
        region.itemsize = views[0][1].element_size()
        owned = torch.zeros(block.numel() // region.itemsize, dtype=torch.bool)
        for _, tensor in views:
            if tensor.numel():
                owned.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).fill_(True)
        region.owned = owned.numpy()
        return region

    def holds(self, addresses: Any) -> Lanes:
        inside: Lanes = (addresses >= self.start) & (addresses < self.end)
        return inside

    def allows(self, addresses: Any) -> Lanes:
        inside = self.holds(addresses)
        if self.owned is None:
            return inside
        elements = np.where(inside, (addresses - np.uint64(self.start)) // np.uint64(self.itemsize), 0)
        return inside & self.owned[elements.astype(np.int64)]

    def element(self, address: int, itemsize: int) -> int:
        """The element that an address would be, counted from the first owned one."""
        first = int(np.argmax(self.owned)) * self.itemsize if self.owned is not None else 0
        return (address - self.start - first) // itemsize


class Watch:
    """Installed once in a child; `begin` is called before each call of the student's function."""

    def __init__(self, launched: Callable[[], None], known: origins.Origins) -> None:
        self.folder, self.launched, self.origins = "/", launched, known
        self.guards: list[Region] = []
        self.launch: list[Region] = []
        self.reports: list[dict[str, Any]] = []
        self.order, self.seed = "forward", 0
        self.ranks: list[int] = []

    def begin(
        self, blocks: list[torch.Tensor], named: list[tuple[int, str, torch.Tensor]], order: str, seed: int
    ) -> None:
        """From now on the judge's storages are guarded, which hold these tensors, and programs run in this order."""
        self.guards = [
            Region.guarded(block, [(name, tensor) for place, name, tensor in named if place == index])
            for index, block in enumerate(blocks)
        ]
        self.order, self.seed, self.reports = order, seed, []
        self.origins.given = blocks

    def install(self) -> None:
        """Stand between Triton's interpreter and memory. The names are those of triton 3.6 and 3.7."""
        native, builder = libtriton.interpreter, interpreter.interpreter_builder  # never another watch
        arguments_on_host, run_grid = interpreter.GridExecutor._init_args_hst, interpreter.GridExecutor.__call__

        def init_args_hst(executor: Any, args_dev: Any, kwargs: Any) -> Any:
            args, keywords = arguments_on_host(executor, args_dev, kwargs)
            named = dict(zip(executor.arg_names, args, strict=False)) | keywords
            tensors = {name: getattr(value, "base", value) for name, value in named.items()}  # descriptors have a base
            found = [Region.of(name, value) for name, value in tensors.items() if isinstance(value, torch.Tensor)]
            guarded = {region.start for region in self.guards}
            self.launch = [*self.guards, *(region for region in found if region.start not in guarded)]
            for region in self.launch[len(self.guards) :]:
                region.is_foreign = not self.origins.knows_bytes(region.start, region.end - region.start)
            return args, keywords

        def call_kernel(executor: Any, *args: Any, **keywords: Any) -> None:
            try:
                run_grid(executor, *args, **keywords)
            finally:
                for region in self.launch:
                    if region.is_written and not region.is_foreign:
                        self.origins.write_bytes(region.start, region.end - region.start)

        def set_grid_dim(*dimensions: int) -> None:
            type(builder).set_grid_dim(builder, *dimensions)
            self.launched()
            self.ranks = list(range(dimensions[0] * dimensions[1] * dimensions[2]))
            if self.order == "reversed":
                self.ranks.reverse()
            elif self.order == "shuffled":
                random.Random(self.seed).shuffle(self.ranks)

        def set_grid_idx(x: int, y: int, z: int) -> None:
            _, ny, nz = builder.grid_dim
            rank = self.ranks[(x * ny + y) * nz + z]
            type(builder).set_grid_idx(builder, rank // (ny * nz), rank // nz % ny, rank % nz)

        def load(pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
            stray = self.stray_lanes("read", pointers, mask, np.dtype(dtype).itemsize)
            if stray is None:
                return native.load(pointers, mask, other, dtype)
            loaded = native.load(pointers, np.ascontiguousarray(mask & ~stray), other, dtype)
            loaded[stray] = poison(loaded.dtype)
            return loaded

        def watched(store: Any, pointers: int, value: int, mask: int | None) -> Any:
            def call(*arguments: Any) -> Any:
                active = True if mask is None else arguments[mask]
                self.guard_store(arguments[pointers], active, arguments[value].dtype.itemsize)
                return store(*arguments)

            return call

        interpreter._interpreter = SimpleNamespace(**{name: getattr(native, name) for name in dir(native)})
        interpreter._interpreter.load = load
        interpreter._interpreter.store = watched(native.store, pointers=0, value=1, mask=2)
        interpreter._interpreter.atomic_rmw = watched(native.atomic_rmw, pointers=1, value=2, mask=3)
        interpreter._interpreter.atomic_cas = watched(native.atomic_cas, pointers=0, value=2, mask=None)
        interpreter.GridExecutor._init_args_hst, interpreter.GridExecutor.__call__ = init_args_hst, call_kernel
        builder.set_grid_dim, builder.set_grid_idx = set_grid_dim, set_grid_idx
        self.functions = functions_of_triton()

    def end(self, results: list[object]) -> None:
        """After a call: its answers were written by what is watched, with the interpreter as it was."""
        if not all(self.origins.knows(result) for result in results if isinstance(result, torch.Tensor)):
            self.origins.find("answer")
        if functions_of_triton() != self.functions:
            self.origins.find("interpreter")

    def stray_lanes(self, kind: str, pointers: Any, mask: Any, itemsize: int) -> Lanes | None:
        """The lanes that touch memory which belongs to no tensor, reported; None if there are none."""
        addresses, active = np.broadcast_arrays(np.asarray(pointers), np.asarray(mask))
        stray: Lanes = active.copy()
        for region in self.launch:
            if stray.any():
                allowed = region.allows(addresses)
                self._note(kind, region, stray, allowed)
                stray &= ~allowed
        if not stray.any():
            return None
        for region in living_tensors():  # a kernel may get a pointer as a number
            if not any(region.start == guard.start for guard in self.guards):
                stray &= ~region.allows(addresses)
        if not stray.any():
            return None
        self.report(kind, addresses, stray, itemsize)
        return stray

    def _note(self, kind: str, region: Region, lanes: Lanes, allowed: Lanes) -> None:
        """Note that a launch writes to a storage, or reads from one that came from elsewhere."""
        if kind == "write" and not region.is_written:
            region.is_written = bool((lanes & allowed).any())
        if kind == "read" and region.is_foreign and (lanes & allowed).any():
            self.origins.find("read")

    def guard_store(self, pointers: Any, mask: Any, itemsize: int) -> None:
        """Raise unless every stray lane lies in a storage of the judge, where it can be seen and harms nobody."""
        stray = self.stray_lanes("write", pointers, mask, itemsize)
        if stray is not None:
            for region in self.guards:
                stray &= ~region.holds(np.asarray(pointers))
            if stray.any():
                raise StrayStore("a store outside every tensor of the launch")

    def report(self, kind: str, addresses: Any, stray: Lanes, itemsize: int) -> None:
        """Note the access once per line of the kernel."""
        where = loading.line_in(self.folder)
        if len(self.reports) == REPORTS or any((r["kind"], r["where"]) == (kind, where) for r in self.reports):
            return
        lanes = np.flatnonzero(stray)
        first = int(addresses.reshape(-1)[lanes[0]])
        near = min(self.launch, key=lambda region: max(region.start - first, first - region.end, 0), default=None)
        self.reports.append({
            "kind": kind, "program": [int(index) for index in interpreter.interpreter_builder.grid_idx],
            "lanes": [int(lanes[0]), int(lanes[-1])], "count": int(lanes.size), "where": where,
            "tensor": near.name if near else None, "element": near.element(first, itemsize) if near else None,
        })  # fmt: skip


def functions_of_triton() -> list[int]:
    """Which functions the interpreter is made of, by identity."""
    builder = interpreter.interpreter_builder
    places = [builder, type(builder), interpreter, interpreter.GridExecutor, interpreter._interpreter]
    return [id(thing) for place in places for thing in vars(place).values() if callable(thing)]


def living_tensors() -> list[Region]:
    """The storages of all tensors in this process; slow, so asked only where something looks wrong."""
    tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.layout is torch.strided]
    return [Region.of("another tensor", tensor) for tensor in tensors]


def poison(dtype: Any) -> Any:
    """A value that shows: NaN for floats (and for bfloat16, carried as uint16), the largest for integers."""
    if dtype.kind in "iu" and dtype.itemsize != 2:
        return np.iinfo(dtype).max
    return True if dtype.kind == "b" else np.array([POISON[dtype.itemsize]], f"u{dtype.itemsize}").view(dtype)[0]
