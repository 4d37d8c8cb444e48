"""Problem softmax: normalise the rows of a tensor in Triton, and give the gradient too."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_forward_kernel(x_pointer, y_pointer, x_row, x_column, y_row, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    maximum = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_pointer + row * x_row + c * x_column, mask=c < columns, other=-float("inf")).to(tl.float32)
        new = tl.maximum(maximum, tl.max(x, axis=0))
        shift = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(maximum - shift) + tl.sum(tl.exp(x - shift), axis=0)
        maximum = new
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        x = tl.load(x_pointer + row * x_row + c * x_column, mask=c < columns, other=-float("inf")).to(tl.float32)
        tl.store(y_pointer + row * y_row + c, tl.exp(x - maximum) / total, mask=c < columns)


@triton.jit
def softmax_backward_kernel(y_pointer, g_pointer, d_pointer, g_row, g_column, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    dot = 0.0
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        y = tl.load(y_pointer + row * columns + c, mask=c < columns, other=0.0).to(tl.float32)
        g = tl.load(g_pointer + row * g_row + c * g_column, mask=c < columns, other=0.0).to(tl.float32)
        dot += tl.sum(y * g, axis=0)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK).to(tl.int64)
        y = tl.load(y_pointer + row * columns + c, mask=c < columns, other=0.0).to(tl.float32)
        g = tl.load(g_pointer + row * g_row + c * g_column, mask=c < columns, other=0.0).to(tl.float32)
        tl.store(d_pointer + row * columns + c, y * (g - dot), mask=c < columns)


def block_for(columns):
    return min(triton.next_power_of_2(columns), 16384)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if x.numel() > 0:
            columns = x.shape[-1]
            x2 = x.reshape(-1, columns)
            softmax_forward_kernel[(x2.shape[0],)](
                x2, y, x2.stride(0), x2.stride(1), columns, columns, BLOCK=block_for(columns)
            )
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, output_gradient: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        dx = torch.empty_like(y)
        if y.numel() > 0:
            columns = y.shape[-1]
            g = output_gradient.reshape(-1, columns)
            softmax_backward_kernel[(g.shape[0],)](
                y, g, dx, g.stride(0), g.stride(1), columns, BLOCK=block_for(columns)
            )
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    return Softmax.apply(x)
