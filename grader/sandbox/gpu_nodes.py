"""One GPU through NVIDIA's management library: its device nodes, and how much of its memory is used.

It opens no CUDA context. GPUs are named by UUID, since an index means different things to different libraries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")


def gpu_nodes(uuid: str) -> list[str]:
    """The device nodes that CUDA needs for this GPU, and no other GPU's."""
    with _library() as nvml:
        minor = nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByUUID(uuid))
    return [*SHARED_NODES, f"/dev/nvidia{minor}"]


def memory_used(uuid: str) -> tuple[int, int]:
    """Bytes of this GPU's memory that are in use by anybody, and in all."""
    with _library() as nvml:
        memory = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByUUID(uuid))
    return memory.used, memory.total


@contextmanager
def _library() -> Iterator[Any]:
    import pynvml

    pynvml.nvmlInit()
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()
