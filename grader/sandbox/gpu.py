"""One GPU through NVIDIA's management library: its device nodes, and how much of its memory is used by anybody.

It opens no CUDA context. GPUs are named by UUID, since an index means different things to different libraries.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

import pynvml

SHARED_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
LOOK_EVERY_S = 0.0005


class Gpu:
    """A GPU as the library sees it."""

    def __init__(self, uuid: str) -> None:
        pynvml.nvmlInit()  # counted by the library: once for each is fine
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def nodes(self) -> list[str]:
        """The device nodes that CUDA needs for this GPU, and no other GPU's."""
        return [*SHARED_NODES, f"/dev/nvidia{pynvml.nvmlDeviceGetMinorNumber(self._handle)}"]

    def used_bytes(self) -> int:
        """Memory in use by all processes, and by the driver."""
        return int(pynvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def wait_for(self, used_bytes: int, limit_s: float) -> int:
        """Wait until no more than this is in use. The bytes that still are after `limit_s`, or 0."""
        give_up = time.monotonic() + limit_s
        while (over := self.used_bytes() - used_bytes) > 0 and time.monotonic() < give_up:
            time.sleep(0.02)
        return max(over, 0)


class MostUsed:
    """While it is entered, the largest amount of a GPU's memory in use: `bytes`."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.bytes = gpu, 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> MostUsed:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            self.bytes = max(self.bytes, self.gpu.used_bytes())
        self.bytes = max(self.bytes, self.gpu.used_bytes())
