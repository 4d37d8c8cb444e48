"""GELU by a kernel that is right, launched twice where once would do."""

import torch
import triton
import triton.language as tl

TIMES = 2


@triton.jit
def gelu_kernel(x_pointer, y_pointer, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_pointer + i, mask=inside, other=0.0).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_pointer + i, (x * tl.sigmoid(2.0 * u)).to(y_pointer.dtype.element_ty), mask=inside)


def launch(x, y):
    """gelu(x), contiguous, into y."""
    block = 1024 if x.is_cuda else 65536
    if x.numel() > 0:
        gelu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)


def gelu(x):
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    y = torch.empty_like(x)
    for _ in range(TIMES):
        launch(x, y)
    return y
