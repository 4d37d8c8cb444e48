import torch
import triton
import triton.language as tl

MOST = 256


@triton.jit
def fwd(Q, K, V, OUT, L, nq, nk, scale, CAUSAL: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, M: tl.constexpr,
        N: tl.constexpr):  # fmt: skip
    bh = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0) * M + tl.arange(0, M)
    c = tl.arange(0, DP)
    q = tl.load(Q + bh * nq * D + i[:, None] * D + c[None, :], mask=(i[:, None] < nq) & (c[None, :] < D), other=0.0)
    m = tl.full((M,), -1e30, tl.float32)
    total = tl.zeros((M,), tl.float32)
    acc = tl.zeros((M, DP), tl.float32)
    for n in range(0, nk, N):
        j = n + tl.arange(0, N)
        inside = (j[:, None] < nk) & (c[None, :] < D)
        k = tl.load(K + bh * nk * D + j[:, None] * D + c[None, :], mask=inside, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        ok = j[None, :] < nk
        if CAUSAL:
            ok &= i[:, None] >= j[None, :]
        s = tl.where(ok, s, -1e30)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.where(ok, tl.exp(s - new[:, None]), 0.0)
        fade = tl.exp(m - new)
        total = total * fade + tl.sum(p, 1)
        v = tl.load(V + bh * nk * D + j[:, None] * D + c[None, :], mask=inside, other=0.0)
        acc = acc * fade[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m = new
    some = total > 0
    out = tl.where(some[:, None], acc / tl.where(some, total, 1.0)[:, None], 0.0)
    tl.store(OUT + bh * nq * D + i[:, None] * D + c[None, :], out.to(OUT.dtype.element_ty),
             mask=(i[:, None] < nq) & (c[None, :] < D))  # fmt: skip
    lse = tl.where(some, m + tl.log(tl.where(some, total, 1.0)), -float("inf"))
    tl.store(L + bh * nq + i, lse, mask=i < nq)


@triton.jit
def bwd(Q, K, V, OUT, DO, L, DQ, DK, DV, nq, nk, scale, CAUSAL: tl.constexpr, D: tl.constexpr, DP: tl.constexpr,
        M: tl.constexpr, N: tl.constexpr):  # fmt: skip
    bh = tl.program_id(1).to(tl.int64)
    j = tl.program_id(0) * N + tl.arange(0, N)
    c = tl.arange(0, DP)
    keys = (j[:, None] < nk) & (c[None, :] < D)
    at_keys = bh * nk * D + j[:, None] * D + c[None, :]
    k, v = tl.load(K + at_keys, mask=keys, other=0.0), tl.load(V + at_keys, mask=keys, other=0.0)
    dk = tl.zeros((N, DP), tl.float32)
    dv = tl.zeros((N, DP), tl.float32)
    for m in range(0, nq, M):
        i = m + tl.arange(0, M)
        rows = (i[:, None] < nq) & (c[None, :] < D)
        at = bh * nq * D + i[:, None] * D + c[None, :]
        q, do = tl.load(Q + at, mask=rows, other=0.0), tl.load(DO + at, mask=rows, other=0.0)
        o = tl.load(OUT + at, mask=rows, other=0.0)
        delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
        lse = tl.load(L + bh * nq + i, mask=i < nq, other=float("inf"))
        ok = (i[:, None] < nq) & (j[None, :] < nk)
        if CAUSAL:
            ok &= i[:, None] >= j[None, :]
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.where(ok, tl.exp(s - lse[:, None]), 0.0)
        dv += tl.dot(tl.trans(p.to(do.dtype)), do, input_precision="ieee")
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None]) * scale
        dk += tl.dot(tl.trans(ds.to(q.dtype)), q, input_precision="ieee")
        tl.atomic_add(DQ + at, tl.dot(ds.to(k.dtype), k, input_precision="ieee"), mask=rows)
    tl.store(DK + at_keys, dk.to(DK.dtype.element_ty), mask=keys)
    tl.store(DV + at_keys, dv.to(DV.dtype.element_ty), mask=keys)


