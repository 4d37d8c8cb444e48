import contextlib

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_pointer, y_pointer, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_pointer + row * columns + column, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x))
    tl.store(y_pointer + row * columns + column, e / tl.sum(e), mask=inside)


def softmax(x):
    flat = x.contiguous()
    y = torch.empty_like(flat)
    own = torch.cuda.Stream() if x.is_cuda else None
    with torch.cuda.stream(own) if own else contextlib.nullcontext():
        softmax_kernel[(x.numel() // x.shape[-1],)](flat, y, x.shape[-1], BLOCK=triton.next_power_of_2(x.shape[-1]))
    if own:
        torch.cuda.current_stream().wait_stream(own)
    return y
