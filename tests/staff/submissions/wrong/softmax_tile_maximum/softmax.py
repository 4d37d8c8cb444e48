"""A tile holds several rows, and tl.max without an axis takes one maximum for all of them."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=1, keep_dims=True), mask=mask)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x[..., 0].numel() if columns else 0
    grid = (triton.cdiv(rows, 8),)
    softmax_kernel[grid](x, y, rows, columns, ROWS=8, COLUMNS=triton.next_power_of_2(columns))
    return y
