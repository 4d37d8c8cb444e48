"""Rows of over 65 536 columns are refused: more than one tile was never tried."""

import torch
import triton
import triton.language as tl

LARGEST_TILE = 65536


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    columns = x.shape[-1]
    block = triton.next_power_of_2(columns)
    if block > LARGEST_TILE:
        raise RuntimeError(f"cannot launch a kernel for {columns} columns: the largest tile is {LARGEST_TILE}")
    softmax_kernel[(x.numel() // columns,)](x, y, columns, BLOCK=block, num_warps=16)
    return y
