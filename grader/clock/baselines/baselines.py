"""What speeds are compared with. The judge's own runner loads this file as if it were a submission."""

import torch
from torch import Tensor
from torch.nn import functional

flash_forward = torch.ops.aten._scaled_dot_product_flash_attention
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_backward


def device_copy(x: Tensor, *others: Tensor, halves: int, results: int = 1) -> tuple[Tensor, ...]:
    """Copies of x: as many as read and write `halves` times its bytes, 2 for all of it once. So many are returned."""
    if halves % 2:
        x[: len(x) // 2].clone()
    copies = [x.clone() for _ in range(halves // 2)]
    return tuple(copies[:results])


def gelu(x: Tensor) -> Tensor:
    """PyTorch's own."""
    return functional.gelu(x, approximate="tanh")


def softmax(x: Tensor) -> Tensor:
    """PyTorch's own."""
    return torch.softmax(x, -1)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """cuBLAS."""
    return a @ b


def attention_forward(q: Tensor, k: Tensor, v: Tensor, is_causal: bool) -> tuple[Tensor, Tensor]:
    """o and lse of (heads, n, d), by the flash attention that comes with PyTorch."""
    o, lse, *_ = flash_forward(q[None], k[None], v[None], 0.0, is_causal)
    return o[0], lse[0]


def attention_backward(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, is_causal: bool
) -> tuple[Tensor, ...]:
    """dq, dk and dv of (heads, n, d), by the flash attention that comes with PyTorch."""
    state = torch.zeros(2, dtype=torch.int64, device=q.device)  # of random numbers, which nobody draws
    heads = (x[None] for x in (do, q, k, v, o, lse))
    found = flash_backward(*heads, None, None, q.shape[1], k.shape[1], 0.0, is_causal, state[0], state[1])
    return tuple(gradient[0] for gradient in found[:3])
