"""Attention in tiles of 64 queries x 32 keys, for each of which 8 warps wait: nothing is loaded ahead.

Tiles above the diagonal are skipped, and all others masked. Tensors are seen as (heads, rows, d), with their strides.
"""

import math

import torch
import triton
import triton.language as tl

from .require import require, require_dtype


@triton.jit
def tile_offsets(rows, columns, stride_row, stride_column):
    return rows.to(tl.int64)[:, None] * stride_row + columns[None, :] * stride_column


@triton.jit
def visible(offs_m, offs_n, M, N, IS_CAUSAL: tl.constexpr):
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    if IS_CAUSAL:
        mask = mask & (offs_m[:, None] >= offs_n[None, :])
    return mask


@triton.jit
def attn_fwd(
    Q, K, V, OUT, L, stride_qh, stride_qm, stride_qd, stride_kh, stride_kn, stride_kd, stride_vh, stride_vn, stride_vd,
    M, N, D, scale, IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    in_q = (offs_m[:, None] < M) & (offs_d[None, :] < D)
    q = tl.load(Q + head * stride_qh + tile_offsets(offs_m, offs_d, stride_qm, stride_qd), mask=in_q, other=0.0)
    m_i = tl.full((BLOCK_M,), -1.0e30, tl.float32)
    l_i = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M) if IS_CAUSAL else N
    for n in range(0, end, BLOCK_N):
        offs_n = n + tl.arange(0, BLOCK_N)
        in_k = (offs_n[:, None] < N) & (offs_d[None, :] < D)
        k = tl.load(K + head * stride_kh + tile_offsets(offs_n, offs_d, stride_kn, stride_kd), mask=in_k, other=0.0)
        qk = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        qk = tl.where(visible(offs_m, offs_n, M, N, IS_CAUSAL), qk, -float("inf"))
        m_new = tl.maximum(m_i, tl.max(qk, axis=1))
        alpha = tl.exp(m_i - m_new)
        p = tl.exp(qk - m_new[:, None])
        v = tl.load(V + head * stride_vh + tile_offsets(offs_n, offs_d, stride_vn, stride_vd), mask=in_k, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None], input_precision="ieee")
        l_i = l_i * alpha + tl.sum(p, axis=1)
        m_i = m_new
    acc /= tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    tl.store(OUT + head * M * D + tile_offsets(offs_m, offs_d, D, 1), acc.to(OUT.dtype.element_ty), mask=in_q)
    tl.store(L + head * M + offs_m, m_i + tl.log(l_i), mask=offs_m < M)


@triton.jit
def attn_delta(OUT, DO, DELTA, stride_gh, stride_gm, stride_gd, M, D, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr):
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    mask = (offs_m[:, None] < M) & (offs_d[None, :] < D)
    o = tl.load(OUT + head * M * D + tile_offsets(offs_m, offs_d, D, 1), mask=mask, other=0.0)
    do = tl.load(DO + head * stride_gh + tile_offsets(offs_m, offs_d, stride_gm, stride_gd), mask=mask, other=0.0)
    tl.store(DELTA + head * M + offs_m, tl.sum(o.to(tl.float32) * do.to(tl.float32), axis=1), mask=offs_m < M)


