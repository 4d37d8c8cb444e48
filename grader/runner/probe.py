"""A kernel of our own: if this one does not run, the fault is the machine's or ours."""

import torch
import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def double_kernel(input_pointer, output_pointer, elements, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """One program doubles BLOCK elements."""
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = element < elements
    tl.store(output_pointer + element, 2 * tl.load(input_pointer + element, mask=inside), mask=inside)


def double(x: torch.Tensor) -> torch.Tensor:
    """2 · x for a contiguous tensor."""
    output = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, output, x.numel(), BLOCK=64)
    return output
