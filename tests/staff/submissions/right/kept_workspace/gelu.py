"""GELU that keeps what it can between calls: a scratch buffer for strided inputs, and the block that was fastest."""

import torch
import triton
import triton.language as tl

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BLOCKS = (1024, 512, 2048)
LARGE = 1 << 24  # elements: below, a block is as good as another
TRIES = 5
SCRATCH = {}  # by device, stream and dtype: a buffer, which grows
FASTEST = {}  # by device, dtype and size: a block


@triton.jit
def gelu_kernel(x_pointer, y_pointer, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    x = tl.load(x_pointer + i, mask=inside, other=0.0).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(y_pointer + i, (x * tl.sigmoid(2.0 * u)).to(y_pointer.dtype.element_ty), mask=inside)


def launch(x, y, block):
    gelu_kernel[(triton.cdiv(x.numel(), block),)](x, y, x.numel(), BLOCK=block)


def without_gaps(x):
    """x itself, or a copy in the scratch buffer of the current stream, where the next call may overwrite it."""
    if x.is_contiguous():
        return x
    key = x.device, torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else 0, x.dtype
    if key not in SCRATCH or SCRATCH[key].numel() < x.numel():
        SCRATCH[key] = torch.empty(x.numel(), dtype=x.dtype, device=x.device)
    copy = SCRATCH[key][: x.numel()].view(x.shape)
    return copy.copy_(x)


def fastest_block(x, y):
    if not x.is_cuda or x.numel() < LARGE:
        return BLOCKS[0]
    key = x.device, x.dtype, x.numel()
    if key not in FASTEST:
        FASTEST[key] = min(BLOCKS, key=lambda block: milliseconds(x, y, block))
    return FASTEST[key]


def milliseconds(x, y, block):
    launch(x, y, block)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(TRIES):
        launch(x, y, block)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def gelu(x):
    if x.dtype not in DTYPES:
        raise ValueError(f"gelu takes float32, float16 or bfloat16, got {x.dtype}")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel() > 0:
        x = without_gaps(x)
        launch(x, y, fastest_block(x, y))
    return y
