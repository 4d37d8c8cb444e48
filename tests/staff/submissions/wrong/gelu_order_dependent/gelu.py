"""Program 0 prepares a constant that all others read, as if it always ran first."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, y_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(scratch_ptr, tl.sqrt(2 / 3.141592653589793))
    slope = tl.load(scratch_ptr)
    i = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    u = slope * (x + 0.044715 * x * x * x)
    tl.store(y_ptr + i, x * tl.sigmoid(2 * u), mask=i < n)


def gelu(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scratch = torch.zeros(1, device=x.device)
    gelu_kernel[(triton.cdiv(x.numel(), 4096),)](x, y, scratch, x.numel(), BLOCK=4096)
    return y
