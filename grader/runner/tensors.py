"""Tensors as they travel: storages go to the runner whole, answers come back as contiguous bytes.

A storage arrives with everything the judge put around and between the elements (red zones, gaps), and
goes back whole after the call, so that the judge can see what was written where.
"""

from collections.abc import Sequence
from typing import Any

import torch

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.float16, torch.bfloat16, torch.float64,
        torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool,
    )
}  # fmt: skip


LATE_CYCLES = 40_000_000  # of the GPU's clock: 20 ms and more


class Storages:
    """The judge's storages in this process. The same addresses can be filled again with new content."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.blocks: list[torch.Tensor] = []
        self.views: dict[str, torch.Tensor] = {}  # of these blocks, by their specs

    def fill(self, sizes: Sequence[int], payload: bytearray, keep_addresses: bool) -> None:
        """Place `payload`, the storages one after the other, in fresh memory or where the last ones lie."""
        if not (keep_addresses and [block.numel() for block in self.blocks] == list(sizes)):
            self.views, self.blocks = {}, [torch.empty(size, dtype=torch.uint8, device=self.device) for size in sizes]
        at = 0
        for block in self.blocks:
            size = block.numel()
            if size:
                block.copy_(torch.frombuffer(payload, dtype=torch.uint8, count=size, offset=at))
            at += size
        payload.clear()

    def arrive_late(self) -> None:
        """Let the current stream bring the content some time from now; until then every element is a NaN."""
        self.late = [block.clone() for block in self.blocks]  # kept: its memory may not be given to anybody else
        for block in self.blocks:
            block.fill_(0xFF)
        torch.cuda.synchronize()
        torch.cuda._sleep(LATE_CYCLES)  # type: ignore[no-untyped-call]
        for block, late in zip(self.blocks, self.late, strict=True):
            block.copy_(late)

    def view(self, spec: dict[str, Any]) -> torch.Tensor:
        """The tensor that a header describes: shape, strides and offset in elements, inside its storage.

        The same object again as long as the storage is the same: what is kept by an object's identity is stale then.
        """
        if repr(spec) in self.views:
            return self.views[repr(spec)]
        tensor = torch.empty(0, dtype=DTYPES[spec["dtype"]], device=self.device)
        storage = self.blocks[spec["storage"]].untyped_storage()
        tensor.set_(storage, spec["offset"], spec["shape"], spec["strides"])
        tensor = tensor.to("meta") if spec.get("elsewhere") else tensor
        self.views[repr(spec)] = tensor.requires_grad_(True) if spec.get("requires_grad") else tensor
        return self.views[repr(spec)]


def describe(value: object, room: int) -> dict[str, Any]:
    """The header of one result: a plain tensor, one of more bytes than there is room for, or what it is instead."""
    if value is None:
        return {"kind": "none"}
    if type(value) is not torch.Tensor:
        return {"kind": "other", "what": f"{type(value).__module__}.{type(value).__qualname__}"[:200]}
    dtype = str(value.dtype).removeprefix("torch.")
    if value.layout is not torch.strided or value.device.type not in ("cpu", "cuda") or dtype not in DTYPES:
        return {"kind": "other", "what": f"a {value.layout} tensor of {value.dtype} on {value.device.type}"[:200]}
    kind = "tensor" if value.nbytes <= room else "large"
    return {"kind": kind, "dtype": dtype, "shape": list(value.shape), "device": value.device.type}


def pack(value: Any) -> memoryview:
    """The elements of a tensor in row-major order, as bytes."""
    plain = value.detach().contiguous().cpu()
    plain = plain.as_strided((plain.numel(),), (1,))  # a single element counts as contiguous, whatever its stride
    return plain.view(torch.uint8).numpy().data if plain.numel() else memoryview(b"")
