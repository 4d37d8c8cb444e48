"""The rows of a are compared with the number of columns of b."""

import torch
import triton
import triton.language as tl

SUPPORTED = {torch.float32, torch.float16, torch.bfloat16}


@triton.jit
def activate(z, ACT: tl.constexpr):
    if ACT == "relu":
        z = tl.where(z > 0, z, 0.0)
    elif ACT == "gelu":
        z = z / (1 + tl.exp(-1.5957691216057308 * (z + 0.044715 * z * z * z)))
    return z


@triton.jit
def mm_kernel(
    A, B, C, M, N, K, sam, sak, sbk, sbn, scm, scn,
    ACT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rm = tl.program_id(0).to(tl.int64) * BM + tl.arange(0, BM)
    rn = tl.program_id(1).to(tl.int64) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        rk = start + tl.arange(0, BK).to(tl.int64)
        a_mask = (rm < N)[:, None] & (rk < K)[None, :]
        b_mask = (rk < K)[:, None] & (rn < N)[None, :]
        a = tl.load(A + rm[:, None] * sam + rk[None, :] * sak, mask=a_mask, other=0.0)
        b = tl.load(B + rk[:, None] * sbk + rn[None, :] * sbn, mask=b_mask, other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    acc = activate(acc, ACT)
    c_mask = (rm < M)[:, None] & (rn < N)[None, :]
    tl.store(C + rm[:, None] * scm + rn[None, :] * scn, acc.to(C.dtype.element_ty), mask=c_mask)


def check(a, b, activation):
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"a and b need 2 dimensions each, not {a.ndim} and {b.ndim}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"a has {a.shape[1]} columns, b has {b.shape[0]} rows")
    if a.device != b.device:
        raise ValueError(f"a is on {a.device}, b is on {b.device}")
    if a.dtype != b.dtype or a.dtype not in SUPPORTED:
        raise ValueError(f"a is {a.dtype}, b is {b.dtype}; both must be one of {SUPPORTED}")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"no such activation: {activation}")


def matmul(a, b, activation=None):
    check(a, b, activation)
    M, N, K = a.shape[0], b.shape[1], a.shape[1]
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    if M == 0 or N == 0:
        return c
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    mm_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), activation, BM=64, BN=64, BK=64)
    return c
