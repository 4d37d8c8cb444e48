"""A block of device memory of the judge's own that another process can open: what CUDA IPC needs, by the driver's API.

It keeps the GPU's primary context only as long as it lives: half a gigabyte on a large GPU.
"""

from __future__ import annotations

import ctypes
from types import TracebackType

BLOCK_BYTES = 2 << 20  # a handle exposes whole blocks of this size
HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE


class CudaFailed(Exception):
    """A call of the driver failed."""


class SharedBlock:
    """Device memory with `content` at its start, and a handle to it. Raises `CudaFailed`."""

    def __init__(self, content: bytes, ordinal: int = 0) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._device, self._context, self._memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", ctypes.byref(self._device), ordinal)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        handle = (ctypes.c_char * HANDLE_BYTES)()
        try:
            self._call("cuCtxPushCurrent_v2", self._context)
            self._call("cuMemAlloc_v2", ctypes.byref(self._memory), ctypes.c_size_t(BLOCK_BYTES))
            self._call("cuMemcpyHtoD_v2", self._memory, content, ctypes.c_size_t(len(content)))
            self._call("cuIpcGetMemHandle", handle, self._memory)
        except CudaFailed:
            self.close()
            raise
        self.handle = bytes(handle)

    def __enter__(self) -> SharedBlock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory and the context back."""
        if self._memory:
            self._cuda.cuMemFree_v2(self._memory)
        self._cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))
        self._cuda.cuDevicePrimaryCtxRelease_v2(self._device)

    def _call(self, name: str, *arguments: object) -> None:
        if status := getattr(self._cuda, name)(*arguments):
            raise CudaFailed(f"{name} gave {status}")
