import torch
import triton
import triton.language as tl

BM, BN, BK = 64, 64, 64


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
):
    m = tl.program_id(0) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS).to(tl.int64)
    n = tl.program_id(1) * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS).to(tl.int64)
    m_ok = m[:, None] < rows
    n_ok = n[None, :] < columns
    acc = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for k0 in range(0, inner, BLOCK_INNER):
        k = k0 + tl.arange(0, BLOCK_INNER).to(tl.int64)
        a = tl.load(
            a_pointer + m[:, None] * a_row_stride + k[None, :] * a_inner_stride,
            mask=m_ok & (k[None, :] < inner),
            other=0.0,
        )
        b = tl.load(
            b_pointer + k[:, None] * b_inner_stride + n[None, :] * b_column_stride,
            mask=(k[:, None] < inner) & n_ok,
            other=0.0,
        )
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(output_pointer + m[:, None] * output_row_stride + n[None, :], acc, mask=m_ok & n_ok)


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"matmul takes 2 dimensions, got {a.dim()} and {b.dim()}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul takes (M, K) and (K, N), got K = {a.shape[1]} and K = {b.shape[0]}")
    if a.dtype != b.dtype:
        raise ValueError(f"matmul takes one dtype, got {a.dtype} and {b.dtype}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"matmul takes float32, float16 or bfloat16, got {a.dtype}")
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"activation is None, 'relu' or 'gelu', got {activation!r}")
    M, K = a.shape
    N = b.shape[1]
    out = torch.zeros((M, N), dtype=torch.float32, device=a.device)
    if M and N and K:
        matmul_kernel[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
            a, b, out, M, N, K, *a.stride(), *b.stride(), out.stride(0), BLOCK_ROWS=BM, BLOCK_COLUMNS=BN, BLOCK_INNER=BK
        )
    # put this in the kernel when it works
    if activation == "relu":
        out = torch.relu(out)
    if activation == "gelu":
        out = torch.nn.functional.gelu(out, approximate="tanh")
    return out.to(a.dtype)
