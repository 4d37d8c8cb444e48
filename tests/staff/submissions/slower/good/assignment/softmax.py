"""Softmax: rows up to 32768 columns are read once and stay in registers, longer ones are read twice, block by block."""

import torch
import triton
import triton.language as tl

from .agree import check_dtype

WHOLE_ROW = 32768
LONG_BLOCK = 8192


@triton.jit
def forward_row(x_pointer, y_pointer, x_row, x_column, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    x = tl.load(x_pointer + row * x_row + column * x_column, mask=column < columns, other=-float("inf")).to(tl.float32)
    weight = tl.exp(x - tl.max(x))
    y = weight * (1.0 / tl.sum(weight))
    tl.store(y_pointer + row * columns + column, y.to(y_pointer.dtype.element_ty), mask=column < columns)


@triton.jit
def forward_long_row(x_pointer, y_pointer, x_row, x_column, columns, BLOCK: tl.constexpr):
    """Maximum and sum in one pass: the sum so far shrinks where the maximum grows."""
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    x_pointer += row * x_row
    high = tl.full((), -float("inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_pointer + (start + lane) * x_column, mask=start + lane < columns, other=-float("inf"))
        higher = tl.maximum(high, tl.max(x.to(tl.float32)))
        base = tl.where(higher == -float("inf"), 0.0, higher)  # a block of only -inf adds 0
        total = total * tl.exp(high - base) + tl.sum(tl.exp(x.to(tl.float32) - base))
        high = higher
    for start in range(0, columns, BLOCK):
        x = tl.load(x_pointer + (start + lane) * x_column, mask=start + lane < columns, other=0.0).to(tl.float32)
        y = tl.exp(x - high) / total
        tl.store(y_pointer + row * columns + start + lane, y.to(y_pointer.dtype.element_ty),
                 mask=start + lane < columns)  # fmt: skip


@triton.jit
def backward_row(y_pointer, dy_pointer, dx_pointer, dy_row, dy_column, columns, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    inside = column < columns
    y = tl.load(y_pointer + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_pointer + row * dy_row + column * dy_column, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx_pointer + row * columns + column, (y * (dy - tl.sum(y * dy))).to(dx_pointer.dtype.element_ty), inside)


@triton.jit
def backward_long_row(y_pointer, dy_pointer, dx_pointer, dy_row, dy_column, columns, BLOCK: tl.constexpr):
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    products = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + lane
        y = tl.load(y_pointer + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + row * dy_row + column * dy_column, mask=column < columns, other=0.0).to(tl.float32)
        products += y * dy
    total = tl.sum(products)
    for start in range(0, columns, BLOCK):
        column = start + lane
        y = tl.load(y_pointer + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
        dy = tl.load(dy_pointer + row * dy_row + column * dy_column, mask=column < columns, other=0.0).to(tl.float32)
        dx = (y * (dy - total)).to(dx_pointer.dtype.element_ty)
        tl.store(dx_pointer + row * columns + column, dx, mask=column < columns)


def warps_for(block: int) -> int:
    """More threads for longer rows: 8 to 32 elements each."""
    if block <= 2048:
        return 4
    return 8 if block <= 8192 else 16


def launch(of_row, of_long_row, tensors, strided: torch.Tensor, columns: int) -> None:
    """Start a program for each row of the (rows, columns) matrix `strided`, whose strides both kernels take."""
    if strided.numel() == 0:
        return
    is_long = columns > WHOLE_ROW
    kernel, block = (of_long_row, LONG_BLOCK) if is_long else (of_row, triton.next_power_of_2(columns))
    kernel[(strided.shape[0],)](*tensors, *strided.stride(), columns, BLOCK=block, num_warps=warps_for(block))


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        ctx.save_for_backward(y)
        if y.numel():
            rows = x.reshape(-1, x.shape[-1])
            launch(forward_row, forward_long_row, (rows, y), rows, x.shape[-1])
        return y

    @staticmethod
    def backward(ctx, dy: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        if y.numel():
            rows = dy.reshape(-1, y.shape[-1])
            launch(backward_row, backward_long_row, (y, rows, dx), rows, y.shape[-1])
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    check_dtype("softmax", x)
    if x.dim() == 0:
        raise ValueError("softmax: a tensor of 0 dimensions has no rows, 1 or more are needed")
    return Softmax.apply(x)
