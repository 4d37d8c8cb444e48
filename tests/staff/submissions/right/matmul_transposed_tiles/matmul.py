"""Matrix product, transposed throughout: each program computes a tile of output.T = b.T a.T, by strides on all sides.

The grid is two-dimensional, tile sizes follow the dtype, and answers lie column by column in memory. A product of
float32 is three in TF32: of the leading bits of both, and of those of one with the rest of the other.
"""

import torch
import triton
import triton.language as tl

KINDS = {torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
NONE, RELU, GELU = 0, 1, 2
ACTIVATIONS = {None: NONE, "relu": RELU, "gelu": GELU}


@triton.jit
def gelu(x):
    tanh = 2.0 * tl.sigmoid(2.0 * 0.7978845608028654 * x * (1.0 + 0.044715 * x * x)) - 1.0
    return 0.5 * x * (1.0 + tanh)


@triton.jit
def leading_bits(x):
    """As many as TF32 keeps: 10 behind the first."""
    return (x.to(tl.int32, bitcast=True) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def add_three_products(total, x, y):
    """total + x y. What is left out is smaller by 2 to the power of 20."""
    x_high, y_high = leading_bits(x), leading_bits(y)
    total = tl.dot(x - x_high, y_high, acc=total, input_precision="tf32")
    total = tl.dot(x_high, y - y_high, acc=total, input_precision="tf32")
    return tl.dot(x_high, y_high, acc=total, input_precision="tf32")


@triton.jit
def transposed_tile(
    left, right, result, rows, columns, depth,
    left_row, left_depth, right_depth, right_column, result_row, result_column,
    ACTIVATION: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS).to(tl.int64)[:, None]
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS).to(tl.int64)[None, :]
    total = tl.zeros((COLUMNS, ROWS), tl.float32)
    for step in range(tl.cdiv(depth, DEPTH)):
        across = step * DEPTH + tl.arange(0, DEPTH).to(tl.int64)[None, :]
        down = step * DEPTH + tl.arange(0, DEPTH).to(tl.int64)[:, None]
        right_t = tl.load(
            right + across * right_depth + column * right_column, mask=(across < depth) & (column < columns), other=0.0
        )
        left_t = tl.load(left + down * left_depth + row * left_row, mask=(down < depth) & (row < rows), other=0.0)
        if left.dtype.element_ty == tl.float32:
            total = add_three_products(total, right_t, left_t)
        else:
            total = tl.dot(right_t, left_t, acc=total)
    if ACTIVATION == 1:
        total = tl.maximum(total, 0.0)
    elif ACTIVATION == 2:
        total = gelu(total)
    place = result + row * result_row + column * result_column
    tl.store(place, total.to(result.dtype.element_ty), mask=(row < rows) & (column < columns))


def refuse(a, b, activation):
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"a has dimension {a.ndim} and b has dimension {b.ndim}, where both need 2")
    if a.dtype not in KINDS or b.dtype not in KINDS or a.dtype != b.dtype:
        raise ValueError(f"a is {a.dtype} and b is {b.dtype}, where both need the same of {', '.join(KINDS.values())}")
    if a.device != b.device:
        raise ValueError(f"a is on {a.device} and b is on {b.device}")
    if a.size(1) != b.size(0):
        raise ValueError(f"a has {a.size(1)} columns and b has {b.size(0)} rows, where the same number is needed")
    if activation not in ACTIVATIONS:
        raise ValueError(f"{activation} is no activation")


def matmul(a, b, activation=None):
    refuse(a, b, activation)
    rows, depth, columns = *a.shape, b.size(1)
    result = torch.empty(columns, rows, dtype=a.dtype, device=a.device).t()
    if rows == 0 or columns == 0:
        return result
    tile = (64, 128, 32) if a.dtype == torch.float32 else (128, 64, 64)
    grid = (triton.cdiv(columns, tile[1]), triton.cdiv(rows, tile[0]))
    transposed_tile[grid](
        a, b, result, rows, columns, depth, *a.stride(), *b.stride(), *result.stride(), ACTIVATIONS[activation], *tile
    )
    return result
