"""Problem matmul: the product of two matrices in Triton, with an activation in the same kernel.

Fill in `matmul`. It is the only function here that is graded. The kernel below is a proposal: you
may change it, rename it or delete it, and the decorator above it.
"""

import torch
import triton
import triton.language as tl

from ._autotune import autotune_or_first


# Guesses for you to replace. Without a GPU, the first one is taken. The launch does not give BLOCK_ROWS,
# BLOCK_COLUMNS and BLOCK_INNER, since a config does; the grid can be a function of them:
#     matmul_kernel[lambda config: (triton.cdiv(rows, config["BLOCK_ROWS"]) * ...,)](a, b, output, rows, ...)
@autotune_or_first(
    configs=[
        triton.Config({"BLOCK_ROWS": 128, "BLOCK_COLUMNS": 128, "BLOCK_INNER": 32}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_ROWS": 128, "BLOCK_COLUMNS": 64, "BLOCK_INNER": 32}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_ROWS": 64, "BLOCK_COLUMNS": 64, "BLOCK_INNER": 32}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_ROWS": 32, "BLOCK_COLUMNS": 64, "BLOCK_INNER": 64}, num_warps=4, num_stages=3),
    ],
    key=["rows", "columns", "inner"],
)
@triton.jit
def matmul_kernel(
    a_pointer,
    b_pointer,
    output_pointer,
    rows,
    columns,
    inner,
    a_row_stride,
    a_inner_stride,
    b_inner_stride,
    b_column_stride,
    output_row_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One program computes one tile of the result: BLOCK_ROWS rows and BLOCK_COLUMNS columns.

    a_pointer: address of the first element of a (rows, inner) matrix.
    b_pointer: the same for an (inner, columns) matrix.
    output_pointer: the same for the result, (rows, columns).
    a_row_stride, a_inner_stride, b_inner_stride, b_column_stride: distance in elements to the next
        row, column, or step along `inner`. The distance to the next column is 1 only if the matrix is
        neither transposed nor strided.
    output_row_stride: the same for the rows of the result. Its column stride is 1.
    BLOCK_ROWS, BLOCK_COLUMNS, BLOCK_INNER: powers of two, 16 or more, known when the kernel is
        compiled. BLOCK_INNER is the length of one step of the loop along `inner`.
    GROUP_ROWS: how many rows of tiles are computed together; see below.
    ACTIVATION: None, "relu" or "gelu". A comparison with a constexpr is decided when the kernel is
        compiled, so `if ACTIVATION == "relu":` costs nothing when it runs.

    Steps: which tile is mine? Start with an accumulator of float32 zeros. In a loop along `inner`, load a
    piece of a, (BLOCK_ROWS, BLOCK_INNER), and a piece of b, (BLOCK_INNER, BLOCK_COLUMNS), and add their
    product (tl.dot). Apply the activation to the accumulator, convert it, store it.

    Each of the three sizes needs its mask. Which value must masked elements get, and in which of the two
    pieces, so that they add nothing, whatever lies behind the end of the other?

    Order: programs with neighbouring numbers run at the same time and share the L2 cache. If they walk
    along one row of tiles, they read a few rows of a and all of b. If they walk down GROUP_ROWS rows
    before they go on to the next column of tiles, they read less. Get it right without this first.
    """


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    """Return the matrix product of a and b, with the activation applied to each element.

        matmul(a, b)[i, j] = activation(sum over k of a[i, k] * b[k, j])

    Arguments:
        a: a matrix of shape (M, K): float32, float16 or bfloat16.
        b: a matrix of shape (K, N) with the dtype and device of a. Both may be strided, sliced,
            transposed or expanded. A size may be 0 or 1. All values are finite.
        activation: None for none; "relu", max(x, 0); or "gelu", in the tanh form of problem gelu.

    Returns:
        A new contiguous tensor of shape (M, N) with the dtype and device of a. If K is 0, it is all
        zeros. If M or N is 0, it is empty.

    Raises:
        ValueError: in these cases. The message names both sides, for example
            "matmul takes (M, K) and (K, N), got K = 3 and K = 4".
            - a or b does not have 2 dimensions: the number of dimensions of both.
            - The inner sizes differ: both sizes.
            - The dtypes differ: both dtypes, for example float32 and float16.
            - The dtype is another one: its name, for example int64.
            - The devices differ: both devices.
            - The activation is another one: what was given, for example 'tanh'.

    What must hold:
        - M, N and K are arbitrary: not multiples of a tile, and smaller than one.
        - What lies in memory next to a slice changes nothing, also if it is inf or NaN.
        - float32 is not rounded to TF32: tl.dot(..., input_precision="ieee"). Only a GPU shows this.
        - float16 and bfloat16 products are summed in float32. The activation is applied to the float32
          sums, and only the result is rounded to the dtype of a.
        - A result that is too large for its dtype is inf, and its neighbours are right.
        - a and b do not change.
        - The returned tensor stays valid when matmul is called again.
        - Triton does the computing. PyTorch may prepare: torch.empty, x.contiguous(), x.t().

    A backward is not needed.
    """
    raise NotImplementedError
