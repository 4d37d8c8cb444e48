import math

import torch
import triton
import triton.language as tl

LN2 = math.log(2.0)


@triton.jit
def tile(base, start, size, stride_row, stride_column, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = start + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    place = row[:, None].to(tl.int64) * stride_row + column[None, :] * stride_column
    return tl.load(base + place, mask=(row[:, None] < size) & (column[None, :] < d), other=0.0)


@triton.jit
def seen(i0, j0, nq, nk, CAUSAL: tl.constexpr, T: tl.constexpr):
    i, j = i0 + tl.arange(0, T)[:, None], j0 + tl.arange(0, T)[None, :]
    allowed = (i < nq) & (j < nk)
    return allowed & (j <= i) if CAUSAL else allowed


@triton.jit
def forward_kernel(q, k, v, o, lse, sqh, sqn, sqd, skh, skn, skd, svh, svn, svd, nq, nk, d, scale2, ln2,
                   CAUSAL: tl.constexpr, T: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, i0 = tl.program_id(0).to(tl.int64), tl.program_id(1) * T
    queries = tile(q + head * sqh, i0, nq, sqn, sqd, d, T, C)
    high = tl.full((T,), -1.0e38, tl.float32)
    mass = tl.zeros((T,), tl.float32)
    sums = tl.zeros((T, C), tl.float32)
    count = tl.cdiv(nk, T)
    for step in range(0, count):
        j0 = (count - 1 - step) * T  # from the last keys to the first
        keys = tile(k + head * skh, j0, nk, skn, skd, d, T, C)
        values = tile(v + head * svh, j0, nk, svn, svd, d, T, C)
        allowed = seen(i0, j0, nq, nk, CAUSAL, T)
        s = tl.where(allowed, tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale2, -1.0e38)
        higher = tl.maximum(high, tl.max(s, 1))
        p = tl.where(allowed, tl.exp2(s - higher[:, None]), 0.0)
        factor = tl.exp2(high - higher)
        mass = mass * factor + tl.sum(p, 1)
        sums = sums * factor[:, None] + tl.dot(p.to(values.dtype), values, input_precision="ieee")
        high = higher
    row, column = i0 + tl.arange(0, T), tl.arange(0, C)
    empty = mass == 0.0
    out = sums / tl.where(empty, 1.0, mass)[:, None]
    tl.store(o + head * nq * d + row[:, None] * d + column[None, :], out.to(o.dtype.element_ty),
             mask=(row[:, None] < nq) & (column[None, :] < d))  # fmt: skip
    total = tl.where(empty, -float("inf"), (high + tl.log2(tl.where(empty, 1.0, mass))) * ln2)
    tl.store(lse + head * nq + row, total, mask=row < nq)


@triton.jit
def weights(q, k, do, v, lse, delta, allowed, scale, log2e):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * log2e)
    p = tl.where(allowed, tl.exp2(s - lse[:, None] * log2e), 0.0)
    return p, p * (tl.dot(do, tl.trans(v), input_precision="ieee") - delta[:, None])


@triton.jit
def delta_kernel(o, do, delta, sgh, sgn, sgd, nq, d, T: tl.constexpr, C: tl.constexpr):
    head, i0 = tl.program_id(0).to(tl.int64), tl.program_id(1) * T
    out = tile(o + head * nq * d, i0, nq, d, 1, d, T, C).to(tl.float32)
    grad = tile(do + head * sgh, i0, nq, sgn, sgd, d, T, C).to(tl.float32)
    row = i0 + tl.arange(0, T)
    tl.store(delta + head * nq + row, tl.sum(out * grad, 1), mask=row < nq)


@triton.jit
def query_kernel(q, k, v, do, lse, delta, dq, sqh, sqn, sqd, skh, skn, skd, svh, svn, svd, sgh, sgn, sgd, nq, nk, d,
                 scale, log2e, CAUSAL: tl.constexpr, T: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, i0 = tl.program_id(0).to(tl.int64), tl.program_id(1) * T
    queries = tile(q + head * sqh, i0, nq, sqn, sqd, d, T, C)
    grad = tile(do + head * sgh, i0, nq, sgn, sgd, d, T, C)
    row, column = i0 + tl.arange(0, T), tl.arange(0, C)
    total = tl.load(lse + head * nq + row, mask=row < nq, other=0.0)
    products = tl.load(delta + head * nq + row, mask=row < nq, other=0.0)
    result = tl.zeros((T, C), tl.float32)
    for j0 in range(0, nk, T):
        keys = tile(k + head * skh, j0, nk, skn, skd, d, T, C)
        values = tile(v + head * svh, j0, nk, svn, svd, d, T, C)
        _, ds = weights(queries, keys, grad, values, total, products, seen(i0, j0, nq, nk, CAUSAL, T), scale, log2e)
        result += tl.dot(ds.to(keys.dtype), keys, input_precision="ieee")
    tl.store(dq + head * nq * d + row[:, None] * d + column[None, :], (result * scale).to(dq.dtype.element_ty),
             mask=(row[:, None] < nq) & (column[None, :] < d))  # fmt: skip


@triton.jit
def key_kernel(q, k, v, do, lse, delta, dk, dv, sqh, sqn, sqd, skh, skn, skd, svh, svn, svd, sgh, sgn, sgd, nq, nk, d,
               scale, log2e, CAUSAL: tl.constexpr, T: tl.constexpr, C: tl.constexpr):  # fmt: skip
    head, j0 = tl.program_id(0).to(tl.int64), tl.program_id(1) * T
    keys = tile(k + head * skh, j0, nk, skn, skd, d, T, C)
    values = tile(v + head * svh, j0, nk, svn, svd, d, T, C)
    of_keys = tl.zeros((T, C), tl.float32)
    of_values = tl.zeros((T, C), tl.float32)
    for i0 in range(0, nq, T):
        queries = tile(q + head * sqh, i0, nq, sqn, sqd, d, T, C)
        grad = tile(do + head * sgh, i0, nq, sgn, sgd, d, T, C)
        row = i0 + tl.arange(0, T)
        total = tl.load(lse + head * nq + row, mask=row < nq, other=0.0)
        products = tl.load(delta + head * nq + row, mask=row < nq, other=0.0)
        p, ds = weights(queries, keys, grad, values, total, products, seen(i0, j0, nq, nk, CAUSAL, T), scale, log2e)
        of_values += tl.dot(tl.trans(p).to(grad.dtype), grad, input_precision="ieee")
        of_keys += tl.dot(tl.trans(ds).to(queries.dtype), queries, input_precision="ieee")
    row, column = j0 + tl.arange(0, T), tl.arange(0, C)
    place = head * nk * d + row[:, None] * d + column[None, :]
    mask = (row[:, None] < nk) & (column[None, :] < d)
    tl.store(dk + place, (of_keys * scale).to(dk.dtype.element_ty), mask=mask)
    tl.store(dv + place, of_values.to(dv.dtype.element_ty), mask=mask)


def three(x):
    return x.reshape(math.prod(x.shape[:-2]), x.shape[-2], x.shape[-1])


def fitting(q, k, v):
    problems = []
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        problems.append(f"dtypes {q.dtype}, {k.dtype}, {v.dtype}")
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        problems.append(f"dtype {q.dtype}")
    if len({x.device for x in (q, k, v)}) > 1:
        problems.append(f"devices {q.device}, {k.device}, {v.device}")
    if q.shape[-1] != k.shape[-1] or not 1 <= q.shape[-1] <= 256:
        problems.append(f"head dimensions {q.shape[-1]} and {k.shape[-1]}")
    if q.shape[:-2] != k.shape[:-2] or k.shape != v.shape:
        problems.append(f"shapes {list(q.shape)}, {list(k.shape)}, {list(v.shape)}")
    if problems:
        raise ValueError("attention cannot take " + "; ".join(problems))


def geometry(d):
    return {"T": 64 if d <= 64 else 32, "C": max(16, triton.next_power_of_2(d)), "num_stages": 1}


def attention_tiled(q, k, v, is_causal=False, scale=None):
    fitting(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    out, sums = [], []
    for rows in q.split(100, dim=-2) if q.shape[-2] else ():
        first = sum(part.shape[-2] for part in out)
        found, logs = torch.zeros(rows.shape, device=q.device), torch.full(rows.shape[:-1], -torch.inf, device=q.device)
        at = 0
        for keys, values in zip(k.split(50, -2), v.split(50, -2), strict=True) if k.shape[-2] else ():
            s = (rows.float() @ keys.float().mT) * scale
            if is_causal:
                i = first + torch.arange(s.shape[-2], device=q.device)[:, None]
                s = s.masked_fill(at + torch.arange(s.shape[-1], device=q.device) > i, -torch.inf)
            at += keys.shape[-2]
            here = torch.logsumexp(s, -1)
            both = torch.logaddexp(logs, here)
            p = torch.exp(s - torch.where(here == -torch.inf, 0.0, here)[..., None])
            old, new = (torch.exp(x - torch.where(both == -torch.inf, 0.0, both))[..., None] for x in (logs, here))
            found, logs = found * old + (p @ values.float()) * new, both
        out.append(found.to(q.dtype))
        sums.append(logs)
    if not out:
        return torch.empty_like(q), torch.empty(q.shape[:-1], device=q.device)
    return torch.cat(out, -2), torch.cat(sums, -1)


def flash_attention_forward(q, k, v, is_causal=False, scale=None):
    fitting(q, k, v)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if o.numel():
        a, b, c, how = three(q), three(k), three(v), geometry(q.shape[-1])
        grid = (a.shape[0], triton.cdiv(a.shape[1], how["T"]))
        forward_kernel[grid](a, b, c, o, lse, *a.stride(), *b.stride(), *c.stride(), a.shape[1], b.shape[1],
                             q.shape[-1], scale / LN2, LN2, CAUSAL=is_causal, **how)  # fmt: skip
    return o, lse


def flash_attention_backward(do, q, k, v, o, lse, is_causal=False, scale=None):
    fitting(q, k, v)
    return gradients(do, q, k, v, o, lse.contiguous(), torch.empty(lse.shape, device=q.device), is_causal, scale)


def gradients(do, q, k, v, o, lse, delta, is_causal, scale):
    """`delta` has room for each query's products of do and o."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    a, b, c, g, how = three(q), three(k), three(v), three(do), geometry(q.shape[-1])
    heads, nq, d = a.shape
    nk, o = b.shape[1], o.contiguous()
    strides = (*a.stride(), *b.stride(), *c.stride(), *g.stride())
    rest = (nq, nk, d, scale, 1 / LN2)
    if q.numel():
        delta_kernel[(heads, triton.cdiv(nq, how["T"]))](o, g, delta, *g.stride(), nq, d, **how)
        query_kernel[(heads, triton.cdiv(nq, how["T"]))](
            a, b, c, g, lse, delta, dq, *strides, *rest, CAUSAL=is_causal, **how
        )
    if k.numel():
        key_kernel[(heads, triton.cdiv(nk, how["T"]))](
            a, b, c, g, lse, delta, dk, dv, *strides, *rest, CAUSAL=is_causal, **how
        )
    return dq, dk, dv


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal, scale):
        o, lse = flash_attention_forward(q, k, v, is_causal, scale)
        ctx.save_for_backward(q, k, v, o, lse, torch.empty_like(lse))
        ctx.options = is_causal, scale
        return o

    @staticmethod
    def backward(ctx, do):
        return *gradients(do, *ctx.saved_tensors, *ctx.options), None, None


def flash_attention(q, k, v, is_causal=False, scale=None):
    if q.dim() == k.dim() > 2 and 0 < k.shape[-3] < q.shape[-3] and q.shape[-3] % k.shape[-3] == 0:
        group = q.shape[-3] // k.shape[-3]
        k, v = (x.unsqueeze(-3).expand(*x.shape[:-2], group, *x.shape[-2:]).flatten(-4, -3) for x in (k, v))
    return Attention.apply(q, k, v, is_causal, scale)
