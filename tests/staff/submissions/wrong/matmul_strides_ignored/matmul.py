"""Both inputs are taken to be row-major, whatever their strides."""

import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, rows, cols, depth, act: tl.constexpr, T: tl.constexpr, TK: tl.constexpr):
    tiles_per_row = tl.cdiv(cols, T)
    tile = tl.program_id(0).to(tl.int64)
    row = tile // tiles_per_row * T + tl.arange(0, T)[:, None]
    col = tile % tiles_per_row * T + tl.arange(0, T)[None, :]
    total = tl.zeros((T, T), tl.float32)
    for first in range(0, depth, TK):
        d_x = first + tl.arange(0, TK)[None, :]
        d_w = first + tl.arange(0, TK)[:, None]
        x = tl.load(x_ptr + row * depth + d_x, mask=(row < rows) & (d_x < depth), other=0.0)
        w = tl.load(w_ptr + d_w * cols + col, mask=(d_w < depth) & (col < cols), other=0.0)
        total = tl.dot(x, w, total, input_precision="ieee")
    if act == "relu":
        total = tl.maximum(total, 0)
    if act == "gelu":
        t = 2 * tl.sigmoid(1.5957691216057308 * (total + 0.044715 * total * total * total)) - 1
        total = 0.5 * total * (1 + t)
    tl.store(y_ptr + row * cols + col, total.to(y_ptr.dtype.element_ty), mask=(row < rows) & (col < cols))


def matmul(a, b, activation=None):
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"two dimensions are needed, got {a.dim()} and {b.dim()}")
    if a.dtype != b.dtype:
        raise ValueError(f"{a.dtype} does not go with {b.dtype}")
    if a.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"{a.dtype} is not supported")
    if a.device != b.device:
        raise ValueError(f"{a.device} is not {b.device}")
    if a.size(1) != b.size(0):
        raise ValueError(f"{tuple(a.shape)} x {tuple(b.shape)}: the inner sizes do not match")
    if activation not in {None, "relu", "gelu"}:
        raise ValueError(f"activation {activation!r} does not exist")
    x, w = a, b
    rows, depth = x.shape
    cols = w.size(1)
    y = torch.empty(rows, cols, dtype=a.dtype, device=a.device)
    programs = triton.cdiv(rows, 64) * triton.cdiv(cols, 64)
    kernel[(programs,)](x, w, y, rows, cols, depth, act=activation, T=64, TK=64)
    return y
