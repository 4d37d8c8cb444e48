"""Matrix product: programs share out k, add up in float32 by atomics, and a second kernel finishes the sums.

Both inputs are made contiguous first, so the kernels know sizes only. The grid is flat: tile by tile, part by part.
Tiles are as large as the shared memory of this GPU allows, which is 99 KB on a small card and 227 KB on a large one.
"""

import torch
import triton
import triton.language as tl
from triton.runtime import driver

SIDE = 64
DEPTHS = (256, 128)  # bytes
STAGES = 4
LONGEST_PART = 512  # elements along k that one program sums


@triton.jit
def add_part(a_ptr, b_ptr, sums_ptr, m, n, k, parts, SIDE: tl.constexpr, DEPTH: tl.constexpr):
    """Program p adds part p % parts of k to tile p // parts of the float32 sums."""
    program = tl.program_id(0)
    tile = (program // parts).to(tl.int64)
    wide = tl.cdiv(n, SIDE)
    i = tile // wide * SIDE + tl.arange(0, SIDE)
    j = tile % wide * SIDE + tl.arange(0, SIDE)
    part = tl.zeros((SIDE, SIDE), tl.float32)
    for first in range(program % parts * DEPTH, k, parts * DEPTH):
        inner = first + tl.arange(0, DEPTH)
        a_here = (i < m)[:, None] & (inner < k)[None, :]
        b_here = (inner < k)[:, None] & (j < n)[None, :]
        a = tl.load(a_ptr + i[:, None] * k + inner[None, :], mask=a_here, other=0)
        b = tl.load(b_ptr + inner[:, None].to(tl.int64) * n + j[None, :], mask=b_here, other=0)
        part += tl.dot(a, b, input_precision="ieee")
    tl.atomic_add(sums_ptr + i[:, None] * n + j[None, :], part, mask=(i < m)[:, None] & (j < n)[None, :])


@triton.jit
def finish(sums_ptr, out_ptr, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """The activation of each sum, in the output's dtype."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(sums_ptr + at, mask=at < count, other=0)
    if KIND == "relu":
        x = tl.where(x > 0, x, 0)
    if KIND == "gelu":
        x = x / (1 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))
    tl.store(out_ptr + at, x.to(out_ptr.dtype.element_ty), mask=at < count)


def depth_that_fits(matrix: torch.Tensor) -> int:
    """As many elements along k as both tiles have room for, in every stage."""
    if not matrix.is_cuda:
        return DEPTHS[-1] // matrix.element_size()
    room = driver.active.utils.get_device_properties(matrix.device.index)["max_shared_mem"]
    return next(depth for depth in DEPTHS if 2 * STAGES * SIDE * depth <= room) // matrix.element_size()


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    if (a.dim(), b.dim()) != (2, 2):
        raise ValueError(f"expected matrices, got tensors of dimension {a.dim()} and {b.dim()}")
    if a.device != b.device:
        raise ValueError(f"expected both on one device, got {a.device} and {b.device}")
    if a.dtype != b.dtype or a.dtype not in {torch.float32, torch.float16, torch.bfloat16}:
        raise ValueError(f"expected float32, float16 or bfloat16 twice, got {a.dtype} and {b.dtype}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"expected (m, k) and (k, n), got {tuple(a.shape)} and {tuple(b.shape)}")
    if activation not in {None, "relu", "gelu"}:
        raise ValueError(f"expected activation None, relu or gelu, got {activation!r}")
    a, b = a.contiguous(), b.contiguous()
    m, k = a.shape
    n = b.shape[1]
    out = torch.empty((m, n), dtype=a.dtype, device=a.device)
    if out.numel():
        sums = torch.zeros((m, n), dtype=torch.float32, device=a.device)
        parts = max(triton.cdiv(k, LONGEST_PART), 1)
        tiles = triton.cdiv(m, SIDE) * triton.cdiv(n, SIDE)
        add_part[(tiles * parts,)](a, b, sums, m, n, k, parts, SIDE, depth_that_fits(a), num_stages=STAGES)
        finish[(triton.cdiv(m * n, 4096),)](sums, out, m * n, activation, 4096)
    return out