@triton.jit
def attn_bwd_dq(
    Q, K, V, DO, L, DELTA, DQ, stride_qh, stride_qm, stride_qd, stride_kh, stride_kn, stride_kd,
    stride_vh, stride_vn, stride_vd, stride_gh, stride_gm, stride_gd, M, N, D, scale,
    IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    in_q = (offs_m[:, None] < M) & (offs_d[None, :] < D)
    q = tl.load(Q + head * stride_qh + tile_offsets(offs_m, offs_d, stride_qm, stride_qd), mask=in_q, other=0.0)
    do = tl.load(DO + head * stride_gh + tile_offsets(offs_m, offs_d, stride_gm, stride_gd), mask=in_q, other=0.0)
    lse = tl.load(L + head * M + offs_m, mask=offs_m < M, other=0.0)
    delta = tl.load(DELTA + head * M + offs_m, mask=offs_m < M, other=0.0)
    dq = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    end = tl.minimum(N, (tl.program_id(0) + 1) * BLOCK_M) if IS_CAUSAL else N
    for n in range(0, end, BLOCK_N):
        offs_n = n + tl.arange(0, BLOCK_N)
        in_k = (offs_n[:, None] < N) & (offs_d[None, :] < D)
        k = tl.load(K + head * stride_kh + tile_offsets(offs_n, offs_d, stride_kn, stride_kd), mask=in_k, other=0.0)
        v = tl.load(V + head * stride_vh + tile_offsets(offs_n, offs_d, stride_vn, stride_vd), mask=in_k, other=0.0)
        p = tl.exp(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
        p = tl.where(visible(offs_m, offs_n, M, N, IS_CAUSAL), p, 0.0)
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    tl.store(DQ + head * M * D + tile_offsets(offs_m, offs_d, D, 1), (dq * scale).to(DQ.dtype.element_ty), mask=in_q)


@triton.jit
def attn_bwd_dkdv(
    Q, K, V, DO, L, DELTA, DK, DV, stride_qh, stride_qm, stride_qd, stride_kh, stride_kn, stride_kd,
    stride_vh, stride_vn, stride_vd, stride_gh, stride_gm, stride_gd, M, N, D, scale,
    IS_CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    offs_n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    in_k = (offs_n[:, None] < N) & (offs_d[None, :] < D)
    k = tl.load(K + head * stride_kh + tile_offsets(offs_n, offs_d, stride_kn, stride_kd), mask=in_k, other=0.0)
    v = tl.load(V + head * stride_vh + tile_offsets(offs_n, offs_d, stride_vn, stride_vd), mask=in_k, other=0.0)
    dk = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    dv = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    begin = tl.program_id(0) * BLOCK_N // BLOCK_M * BLOCK_M if IS_CAUSAL else 0
    for m in range(begin, M, BLOCK_M):
        offs_m = m + tl.arange(0, BLOCK_M)
        in_q = (offs_m[:, None] < M) & (offs_d[None, :] < D)
        q = tl.load(Q + head * stride_qh + tile_offsets(offs_m, offs_d, stride_qm, stride_qd), mask=in_q, other=0.0)
        do = tl.load(DO + head * stride_gh + tile_offsets(offs_m, offs_d, stride_gm, stride_gd), mask=in_q, other=0.0)
        lse = tl.load(L + head * M + offs_m, mask=offs_m < M, other=0.0)
        delta = tl.load(DELTA + head * M + offs_m, mask=offs_m < M, other=0.0)
        p = tl.exp(tl.dot(q, tl.trans(k), input_precision="ieee") * scale - lse[:, None])
        p = tl.where(visible(offs_m, offs_n, M, N, IS_CAUSAL), p, 0.0)
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv, input_precision="ieee")
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])
        dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk, input_precision="ieee")
    offsets = head * N * D + tile_offsets(offs_n, offs_d, D, 1)
    tl.store(DK + offsets, (dk * scale).to(DK.dtype.element_ty), mask=in_k)
    tl.store(DV + offsets, dv.to(DV.dtype.element_ty), mask=in_k)


def heads_of(x):
    """x (..., rows, d) as (heads, rows, d)."""
    return x.reshape(math.prod(x.shape[:-2]), *x.shape[-2:])


