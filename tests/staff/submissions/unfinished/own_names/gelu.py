import torch
import triton
import triton.language as tl


@triton.jit
def _gelu(x_ptr, y_ptr, n, B: tl.constexpr):
    k = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x_ptr + k, mask=k < n, other=0.0).to(tl.float32)
    v = v * tl.sigmoid(1.5957691216 * (v + 0.044715 * v * v * v))
    tl.store(y_ptr + k, v, mask=k < n)


def gelu_forward(x):
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        _gelu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), B=4096)
    return y
