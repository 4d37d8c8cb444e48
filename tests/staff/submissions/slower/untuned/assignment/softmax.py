"""Softmax of a whole row at once: the block is the next power of two, and the most warps that there can be."""

import torch
import triton
import triton.language as tl

from .require import require, require_dtype


@triton.jit
def forward_kernel(x_ptr, y_ptr, row_stride, column_stride, columns, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = offsets < columns
    x = tl.load(x_ptr + row * row_stride + offsets * column_stride, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    y = numerator / tl.sum(numerator, axis=0)
    tl.store(y_ptr + row * columns + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def backward_kernel(y_ptr, dy_ptr, dx_ptr, dy_row_stride, dy_column_stride, columns, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK_SIZE).to(tl.int64)
    mask = offsets < columns
    y = tl.load(y_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * dy_row_stride + offsets * dy_column_stride, mask=mask, other=0.0).to(tl.float32)
    dx = y * (dy - tl.sum(y * dy, axis=0))
    tl.store(dx_ptr + row * columns + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)


def matrix(x):
    """x as (rows, columns)."""
    return x.reshape(-1, x.shape[-1])


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if y.numel():
            rows, columns = matrix(x).shape
            block = triton.next_power_of_2(columns)
            forward_kernel[(rows,)](matrix(x), y, *matrix(x).stride(), columns, block, num_warps=32)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        if y.numel():
            rows, columns = matrix(y).shape
            block = triton.next_power_of_2(columns)
            backward_kernel[(rows,)](y, matrix(dy), dx, *matrix(dy).stride(), columns, block, num_warps=32)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    require_dtype(x)
    require(x.dim() > 0, "softmax needs 1 dimension or more, but x has 0")
    return Softmax.apply(x)
