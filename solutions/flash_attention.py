"""Attention without its matrix of scores: in PyTorch tile by tile, and in Triton with its gradients.

`attention_tiled`, `flash_attention_forward`, `flash_attention_backward` and `flash_attention` are graded. Kernels come
first, then what starts them. All four take any number of leading dimensions; inside, these are two: batch and head.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MOST_DIMENSIONS = 256  # of a head
LOG2_E = tl.constexpr(math.log2(math.e))


# Kernels. Scores are kept in base 2: exp2 is one instruction, and scale · log2(e) one factor.


@triton.jit
def load_rows(pointer, row, rows, row_stride, column_stride, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """The given rows of a (rows, HEAD_DIM) matrix, and BLOCK_DIM columns; what does not exist is zero."""
    column = tl.arange(0, BLOCK_DIM)
    inside = (row[:, None] < rows) & (column[None, :] < HEAD_DIM)
    offset = row.to(tl.int64)[:, None] * row_stride + column[None, :] * column_stride
    return tl.load(pointer + offset, mask=inside, other=0.0)


@triton.jit
def store_rows(pointer, values, row, rows, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr):
    """Write rows of a contiguous (rows, HEAD_DIM) matrix, those that exist."""
    column = tl.arange(0, BLOCK_DIM)
    inside = (row[:, None] < rows) & (column[None, :] < HEAD_DIM)
    offset = row.to(tl.int64)[:, None] * HEAD_DIM + column[None, :]
    tl.store(pointer + offset, values.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def add_keys(
    accumulator, row_sum, row_maximum, q, query, k_pointer, v_pointer,
    k_row_stride, k_column_stride, v_row_stride, v_column_stride,
    first, last, keys, scale_log2,
    HIDES: tl.constexpr, IS_CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """Let a tile of queries see the keys from `first` to `last`, tile by tile. HIDES: some of them may not be seen.

    accumulator: (BLOCK_QUERIES, BLOCK_DIM) float32, the sum of values so far, each with its weight.
    row_sum, row_maximum: (BLOCK_QUERIES,) float32, of the weights, and of the scores in base 2.
    """
    for start in range(first, last, BLOCK_KEYS):
        key = start + tl.arange(0, BLOCK_KEYS)
        k = load_rows(k_pointer, key, keys, k_row_stride, k_column_stride, HEAD_DIM, BLOCK_DIM)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        if HIDES:
            seen = key[None, :] < keys
            if IS_CAUSAL:
                seen = seen & (key[None, :] <= query[:, None])
            scores = tl.where(seen, scores, -float("inf"))
        # Every row sees key 0, which lies in the first tile: the new maximum is finite.
        new_maximum = tl.maximum(row_maximum, tl.max(scores, 1))
        weights = tl.exp2(scores - new_maximum[:, None])
        shrink = tl.exp2(row_maximum - new_maximum)
        row_sum = row_sum * shrink + tl.sum(weights, 1)
        v = load_rows(v_pointer, key, keys, v_row_stride, v_column_stride, HEAD_DIM, BLOCK_DIM)
        accumulator = accumulator * shrink[:, None]
        accumulator = tl.dot(weights.to(v.dtype), v, accumulator, input_precision="ieee")
        row_maximum = new_maximum
    return accumulator, row_sum, row_maximum


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def attention_forward_kernel(
    q_pointer, k_pointer, v_pointer, o_pointer, lse_pointer,
    q_batch_stride, q_head_stride, q_row_stride, q_column_stride,
    k_batch_stride, k_head_stride, k_row_stride, k_column_stride,
    v_batch_stride, v_head_stride, v_row_stride, v_column_stride,
    heads, group, queries, keys, scale_log2,
    IS_CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_QUERIES rows of one head of o, and their log-sum-exp.

    q: (batch, heads, queries, HEAD_DIM); k, v: (batch, heads // group, keys, HEAD_DIM); any strides, in elements.
    o: like q, contiguous. lse: (batch, heads, queries) float32, contiguous.
    """
    tiles = tl.cdiv(queries, BLOCK_QUERIES)
    head = tl.program_id(0) // tiles
    tile = tiles - 1 - tl.program_id(0) % tiles  # a causal tile is the longer the later it is: those first
    batch_at, head_at = (head // heads).to(tl.int64), (head % heads).to(tl.int64)
    q_pointer += batch_at * q_batch_stride + head_at * q_head_stride
    k_pointer += batch_at * k_batch_stride + head_at // group * k_head_stride
    v_pointer += batch_at * v_batch_stride + head_at // group * v_head_stride
    o_pointer += head.to(tl.int64) * queries * HEAD_DIM
    lse_pointer += head.to(tl.int64) * queries

    query = tile * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    q = load_rows(q_pointer, query, queries, q_row_stride, q_column_stride, HEAD_DIM, BLOCK_DIM)
    accumulator = tl.zeros((BLOCK_QUERIES, BLOCK_DIM), tl.float32)
    row_sum = tl.zeros((BLOCK_QUERIES,), tl.float32)
    row_maximum = tl.full((BLOCK_QUERIES,), -float("inf"), tl.float32)

    # Tiles that every query of this program sees as a whole come first: they need no mask.
    last = tl.minimum(keys, (tile + 1) * BLOCK_QUERIES) if IS_CAUSAL else keys
    whole = tl.minimum(keys, tile * BLOCK_QUERIES) if IS_CAUSAL else keys
    whole = whole // BLOCK_KEYS * BLOCK_KEYS
    accumulator, row_sum, row_maximum = add_keys(
        accumulator, row_sum, row_maximum, q, query, k_pointer, v_pointer,
        k_row_stride, k_column_stride, v_row_stride, v_column_stride, 0, whole, keys, scale_log2,
        False, IS_CAUSAL, HEAD_DIM, BLOCK_DIM, BLOCK_KEYS,
    )  # fmt: skip
    accumulator, row_sum, row_maximum = add_keys(
        accumulator, row_sum, row_maximum, q, query, k_pointer, v_pointer,
        k_row_stride, k_column_stride, v_row_stride, v_column_stride, whole, last, keys, scale_log2,
        True, IS_CAUSAL, HEAD_DIM, BLOCK_DIM, BLOCK_KEYS,
    )  # fmt: skip

    # Without keys the sum is 0: o is 0 then, and the log-sum-exp -inf.
    o = accumulator / tl.where(row_sum > 0, row_sum, 1.0)[:, None]
    store_rows(o_pointer, o, query, queries, HEAD_DIM, BLOCK_DIM)
    log_sum_exp = (row_maximum + tl.log2(row_sum)) / LOG2_E
    tl.store(lse_pointer + query, log_sum_exp, mask=query < queries)


@triton.jit(do_not_specialize=["heads", "queries"])
def row_products_kernel(
    o_pointer, do_pointer, delta_pointer,
    o_batch_stride, o_head_stride, o_row_stride, o_column_stride,
    do_batch_stride, do_head_stride, do_row_stride, do_column_stride,
    heads, queries,
    HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr, BLOCK_QUERIES: tl.constexpr,
):  # fmt: skip
    """One program computes D = rowsum(do * o) for BLOCK_QUERIES rows of one head, in float32.

    o, do: (batch, heads, queries, HEAD_DIM), any strides. delta: (batch, heads, queries) float32, contiguous.
    """
    tiles = tl.cdiv(queries, BLOCK_QUERIES)
    head, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    batch_at, head_at = (head // heads).to(tl.int64), (head % heads).to(tl.int64)
    o_pointer += batch_at * o_batch_stride + head_at * o_head_stride
    do_pointer += batch_at * do_batch_stride + head_at * do_head_stride
    query = tile * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    o = load_rows(o_pointer, query, queries, o_row_stride, o_column_stride, HEAD_DIM, BLOCK_DIM)
    do = load_rows(do_pointer, query, queries, do_row_stride, do_column_stride, HEAD_DIM, BLOCK_DIM)
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1)
    tl.store(delta_pointer + head.to(tl.int64) * queries + query, delta, mask=query < queries)


@triton.jit(do_not_specialize=["heads", "queries", "keys"])
def attention_backward_queries_kernel(
    do_pointer, q_pointer, k_pointer, v_pointer, lse_pointer, delta_pointer, dq_pointer,
    do_batch_stride, do_head_stride, do_row_stride, do_column_stride,
    q_batch_stride, q_head_stride, q_row_stride, q_column_stride,
    k_batch_stride, k_head_stride, k_row_stride, k_column_stride,
    v_batch_stride, v_head_stride, v_row_stride, v_column_stride,
    heads, group, queries, keys, scale,
    IS_CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_QUERIES rows of one head of dq = scale * ds k, with ds = p * (do v^T - delta).

    dq: like q, contiguous. lse, delta: (batch, heads, queries) float32, contiguous. The others as in the forward.
    """
    tiles = tl.cdiv(queries, BLOCK_QUERIES)
    head = tl.program_id(0) // tiles
    tile = tiles - 1 - tl.program_id(0) % tiles
    batch_at, head_at = (head // heads).to(tl.int64), (head % heads).to(tl.int64)
    do_pointer += batch_at * do_batch_stride + head_at * do_head_stride
    q_pointer += batch_at * q_batch_stride + head_at * q_head_stride
    k_pointer += batch_at * k_batch_stride + head_at // group * k_head_stride
    v_pointer += batch_at * v_batch_stride + head_at // group * v_head_stride

    query = tile * BLOCK_QUERIES + tl.arange(0, BLOCK_QUERIES)
    row = head.to(tl.int64) * queries + query
    q = load_rows(q_pointer, query, queries, q_row_stride, q_column_stride, HEAD_DIM, BLOCK_DIM)
    do = load_rows(do_pointer, query, queries, do_row_stride, do_column_stride, HEAD_DIM, BLOCK_DIM)
    lse_log2 = tl.load(lse_pointer + row, mask=query < queries, other=0.0) * LOG2_E
    delta = tl.load(delta_pointer + row, mask=query < queries, other=0.0)
    dq = tl.zeros((BLOCK_QUERIES, BLOCK_DIM), tl.float32)
    last = tl.minimum(keys, (tile + 1) * BLOCK_QUERIES) if IS_CAUSAL else keys
    for start in range(0, last, BLOCK_KEYS):
        key = start + tl.arange(0, BLOCK_KEYS)
        k = load_rows(k_pointer, key, keys, k_row_stride, k_column_stride, HEAD_DIM, BLOCK_DIM)
        v = load_rows(v_pointer, key, keys, v_row_stride, v_column_stride, HEAD_DIM, BLOCK_DIM)
        seen = key[None, :] < keys
        if IS_CAUSAL:
            seen = seen & (key[None, :] <= query[:, None])
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
        p = tl.where(seen, tl.exp2(scores - lse_log2[:, None]), 0.0)
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    store_rows(dq_pointer + head.to(tl.int64) * queries * HEAD_DIM, dq * scale, query, queries, HEAD_DIM, BLOCK_DIM)


@triton.jit(do_not_specialize=["key_heads", "keys"])
def attention_backward_keys_kernel(
    do_pointer, q_pointer, k_pointer, v_pointer, lse_pointer, delta_pointer, dk_pointer, dv_pointer,
    do_batch_stride, do_head_stride, do_row_stride, do_column_stride,
    q_batch_stride, q_head_stride, q_row_stride, q_column_stride,
    k_batch_stride, k_head_stride, k_row_stride, k_column_stride,
    v_batch_stride, v_head_stride, v_row_stride, v_column_stride,
    key_heads, group, queries, keys, scale,
    IS_CAUSAL: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr, BLOCK_KEYS: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_KEYS rows of one key head of dk = scale * ds^T q and dv = p^T do.

    It goes over the `group` heads of queries that share this head of keys. dk, dv: like k, contiguous.
    """
    tiles = tl.cdiv(keys, BLOCK_KEYS)
    key_head, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    batch_at, head_at = (key_head // key_heads).to(tl.int64), (key_head % key_heads).to(tl.int64)
    k_pointer += batch_at * k_batch_stride + head_at * k_head_stride
    v_pointer += batch_at * v_batch_stride + head_at * v_head_stride

    key = tile * BLOCK_KEYS + tl.arange(0, BLOCK_KEYS)
    k = load_rows(k_pointer, key, keys, k_row_stride, k_column_stride, HEAD_DIM, BLOCK_DIM)
    v = load_rows(v_pointer, key, keys, v_row_stride, v_column_stride, HEAD_DIM, BLOCK_DIM)
    dk = tl.zeros((BLOCK_KEYS, BLOCK_DIM), tl.float32)
    dv = tl.zeros((BLOCK_KEYS, BLOCK_DIM), tl.float32)
    # Queries before the first one see none of these keys.
    first = tile * BLOCK_KEYS // BLOCK_QUERIES * BLOCK_QUERIES if IS_CAUSAL else 0
    for member in range(0, group):
        head = head_at * group + member
        q_head = q_pointer + batch_at * q_batch_stride + head * q_head_stride
        do_head = do_pointer + batch_at * do_batch_stride + head * do_head_stride
        rows = (batch_at * key_heads * group + head) * queries
        for start in range(first, queries, BLOCK_QUERIES):
            query = start + tl.arange(0, BLOCK_QUERIES)
            q = load_rows(q_head, query, queries, q_row_stride, q_column_stride, HEAD_DIM, BLOCK_DIM)
            do = load_rows(do_head, query, queries, do_row_stride, do_column_stride, HEAD_DIM, BLOCK_DIM)
            lse_log2 = tl.load(lse_pointer + rows + query, mask=query < queries, other=0.0) * LOG2_E
            delta = tl.load(delta_pointer + rows + query, mask=query < queries, other=0.0)
            seen = (query[:, None] < queries) & (key[None, :] < keys)
            if IS_CAUSAL:
                seen = seen & (key[None, :] <= query[:, None])
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * LOG2_E)
            p = tl.where(seen, tl.exp2(scores - lse_log2[:, None]), 0.0)
            dv = tl.dot(tl.trans(p.to(do.dtype)), do, dv, input_precision="ieee")
            dp = tl.dot(do, tl.trans(v), input_precision="ieee")
            ds = p * (dp - delta[:, None])
            dk = tl.dot(tl.trans(ds.to(q.dtype)), q, dk, input_precision="ieee")
    at = key_head.to(tl.int64) * keys * HEAD_DIM
    store_rows(dk_pointer + at, dk * scale, key, keys, HEAD_DIM, BLOCK_DIM)
    store_rows(dv_pointer + at, dv, key, keys, HEAD_DIM, BLOCK_DIM)


# Launchers


@dataclass(frozen=True)
class Tile:
    """What one program holds, and how it is compiled."""

    queries: int
    keys: int
    warps: int
    stages: int

    @property
    def options(self) -> dict[str, int]:
        """What a kernel's launch is given for it."""
        return {"BLOCK_QUERIES": self.queries, "BLOCK_KEYS": self.keys,
                "num_warps": self.warps, "num_stages": self.stages}  # fmt: skip


INTERPRETED = Tile(128, 128, 4, 1)  # the interpreter takes as long for a large tile as for a small one

# By head dimension, up to and with the key. Compiled for sm_90, only the backward's keys spill: 44 bytes with 128
# columns, 80 with 96, and, where heads share keys, some 300 with 64 or 128, once for each of those heads (limits:
# tests/staff/test_compiled.py). float32 products keep no tensor core busy and hold their operands in registers, so
# their tiles are small.
FLOAT32_TILES = {64: Tile(32, 32, 8, 1), 128: Tile(32, 16, 8, 1), 256: Tile(16, 16, 8, 1)}
FORWARD_TILES = {64: Tile(128, 64, 4, 3), 128: Tile(128, 64, 8, 3), 256: Tile(64, 32, 4, 2)}
QUERIES_TILES = {64: Tile(64, 64, 4, 2), 128: Tile(128, 64, 8, 3), 256: Tile(32, 32, 4, 1)}  # of the backward
KEYS_TILES = {64: Tile(128, 64, 4, 2), 128: Tile(64, 64, 4, 2), 256: Tile(32, 32, 4, 1)}


def choose_tile(q: torch.Tensor, of_half_types: dict[int, Tile]) -> Tile:
    """The tile for a head of q's size."""
    if q.device.type == "cpu":
        return INTERPRETED
    tiles = FLOAT32_TILES if q.dtype is torch.float32 else of_half_types
    return next(tile for head_dim, tile in tiles.items() if q.shape[-1] <= head_dim)


def block_dim(head_dim: int) -> int:
    """Columns of a tile: a power of two, and what a product of two tiles needs at least on a GPU."""
    return max(16, triton.next_power_of_2(head_dim))


def as_heads(x: torch.Tensor) -> torch.Tensor:
    """x (..., n, d) as (batch, heads, n, d): a view where its strides allow one, else a copy."""
    if x.dim() < 4:
        return x[(None,) * (4 - x.dim())]
    return x.reshape(math.prod(x.shape[:-3]), *x.shape[-3:])


def launch_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """o and lse for arguments that fit: contiguous, of q's leading dimensions."""
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if o.numel():
        q4, k4, v4 = map(as_heads, (q, k, v))
        heads, queries, tile = q4.shape[1], q.shape[-2], choose_tile(q, FORWARD_TILES)
        attention_forward_kernel[(q4.shape[0] * heads * triton.cdiv(queries, tile.queries),)](
            q4, k4, v4, o, lse, *q4.stride(), *k4.stride(), *v4.stride(),
            heads, heads // k4.shape[1], queries, k.shape[-2], scale * math.log2(math.e),
            IS_CAUSAL=is_causal, HEAD_DIM=q.shape[-1], BLOCK_DIM=block_dim(q.shape[-1]), **tile.options,
        )  # fmt: skip
    return o, lse


def launch_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
    is_causal: bool, scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """dq, dk, dv for arguments that fit: contiguous, each like its input."""
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    do4, q4, k4, v4, o4 = map(as_heads, (do, q, k, v, o))
    (batches, heads, queries, head_dim), (key_heads, keys) = q4.shape, k4.shape[1:3]
    of_queries, of_keys = choose_tile(q, QUERIES_TILES), choose_tile(q, KEYS_TILES)
    head = {"HEAD_DIM": head_dim, "BLOCK_DIM": block_dim(head_dim)}
    lse, delta = lse.contiguous(), torch.empty(lse.shape, dtype=torch.float32, device=q.device)
    query_grid = (batches * heads * triton.cdiv(queries, of_queries.queries),)
    if q.numel():
        row_products_kernel[query_grid](
            o4, do4, delta, *o4.stride(), *do4.stride(), heads, queries, **head, BLOCK_QUERIES=of_queries.queries
        )
    strides = (*do4.stride(), *q4.stride(), *k4.stride(), *v4.stride())
    group = heads // key_heads if key_heads else 1
    if q.numel():
        attention_backward_queries_kernel[query_grid](
            do4, q4, k4, v4, lse, delta, dq, *strides, heads, group, queries, keys, scale,
            IS_CAUSAL=is_causal, **head, **of_queries.options,
        )  # fmt: skip
    if k.numel():
        attention_backward_keys_kernel[(batches * key_heads * triton.cdiv(keys, of_keys.keys),)](
            do4, q4, k4, v4, lse, delta, dk, dv, *strides, key_heads, group, queries, keys, scale,
            IS_CAUSAL=is_causal, **head, **of_keys.options,
        )  # fmt: skip
    return dq, dk, dv


def check_arguments(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, name: str, grouped: bool = False) -> None:
    """Raise ValueError unless q, k and v fit each other. `grouped`: k and v may have fewer heads."""
    for other, x in (("k", k), ("v", v)):
        for what, mine, its in (
            ("dtype", q.dtype, x.dtype), ("device", q.device, x.device), ("dimensions", q.dim(), x.dim()),
        ):  # fmt: skip
            if mine != its:
                words = [str(one).removeprefix("torch.") for one in (mine, its)]
                raise ValueError(f"{name} takes q and {other} of one {what}, got {words[0]} and {words[1]}")
    if q.dtype not in DTYPES:
        found = str(q.dtype).removeprefix("torch.")
        raise ValueError(f"{name} takes float32, float16 or bfloat16, got {found}")
    if q.dim() < 2:
        raise ValueError(f"{name} takes 2 dimensions or more, got {q.dim()}")
    if k.shape != v.shape:
        raise ValueError(f"{name} takes k and v of one shape, got {list(k.shape)} and {list(v.shape)}")
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"{name} takes q and k of one head dimension, got {q.shape[-1]} and {k.shape[-1]}")
    if not 1 <= q.shape[-1] <= MOST_DIMENSIONS:
        raise ValueError(f"{name} takes a head dimension from 1 to {MOST_DIMENSIONS}, got {q.shape[-1]}")
    leading, of_keys = list(q.shape[:-2]), list(k.shape[:-2])
    if grouped and leading and of_keys[-1] and leading[-1] % of_keys[-1] == 0:
        leading, of_keys = leading[:-1], of_keys[:-1]
    if leading != of_keys:
        raise ValueError(f"{name} takes q and k with the same leading dimensions, got {leading} and {of_keys}")


def default_scale(q: torch.Tensor, scale: float | None) -> float:
    """The given scale, or 1/√d."""
    return 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale


# The graded functions


def attention_tiled(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale · q kᵀ) v and its log-sum-exp, tile by tile in PyTorch: no (n_q, n_k) tensor is ever held.

    q: (..., n_q, d); k, v: (..., n_k, d). Returns o, like q, and lse, (..., n_q) float32. Raises ValueError for
    arguments that do not fit.
    """
    check_arguments(q, k, v, "attention_tiled")
    scale, side = default_scale(q, scale), 128
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    for first in range(0, q.shape[-2], side):
        q_tile = q[..., first : first + side, :].float()
        query = torch.arange(first, first + q_tile.shape[-2], device=q.device)
        accumulator, row_sum = torch.zeros_like(q_tile), torch.zeros_like(q_tile[..., :1])
        row_maximum = torch.full_like(row_sum, -torch.inf)
        last = min(k.shape[-2], first + side) if is_causal else k.shape[-2]
        for start in range(0, last, side):
            k_tile, v_tile = k[..., start : start + side, :].float(), v[..., start : start + side, :].float()
            scores = q_tile @ k_tile.mT * scale
            if is_causal:
                key = torch.arange(start, start + k_tile.shape[-2], device=q.device)
                scores = scores.masked_fill(key > query[:, None], -torch.inf)
            new_maximum = torch.maximum(row_maximum, scores.amax(-1, keepdim=True))
            weights, shrink = torch.exp(scores - new_maximum), torch.exp(row_maximum - new_maximum)
            row_sum = row_sum * shrink + weights.sum(-1, keepdim=True)
            accumulator = accumulator * shrink + weights @ v_tile
            row_maximum = new_maximum
        o[..., first : first + side, :] = accumulator / torch.where(row_sum > 0, row_sum, 1.0)
        lse[..., first : first + side] = (row_maximum + torch.log(row_sum))[..., 0]
    return o, lse


def flash_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by one Triton kernel. Raises ValueError for arguments that do not fit."""
    check_arguments(q, k, v, "flash_attention_forward")
    return launch_forward(q, k, v, is_causal, default_scale(q, scale))


def flash_attention_backward(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
    is_causal: bool = False, scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of q, k and v, for the gradient `do` of o: (..., n_q, d), any strides. o and lse: the forward's."""
    check_arguments(q, k, v, "flash_attention_backward")
    return launch_backward(do, q, k, v, o, lse, is_causal, default_scale(q, scale))


class FlashAttention(torch.autograd.Function):
    """Connects the two directions to autograd. Keeps o and lse, never the scores."""

    @staticmethod
    def forward(ctx, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float) -> torch.Tensor:
        o, lse = launch_forward(q, k, v, is_causal, scale)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.is_causal, ctx.scale = is_causal, scale
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx, do: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return *launch_backward(do, *ctx.saved_tensors, ctx.is_causal, ctx.scale), None, None


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """softmax(scale · q kᵀ) v, differentiable once. k and v may have fewer heads, a divisor of q's.

    q: (..., n_q, d); k, v: (..., n_k, d), any strides, float32, float16 or bfloat16. Causal: query i sees keys j ≤ i.
    Returns a new contiguous tensor like q. Raises ValueError for arguments that do not fit.
    """
    check_arguments(q, k, v, "flash_attention", grouped=True)
    return FlashAttention.apply(q, k, v, is_causal, default_scale(q, scale))
