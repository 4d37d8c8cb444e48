"""The tile is as long as the row, but a tile's length must be a power of two."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + column).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * COLUMNS + column, e / tl.sum(e, axis=0))


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    columns = x.shape[-1]
    softmax_kernel[(x.numel() // columns,)](x, y, COLUMNS=columns)
    return y
