"""GELU from a graph for each shape: a new input is copied in, and the answer copied out."""

import torch
import triton
import triton.language as tl

GRAPHS = {}


@triton.jit
def gelu_kernel(x_pointer, y_pointer, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_pointer + i, mask=inside, other=0.0).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_pointer + i, (x * tl.sigmoid(2.0 * u)).to(y_pointer.dtype.element_ty), mask=inside)


def compute(x):
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    y = torch.empty_like(x)
    block = 1024 if x.is_cuda else 65536
    if x.numel() > 0:
        gelu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)
    return y


def captured(argument):
    """A graph that computes the answer to what lies in this memory, and where it puts that."""
    compute(argument)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = compute(argument)
    return graph, argument, answer


def gelu(x):
    if not x.is_cuda or x.numel() == 0:
        return compute(x)
    key = x.shape, x.dtype
    if key not in GRAPHS:
        GRAPHS[key] = captured(x.clone(memory_format=torch.contiguous_format))
    graph, argument, answer = GRAPHS[key]
    argument.copy_(x)
    graph.replay()
    return answer.clone()
