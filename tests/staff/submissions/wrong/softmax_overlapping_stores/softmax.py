"""The output has room behind its end, and each row's padding is stored over the beginning of the next row: a race."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0))


def softmax(x):
    x = x.contiguous()
    columns = x.shape[-1]
    rows = x[..., 0].numel() if columns else 0
    block = triton.next_power_of_2(columns)
    y = torch.empty(x.numel() + block, dtype=x.dtype, device=x.device)
    softmax_kernel[(rows,)](x, y, columns, BLOCK=block)
    return y[: x.numel()].reshape(x.shape)