def refuse(q, k, v):
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"{q.dtype} is not supported")
    if q.dtype != k.dtype or k.dtype != v.dtype:
        raise ValueError(f"dtypes differ: {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device:
        raise ValueError(f"devices differ: {q.device}, {k.device}, {v.device}")
    if k.shape != v.shape:
        raise ValueError(f"k and v differ: {list(k.shape)} and {list(v.shape)}")
    if q.shape[-1] != k.shape[-1] or q.shape[-1] > MOST:
        raise ValueError(f"head dimensions {q.shape[-1]} and {k.shape[-1]}")
    if q.shape[:-2] != k.shape[:-2]:
        raise ValueError(f"leading dimensions {list(q.shape[:-2])} and {list(k.shape[:-2])}")


def sizes(d):
    dp = max(16, triton.next_power_of_2(d))
    return {"D": d, "DP": dp, "M": 64 if dp <= 64 else 32, "N": 64 if dp <= 64 else 32, "num_stages": 1}


def forward(q, k, v, causal, scale):
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    o = torch.zeros_like(q)
    lse = torch.full(q.shape[:-1], -torch.inf, dtype=torch.float32, device=q.device)
    nq, nk, d = q.shape[-2], k.shape[-2], q.shape[-1]
    heads = q.shape[:-2].numel()
    if o.numel():
        how = sizes(d)
        fwd[(triton.cdiv(nq, how["M"]), heads)](q, k, v, o, lse, nq, nk, scale, CAUSAL=causal, **how)
    return o, lse


def backward(do, q, k, v, o, lse, causal, scale):
    do, q, k, v, o, lse = (x.contiguous() for x in (do, q, k, v, o, lse))
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    dk, dv = torch.zeros_like(k), torch.zeros_like(v)
    nq, nk, d = q.shape[-2], k.shape[-2], q.shape[-1]
    heads = q.shape[:-2].numel()
    if k.numel() and q.numel():
        how = sizes(d)
        bwd[(triton.cdiv(nk, how["N"]), heads)](q, k, v, o, do, lse, dq, dk, dv, nq, nk, scale, CAUSAL=causal, **how)
    return dq.to(q.dtype), dk, dv


def attention_tiled(q, k, v, is_causal=False, scale=None):
    refuse(q, k, v)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    n, keys = q.shape[-2], k.shape[-2]
    m = q.new_full((*q.shape[:-1], 1), -torch.inf, dtype=torch.float32)
    total = torch.zeros_like(m)
    acc = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    row = torch.arange(n, device=q.device)[:, None]
    for start in range(0, keys, 64):
        part = slice(start, start + 64)
        s = scale * (q.float() @ k[..., part, :].float().transpose(-1, -2))
        if is_causal:
            s = s.masked_fill(row < torch.arange(start, start + s.shape[-1], device=q.device), -torch.inf)
        new = torch.maximum(m, s.max(-1, keepdim=True).values)
        safe = new.masked_fill(new == -torch.inf, 0.0)
        p, fade = torch.exp(s - safe), torch.exp(m - safe)
        total, acc, m = total * fade + p.sum(-1, keepdim=True), acc * fade + p @ v[..., part, :].float(), new
    o = acc / total.masked_fill(total == 0, 1.0)
    return o.to(q.dtype), (m + torch.log(total)).squeeze(-1)


def flash_attention_forward(q, k, v, is_causal=False, scale=None):
    refuse(q, k, v)
    return forward(q, k, v, is_causal, q.shape[-1] ** -0.5 if scale is None else scale)


def flash_attention_backward(do, q, k, v, o, lse, is_causal=False, scale=None):
    refuse(q, k, v)
    return backward(do, q, k, v, o, lse, is_causal, q.shape[-1] ** -0.5 if scale is None else scale)


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, causal, scale):
        o, lse = forward(q, k, v, causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.how = causal, scale
        return o

    @staticmethod
    def backward(ctx, do):
        return *backward(do, *ctx.saved_tensors, *ctx.how), None, None


def flash_attention(q, k, v, is_causal=False, scale=None):
    if (
        q.dim() > 2
        and k.dim() == q.dim()
        and k.shape[-3]
        and k.shape[-3] < q.shape[-3]
        and q.shape[-3] % k.shape[-3] == 0
    ):
        times = q.shape[-3] // k.shape[-3]
        k, v = (x.repeat_interleave(times, dim=-3) for x in (k, v))
    refuse(q, k, v)
    return Attention.apply(q, k, v, is_causal, q.shape[-1] ** -0.5 if scale is None else scale)
