"""Calls of the submission for the judge's clock: on the judge's device memory, with answers where they were put.

Nothing is measured here. The judge holds the clock, and looks for the answers itself, in the blocks that are named.
"""

from collections.abc import Callable, Sequence
from typing import Any

import blocks
import torch
from tensors import DTYPES, describe

NO_ROOM = -1  # of a tensor to be described: it does not travel


class Calls:
    """A function of the submission's, and how it is called with a set of tensors."""

    def __init__(self, module: Any, header: dict[str, Any], device: str) -> None:
        """`header`: function, arguments (numbers of tensors), options, gradient (the number of one, or None)."""
        self.device = device
        self.function: Callable[..., Any] = getattr(module, header["function"])
        self.options, self.arguments, self.incoming = header["options"], header["arguments"], header["gradient"]
        torch.zeros(1, device=device)  # CUDA starts at its first use, and the driver opens nothing before
        torch._C._set_deterministic_algorithms(False)  # or fresh memory would be filled in the time of a call

    def call(self, tensors: list[torch.Tensor]) -> Sequence[object]:
        """Its results, and where a gradient comes in, those of the tensors that require one after them."""
        result = self.function(*(tensors[at] for at in self.arguments), **self.options)
        results: Sequence[object] = result if type(result) is tuple else (result,)
        if self.incoming is None:
            return results
        leaves = tuple(tensor for tensor in tensors if tensor.requires_grad)
        run: Any = torch.autograd.graph._engine_run_backward
        gradients: Sequence[object] = run(
            (results[0],), (tensors[self.incoming],), False, False, leaves, allow_unreachable=True,
            accumulate_grad=False,
        )  # fmt: skip
        return (*results, *gradients)


class Timed(Calls):
    """The same with sets of arguments in blocks of the judge's."""

    def __init__(self, module: Any, header: dict[str, Any], device: str) -> None:
        """`header`: what `Calls` takes, blocks (handles), and sets (of tensors in them)."""
        super().__init__(module, header, device)
        self.theirs = [blocks.Opened(handle) for handle in header["blocks"]]
        self.sets = [[self._view(spec) for spec in tensors] for tensors in header["sets"]]
        self.kept: list[Sequence[object]] = []  # what the last calls gave: the judge still looks at it
        self.named: dict[int, tuple[int, int]] = {}  # by an allocation's number: its place among blocks, its beginning

    def close(self) -> None:
        """Give the judge's blocks back; their memory stays taken for as long as it is mapped."""
        self.kept, self.sets = [], []
        for block in self.theirs:
            block.close()

    def run(self, order: Sequence[int]) -> dict[str, Any]:
        """Call with these sets, one after the other, and say where the answers lie, and of new blocks the handles.

        It does not wait for the GPU: the judge looks these up meanwhile.
        """
        self.kept, places, new = [], [], list[str]()
        for number in order:
            self.kept.append(self.call(self.sets[number]))
            places.append([self._place(value, new) for value in self.kept[-1]])
        return {"places": places, "blocks": new}

    def _view(self, spec: dict[str, Any]) -> torch.Tensor:
        block = self.theirs[spec["block"]].content
        tensor = torch.empty(0, dtype=DTYPES[spec["dtype"]], device=self.device)
        tensor.set_(block.untyped_storage(), spec["offset"], spec["shape"], spec["strides"])
        return tensor.requires_grad_(True) if spec["requires_grad"] else tensor

    def _place(self, value: object, new: list[str]) -> dict[str, Any]:
        """Where a tensor lies: block, bytes from its beginning, strides; or what it is instead."""
        if type(value) is not torch.Tensor or value.device.type != self.device or not value.numel():
            return describe(value, NO_ROOM)
        number = blocks.number_of(value.data_ptr())  # an address can be another allocation's the next time
        if number not in self.named:
            base, _ = blocks.allocation(value.data_ptr())
            try:
                new.append(blocks.handle_of(base))
            except blocks.CudaFailed:
                return {"kind": "other", "what": "a tensor in memory that this process has not allocated"}
            self.named[number] = len(self.named), base
        block, base = self.named[number]
        return {"kind": "place", "block": block, "offset": value.data_ptr() - base, "strides": list(value.stride()),
                "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape)}  # fmt: skip
