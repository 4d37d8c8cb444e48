"""One GPU through NVIDIA's management library: its device nodes, and how much of its memory is used by anybody.

It opens no CUDA context. GPUs are named by UUID, since an index means different things to different libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from grader.sandbox.levels import CannotStart

SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


class GpuUnknown(CannotStart):
    """The library is missing, or does not know this GPU or what was asked of it."""


class ManagedGpu:
    """A GPU as the library sees it. Everything here raises `GpuUnknown`."""

    def __init__(self, uuid: str) -> None:
        self._ask(pynvml.nvmlInit)  # counted by the library: once for each is fine
        self._handle = self._ask(pynvml.nvmlDeviceGetHandleByUUID, uuid)

    def nodes(self) -> list[str]:
        """The device nodes that CUDA needs for this GPU, and no other GPU's."""
        return [*SHARED_NODES, f"/dev/nvidia{self._ask(pynvml.nvmlDeviceGetMinorNumber, self._handle)}"]

    def used_bytes(self) -> int:
        """Memory in use by all processes, and by the driver."""
        return int(self._ask(pynvml.nvmlDeviceGetMemoryInfo, self._handle).used)

    @staticmethod
    def _ask(function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise GpuUnknown(f"NVIDIA's management library: {error}") from None
