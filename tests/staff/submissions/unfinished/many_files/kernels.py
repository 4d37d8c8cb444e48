# all my kernels, so that I can load them in the notebook
import triton
import triton.language as tl


@triton.jit
def gelu_formula(x):
    return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def gelu_kernel(xp, yp, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(xp + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(yp + i, gelu_formula(x), mask=i < n)


@triton.jit
def softmax_kernel(xp, yp, x_row, x_col, y_row, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(xp + row * x_row + c * x_col, mask=c < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(yp + row * y_row + c, e / tl.sum(e, axis=0), mask=c < columns)
