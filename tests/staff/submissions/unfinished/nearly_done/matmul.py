"""Problem matmul: the product of two matrices in Triton, with an activation in the same kernel."""

import torch
import triton
import triton.language as tl

from ._autotune import autotune_or_first


@autotune_or_first(
    configs=[
        triton.Config({"BLOCK_ROWS": 128, "BLOCK_COLUMNS": 128, "BLOCK_INNER": 32}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_ROWS": 64, "BLOCK_COLUMNS": 64, "BLOCK_INNER": 32}, num_warps=4, num_stages=3),
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
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    m = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
    n = tl.program_id(0) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS).to(tl.int64)
    m, n = m[:, None], n[None, :]
    accumulator = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for start in range(0, inner, BLOCK_INNER):
        k = start + tl.arange(0, BLOCK_INNER).to(tl.int64)
        ka, kb = k[None, :], k[:, None]
        a = tl.load(a_pointer + m * a_row_stride + ka * a_inner_stride, mask=(m < rows) & (ka < inner), other=0.0)
        b = tl.load(b_pointer + kb * b_inner_stride + n * b_column_stride, mask=(kb < inner) & (n < columns), other=0.0)
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
    if ACTIVATION == "relu":
        accumulator = tl.maximum(accumulator, 0.0)
    if ACTIVATION == "gelu":
        u = 0.7978845608028654 * (accumulator + 0.044715 * accumulator * accumulator * accumulator)
        accumulator = accumulator / (1.0 + tl.exp(-2.0 * u))
    tl.store(output_pointer + m * columns + n, accumulator, mask=(m < rows) & (n < columns))


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"matmul takes matrices, got {a.dim()} and {b.dim()} dimensions")
    rows, inner = a.shape
    other, columns = b.shape
    if inner != other:
        raise ValueError(f"matmul takes (M, K) and (K, N), got K = {inner} and K = {other}")
    if a.dtype != b.dtype:
        raise ValueError(f"matmul takes two matrices of one dtype, got {a.dtype} and {b.dtype}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"matmul takes float32, float16 or bfloat16, got {a.dtype}")
    if a.device != b.device:
        raise ValueError(f"matmul takes two matrices on one device, got {a.device} and {b.device}")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"activation is None, 'relu' or 'gelu', got {activation!r}")
    output = torch.empty((rows, columns), dtype=a.dtype, device=a.device)
    if output.numel() * inner == 0:  # nothing to do
        return output
    matmul_kernel[lambda c: (triton.cdiv(columns, c["BLOCK_COLUMNS"]), triton.cdiv(rows, c["BLOCK_ROWS"]))](
        a, b, output, rows, columns, inner, *a.stride(), *b.stride(), ACTIVATION=activation
    )
    return output
