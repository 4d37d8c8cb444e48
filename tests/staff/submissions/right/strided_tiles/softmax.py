"""Softmax on tiles of several rows, by strides on both sides; exp2(x c - m c) with c = log2(e).

Answers lie column by column in memory. The backward keeps the probabilities as they were returned.
"""

import math

import torch
import triton
import triton.language as tl
from torch.autograd import Function

C = tl.constexpr(math.log2(math.e))
WIDEST = 4096


@triton.jit
def place(pointer, row_stride, column_stride, rows, columns):
    return pointer + rows[:, None] * row_stride + columns[None, :] * column_stride


@triton.jit
def forward_tile(x_ptr, y_ptr, x_row, x_column, y_row, y_column, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    high = tl.full((ROWS, 1), -float("inf"), tl.float32)
    for first in range(0, n, COLUMNS):
        columns = first + tl.arange(0, COLUMNS).to(tl.int64)
        exists = (rows < m)[:, None] & (columns < n)[None, :]
        x = tl.load(place(x_ptr, x_row, x_column, rows, columns), mask=exists, other=-float("inf")).to(tl.float32)
        high = tl.maximum(high, tl.max(x, axis=1, keep_dims=True))
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(0, n, COLUMNS):
        columns = first + tl.arange(0, COLUMNS).to(tl.int64)
        exists = (rows < m)[:, None] & (columns < n)[None, :]
        x = tl.load(place(x_ptr, x_row, x_column, rows, columns), mask=exists, other=-float("inf")).to(tl.float32)
        sums += tl.exp2(x * C - high * C)
    inverse = 1.0 / tl.sum(sums, axis=1, keep_dims=True)
    for first in range(0, n, COLUMNS):
        columns = first + tl.arange(0, COLUMNS).to(tl.int64)
        exists = (rows < m)[:, None] & (columns < n)[None, :]
        x = tl.load(place(x_ptr, x_row, x_column, rows, columns), mask=exists, other=-float("inf")).to(tl.float32)
        y = (tl.exp2(x * C - high * C) * inverse).to(y_ptr.dtype.element_ty)
        tl.store(place(y_ptr, y_row, y_column, rows, columns), y, mask=exists)


@triton.jit
def backward_tile(
    y_ptr, dy_ptr, dx_ptr, y_row, y_column, dy_row, dy_column, dx_row, dx_column, m, n,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    dots = tl.zeros((ROWS, 1), tl.float32)
    for first in range(0, n, COLUMNS):
        columns = first + tl.arange(0, COLUMNS).to(tl.int64)
        exists = (rows < m)[:, None] & (columns < n)[None, :]
        y = tl.load(place(y_ptr, y_row, y_column, rows, columns), mask=exists, other=0).to(tl.float32)
        dy = tl.load(place(dy_ptr, dy_row, dy_column, rows, columns), mask=exists, other=0).to(tl.float32)
        dots += tl.sum(y * dy, axis=1, keep_dims=True)
    for first in range(0, n, COLUMNS):
        columns = first + tl.arange(0, COLUMNS).to(tl.int64)
        exists = (rows < m)[:, None] & (columns < n)[None, :]
        y = tl.load(place(y_ptr, y_row, y_column, rows, columns), mask=exists, other=0).to(tl.float32)
        dy = tl.load(place(dy_ptr, dy_row, dy_column, rows, columns), mask=exists, other=0).to(tl.float32)
        dx = (y * (dy - dots)).to(dx_ptr.dtype.element_ty)
        tl.store(place(dx_ptr, dx_row, dx_column, rows, columns), dx, mask=exists)


def column_major(matrix):
    m, n = matrix.shape
    return torch.empty(n, m, dtype=matrix.dtype, device=matrix.device).t()


def tile_of(n):
    columns = min(triton.next_power_of_2(n), WIDEST)
    return max(WIDEST // columns // 2, 1), columns


class TiledSoftmax(Function):
    @staticmethod
    def forward(ctx, x):
        if x.numel() == 0:
            ctx.save_for_backward(x)
            return torch.empty_like(x)
        matrix = x.reshape(-1, x.shape[-1])
        m, n = matrix.shape
        y = column_major(matrix)
        rows, columns = tile_of(n)
        forward_tile[(triton.cdiv(m, rows),)](matrix, y, *matrix.stride(), *y.stride(), m, n, rows, columns)
        ctx.save_for_backward(y)
        return y.view(x.shape)

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        if dy.numel() == 0:
            return torch.empty_like(dy)
        matrix = dy.reshape(y.shape)
        m, n = y.shape
        dx = column_major(matrix)
        rows, columns = tile_of(n)
        strides = (*y.stride(), *matrix.stride(), *dx.stride())
        backward_tile[(triton.cdiv(m, rows),)](y, matrix, dx, *strides, m, n, rows, columns)
        return dx.view(dy.shape)


def softmax(x):
    kinds = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
    if x.dtype not in kinds:
        raise ValueError(f"{x.dtype} is not among {', '.join(kinds.values())}")
    if x.dim() == 0:
        raise ValueError("there is no last dimension to normalise: the input has 0 dimensions, 1 or more are needed")
    return TiledSoftmax.apply(x)
