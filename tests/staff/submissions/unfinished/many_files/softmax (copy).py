# version from monday, does not work
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_kernel(x, y, n, BLOCK: tl.constexpr):
    c = tl.arange(0, BLOCK)
    v = tl.load(x + c, mask=c < n)
    tl.store(y + c, tl.exp(v) / tl.sum(tl.exp(v))

def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(1,)](x, y, x.shape[0], 1024)
