"""Attention in tiles of 32 x 32. Each program visits every tile and masks it, and each gradient has its own kernel.

The kernels take contiguous tensors, (heads, rows, D), and round D up to BLOCK_D.
"""

import torch
import triton
import triton.language as tl

from .dtypes import check_dtype


@triton.jit
def load(ptr, row, rows, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """The given rows of one head; what does not exist is 0."""
    column = tl.arange(0, BLOCK_D)
    mask = (row[:, None] < rows) & (column[None, :] < D)
    return tl.load(ptr + row[:, None].to(tl.int64) * D + column[None, :], mask=mask, other=0.0)


@triton.jit
def store(ptr, x, row, rows, D: tl.constexpr, BLOCK_D: tl.constexpr):
    column = tl.arange(0, BLOCK_D)
    mask = (row[:, None] < rows) & (column[None, :] < D)
    tl.store(ptr + row[:, None].to(tl.int64) * D + column[None, :], x.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def scores(q, k, i, j, nq, nk, scale, CAUSAL: tl.constexpr):
    """scale * q k^T, -inf where a query does not see a key."""
    seen = (i[:, None] < nq) & (j[None, :] < nk)
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None])
    return tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, -float("inf"))


@triton.jit
def score_gradient(p, v, o, do):
    """ds = p * (dp - row sum of do * o)."""
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    return p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])


