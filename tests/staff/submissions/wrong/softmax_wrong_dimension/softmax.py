"""Each program normalises a column."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.program_id(0)
    row = tl.arange(0, BLOCK)
    offsets = row * columns + column
    x = tl.load(x_ptr + offsets, mask=row < rows, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + offsets, e / tl.sum(e, axis=0), mask=row < rows)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    if x.numel():
        softmax_kernel[(columns,)](x, y, rows, columns, BLOCK=triton.next_power_of_2(rows))
    return y
