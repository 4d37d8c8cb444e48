"""Offsets are multiplied by the size of an element, as if pointers counted bytes."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, ITEM: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * ITEM, mask=i < n).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + i, x * tl.sigmoid(2 * u), mask=i < n)


def gelu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 512),)
    gelu_kernel[grid](x, y, x.numel(), ITEM=x.element_size(), BLOCK=512)
    return y
