"""Softmax over the last dimension, with its backward.

`softmax` is the graded function. The kernels come in pairs: a row (or several short ones) held in
registers from load to store, and a long row read twice, block by block. `choose_tile` decides; the
launchers take any `Tile`: one narrower than the row means two passes.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

LOG2_E = tl.constexpr(1.4426950408889634)  # e^x = 2^(x log2(e)), and exp2 is one instruction


# Kernels. Offsets are int64: row * stride, and column * stride of a transposed input, pass 2**31.


@triton.jit
def softmax_forward_kernel(
    logits_pointer,
    probabilities_pointer,
    logits_row_stride,
    logits_column_stride,
    rows,
    columns,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """One program normalises BLOCK_ROWS whole rows, held in registers from load to store.

    logits_pointer: (rows, columns), any strides; columns <= BLOCK_COLUMNS.
    probabilities_pointer: (rows, columns), contiguous.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.arange(0, BLOCK_COLUMNS)[None, :].to(tl.int64)
    inside = (row < rows) & (column < columns)

    # No eviction_policy: what is read once is not helped by "evict_first" here, it costs 3 to 5 points of a copy.
    logits = tl.load(
        logits_pointer + row * logits_row_stride + column * logits_column_stride,
        mask=inside,
        other=-float("inf"),
    ).to(tl.float32)

    # Subtract before scaling: maximum * LOG2_E, rounded, would be off by 5e-4 at logits of 1e4.
    # In a row of only -inf this is -inf - (-inf), so the row is NaN, as in PyTorch.
    maximum = tl.max(logits, axis=1)[:, None]
    exponentials = tl.exp2((logits - maximum) * LOG2_E)
    probabilities = exponentials * (1.0 / tl.sum(exponentials, axis=1)[:, None])

    tl.store(
        probabilities_pointer + row * columns + column,
        probabilities.to(probabilities_pointer.dtype.element_ty),
        mask=inside,
    )


@triton.jit
def load_block(row_pointer, column, column_stride, columns, padding: tl.constexpr, eviction_policy: tl.constexpr):
    """A block of one row of `columns` elements as float32, with `padding` beyond the row's end."""
    return tl.load(
        row_pointer + column.to(tl.int64) * column_stride,
        mask=column < columns,
        other=padding,
        eviction_policy=eviction_policy,
    ).to(tl.float32)


@triton.jit
def store_block(row_pointer, column, columns, block):
    """Write a block of one contiguous row. Nobody reads it again, so it need not stay in the caches."""
    tl.store(
        row_pointer + column,
        block.to(row_pointer.dtype.element_ty),
        mask=column < columns,
        eviction_policy="evict_first",
    )


@triton.jit
def with_block(maxima, sums, logits):
    """Maximum and sum of each lane, (LANES,), after one more block of logits, (DEPTH, LANES)."""
    new_maxima = tl.maximum(maxima, tl.max(logits, axis=0))
    # A lane of only -inf so far adds 0. -inf - (-inf) would add NaN, so subtract 0 there.
    shifts = tl.where(new_maxima == -float("inf"), 0.0, new_maxima)
    sums = sums * tl.exp2((maxima - shifts) * LOG2_E)
    return new_maxima, sums + tl.sum(tl.exp2((logits - shifts[None, :]) * LOG2_E), axis=0)


