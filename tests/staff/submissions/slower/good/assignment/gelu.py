"""GELU, 1024 elements a program: eight for each thread, which is one load of 16 bytes in a half type."""

import torch
import triton
import triton.language as tl

from .agree import check_dtype


@triton.jit
def activate_gelu(x):
    """The tanh form by one exponential, x: float32. Where that overflows, the result is -0."""
    return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def gelu_kernel(x_pointer, out_pointer, elements, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + element, mask=element < elements, other=0.0).to(tl.float32)
    tl.store(out_pointer + element, activate_gelu(x).to(out_pointer.dtype.element_ty), mask=element < elements)


def gelu(x: torch.Tensor) -> torch.Tensor:
    check_dtype("gelu", x)
    x = x.contiguous()
    out = torch.empty_like(x)
    if out.numel() == 0:
        return out
    block = 1 << 16 if x.device.type == "cpu" else 1024
    gelu_kernel[(triton.cdiv(out.numel(), block),)](x, out, out.numel(), BLOCK=block, num_warps=4)
    return out
