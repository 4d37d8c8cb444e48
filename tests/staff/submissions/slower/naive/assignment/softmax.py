"""Softmax, one row a program: the maximum in one pass, the sum in a second, the quotients in a third."""

import torch
import triton
import triton.language as tl

from .dtypes import check_dtype


@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0).to(tl.int64) * n
    y_ptr += tl.program_id(0).to(tl.int64) * n
    maximum = -float("inf")
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < n, other=-float("inf")).to(tl.float32)
        maximum = tl.maximum(maximum, tl.max(x))
    total = 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < n, other=-float("inf")).to(tl.float32)
        total += tl.sum(tl.exp(x - maximum))
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < n, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + column, (tl.exp(x - maximum) / total).to(y_ptr.dtype.element_ty), mask=column < n)


@triton.jit
def softmax_backward_kernel(y_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    total = 0.0
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + row + column, mask=column < n, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + column, mask=column < n, other=0.0).to(tl.float32)
        total += tl.sum(y * dy)
    for start in range(0, n, BLOCK):
        column = start + tl.arange(0, BLOCK)
        y = tl.load(y_ptr + row + column, mask=column < n, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + row + column, mask=column < n, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row + column, (y * (dy - total)).to(dx_ptr.dtype.element_ty), mask=column < n)


def launch(kernel, *tensors):
    """Start a program for each row of the tensors, which are contiguous."""
    n = tensors[0].shape[-1]
    block = 16384 if tensors[0].device.type == "cpu" else 1024
    if tensors[0].numel() > 0:
        kernel[(tensors[0].numel() // n,)](*tensors, n, BLOCK=block)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        launch(softmax_kernel, x, y)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        launch(softmax_backward_kernel, y, dy.contiguous(), dx)
        return dx


def softmax(x):
    check_dtype("softmax", x)
    if x.dim() == 0:
        raise ValueError("softmax takes 1 dimension or more, got 0")
    return Softmax.apply(x)
