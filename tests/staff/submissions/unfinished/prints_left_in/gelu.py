"""Problem gelu"""

import torch
import triton
import triton.language as tl

# import math
# SQRT_2_PI = math.sqrt(2 / math.pi)   <- triton does not like globals?? just write the number


@triton.jit
def gelu_kernel(input_pointer, output_pointer, elements, BLOCK_ELEMENTS: tl.constexpr):
    pid = tl.program_id(axis=0)
    offs = pid * BLOCK_ELEMENTS + tl.arange(0, BLOCK_ELEMENTS)
    mask = offs < elements
    x = tl.load(input_pointer + offs, mask=mask)
    x = x.to(tl.float32)
    # print("pid", pid, "x", x)
    # first try:
    # u = 0.79788456 * (x + 0.044715 * x**3)        # ** not working
    # e = tl.exp(2 * u)
    # out = 0.5 * x * (1 + (e - 1) / (e + 1))       # nan for 100 !!!
    u = 0.7978845608 * (x + 0.044715 * x * x * x)
    out = x * tl.sigmoid(2 * u)
    # out = out.to(tl.float16)
    tl.store(output_pointer + offs, out, mask=mask)


def gelu(x: torch.Tensor) -> torch.Tensor:
    print("gelu called", x.shape, x.dtype, x.stride())
    if x.dtype not in [torch.float32, torch.float16, torch.bfloat16]:
        raise ValueError("gelu takes float32, float16 or bfloat16, got " + str(x.dtype))
    x = x.contiguous()
    out = torch.empty_like(x)
    n = out.numel()
    # print(n)
    if n > 0:
        BLOCK = 8192
        grid = ((n + BLOCK - 1) // BLOCK,)
        print("grid", grid)
        gelu_kernel[grid](x, out, n, BLOCK_ELEMENTS=BLOCK)
    return out


# x = torch.randn(1000)
# print(gelu(x) - torch.nn.functional.gelu(x, approximate="tanh"))
