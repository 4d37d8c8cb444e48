"""GELU, with a long search for the tile of large inputs: sixty configurations, each of them compiled and timed."""

import torch
import triton
import triton.language as tl
import triton.testing

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
LARGE = 1 << 24  # elements: below, no tile is worth a search


@triton.jit
def gelu_kernel(x_pointer, y_pointer, n, BLOCK: tl.constexpr, PASSES: tl.constexpr):
    """One program computes PASSES blocks of BLOCK elements, one after the other."""
    first = tl.program_id(0).to(tl.int64) * (BLOCK * PASSES)
    for number in tl.static_range(PASSES):
        i = first + number * BLOCK + tl.arange(0, BLOCK)
        inside = i < n
        x = tl.load(x_pointer + i, mask=inside, other=0.0).to(tl.float32)
        u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
        tl.store(y_pointer + i, (x * tl.sigmoid(2.0 * u)).to(y_pointer.dtype.element_ty), mask=inside)


CONFIGS = [
    triton.Config({"BLOCK": block, "PASSES": passes}, num_warps=warps)
    for block in (256, 512, 1024, 2048, 4096)
    for passes in (1, 2, 4)
    for warps in (1, 2, 4, 8)
]


def some_milliseconds(call, quantiles):
    """The time of a configuration, in a third of the usual time."""
    return triton.testing.do_bench(call, warmup=10, rep=30, quantiles=quantiles)


tuned_kernel = triton.autotune(CONFIGS, key=["n"], do_bench=some_milliseconds)(gelu_kernel)


def gelu(x):
    if x.dtype not in DTYPES:
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    x = x.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n >= LARGE and x.is_cuda:
        tuned_kernel[lambda config: (triton.cdiv(n, config["BLOCK"] * config["PASSES"]),)](x, y, n)
    elif n > 0:
        gelu_kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024, PASSES=1)
    return y
