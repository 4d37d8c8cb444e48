"""Problem flash_attention: attention that never holds its matrix of scores, and its gradients.

Four functions are graded, each by itself, so you can go on with the next one when you are stuck:

1. `attention_tiled`: the algorithm in PyTorch, tile by tile. No Triton yet.
2. `flash_attention_forward`: the same as one Triton kernel.
3. `flash_attention_backward`: the gradients, by two kernels.
4. `flash_attention`: both directions as one differentiable function.

The checks give the backward a right o and a right lse, whatever your forward computes. The kernels and the class below
are a proposal: you may change them, rename them or delete them.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_forward_kernel(
    q_pointer,
    k_pointer,
    v_pointer,
    o_pointer,
    lse_pointer,
    q_head_stride,
    q_row_stride,
    q_column_stride,
    k_head_stride,
    k_row_stride,
    k_column_stride,
    v_head_stride,
    v_row_stride,
    v_column_stride,
    queries,
    keys,
    scale,
    IS_CAUSAL: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
):
    """One program computes BLOCK_QUERIES rows of one head of o, and their log-sum-exp.

    q_pointer: (heads, queries, HEAD_DIM); k_pointer, v_pointer: (heads, keys, HEAD_DIM). Strides are in elements.
    o_pointer: like q, contiguous. lse_pointer: (heads, queries), float32, contiguous.
    HEAD_DIM: d. BLOCK_DIM: the next power of two, 16 or more: columns from HEAD_DIM on do not exist.

    For its rows, a program keeps three things, all in float32:
        m: the largest score so far, -inf at first           (BLOCK_QUERIES,)
        l: the sum of exp(score - m) so far                   (BLOCK_QUERIES,)
        a: the sum of exp(score - m) * v so far               (BLOCK_QUERIES, BLOCK_DIM)
    and for each tile of keys
        s = scale * q k^T                                     (BLOCK_QUERIES, BLOCK_KEYS)
        n = max(m, row maximum of s)
        p = exp(s - n)
        l = l * exp(m - n) + row sum of p
        a = a * exp(m - n) + p v
        m = n
    At the end o = a / l, and lse = m + log(l).

    Three masks: which value do loads outside get, which value do scores of keys outside (or unseen) get, and which
    rows are not stored? If IS_CAUSAL, query i sees the keys j <= i: skip the tiles that none of the rows sees.
    """


@triton.jit
def attention_backward_queries_kernel(
    do_pointer, q_pointer, k_pointer, v_pointer, lse_pointer, delta_pointer, dq_pointer,
    # ... strides and sizes as in the forward
):  # fmt: skip
    """One program computes BLOCK_QUERIES rows of one head of dq.

    delta_pointer: D = row sum of do * o, (heads, queries), float32: a small kernel of its own computes it first.

    For each tile of keys, with everything recomputed from q, k and lse:
        p  = exp(scale * q k^T - lse)        (BLOCK_QUERIES, BLOCK_KEYS)
        dp = do v^T                          the same
        ds = p * (dp - D)                    the same
        dq = dq + ds k                       (BLOCK_QUERIES, BLOCK_DIM)
    At the end, dq times scale.
    """


@triton.jit
def attention_backward_keys_kernel(
    do_pointer, q_pointer, k_pointer, v_pointer, lse_pointer, delta_pointer, dk_pointer, dv_pointer,
    # ... strides and sizes as in the forward
):  # fmt: skip
    """One program computes BLOCK_KEYS rows of one head of dk and dv, and goes over the tiles of queries.

        dv = dv + p^T do                     (BLOCK_KEYS, BLOCK_DIM)
        dk = dk + ds^T q                     (BLOCK_KEYS, BLOCK_DIM)
    At the end, dk times scale. Two kernels compute p and ds twice, and need no atomic additions.
    """


class FlashAttention(torch.autograd.Function):
    """Connects the two directions to autograd: save q, k, v, o and lse in `forward`, never the scores."""

    @staticmethod
    def forward(
        ctx, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float | None
    ) -> torch.Tensor:
        """Return o."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx, do: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of q, k and v, and None for each of the other two arguments."""
        raise NotImplementedError


def attention_tiled(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return o = softmax(scale * q k^T) v and the log-sum-exp of the scores, tile by tile, in PyTorch.

    Arguments:
        q: (..., n_q, d): float32, float16 or bfloat16. Any number of leading dimensions; d from 1 to 256.
        k, v: (..., n_k, d), with the leading dimensions, dtype and device of q. All three may be strided, sliced,
            transposed or expanded. n_q and n_k are arbitrary, and may be 0 or 1. All values are finite.
        is_causal: query i sees the keys j <= i only (also where n_q and n_k differ).
        scale: a factor of the scores; 1 / sqrt(d) if it is None.

    Returns:
        o: a new tensor with the shape, dtype and device of q. Without keys (n_k = 0) it is zeros.
        lse: log(sum over j of exp(scale * q_i k_j)), over the keys that are seen: natural logarithm, shape (..., n_q),
            float32 for every dtype of q. Without keys it is -inf.

    Raises:
        ValueError: dtypes, devices, head dimensions or leading dimensions do not fit each other, k and v have different
            lengths, the dtype is another one, or d is larger than 256. The message names what differs, for example
            "attention_tiled takes q and k of one head dimension, got 8 and 9".

    What must hold:
        - No tensor of n_q x n_k elements is ever held: the grader looks at the memory of your process, and what the
          module took when it was imported counts as well.
        - Sums are kept in float32, and float32 products are not rounded to TF32.
        - A large score does not overflow: subtract the largest one so far.
    """
    raise NotImplementedError


def flash_attention_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the same two tensors, computed by a Triton kernel. All that is said of attention_tiled holds.

    In a half type, the weights p may be rounded to the dtype of v for their product with it. PyTorch may prepare
    (torch.empty, x.contiguous()), but does none of the computing.
    """
    raise NotImplementedError


def flash_attention_backward(
    do: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dq, dk and dv: the gradients of q, k and v for `do`, the gradient of o.

    Arguments:
        do: (..., n_q, d), the dtype of q. It has strides of its own, also 0: autograd promises no layout.
        q, k, v, is_causal, scale: as they were in the forward.
        o, lse: what a right forward gives for them; they may be strided, too.

    Returns:
        Three new tensors, each with the shape, dtype and device of its input.

    Raises:
        ValueError: as attention_tiled does, for q, k and v.

    What must hold:
        - As in the forward: no tensor of n_q x n_k elements, sums in float32.
        - Where do is zero, the gradients are exactly zero.
        - Atomic additions are allowed; the same call twice agrees within the tolerance.
    """
    raise NotImplementedError


def flash_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Return o alone, differentiable with respect to q, k and v (once).

    It takes what attention_tiled takes, and raises ValueError where that does. Each of the three may need a gradient or
    not, and empty inputs have gradients as well.

    As a bonus, k and v may have fewer heads than q: (..., heads, n_q, d) and (..., key_heads, n_k, d), where key_heads
    divides heads. Neighbouring heads of q then share a head of k and v: head h uses h // (heads // key_heads).
    """
    raise NotImplementedError
