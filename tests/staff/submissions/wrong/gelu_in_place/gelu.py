"""The result is stored over the input."""

import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(x_ptr + i, x * tl.sigmoid(2 * u), mask=i < n)


def gelu(x):
    y = x.contiguous()
    gelu_kernel[(triton.cdiv(y.numel(), 1024),)](y, y.numel(), BLOCK=1024)
    return y
