"""The result is stored over the input wherever that is contiguous."""

import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(x_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=mask)


def softmax(x):
    y = x.contiguous()
    columns = x.shape[-1]
    softmax_kernel[(x.numel() // columns,)](y, columns, BLOCK=triton.next_power_of_2(columns))
    return y
