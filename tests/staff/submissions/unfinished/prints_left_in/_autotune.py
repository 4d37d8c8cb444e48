"""`autotune_or_first`: let Triton time several tiles and keep the fastest, where there is a GPU to time them on.

Given, not graded. Use it or not: a fixed tile is fine, too.
"""

from collections.abc import Callable
from typing import Any

import triton


def autotune_or_first(configs: list[triton.Config], key: list[str], **options: Any) -> Callable[[Any], Any]:
    """A decorator for a kernel, above `@triton.jit`: `triton.autotune`, or the first of `configs` without a GPU.

    A config is a guess: sizes of a tile, warps, stages. Which one is fastest depends on the GPU, so tuning
    runs each of them there and takes the time. The interpreter has no device and no clock worth reading: with
    two configs or more, `triton.autotune` would fail for want of a driver. With one it has nothing to time.

        @autotune_or_first(
            configs=[
                triton.Config({"BLOCK_ELEMENTS": 1024}, num_warps=4),  # without a GPU: this one
                triton.Config({"BLOCK_ELEMENTS": 4096}, num_warps=8),
            ],
            key=["elements"],
        )
        @triton.jit
        def kernel(input_pointer, output_pointer, elements, BLOCK_ELEMENTS: tl.constexpr): ...

        # The launch does not give BLOCK_ELEMENTS: the config does. Where the grid needs it, it is a function.
        kernel[lambda config: (triton.cdiv(elements, config["BLOCK_ELEMENTS"]),)](x, output, elements)

    configs: put first what suits the interpreter: a large tile, since each program costs milliseconds there.
    key: names of arguments of the kernel. Each new combination of their values, and of dtypes, is tuned anew,
        which takes seconds. So name sizes on which the choice depends, and few of them.
    options: whatever else `triton.autotune` takes. Tuning runs a kernel many times on the same tensors. That
        is harmless for one that writes its output. One that adds into its output (tl.atomic_add) adds every
        time, and its first answer is wrong: give reset_to_zero=["output_pointer"].
    """
    return triton.autotune(configs[:1] if triton.knobs.runtime.interpret else configs, key, **options)
