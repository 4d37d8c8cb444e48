"""The message does not say what was found."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + i, x * tl.sigmoid(2 * u), mask=i < n)


def gelu(x):
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError("unsupported dtype")
    x = x.contiguous()
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
