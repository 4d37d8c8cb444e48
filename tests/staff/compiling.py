"""The kernels of `solutions`, compiled for a Hopper GPU on a machine that needs none. Nothing is run.

`launches` calls a solution with tensors that have a shape and no memory and keeps what it would start: tiles are those
that it chooses itself, and a new row in a table is one more launch. `compiled` compiles a launch as Triton does on such
a GPU, with all that Triton knows of its arguments, and reads what ptxas says. It belongs into a process of its own,
which `prepare` has made ready.
"""

import importlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from itertools import product
from typing import Any
from unittest.mock import patch

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from solutions import flash_attention, gelu, matmul, softmax

# What a launch is


@dataclass(frozen=True)
class Launch:
    """What Triton is asked to start."""

    problem: str
    """The module of `solutions`."""
    kernel: str
    dtype: torch.dtype
    arguments: tuple[Any, ...]
    """Those without a name: tensors, descriptors, sizes, strides."""
    options: dict[str, Any]
    """Those with a name: constants, warps, stages."""
    words: str
    """What is particular about its arguments; empty if nothing is."""

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.options.items()]
        words = [str(self.dtype).removeprefix("torch."), *filter(None, [self.words]), *options]
        return f"{self.kernel} ({', '.join(words)})"

    @property
    def identity(self) -> tuple[str, str, str]:
        """Equal for two launches of which one need not be compiled. A tensor is told by its size and dtype."""
        return self.kernel, repr(self.arguments), repr(self.options)


# What the solutions start on a Hopper GPU. Each function starts kernels and yields what was particular about those.


def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """A tensor without memory. Triton finds it aligned: its address is 0."""
    return torch.empty(shape, dtype=dtype, device="meta")


def start_gelu(dtype: torch.dtype) -> Iterator[str]:
    gelu.gelu(empty(4096, 4096, dtype=dtype))
    yield ""


def start_softmax(dtype: torch.dtype) -> Iterator[str]:
    """Rows of every width that is a power of two, up to the longest that a table names."""
    tables = (softmax.FORWARD_TILES[dtype.itemsize], softmax.BACKWARD_TILES[dtype.itemsize])
    columns = 1
    while columns <= max(map(max, tables)):
        x = empty(4096, columns, dtype=dtype)
        softmax.launch_softmax_forward(x, x, softmax.choose_tile(columns, dtype.itemsize, softmax.FORWARD_TILES))
        softmax.launch_softmax_backward(x, x, x, softmax.choose_tile(columns, dtype.itemsize, softmax.BACKWARD_TILES))
        yield ""
        columns *= 2


def start_matmul(dtype: torch.dtype) -> Iterator[str]:
    """Every layout without an activation, and the other activations without a transposed matrix: 6 of 12 products."""
    x = empty(4096, 4096, dtype=dtype)
    layouts = [(a, b, None) for a, b in product((x, x.t()), repeat=2)]
    is_half = dtype is not torch.float32
    for a, b, activation in [*layouts, *((x, x, activation) for activation in matmul.ACTIVATIONS if activation)]:
        for tile in matmul.DESCRIPTOR_TILES if is_half else matmul.FLOAT32_TILES:
            launch = matmul.launch_with_descriptors if is_half else matmul.launch_with_pointers
            launch(a, b, x, activation, tile)
        transposed = [name for name, matrix in (("a", a), ("b", b)) if matrix is not x]
        yield f"{' and '.join(transposed)} transposed" if transposed else ""
    for tile in matmul.HALF_TILES if is_half else ():  # on a Hopper GPU for K = 0 only
        matmul.launch_with_pointers(x, x, x, None, tile)
    yield ""


def start_flash_attention(dtype: torch.dtype) -> Iterator[str]:
    """Every head dimension that a table names. float32, far from every limit, with the mask of a causal one only."""
    tables = [table for name, table in vars(flash_attention).items() if name.endswith("_TILES")]
    is_half = dtype is not torch.float32
    for head_dim, is_causal in product(sorted(set().union(*tables)), (False, True) if is_half else (True,)):
        q, shared = (empty(2, heads, 4096, head_dim, dtype=dtype) for heads in (8, 2))
        o, lse = flash_attention.launch_forward(q, q, q, is_causal, 0.125)
        flash_attention.launch_backward(q, q, q, q, o, lse, is_causal, 0.125)
        yield ""
        if is_half and not is_causal:  # which spills more than a causal one
            flash_attention.launch_backward(q, q, shared, shared, o, lse, is_causal, 0.125)
            yield "4 heads share keys"


