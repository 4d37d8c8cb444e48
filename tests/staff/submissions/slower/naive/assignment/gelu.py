"""GELU, 64 elements a program."""

import torch
import triton
import triton.language as tl

from .dtypes import check_dtype


@triton.jit
def gelu_of(x):
    """x: float32. 0.5 (1 + tanh(u)) is sigmoid(2u)."""
    return x * tl.sigmoid(2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x))


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, gelu_of(x).to(y_ptr.dtype.element_ty), mask=at < n)


def gelu(x):
    check_dtype("gelu", x)
    x = x.contiguous()
    y = torch.empty_like(x)
    block = 65536 if x.device.type == "cpu" else 64
    if x.numel() > 0:
        gelu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block, num_warps=1)
    return y
