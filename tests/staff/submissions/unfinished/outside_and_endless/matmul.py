import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_pointer, b_pointer, output_pointer, rows, columns, inner,
    a_row_stride, a_inner_stride, b_inner_stride, b_column_stride, output_row_stride,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, BLOCK_INNER: tl.constexpr, ACTIVATION: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    n = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)
    acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    k0 = 0
    while k0 < inner:
        k = k0 + tl.arange(0, BLOCK_INNER)
        a = tl.load(a_pointer + m[:, None] * a_row_stride + k[None, :] * a_inner_stride,
                    mask=(m[:, None] < rows) & (k[None, :] < inner), other=0.0)
        b = tl.load(b_pointer + k[:, None] * b_inner_stride + n[None, :] * b_column_stride,
                    mask=(k[:, None] < inner) & (n[None, :] < columns), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    if ACTIVATION == "relu":
        acc = tl.maximum(acc, 0.0)
    tl.store(output_pointer + m[:, None] * output_row_stride + n[None, :], acc,
             mask=(m[:, None] < rows) & (n[None, :] < columns))


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    M, K = a.shape
    N = b.shape[1]
    out = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](
        a, b, out, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), out.stride(0),
        BLOCK_ROWS=64, BLOCK_COLUMNS=64, BLOCK_INNER=32, ACTIVATION=activation,
    )
    return out
