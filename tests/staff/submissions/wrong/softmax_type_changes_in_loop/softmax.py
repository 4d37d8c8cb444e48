"""A sum that starts as the integer 0 becomes a float in the loop, which only the compiler refuses."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0
    maximum = -float("inf")
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(maximum, tl.max(x, axis=0))
        total = total * tl.exp(maximum - higher) + tl.sum(tl.exp(x - higher), axis=0)
        maximum = higher
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns).to(tl.float32)
        tl.store(y_ptr + row * columns + column, tl.exp(x - maximum) / total, mask=column < columns)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x[..., 0].numel() if columns else 0
    softmax_kernel[(rows,)](x, y, columns, BLOCK=1024)
    return y
