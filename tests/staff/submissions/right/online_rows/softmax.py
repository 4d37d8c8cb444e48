"""Softmax: one row a program, one block of 1024 at a time, maximum and sum found in one pass.

The backward keeps x and computes the probabilities anew.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _forward(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    x_row = x_ptr + tl.program_id(0).to(tl.int64) * n
    y_row = y_ptr + tl.program_id(0).to(tl.int64) * n
    offsets = tl.arange(0, BLOCK)
    m = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, n, BLOCK):
        x = tl.load(x_row + start + offsets, mask=start + offsets < n, other=-float("inf")).to(tl.float32)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        safe_m = tl.where(new_m == -float("inf"), 0.0, new_m)
        total = total * tl.exp(m - safe_m) + tl.sum(tl.exp(x - safe_m), axis=0)
        m = new_m
    for start in range(0, n, BLOCK):
        mask = start + offsets < n
        x = tl.load(x_row + start + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        y = tl.exp(x - m) / total
        tl.store(y_row + start + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _backward(x_ptr, dy_ptr, dx_ptr, n, BLOCK: tl.constexpr):
    row_start = tl.program_id(0).to(tl.int64) * n
    offsets = tl.arange(0, BLOCK)
    m = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    weighted = tl.zeros((), tl.float32)  # sum of dy * exp(x - m)
    for start in range(0, n, BLOCK):
        mask = start + offsets < n
        x = tl.load(x_ptr + row_start + start + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        dy = tl.load(dy_ptr + row_start + start + offsets, mask=mask, other=0.0).to(tl.float32)
        new_m = tl.maximum(m, tl.max(x, axis=0))
        safe_m = tl.where(new_m == -float("inf"), 0.0, new_m)
        e = tl.exp(x - safe_m)
        shrink = tl.exp(m - safe_m)
        total = total * shrink + tl.sum(e, axis=0)
        weighted = weighted * shrink + tl.sum(e * dy, axis=0)
        m = new_m
    mean = weighted / total
    for start in range(0, n, BLOCK):
        mask = start + offsets < n
        x = tl.load(x_ptr + row_start + start + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        dy = tl.load(dy_ptr + row_start + start + offsets, mask=mask, other=0.0).to(tl.float32)
        dx = tl.exp(x - m) / total * (dy - mean)
        tl.store(dx_ptr + row_start + start + offsets, dx.to(dx_ptr.dtype.element_ty), mask=mask)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            n = x.shape[-1]
            _forward[(x.numel() // n,)](x, y, n, BLOCK=BLOCK)
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        dx = torch.empty_like(x)
        if x.numel():
            n = x.shape[-1]
            _backward[(x.numel() // n,)](x, dy.contiguous(), dx, n, BLOCK=BLOCK)
        return dx


def softmax(x: torch.Tensor) -> torch.Tensor:
    if x.dtype not in {torch.float32, torch.float16, torch.bfloat16}:
        raise ValueError(f"expected float32, float16 or bfloat16, got {x.dtype}")
    if x.dim() < 1:
        raise ValueError("expected at least one dimension, got a tensor of dimension 0")
    return _Softmax.apply(x)