STARTS: dict[str, Callable[[torch.dtype], Iterator[str]]] = {
    "gelu": start_gelu,
    "softmax": start_softmax,
    "matmul": start_matmul,
    "flash_attention": start_flash_attention,
}


def kept(problem: str, dtype: torch.dtype) -> list[Launch]:
    """What a solution starts for tensors of a dtype, kept instead of started."""
    found: list[Launch] = []
    started: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def keep(kernel: Any, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        started.append((kernel.__name__, arguments, options))

    with patch.object(JITFunction, "run", keep):
        for words in STARTS[problem](dtype):
            for kernel, arguments, options in started:
                found.append(Launch(problem, kernel, dtype, arguments, options, words))
            started.clear()
    return found


def first_of_each(found: list[Launch], kind: Callable[[Launch], Any]) -> list[Launch]:
    """The first launch of each kind."""
    kinds: dict[Any, Launch] = {}
    for launch in found:
        kinds.setdefault(kind(launch), launch)
    return [*kinds.values()]


def launches(problem: str) -> list[Launch]:
    """Every launch of a solution in bfloat16 and float32, and one of each kernel in float16.

    float16 has the tiles of bfloat16 and, in 127 launches, its spills, its shared memory and at most 6 registers more.
    One shows that its types fit together; all of them would take half as long again.
    """
    whole = kept(problem, torch.bfloat16) + kept(problem, torch.float32)
    one_each = first_of_each(kept(problem, torch.float16), lambda launch: launch.kernel)
    return first_of_each(whole + one_each, lambda launch: launch.identity)


# Compiling


class HopperDriver:
    """All that Triton asks of a driver before it starts a kernel, for a GPU that is not there."""

    def get_current_device(self) -> str:
        return "sm_90"

    def get_current_stream(self, device: str) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def prepare(cache: str) -> None:
    """Make this process compile for a Hopper GPU, anew, into a folder."""
    os.environ["TRITON_CACHE_DIR"] = cache
    knobs.compilation.always_compile = True
    knobs.nvidia.dump_ptxas_log = True
    driver.set_active(HopperDriver())


@dataclass(frozen=True)
class Compiled:
    """What came of a launch."""

    error: str = ""
    """Why it does not compile; all else is 0 then."""
    registers: int = 0
    """Of a thread."""
    spilled: int = 0
    """Bytes of a thread's registers that are written to memory for want of registers, each place in the code once."""
    shared: int = 0
    """Bytes of shared memory of a program."""
    serialised: str = ""
    """The number of ptxas's warning that products of matrices wait for each other, such as C7510."""


def compiled(launch: Launch) -> Compiled:
    """Compile a launch."""
    kernel = getattr(importlib.import_module(f"solutions.{launch.problem}"), launch.kernel)
    kernel.device_caches.clear()  # ptxas says nothing of what comes from a cache
    with errors_kept() as errors, redirect_stdout(io.StringIO()) as log:
        try:
            binary = kernel.warmup(*launch.arguments, grid=(1,), **launch.options)
        except Exception as exception:  # Triton, MLIR, LLVM and ptxas have no class of errors in common
            return Compiled(error=first_error(errors, exception))
    said = log.getvalue()
    return Compiled(
        registers=number(r"Used (\d+) registers", said),
        spilled=number(r"(\d+) bytes spill stores", said),
        shared=binary.metadata.shared,
        serialised=next(iter(re.findall(r"C751\d", said)), ""),
    )


def number(pattern: str, log: str) -> int:
    """The one number that ptxas gives of a kind."""
    [found] = re.findall(pattern, log)
    return int(found)


@contextmanager
def errors_kept() -> Iterator[io.BufferedRandom]:
    """What is written to stderr goes into a file, also by C++: a pass that fails writes hundreds of lines."""
    sys.stderr.flush()
    usual = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(usual, 2)
            os.close(usual)


def first_error(errors: io.BufferedRandom, exception: BaseException) -> str:
    """One line on what went wrong: MLIR's, if it has written one, else that of the exception at the bottom."""
    errors.seek(0)
    if written := re.search(r"error: (.+)", errors.read().decode(errors="replace")):
        return written[1]
    while exception.__cause__:
        exception = exception.__cause__
    sentence = str(getattr(exception, "error_message", None) or exception).strip()
    return f"{type(exception).__name__}: {sentence.partition(chr(10))[0]}"
