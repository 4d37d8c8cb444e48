"""Problem gelu: one formula for every element of a tensor, in one Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(input_pointer, output_pointer, elements, BLOCK_ELEMENTS: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    offsets = pid * BLOCK_ELEMENTS + tl.arange(0, BLOCK_ELEMENTS)
    mask = offsets < elements
    x = tl.load(input_pointer + offsets, mask=mask, other=0.0).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(output_pointer + offsets, x / (1.0 + tl.exp(-2.0 * u)), mask=mask)


def gelu(x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    # compute in float32
    output = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    if x.numel() > 0:
        gelu_kernel[(triton.cdiv(x.numel(), 4096),)](x, output, x.numel(), BLOCK_ELEMENTS=4096)
    return output
