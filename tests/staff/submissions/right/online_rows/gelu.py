"""GELU: tanh by way of a sigmoid, one flat kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def _gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0).to(tl.float32)
    cubic = x + 0.044715 * x * x * x
    tanh = 2.0 * tl.sigmoid(1.5957691216057308 * cubic) - 1.0
    y = 0.5 * x * (1.0 + tanh)
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=offsets < n)


def gelu(x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in {torch.float32, torch.float16, torch.bfloat16}:
        raise ValueError(f"expected float32, float16 or bfloat16, got {x.dtype}")
    flat = x.contiguous().view(-1)
    out = torch.empty_like(flat)
    n = flat.numel()
    if n:
        _gelu[(triton.cdiv(n, 4096),)](flat, out, n, BLOCK=4096)
    return out.view(x.shape)