@triton.jit
def softmax_forward_two_pass_kernel(
    logits_pointer,
    probabilities_pointer,
    logits_row_stride,
    logits_column_stride,
    columns,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """One program normalises one row: it finds maximum and sum in one pass, and divides in a second.

    logits_pointer: (rows, columns), any strides.
    probabilities_pointer: (rows, columns), contiguous.

    A block is (DEPTH, LANES) elements of the row. A lane lies in one thread (`choose_lanes`) and has a maximum and a
    sum of its own, so that the warps meet once a row and not once a block.
    """
    BLOCK: tl.constexpr = DEPTH * LANES
    row = tl.program_id(0).to(tl.int64)
    logits_pointer += row * logits_row_stride
    probabilities_pointer += row * columns
    in_block = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    last = (tl.cdiv(columns, BLOCK) - 1) * BLOCK  # where the last block starts

    maxima = tl.full((LANES,), -float("inf"), tl.float32)
    sums = tl.zeros((LANES,), tl.float32)
    for start in range(0, last, BLOCK):
        column = start + in_block
        # evict_last: it is read again below.
        logits = load_block(logits_pointer, column, logits_column_stride, columns, -float("inf"), "evict_last")
        maxima, sums = with_block(maxima, sums, logits)
    column = last + in_block
    logits = load_block(logits_pointer, column, logits_column_stride, columns, -float("inf"), "evict_first")
    maxima, sums = with_block(maxima, sums, logits)

    # In a row of only -inf this is -inf - (-inf), so the row is NaN, as in PyTorch.
    maximum = tl.max(maxima, axis=0)
    scale = 1.0 / tl.sum(sums * tl.exp2((maxima - maximum) * LOG2_E), axis=0)

    # The last block is still in registers. The others follow backwards: what was read last is most likely in a cache.
    store_block(probabilities_pointer, column, columns, tl.exp2((logits - maximum) * LOG2_E) * scale)
    for back in range(BLOCK, last + BLOCK, BLOCK):
        column = last - back + in_block
        logits = load_block(logits_pointer, column, logits_column_stride, columns, -float("inf"), "evict_first")
        store_block(probabilities_pointer, column, columns, tl.exp2((logits - maximum) * LOG2_E) * scale)


@triton.jit
def softmax_backward_kernel(
    probabilities_pointer,
    output_gradient_pointer,
    input_gradient_pointer,
    output_gradient_row_stride,
    output_gradient_column_stride,
    rows,
    columns,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):
    """One program computes the gradient of BLOCK_ROWS whole rows, held in registers.

    probabilities_pointer, input_gradient_pointer: (rows, columns), contiguous;
        columns <= BLOCK_COLUMNS.
    output_gradient_pointer: (rows, columns), any strides, also 0.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = tl.arange(0, BLOCK_COLUMNS)[None, :].to(tl.int64)
    inside = (row < rows) & (column < columns)

    probabilities = tl.load(
        probabilities_pointer + row * columns + column,
        mask=inside,
        other=0.0,
    ).to(tl.float32)
    output_gradient = tl.load(
        output_gradient_pointer + row * output_gradient_row_stride + column * output_gradient_column_stride,
        mask=inside,
        other=0.0,
    ).to(tl.float32)

    dot = tl.sum(probabilities * output_gradient, axis=1)[:, None]
    input_gradient = probabilities * (output_gradient - dot)

    tl.store(
        input_gradient_pointer + row * columns + column,
        input_gradient.to(input_gradient_pointer.dtype.element_ty),
        mask=inside,
    )


@triton.jit
def softmax_backward_two_pass_kernel(
    probabilities_pointer,
    output_gradient_pointer,
    input_gradient_pointer,
    output_gradient_row_stride,
    output_gradient_column_stride,
    columns,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """One program computes the gradient of one row: the dot product in one pass, the rest in a second.

    probabilities_pointer, input_gradient_pointer: (rows, columns), contiguous.
    output_gradient_pointer: (rows, columns), any strides, also 0.

    Blocks, lanes and the way back are those of the forward kernel.
    """
    BLOCK: tl.constexpr = DEPTH * LANES
    row = tl.program_id(0).to(tl.int64)
    probabilities_pointer += row * columns
    output_gradient_pointer += row * output_gradient_row_stride
    input_gradient_pointer += row * columns
    in_block = tl.arange(0, DEPTH)[:, None] * LANES + tl.arange(0, LANES)[None, :]
    last = (tl.cdiv(columns, BLOCK) - 1) * BLOCK

    dots = tl.zeros((LANES,), tl.float32)
    for start in range(0, last, BLOCK):
        column = start + in_block
        probabilities = load_block(probabilities_pointer, column, 1, columns, 0.0, "evict_last")
        output_gradient = load_block(
            output_gradient_pointer, column, output_gradient_column_stride, columns, 0.0, "evict_last"
        )
        dots += tl.sum(probabilities * output_gradient, axis=0)
    column = last + in_block
    probabilities = load_block(probabilities_pointer, column, 1, columns, 0.0, "evict_first")
    output_gradient = load_block(
        output_gradient_pointer, column, output_gradient_column_stride, columns, 0.0, "evict_first"
    )
    dot = tl.sum(dots + tl.sum(probabilities * output_gradient, axis=0), axis=0)

    store_block(input_gradient_pointer, column, columns, probabilities * (output_gradient - dot))
    for back in range(BLOCK, last + BLOCK, BLOCK):
        column = last - back + in_block
        probabilities = load_block(probabilities_pointer, column, 1, columns, 0.0, "evict_first")
        output_gradient = load_block(
            output_gradient_pointer, column, output_gradient_column_stride, columns, 0.0, "evict_first"
        )
        store_block(input_gradient_pointer, column, columns, probabilities * (output_gradient - dot))


# Launchers


@dataclass(frozen=True)
class Tile:
    """The part of a (rows, columns) matrix that one program holds at a time."""

    rows: int
    """Rows of one program, a power of two; 1 where a row takes two passes."""
    columns: int
    """Columns, a power of two; fewer than the row has means two passes."""
    warps: int
    """Warps that share the tile."""


# Tiles of long rows, by bytes of an element and by columns, up to and with the key; longer rows take the last. In
# comments the share of a copy at that many columns, and what the programs that registers allow at a time read twice:
# 35 MB stay in L2 from the first time to the second, 69 only in part (docs/measurements.md).
FORWARD_TILES = {
    2: {
        32_768: Tile(rows=1, columns=8192, warps=8),  # 93 %, 26 MB; in one pass 77 %
        65_536: Tile(rows=1, columns=16_384, warps=8),  # 91 %, 35 MB
        131_072: Tile(rows=1, columns=32_768, warps=16),  # 82 %, 35 MB
    },
    4: {
        32_768: Tile(rows=1, columns=32_768, warps=16),  # 93 %, in one pass
        65_536: Tile(rows=1, columns=32_768, warps=16),  # 95 %, 35 MB
        131_072: Tile(rows=1, columns=32_768, warps=16),  # 80 %, 69 MB
    },
}
BACKWARD_TILES = {
    2: {
        32_768: Tile(rows=1, columns=8192, warps=16),  # 98 %, 35 MB; in one pass 91 %
        65_536: Tile(rows=1, columns=16_384, warps=32),  # 95 %, 35 MB
        131_072: Tile(rows=1, columns=16_384, warps=32),  # 76 %, 69 MB
    },
    4: {
        32_768: Tile(rows=1, columns=16_384, warps=32),  # 100 %, 35 MB; in one pass 89 %
        65_536: Tile(rows=1, columns=16_384, warps=32),  # 82 %, 69 MB
        131_072: Tile(rows=1, columns=16_384, warps=32),  # 69 %, 138 MB
    },
}


def choose_tile(columns: int, itemsize: int, of_long_rows: dict[int, dict[int, Tile]]) -> Tile:
    """The tile for rows of `columns` elements of `itemsize` bytes.

    of_long_rows: FORWARD_TILES or BACKWARD_TILES. Short rows take the same tile in both directions.
    """
    if columns > 16_384:
        tiles = of_long_rows[itemsize]
        columns = min(columns, max(tiles))
        return next(tile for most, tile in tiles.items() if columns <= most)
    width = triton.next_power_of_2(columns)
    # Short rows share a program until it has 1024 elements: 96 to 101 % of a copy at 128 columns.
    rows = max(1, 1024 // width)
    # 16 elements a thread and 16 warps at most: with 32, too few programs fit on an SM to hide the loads.
    return Tile(rows=rows, columns=width, warps=min(max(rows * width // 512, 2), 16))


def choose_lanes(tile: Tile, itemsize: int) -> int:
    """How many columns of a row the threads of a program load at once: 16 bytes each.

    So a thread has the same few lanes in every row of a (DEPTH, LANES) block.
    """
    return min(tile.warps * 32 * 16 // itemsize, tile.columns)


def launch_softmax_forward(logits: torch.Tensor, probabilities: torch.Tensor, tile: Tile) -> None:
    """Write the softmax of each row of `logits` to `probabilities`.

    Both (rows, columns) with at least one element; `probabilities` is contiguous.
    """
    rows, columns = logits.shape
    if columns <= tile.columns:
        softmax_forward_kernel[(triton.cdiv(rows, tile.rows),)](
            logits,
            probabilities,
            logits.stride(0),
            logits.stride(1),
            rows,
            columns,
            BLOCK_ROWS=tile.rows,
            BLOCK_COLUMNS=tile.columns,
            num_warps=tile.warps,
        )
    else:
        lanes = choose_lanes(tile, logits.dtype.itemsize)
        softmax_forward_two_pass_kernel[(rows,)](
            logits,
            probabilities,
            logits.stride(0),
            logits.stride(1),
            columns,
            DEPTH=tile.columns // lanes,
            LANES=lanes,
            num_warps=tile.warps,
        )


def launch_softmax_backward(
    probabilities: torch.Tensor,
    output_gradient: torch.Tensor,
    input_gradient: torch.Tensor,
    tile: Tile,
) -> None:
    """Write probabilities * (output_gradient - row sum of their product) to `input_gradient`.

    All (rows, columns) with at least one element; all but `output_gradient` are contiguous.
    """
    rows, columns = probabilities.shape
    if columns <= tile.columns:
        softmax_backward_kernel[(triton.cdiv(rows, tile.rows),)](
            probabilities,
            output_gradient,
            input_gradient,
            output_gradient.stride(0),
            output_gradient.stride(1),
            rows,
            columns,
            BLOCK_ROWS=tile.rows,
            BLOCK_COLUMNS=tile.columns,
            num_warps=tile.warps,
        )
    else:
        lanes = choose_lanes(tile, probabilities.dtype.itemsize)
        softmax_backward_two_pass_kernel[(rows,)](
            probabilities,
            output_gradient,
            input_gradient,
            output_gradient.stride(0),
            output_gradient.stride(1),
            columns,
            DEPTH=tile.columns // lanes,
            LANES=lanes,
            num_warps=tile.warps,
        )


def as_rows(x: torch.Tensor) -> torch.Tensor:
    """x (..., columns) as (rows, columns): a view where its strides allow one, else a copy."""
    return x.reshape(-1, x.shape[-1])


class Softmax(torch.autograd.Function):
    """Connects the two directions to autograd. Keeps the probabilities, not the logits."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        """x (..., columns) to probabilities of the same shape and dtype, contiguous."""
        probabilities = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if x.numel() > 0:  # nothing to launch: CUDA itself refuses an empty grid
            tile = choose_tile(x.shape[-1], x.dtype.itemsize, FORWARD_TILES)
            launch_softmax_forward(as_rows(x), as_rows(probabilities), tile)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    @once_differentiable
    def backward(ctx, output_gradient: torch.Tensor) -> torch.Tensor:
        """output_gradient (..., columns), any strides, to the gradient of x, contiguous."""
        (probabilities,) = ctx.saved_tensors
        input_gradient = torch.empty_like(probabilities)
        if probabilities.numel() > 0:
            launch_softmax_backward(
                as_rows(probabilities),
                as_rows(output_gradient),
                as_rows(input_gradient),
                choose_tile(probabilities.shape[-1], probabilities.dtype.itemsize, BACKWARD_TILES),
            )
        return input_gradient


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax over the last dimension: exp(x - max) / sum(exp(x - max)) of each row.

    x: (..., columns), any strides, float32, float16 or bfloat16, finite or -inf. Returns a new
    contiguous tensor of the same shape and dtype, computed in float32. Differentiable once.
    A -inf entry gives 0, a row of only -inf NaN.

    Raises ValueError for another dtype, and for a tensor without a last dimension.
    """
    if x.dtype not in DTYPES:
        found = str(x.dtype).removeprefix("torch.")
        raise ValueError(f"softmax takes float32, float16 or bfloat16, got {found}")
    if x.dim() == 0:
        raise ValueError("softmax takes 1 dimension or more, got 0 dimensions")
    return Softmax.apply(x)
