"""Attention in tiles of 128 queries and 64 keys. Tiles that all queries see come first and are not masked.

Tensors are copied to (heads, rows, d) without gaps, where they are not so yet. Scores are in base 2.
"""

import math

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

from .agree import check_agree, check_dtype

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def place(row, D: tl.constexpr, BLOCK_D: tl.constexpr):
    return row[:, None].to(tl.int64) * D + tl.arange(0, BLOCK_D)[None, :]


@triton.jit
def inside(row, rows, D: tl.constexpr, BLOCK_D: tl.constexpr):
    return (row[:, None] < rows) & (tl.arange(0, BLOCK_D)[None, :] < D)


@triton.jit
def load_rows(pointer, row, rows, EXIST: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """Rows of a matrix. EXIST: all of them do, so that there is nothing to mask unless D is no power of two."""
    if EXIST and D == BLOCK_D:
        return tl.load(pointer + place(row, D, BLOCK_D))
    return tl.load(pointer + place(row, D, BLOCK_D), mask=inside(row, rows, D, BLOCK_D), other=0.0)


@triton.jit
def store_rows(pointer, values, row, rows, D: tl.constexpr, BLOCK_D: tl.constexpr):
    mask = inside(row, rows, D, BLOCK_D)
    tl.store(pointer + place(row, D, BLOCK_D), values.to(pointer.dtype.element_ty), mask=mask)


@triton.jit
def attend(state, q, query, k_pointer, v_pointer, first, last, keys, scale, WHOLE: tl.constexpr, CAUSAL: tl.constexpr,
           D: tl.constexpr, BLOCK_D: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    """Add the keys from `first` to `last` to (sum of values, sum of weights, maximum). WHOLE: all queries see them."""
    values, total, high = state
    for start in range(first, last, KEYS):
        key = start + tl.arange(0, KEYS)
        k = load_rows(k_pointer, key, keys, WHOLE, D, BLOCK_D)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if not WHOLE:
            score = tl.where(key[None, :] < keys, score, -float("inf"))
            if CAUSAL:
                score = tl.where(key[None, :] <= query[:, None], score, -float("inf"))
        higher = tl.maximum(high, tl.max(score, 1))  # finite from the first tile on: key 0 is seen by all
        weight, fade = tl.exp2(score - higher[:, None]), tl.exp2(high - higher)
        total = total * fade + tl.sum(weight, 1)
        v = load_rows(v_pointer, key, keys, WHOLE, D, BLOCK_D)
        values = tl.dot(weight.to(v.dtype), v, values * fade[:, None], input_precision="ieee")
        high = higher
    return values, total, high


@triton.jit
def forward_kernel(q_pointer, k_pointer, v_pointer, o_pointer, lse_pointer, queries, keys, scale, CAUSAL: tl.constexpr,
                   D: tl.constexpr, BLOCK_D: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    head, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * QUERIES
    query = first + tl.arange(0, QUERIES)
    k_pointer += head * keys * D
    v_pointer += head * keys * D
    q = load_rows(q_pointer + head * queries * D, query, queries, False, D, BLOCK_D)
    state = (
        tl.zeros((QUERIES, BLOCK_D), tl.float32),
        tl.zeros((QUERIES,), tl.float32),
        tl.full((QUERIES,), -float("inf"), tl.float32),
    )
    last = tl.minimum(first + QUERIES, keys) if CAUSAL else keys
    whole = (tl.minimum(first, keys) if CAUSAL else keys) // KEYS * KEYS
    state = attend(state, q, query, k_pointer, v_pointer, 0, whole, keys, scale, True, CAUSAL, D, BLOCK_D, KEYS)
    state = attend(state, q, query, k_pointer, v_pointer, whole, last, keys, scale, False, CAUSAL, D, BLOCK_D, KEYS)
    values, total, high = state
    o = values / tl.where(total > 0.0, total, 1.0)[:, None]
    store_rows(o_pointer + head * queries * D, o, query, queries, D, BLOCK_D)
    tl.store(lse_pointer + head * queries + query, (high + tl.log2(total)) / LOG2_E, mask=query < queries)


@triton.jit
def delta_kernel(o_pointer, do_pointer, delta_pointer, rows, D: tl.constexpr, BLOCK_D: tl.constexpr,
                 ROWS: tl.constexpr):  # fmt: skip
    """Row sums of do * o, over the rows of all heads."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    o = load_rows(o_pointer, row, rows, False, D, BLOCK_D).to(tl.float32)
    do = load_rows(do_pointer, row, rows, False, D, BLOCK_D).to(tl.float32)
    tl.store(delta_pointer + row, tl.sum(o * do, 1), mask=row < rows)


@triton.jit
def weights(q, k, v, do, lse, delta, query, key, queries, keys, scale, CAUSAL: tl.constexpr):
    """p and ds of a tile."""
    seen = (query[:, None] < queries) & (key[None, :] < keys)
    if CAUSAL:
        seen &= key[None, :] <= query[:, None]
    score = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
    p = tl.where(seen, tl.exp2(score - lse[:, None] * LOG2_E), 0.0)
    return p, p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])


@triton.jit
def dq_kernel(q_pointer, k_pointer, v_pointer, do_pointer, lse_pointer, delta_pointer, dq_pointer, queries, keys, scale,
              CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr, QUERIES: tl.constexpr,
              KEYS: tl.constexpr):  # fmt: skip
    head, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * QUERIES
    query = first + tl.arange(0, QUERIES)
    q = load_rows(q_pointer + head * queries * D, query, queries, False, D, BLOCK_D)
    do = load_rows(do_pointer + head * queries * D, query, queries, False, D, BLOCK_D)
    lse = tl.load(lse_pointer + head * queries + query, mask=query < queries, other=0.0)
    delta = tl.load(delta_pointer + head * queries + query, mask=query < queries, other=0.0)
    dq = tl.zeros((QUERIES, BLOCK_D), tl.float32)
    for start in range(0, tl.minimum(first + QUERIES, keys) if CAUSAL else keys, KEYS):
        key = start + tl.arange(0, KEYS)
        k = load_rows(k_pointer + head * keys * D, key, keys, False, D, BLOCK_D)
        v = load_rows(v_pointer + head * keys * D, key, keys, False, D, BLOCK_D)
        _, ds = weights(q, k, v, do, lse, delta, query, key, queries, keys, scale, CAUSAL)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    store_rows(dq_pointer + head * queries * D, dq * scale, query, queries, D, BLOCK_D)


@triton.jit
def dk_dv_kernel(q_pointer, k_pointer, v_pointer, do_pointer, lse_pointer, delta_pointer, dk_pointer, dv_pointer,
                 queries, keys, scale, CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_D: tl.constexpr,
                 QUERIES: tl.constexpr, KEYS: tl.constexpr):  # fmt: skip
    head, first = tl.program_id(1).to(tl.int64), tl.program_id(0) * KEYS
    key = first + tl.arange(0, KEYS)
    k = load_rows(k_pointer + head * keys * D, key, keys, False, D, BLOCK_D)
    v = load_rows(v_pointer + head * keys * D, key, keys, False, D, BLOCK_D)
    dk = tl.zeros((KEYS, BLOCK_D), tl.float32)
    dv = tl.zeros((KEYS, BLOCK_D), tl.float32)
    for start in range(first // QUERIES * QUERIES if CAUSAL else 0, queries, QUERIES):
        query = start + tl.arange(0, QUERIES)
        q = load_rows(q_pointer + head * queries * D, query, queries, False, D, BLOCK_D)
        do = load_rows(do_pointer + head * queries * D, query, queries, False, D, BLOCK_D)
        lse = tl.load(lse_pointer + head * queries + query, mask=query < queries, other=0.0)
        delta = tl.load(delta_pointer + head * queries + query, mask=query < queries, other=0.0)
        p, ds = weights(q, k, v, do, lse, delta, query, key, queries, keys, scale, CAUSAL)
        dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv, input_precision="ieee")
        dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk, input_precision="ieee")
    store_rows(dk_pointer + head * keys * D, dk * scale, key, keys, D, BLOCK_D)
    store_rows(dv_pointer + head * keys * D, dv, key, keys, D, BLOCK_D)


def of_head(x: torch.Tensor) -> dict[str, int]:
    return {"D": x.shape[-1], "BLOCK_D": max(16, triton.next_power_of_2(x.shape[-1]))}


def tile_for(x: torch.Tensor, *, backward: bool) -> dict[str, int]:
    """As large as shared memory allows: smaller in float32 and for long rows."""
    if x.device.type == "cpu":
        queries, keys, warps, stages = 128, 128, 4, 1
    elif x.dtype == torch.float32 or x.shape[-1] > 128:
        queries, keys, warps, stages = 32, 16 if x.dtype == torch.float32 else 32, 4, 1
    else:
        queries, keys, warps, stages = (64, 64, 4, 2) if backward else (128, 64, 8, 3)
    return {"QUERIES": queries, "KEYS": keys, "num_warps": warps, "num_stages": stages}


def check_fit(function: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, shared_heads: bool = False) -> None:
    for x in (k, v):
        check_agree(function, dtypes=(q.dtype, x.dtype), devices=(q.device, x.device), dimensions=(q.dim(), x.dim()))
    leading = (q.shape[:-3], k.shape[:-3]) if shared_heads and q.dim() > 2 else (q.shape[:-2], k.shape[:-2])
    check_agree(
        function, shapes_of_k_and_v=(list(k.shape), list(v.shape)), head_dimensions=(q.shape[-1], k.shape[-1]),
        leading_dimensions=tuple(map(list, leading)),
    )  # fmt: skip
    check_dtype(function, q)
    if q.shape[-1] > 256:
        raise ValueError(f"{function}: the head dimension is {q.shape[-1]}, not 256 or less")


def scale_for(q: torch.Tensor, scale: float | None) -> float:
    return 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale


def attention_tiled(q, k, v, is_causal=False, scale=None):
    """Each tile of keys has an output and a log-sum-exp of its own, and is added with the weight that it has."""
    check_fit("attention_tiled", q, k, v)
    side = 64
    o = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.full(q.shape[:-1], -torch.inf, device=q.device)
    for first in range(0, q.shape[-2], side):
        rows = slice(first, first + side)
        for start in range(0, min(k.shape[-2], first + side) if is_causal else k.shape[-2], side):
            columns = slice(start, start + side)
            score = q[..., rows, :].float() @ k[..., columns, :].float().mT * scale_for(q, scale)
            if is_causal and start == first:
                score = score.masked_fill(torch.ones_like(score, dtype=torch.bool).triu(1), -torch.inf)
            both = torch.logaddexp(lse[..., rows], torch.logsumexp(score, -1))
            o[..., rows, :] *= torch.exp(lse[..., rows] - both)[..., None]
            o[..., rows, :] += torch.exp(score - both[..., None]) @ v[..., columns, :].float()
            lse[..., rows] = both
    return o.to(q.dtype), lse


def flash_attention_forward(q, k, v, is_causal=False, scale=None):
    check_fit("flash_attention_forward", q, k, v)
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    o, lse = torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if o.numel():
        tile = tile_for(q, backward=False)
        forward_kernel[(triton.cdiv(q.shape[-2], tile["QUERIES"]), lse.shape[:-1].numel())](
            q, k, v, o, lse, q.shape[-2], k.shape[-2], scale_for(q, scale) * math.log2(math.e),
            CAUSAL=is_causal, **of_head(q), **tile,
        )  # fmt: skip
    return o, lse


def flash_attention_backward(do, q, k, v, o, lse, is_causal=False, scale=None):
    check_fit("flash_attention_backward", q, k, v)
    do, q, k, v, o, lse = (x.contiguous() for x in (do, q, k, v, o, lse))
    dq, dk, dv, delta = (torch.empty_like(x) for x in (q, k, v, lse))
    queries, keys, heads = q.shape[-2], k.shape[-2], lse.shape[:-1].numel()
    tile, head = tile_for(q, backward=True), of_head(q)
    sizes = (queries, keys, scale_for(q, scale))
    if q.numel():
        delta_kernel[(triton.cdiv(lse.numel(), 64),)](o, do, delta, lse.numel(), **head, ROWS=64)
        dq_kernel[(triton.cdiv(queries, tile["QUERIES"]), heads)](
            q, k, v, do, lse, delta, dq, *sizes, CAUSAL=is_causal, **head, **tile
        )
    if k.numel():
        dk_dv_kernel[(triton.cdiv(keys, tile["KEYS"]), heads)](
            q, k, v, do, lse, delta, dk, dv, *sizes, CAUSAL=is_causal, **head, **tile
        )
    return dq, dk, dv


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal, scale):
        o, lse = flash_attention_forward(q, k, v, is_causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.how = {"is_causal": is_causal, "scale": scale}
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, do):
        return *flash_attention_backward(do, *ctx.saved_tensors, **ctx.how), None, None


def flash_attention(q, k, v, is_causal=False, scale=None):
    """Heads of q that share a head of k and v each get a copy of it; autograd adds up the gradients of copies."""
    check_fit("flash_attention", q, k, v, shared_heads=True)
    if q.dim() > 2 and q.shape[-3] != k.shape[-3]:
        if k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]:
            raise ValueError(f"flash_attention: {q.shape[-3]} heads of q cannot share {k.shape[-3]} of k")
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3) for x in (k, v))
    return Attention.apply(q, k, v, is_causal, scale)
