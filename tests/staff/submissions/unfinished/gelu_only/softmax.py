"""Problem softmax: normalise the rows of a tensor in Triton, and give the gradient too.

Fill in `softmax`. It is the only function here that is graded. The kernels and the class below
are a proposal: you may change them, rename them or delete them.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_forward_kernel(
    input_pointer,
    output_pointer,
    input_row_stride,
    input_column_stride,
    output_row_stride,
    columns,
    BLOCK_COLUMNS: tl.constexpr,
):
    """One program normalises one row.

    input_pointer: address of the first element of a (rows, columns) matrix.
    input_row_stride, input_column_stride: distance in elements to the next row and to the next
        column. A transposed matrix has a column stride larger than 1.
    output_pointer, output_row_stride: the same for the result. Its column stride is 1.
    columns: the length of a row.
    BLOCK_COLUMNS: a power of two, columns or more, known when the kernel is compiled.

    Columns from `columns` on do not exist: mask them. Which value must they get, so that they
    change neither the maximum nor the sum? A very long row does not fit: load it in blocks.
    """


@triton.jit
def softmax_backward_kernel(
    output_pointer,
    output_gradient_pointer,
    input_gradient_pointer,
    output_row_stride,
    output_gradient_row_stride,
    output_gradient_column_stride,
    input_gradient_row_stride,
    columns,
    BLOCK_COLUMNS: tl.constexpr,
):
    """One program computes the gradient of one row.

    With y a row of the result and dy the incoming gradient of this row:

        dx = y * (dy - sum(dy * y))

    output_pointer: y, a (rows, columns) matrix.
    output_gradient_pointer: dy, the same shape. Its strides can be anything, also 0.
    input_gradient_pointer: dx, the same shape.
    """


class Softmax(torch.autograd.Function):
    """Tells PyTorch how to compute the gradient. `softmax` can use it as `Softmax.apply(x)`."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        """Return the softmax of x. Keep what backward needs with `ctx.save_for_backward(...)`."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx, output_gradient: torch.Tensor) -> torch.Tensor:
        """Return the gradient of x. Read `ctx.saved_tensors`. Do not assume any strides."""
        raise NotImplementedError


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the last dimension.

        softmax(x)[i] = exp(x[i] - max(x)) / sum over j of exp(x[j] - max(x))

    for each row x, that is, for each choice of all indices but the last.

    Arguments:
        x: a tensor of shape (..., columns) with 1 or more dimensions: float32, float16 or
            bfloat16. A size may be 0 or 1. It may be strided, sliced, transposed or expanded.
            Each value is finite or -inf.

    Returns:
        A new tensor with the shape, dtype and device of x. If a size is 0, it is empty. If x
        requires a gradient, the result has a backward.

    Raises:
        ValueError: x has another dtype, or 0 dimensions. The message names both sides, for
            example "softmax takes float32, float16 or bfloat16, got int64".

    What must hold in the forward:
        - A row may be short (1 column) or long (262144 columns).
        - Large values do not overflow, because the maximum of the row is subtracted first.
        - An entry of -inf gives 0. A row of only -inf gives NaN, as in PyTorch.
        - float16 and bfloat16 are converted to float32 first. Sums are in float32, and only the
          result is rounded to the dtype of x.

    What must hold in the backward:
        - The gradient has the shape and dtype of x.
        - The incoming gradient can have other strides than x and than the result: transposed, a
          slice of a larger tensor, or expanded (stride 0). It does not change.
        - If x does not require a gradient, no gradient is computed.
        - The gradient of the gradient is not needed.

    What must hold in both:
        - x does not change.
        - A returned tensor stays valid when softmax is called again.
        - Triton does the computing. PyTorch may prepare: torch.empty_like, x.contiguous(),
          x.reshape(...).
    """
    raise NotImplementedError
