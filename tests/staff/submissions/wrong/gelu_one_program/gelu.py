"""One program with one large tile: what lies beyond it is never computed."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(input_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.arange(0, BLOCK_SIZE)
    inside = offsets < n_elements
    x = tl.load(input_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    inner = 0.79788456 * x * (1.0 + 0.044715 * x * x)
    tl.store(output_ptr + offsets, x / (1.0 + tl.exp(-2.0 * inner)), mask=inside)


def gelu(x):
    x = x.contiguous()
    output = torch.empty_like(x)
    gelu_kernel[(1,)](x, output, x.numel(), BLOCK_SIZE=16384)
    return output
