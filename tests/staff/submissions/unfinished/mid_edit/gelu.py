"""Problem gelu: one formula for every element of a tensor, in one Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(input_pointer, output_pointer, elements, BLOCK_ELEMENTS: tl.constexpr):
    first = tl.program_id(0) * BLOCK_ELEMENTS
    which = first + tl.arange(0, BLOCK_ELEMENTS)
    exists = which < elements
    x = tl.load(input_pointer + which, mask=exists, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    result = x * (1 / (1 + tl.exp(-2 * inner)))
    tl.store(output_pointer + which, result, mask=exists)


def gelu(x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    xc = x.contiguous()
    result = torch.empty_like(xc)
    if result.numel() == 0:
        return result
    gelu_kernel[(triton.cdiv(xc.numel(), 1024),)](xc, result, xc.numel(), BLOCK_ELEMENTS=1024)
    return result
