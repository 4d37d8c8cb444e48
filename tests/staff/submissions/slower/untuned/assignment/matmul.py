"""Matrix product in tiles of 64 x 64, row of tiles after row of tiles."""

import torch
import triton
import triton.language as tl

from .gelu import tanh_gelu
from .require import require, require_dtype


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tiles_n = tl.cdiv(N, BLOCK_N)
    offs_m = (tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)
    offs_n = (tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k) & (offs_n[None, :] < N), other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        a_ptrs += tl.cast(BLOCK_K, tl.int64) * stride_ak
        b_ptrs += tl.cast(BLOCK_K, tl.int64) * stride_bk
    if ACTIVATION == "relu":
        accumulator = tl.maximum(accumulator, 0.0)
    elif ACTIVATION == "gelu":
        accumulator = tanh_gelu(accumulator)
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(c_ptrs, accumulator.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    require(a.dim() == b.dim() == 2, f"a and b need 2 dimensions, not {a.dim()} and {b.dim()}")
    require(a.shape[1] == b.shape[0], f"inner sizes differ: {a.shape[1]} and {b.shape[0]}")
    require(a.dtype == b.dtype, f"dtypes differ: {a.dtype} and {b.dtype}")
    require(a.device == b.device, f"devices differ: {a.device} and {b.device}")
    require(activation in (None, "relu", "gelu"), f"unknown activation {activation!r}")
    require_dtype(a)
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    tile = (128, 128, 128) if a.device.type == "cpu" else (64, 64, 32)
    if c.numel():
        matmul_kernel[(triton.cdiv(c.shape[0], tile[0]) * triton.cdiv(c.shape[1], tile[1]),)](
            a, b, c, *c.shape, a.shape[1], *a.stride(), *b.stride(), activation, *tile, num_warps=4
        )
    return c
