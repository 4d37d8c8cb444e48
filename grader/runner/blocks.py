"""Blocks of device memory that two processes share, by CUDA's driver. Both sides import this file.

A handle exposes the whole allocation around an address, so each side says where in it something lies.
"""

import ctypes
from functools import cache
from types import SimpleNamespace

import torch

HANDLE_BYTES = 64  # CU_IPC_HANDLE_SIZE
BUFFER_ID = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID
LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag there is


class CudaFailed(Exception):
    """A call of the driver failed."""


class Handle(ctypes.Structure):
    """CUipcMemHandle, which travels by value."""

    _fields_ = (("reserved", ctypes.c_char * HANDLE_BYTES),)


@cache
def driver() -> ctypes.CDLL:
    """The driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    """A function of the driver's. Raises `CudaFailed`."""
    if status := getattr(driver(), name)(*arguments):
        raise CudaFailed(f"{name} gave {status}")


def allocation(address: int) -> tuple[int, int]:
    """Where the allocation around an address begins, and its size in bytes. Raises `CudaFailed`."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    return base.value, size.value


def number_of(address: int) -> int:
    """The number of the allocation around an address, which no other one ever has. Raises `CudaFailed`."""
    number = ctypes.c_uint64()
    call("cuPointerGetAttribute", ctypes.byref(number), ctypes.c_int(BUFFER_ID), ctypes.c_uint64(address))
    return number.value


def handle_of(base: int) -> str:
    """The handle of the allocation that begins at this address, in hexadecimal. Raises `CudaFailed`."""
    handle = Handle()
    call("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(base))
    return bytes(handle).hex()


class Opened:
    """An allocation of another process's, mapped into this one: `content` is (bytes,) uint8. Raises `CudaFailed`."""

    def __init__(self, handle: str) -> None:
        address = ctypes.c_uint64()
        by_value = Handle.from_buffer_copy(bytes.fromhex(handle))
        call("cuIpcOpenMemHandle_v2", ctypes.byref(address), by_value, ctypes.c_uint(LAZY_PEER_ACCESS))
        self.address = address.value
        self.content = bytes_at(*allocation(self.address))

    def close(self) -> None:
        """Give the mapping back; nothing may use `content` any more."""
        call("cuIpcCloseMemHandle", ctypes.c_uint64(self.address))


def bytes_at(address: int, size: int) -> torch.Tensor:
    """Device memory as (size,) uint8, without owning it."""

    memory = SimpleNamespace()
    memory.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}
    return torch.as_tensor(memory, device="cuda")
