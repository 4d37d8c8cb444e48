"""Instead of a mask, the last tile is moved back until it ends with the tensor. A tensor below one tile has no room."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    start = tl.minimum(tl.program_id(0) * BLOCK, n - BLOCK)
    i = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + i, x * tl.sigmoid(2 * u))


def gelu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n > 0:
        gelu_kernel[(triton.cdiv(n, 64),)](x, y, n, BLOCK=64)
    return y
