import torch
import triton
import triton.language as tl


@triton.jit
def _softmax(x_ptr, y_ptr, n, B: tl.constexpr):
    r = tl.program_id(0)
    k = tl.arange(0, B)
    v = tl.load(x_ptr + r * n + k, mask=k < n, other=-float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(y_ptr + r * n + k, v / tl.sum(v, axis=0), mask=k < n)


# like torch.softmax
def softmax(x, dim):
    assert dim == -1 or dim == x.dim() - 1
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.shape[-1]
    _softmax[(x.numel() // n,)](x, y, n, B=triton.next_power_of_2(n))
    return y