@triton.jit
def forward_kernel(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, nq, nk, scale, CAUSAL: tl.constexpr, D: tl.constexpr,
                   BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = load(q_ptr + head * nq * D, i, nq, D, BLOCK_D)
    m = tl.full((BLOCK,), -1e38, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    o = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for start in range(0, nk, BLOCK):
        j = start + tl.arange(0, BLOCK)
        k = load(k_ptr + head * nk * D, j, nk, D, BLOCK_D)
        v = load(v_ptr + head * nk * D, j, nk, D, BLOCK_D)
        s = scores(q, k, i, j, nq, nk, scale, CAUSAL)
        new_m = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - new_m[:, None])
        total = total * tl.exp(m - new_m) + tl.sum(p, 1)
        o = o * tl.exp(m - new_m)[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = new_m
    store(o_ptr + head * nq * D, o / tl.where(total > 0, total, 1.0)[:, None], i, nq, D, BLOCK_D)
    tl.store(lse_ptr + head * nq + i, m + tl.log(total), mask=i < nq)


@triton.jit
def dq_kernel(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, do_ptr, dq_ptr, nq, nk, scale, CAUSAL: tl.constexpr,
              D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q, do = load(q_ptr + head * nq * D, i, nq, D, BLOCK_D), load(do_ptr + head * nq * D, i, nq, D, BLOCK_D)
    o = load(o_ptr + head * nq * D, i, nq, D, BLOCK_D)
    lse = tl.load(lse_ptr + head * nq + i, mask=i < nq, other=0.0)
    dq = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for start in range(0, nk, BLOCK):
        j = start + tl.arange(0, BLOCK)
        k, v = load(k_ptr + head * nk * D, j, nk, D, BLOCK_D), load(v_ptr + head * nk * D, j, nk, D, BLOCK_D)
        p = tl.exp(scores(q, k, i, j, nq, nk, scale, CAUSAL) - lse[:, None])
        ds = score_gradient(p, v, o, do)
        dq += tl.dot(ds.to(k.dtype), k, input_precision="ieee")
    store(dq_ptr + head * nq * D, dq * scale, i, nq, D, BLOCK_D)


@triton.jit
def dk_kernel(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, do_ptr, dk_ptr, nq, nk, scale, CAUSAL: tl.constexpr,
              D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k, v = load(k_ptr + head * nk * D, j, nk, D, BLOCK_D), load(v_ptr + head * nk * D, j, nk, D, BLOCK_D)
    dk = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for start in range(0, nq, BLOCK):
        i = start + tl.arange(0, BLOCK)
        q, do = load(q_ptr + head * nq * D, i, nq, D, BLOCK_D), load(do_ptr + head * nq * D, i, nq, D, BLOCK_D)
        o = load(o_ptr + head * nq * D, i, nq, D, BLOCK_D)
        lse = tl.load(lse_ptr + head * nq + i, mask=i < nq, other=0.0)
        p = tl.exp(scores(q, k, i, j, nq, nk, scale, CAUSAL) - lse[:, None])
        ds = score_gradient(p, v, o, do)
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
    store(dk_ptr + head * nk * D, dk * scale, j, nk, D, BLOCK_D)


@triton.jit
def dv_kernel(q_ptr, k_ptr, lse_ptr, do_ptr, dv_ptr, nq, nk, scale, CAUSAL: tl.constexpr, D: tl.constexpr,
              BLOCK_D: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    k = load(k_ptr + head * nk * D, j, nk, D, BLOCK_D)
    dv = tl.zeros((BLOCK, BLOCK_D), tl.float32)
    for start in range(0, nq, BLOCK):
        i = start + tl.arange(0, BLOCK)
        q, do = load(q_ptr + head * nq * D, i, nq, D, BLOCK_D), load(do_ptr + head * nq * D, i, nq, D, BLOCK_D)
        lse = tl.load(lse_ptr + head * nq + i, mask=i < nq, other=0.0)
        p = tl.exp(scores(q, k, i, j, nq, nk, scale, CAUSAL) - lse[:, None])
        dv += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
    store(dv_ptr + head * nk * D, dv, j, nk, D, BLOCK_D)


def launch(kernel, like, *arguments, causal):
    """Start a program for each tile of rows of `like`, a (..., rows, d) tensor."""
    d = like.shape[-1]
    block = 32 if d <= 128 else 16  # more does not fit in float32
    if like.device.type == "cpu":
        block = 256
    if like.numel() > 0:
        kernel[(triton.cdiv(like.shape[-2], block), like.shape[:-2].numel())](
            *arguments, CAUSAL=causal, D=d, BLOCK_D=max(16, triton.next_power_of_2(d)), BLOCK=block
        )


def check(name, q, k, v):
    check_dtype(name, q)
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"{name} takes one dtype, got {q.dtype}, {k.dtype} and {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"{name} takes one device, got {q.device}, {k.device} and {v.device}")
    if k.shape != v.shape:
        raise ValueError(f"{name} takes k and v of one shape, got {list(k.shape)} and {list(v.shape)}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"{name} takes one head dimension, got {q.shape[-1]} and {k.shape[-1]}")
    if q.shape[-1] > 256:
        raise ValueError(f"{name} takes head dimensions up to 256, got {q.shape[-1]}")
    if q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"{name} takes the same heads, got {list(q.shape[:-2])} and {list(k.shape[:-2])}")


def attention_tiled(q, k, v, is_causal=False, scale=None):
    check("attention_tiled", q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    o = torch.zeros(q.shape, device=q.device)
    total = torch.zeros((*q.shape[:-1], 1), device=q.device)
    m = torch.full_like(total, -torch.inf)
    i = torch.arange(q.shape[-2], device=q.device)[:, None]
    for start in range(0, k.shape[-2], 64):
        k_tile, v_tile = k[..., start : start + 64, :].float(), v[..., start : start + 64, :].float()
        s = q.float() @ k_tile.mT * scale
        if is_causal:
            s = s.masked_fill(i < start + torch.arange(s.shape[-1], device=q.device), -torch.inf)
        new_m = torch.maximum(m, s.amax(-1, keepdim=True))
        p = torch.exp(s - new_m)
        total = total * torch.exp(m - new_m) + p.sum(-1, keepdim=True)
        o = o * torch.exp(m - new_m) + p @ v_tile
        m = new_m
    return (o / total.clamp(min=1e-30)).to(q.dtype), (m + total.log())[..., 0]


def flash_attention_forward(q, k, v, is_causal=False, scale=None):
    check("flash_attention_forward", q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    o = torch.empty_like(q)
    lse = torch.empty(q.shape[:-1], device=q.device)
    launch(forward_kernel, q, q, k, v, o, lse, q.shape[-2], k.shape[-2], scale, causal=is_causal)
    return o, lse


def flash_attention_backward(do, q, k, v, o, lse, is_causal=False, scale=None):
    check("flash_attention_backward", q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    do, q, k, v, o, lse = (x.contiguous() for x in (do, q, k, v, o, lse))
    dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    sizes = q.shape[-2], k.shape[-2], scale
    launch(dq_kernel, dq, q, k, v, o, lse, do, dq, *sizes, causal=is_causal)
    launch(dk_kernel, dk, q, k, v, o, lse, do, dk, *sizes, causal=is_causal)
    launch(dv_kernel, dv, q, k, lse, do, dv, *sizes, causal=is_causal)
    return dq, dk, dv


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal, scale):
        o, lse = flash_attention_forward(q, k, v, is_causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal, ctx.scale = is_causal, scale
        return o

    @staticmethod
    def backward(ctx, do):
        return *flash_attention_backward(do, *ctx.saved_tensors, ctx.is_causal, ctx.scale), None, None


def flash_attention(q, k, v, is_causal=False, scale=None):
    if q.dim() > 2 and k.shape == v.shape and k.dim() == q.dim() and 0 < k.shape[-3] < q.shape[-3]:
        repeats = q.shape[-3] // k.shape[-3]
        k, v = k.repeat_interleave(repeats, -3), v.repeat_interleave(repeats, -3)
    check("flash_attention", q, k, v)
    return FlashAttention.apply(q, k, v, is_causal, scale)
