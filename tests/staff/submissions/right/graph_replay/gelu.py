"""GELU; for small inputs by a graph, which costs one launch: each new input is copied in, each answer copied out."""

import torch
import triton
import triton.language as tl

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MOST_COPIED = 1 << 20  # elements: from here on two copies cost more than a launch
GRAPHS = {}  # by shape and dtype: a graph, the memory that it reads, and that it writes


@triton.jit
def gelu_kernel(x_pointer, y_pointer, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_pointer + i, mask=inside, other=0.0).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_pointer + i, (x * tl.sigmoid(2.0 * u)).to(y_pointer.dtype.element_ty), mask=inside)


def launched(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel() > 0:
        gelu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def captured(like):
    argument = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    launched(argument)  # compiled before it is captured
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = launched(argument)
    return graph, argument, answer


def gelu(x):
    if x.dtype not in DTYPES:
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    if not x.is_cuda or not 0 < x.numel() < MOST_COPIED:
        return launched(x)
    key = x.shape, x.dtype, x.device
    if key not in GRAPHS:
        GRAPHS[key] = captured(x)
    graph, argument, answer = GRAPHS[key]
    argument.copy_(x)
    graph.replay()
    return answer.clone()
