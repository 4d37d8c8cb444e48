"""Parts of the sums are added to memory that nobody has cleared."""

import torch
import triton
import triton.language as tl


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, sum_ptr, M, N, K, a_m, a_k, b_k, b_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)[:, None]
    n = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, tl.num_programs(2) * BK):
        a_col = start + tl.arange(0, BK)[None, :].to(tl.int64)
        b_row = start + tl.arange(0, BK)[:, None].to(tl.int64)
        a = tl.load(a_ptr + m * a_m + a_col * a_k, mask=(m < M) & (a_col < K), other=0.0)
        b = tl.load(b_ptr + b_row * b_k + n * b_n, mask=(b_row < K) & (n < N), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.atomic_add(sum_ptr + m * N + n, total, mask=(m < M) & (n < N))


@triton.jit
def finish_kernel(sum_ptr, out_ptr, count, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(sum_ptr + i, mask=i < count, other=0.0)
    if ACTIVATION == "relu":
        x = tl.where(x < 0, 0.0, x)
    if ACTIVATION == "gelu":
        x = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tl.store(out_ptr + i, x.to(out_ptr.dtype.element_ty), mask=i < count)


def refuse(a, b, activation):
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"expected 2 dimensions, got {a.dim()} and {b.dim()}")
    if a.dtype != b.dtype or a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"expected one supported dtype, got {a.dtype} and {b.dtype}")
    if a.device != b.device:
        raise ValueError(f"expected one device, got {a.device} and {b.device}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"expected equal inner sizes, got {a.shape[1]} and {b.shape[0]}")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"expected None, relu or gelu, got {activation}")


def matmul(a, b, activation=None):
    refuse(a, b, activation)
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty(M, N, dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    total = torch.empty(M, N, dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), 4 if K > 256 else 1)
    split_k_kernel[grid](a, b, total, M, N, K, *a.stride(), *b.stride(), BM=64, BN=64, BK=64)
    finish_kernel[(triton.cdiv(M * N, 4096),)](total, out, M * N, activation, BLOCK=4096)
    return out