def tile_of(x):
    block_m, block_n = (128, 128) if x.device.type == "cpu" else (64, 32)
    block_d = max(16, triton.next_power_of_2(x.shape[-1]))
    return {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_D": block_d, "num_warps": 8, "num_stages": 1}


def require_fitting(q, k, v):
    require_dtype(q)
    require(q.dtype == k.dtype == v.dtype, f"dtypes differ: {q.dtype}, {k.dtype}, {v.dtype}")
    require(q.device == k.device == v.device, f"devices differ: {q.device}, {k.device}, {v.device}")
    require(k.shape == v.shape, f"k and v differ: {list(k.shape)} and {list(v.shape)}")
    require(q.shape[-1] == k.shape[-1], f"head dimensions differ: {q.shape[-1]} and {k.shape[-1]}")
    require(q.shape[-1] <= 256, f"head dimension {q.shape[-1]} is larger than 256")
    require(q.shape[:-2] == k.shape[:-2], f"leading sizes differ: {list(q.shape[:-2])} and {list(k.shape[:-2])}")


def attention_tiled(q, k, v, is_causal=False, scale=None):
    require_fitting(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    row = torch.arange(q.shape[-2], device=q.device)[:, None]
    acc = torch.zeros(q.shape, device=q.device)
    lse = torch.full(q.shape[:-1], -torch.inf, device=q.device)
    for n in range(0, k.shape[-2], 128):
        s = q.float() @ k[..., n : n + 128, :].float().mT * scale
        if is_causal:
            s = s.masked_fill(n + torch.arange(s.shape[-1], device=q.device) > row, -torch.inf)
        lse_new = torch.logaddexp(lse, torch.logsumexp(s, -1))
        p = torch.exp(s - lse_new[..., None])
        acc = acc * torch.exp(lse - lse_new)[..., None] + p @ v[..., n : n + 128, :].float()
        lse = lse_new
    return acc.to(q.dtype), lse


def flash_attention_forward(q, k, v, is_causal=False, scale=None):
    require_fitting(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if o.numel():
        q, k, v, tile = heads_of(q), heads_of(k), heads_of(v), tile_of(q)
        (heads, M, D), N = q.shape, k.shape[1]
        attn_fwd[(triton.cdiv(M, tile["BLOCK_M"]), heads)](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(), M, N, D, scale, is_causal, **tile
        )
    return o, lse


def flash_attention_backward(do, q, k, v, o, lse, is_causal=False, scale=None):
    require_fitting(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    do, q, k, v, tile = heads_of(do), heads_of(q), heads_of(k), heads_of(v), tile_of(q)
    o, lse = o.contiguous(), lse.contiguous()
    delta = torch.empty_like(lse)
    (heads, M, D), N = q.shape, k.shape[1]
    rest = (*q.stride(), *k.stride(), *v.stride(), *do.stride(), M, N, D, scale, is_causal)
    if dq.numel():
        grid = (triton.cdiv(M, tile["BLOCK_M"]), heads)
        attn_delta[grid](o, do, delta, *do.stride(), M, D, BLOCK_M=tile["BLOCK_M"], BLOCK_D=tile["BLOCK_D"])
        attn_bwd_dq[grid](q, k, v, do, lse, delta, dq, *rest, **tile)
    if dk.numel():
        grid = (triton.cdiv(N, tile["BLOCK_N"]), heads)
        attn_bwd_dkdv[grid](q, k, v, do, lse, delta, dk, dv, *rest, **tile)
    return dq, dk, dv


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, options):
        o, lse = flash_attention_forward(q, k, v, *options)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.options = options
        return o

    @staticmethod
    def backward(ctx, do):
        return *flash_attention_backward(do, *ctx.saved_tensors, *ctx.options), None


def flash_attention(q, k, v, is_causal=False, scale=None):
    if q.dim() == k.dim() == v.dim() > 2 and k.shape[-3] and q.shape[-3] % k.shape[-3] == 0:
        group = q.shape[-3] // k.shape[-3]  # heads of q that share a head of k and v
        if group > 1:
            k, v = (x.repeat_interleave(group, dim=-3) for x in (k, v))
    require_fitting(q, k, v)
    return Attention.apply(q, k, v, (is_causal, scale))
