"""GELU in blocks of 256 elements: the block of a first example, and the usual number of warps."""

import torch
import triton
import triton.language as tl

from .require import require_dtype


@triton.jit
def tanh_gelu(x):
    u = 0.7978845608028654 * x * (1.0 + 0.044715 * x * x)
    return x / (1.0 + tl.exp(-2.0 * u))


@triton.jit
def gelu_kernel(input_ptr, output_ptr, size, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0).to(tl.int64) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < size
    x = tl.load(input_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, tanh_gelu(x.to(tl.float32)).to(x.dtype), mask=mask)


def gelu(x: torch.Tensor) -> torch.Tensor:
    require_dtype(x)
    output = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if size := x.numel():
        block_size = 2**16 if x.device.type == "cpu" else 256
        gelu_kernel[(triton.cdiv(size, block_size),)](x.contiguous(), output, size, block_size, num_warps=4)
    return output
