"""A kernel of our own: if this one does not run, the fault is the machine's or ours."""

import ctypes

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def double_kernel(input_pointer, output_pointer, elements, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program doubles BLOCK elements."""
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = element < elements
    tl.store(output_pointer + element, 2 * tl.load(input_pointer + element, mask=inside), mask=inside)


def double(x: torch.Tensor) -> torch.Tensor:
    """2 · x for a contiguous tensor."""
    output = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, output, x.numel(), BLOCK=64)
    return output


class Handle(ctypes.Structure):
    """CUipcMemHandle, which travels by value."""

    _fields_ = (("reserved", ctypes.c_char * 64),)


def shared_bytes(handle: str, count: int) -> torch.Tensor:
    """The first bytes of another process's device memory; none where CUDA IPC does not work."""
    cuda, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
    content = torch.zeros(count, dtype=torch.uint8)
    if cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), Handle.from_buffer_copy(bytes.fromhex(handle)), 1):
        return content[:0]
    cuda.cuMemcpyDtoH_v2(ctypes.c_void_p(content.data_ptr()), address, ctypes.c_size_t(count))
    cuda.cuIpcCloseMemHandle(address)
    return content
