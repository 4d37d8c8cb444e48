"""A bool that is no tl.constexpr: the interpreter refuses it, a GPU does not."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, widen, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    if widen:
        x = x.to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + i, x * tl.sigmoid(2 * u), mask=i < n)


def gelu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), x.dtype != torch.float32, BLOCK=1024)
    return y
