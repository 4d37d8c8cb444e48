"""The sum of a row is kept in float16, block by block."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * columns
    maximum = tl.full((), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        maximum = tl.maximum(maximum, tl.max(x, axis=0))
    total = tl.zeros((BLOCK,), y_ptr.dtype.element_ty)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        total += tl.exp(x - maximum).to(total.dtype)
    inverse = 1.0 / tl.sum(total, axis=0).to(tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        tl.store(y_ptr + row * columns + column, tl.exp(x - maximum) * inverse, mask=column < columns)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    columns = x.shape[-1]
    softmax_kernel[(x.numel() // columns,)](x, y, columns, BLOCK=4096)
    return y
