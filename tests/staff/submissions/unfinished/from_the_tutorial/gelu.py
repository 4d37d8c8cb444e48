"""gelu, after the vector-add tutorial"""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_SIZE": 512}, num_warps=4),
        triton.Config({"BLOCK_SIZE": 1024}, num_warps=8),
    ],
    key=["n_elements"],
)
@triton.jit
def gelu_kernel(
    x_ptr,  # *Pointer* to first input vector.
    output_ptr,  # *Pointer* to output vector.
    n_elements,  # Size of the vector.
    BLOCK_SIZE: tl.constexpr,  # Number of elements each program should process.
):
    pid = tl.program_id(axis=0)  # We use a 1D launch grid so axis is 0.
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    z = 1.5957691216057308 * (x + 0.044715 * x * x * x)
    output = x * tl.sigmoid(z)
    tl.store(output_ptr + offsets, output, mask=mask)


def gelu(x: torch.Tensor):
    if x.dtype not in (torch.float16, torch.float32, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    output = torch.empty_like(x)
    n_elements = output.numel()
    if n_elements == 0:
        return output
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    gelu_kernel[grid](x, output, n_elements)
    return output
