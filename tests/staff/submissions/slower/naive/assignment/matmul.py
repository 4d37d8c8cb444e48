"""Matrix product in tiles of 32 x 32, in steps of 32."""

import torch
import triton
import triton.language as tl

from .dtypes import check_dtype
from .gelu import gelu_of


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, a_row, a_column, b_row, b_column, ACTIVATION: tl.constexpr,
                  BLOCK: tl.constexpr):  # fmt: skip
    row = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[:, None]
    column = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, k, BLOCK):
        inner = (start + tl.arange(0, BLOCK)).to(tl.int64)
        across, down = inner[None, :], inner[:, None]
        a = tl.load(a_ptr + row * a_row + across * a_column, mask=(row < m) & (across < k), other=0.0)
        b = tl.load(b_ptr + down * b_row + column * b_column, mask=(down < k) & (column < n), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    if ACTIVATION == "relu":
        total = tl.maximum(total, 0.0)
    if ACTIVATION == "gelu":
        total = gelu_of(total)
    tl.store(c_ptr + row * n + column, total.to(c_ptr.dtype.element_ty), mask=(row < m) & (column < n))


def matmul(a, b, activation=None):
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"matmul takes 2 dimensions, got {a.dim()} and {b.dim()}")
    if a.dtype != b.dtype:
        raise ValueError(f"matmul takes one dtype, got {a.dtype} and {b.dtype}")
    check_dtype("matmul", a)
    if a.device != b.device:
        raise ValueError(f"matmul takes one device, got {a.device} and {b.device}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul takes (M, K) and (K, N), got K = {a.shape[1]} and K = {b.shape[0]}")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"matmul takes None, relu or gelu, got {activation!r}")
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    block = 128 if a.device.type == "cpu" else 32
    if c.numel() > 0:
        grid = (triton.cdiv(m, block), triton.cdiv(n, block))
        matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), ACTIVATION=activation, BLOCK=block)
    return c
