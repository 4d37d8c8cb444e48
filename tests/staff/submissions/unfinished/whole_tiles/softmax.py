# softmax
import torch
import triton
import triton.language as tl


@triton.jit
def kern(X, Y, N, B: tl.constexpr):
    r = tl.program_id(0)
    o = tl.arange(0, B)
    x = tl.load(X + r * N + o, mask=o < N, other=-1e9)
    x = x.to(tl.float32)
    x = x - tl.max(x, 0)
    e = tl.exp(x)
    tl.store(Y + r * N + o, e / tl.sum(e, 0), mask=o < N)


def softmax(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    N = x.shape[-1]
    kern[(x.numel() // N,)](x, y, N, B=triton.next_power_of_2(N))
    return y


# gradient: ???
