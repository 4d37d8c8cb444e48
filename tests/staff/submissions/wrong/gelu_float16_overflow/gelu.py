"""The cube of a float16 overflows: its largest value is 65 504."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    u = (0.7978845608028654 * (x + 0.044715 * x * x * x)).to(tl.float32)
    e = tl.exp(tl.abs(u)).to(x.dtype)
    tanh = tl.where(u < 0, -1.0, 1.0) * (e * e - 1) / (e * e + 1)
    tl.store(y_ptr + i, (0.5 * x * (1 + tanh)).to(x.dtype), mask=i < n)


def gelu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
