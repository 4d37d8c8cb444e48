"""What the solutions' kernels are on a Hopper GPU: they compile, fit into its shared memory, and keep to registers."""

import multiprocessing
import re
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
import torch
from triton import knobs
from triton.runtime.jit import JITFunction

from solutions import flash_attention
from tests.staff.compiling import STARTS, Compiled, Launch, compiled, kept, launches, prepare
from tests.staff.conftest import ROOT

pytestmark = pytest.mark.skipif(knobs.runtime.interpret, reason="the interpreter compiles nothing")

SHARED_BYTES = 232_448  # of a program: 227 KiB, CUDA C++ Programming Guide, compute capability 9.0


@dataclass(frozen=True)
class Exemption:
    """What launches of one kernel may do that others may not."""

    kernel: str
    options: dict[str, Any]
    """Those of the launch that have to be so; `words` is what is particular about its arguments."""
    spilled: int = 0
    """Bytes, an upper limit."""
    serialised: bool = False
    """Whether products of matrices may wait for each other."""

    def covers(self, launch: Launch) -> bool:
        has = {**launch.options, "words": launch.words}
        return launch.kernel == self.kernel and self.options.items() <= has.items()


def keys_launch(head_dim: int, tile: flash_attention.Tile, words: str = "") -> dict[str, Any]:
    return {"BLOCK_DIM": head_dim, **tile.options, "words": words}


FORWARD, KEYS = "attention_forward_kernel", "attention_backward_keys_kernel"
KEYS_64, KEYS_128 = flash_attention.Tile(128, 64, 4, 2), flash_attention.Tile(64, 64, 4, 2)
SHARED_KEYS = "4 heads share keys"

EXEMPTIONS = (
    # The ptxas of triton 3.7.1 stops at 80 registers, 4 short; that of 3.6 does not.
    Exemption("matmul_pointer_kernel",
              {"BLOCK_COLUMNS": 128, "BLOCK_INNER": 32, "ACTIVATION": None, "words": "a transposed"}, spilled=16),
    # dk and dv take 128 of 255 registers, scores and their gradients 64. With 8 warps nothing is spilled, and all is
    # slower (docs/measurements.md). At most 3 loads are in the loop over queries.
    Exemption(KEYS, keys_launch(128, KEYS_128), spilled=48),
    # What the loop over heads needs waits in memory for the one over queries, once for a head.
    Exemption(KEYS, keys_launch(128, KEYS_128, SHARED_KEYS), spilled=320),
    Exemption(KEYS, keys_launch(64, KEYS_64, SHARED_KEYS), spilled=336),
    # Other tiles' products wait, too: those of 64 x 64, which is slower (docs/measurements.md), and of 8 warps.
    Exemption(KEYS, keys_launch(64, KEYS_64), serialised=True),
)  # fmt: skip


def faults(launch: Launch, result: Compiled, exemptions: tuple[Exemption, ...] = EXEMPTIONS) -> list[str]:
    """A sentence for each thing that is wrong with a launch."""
    if result.error:
        return [f"{launch} does not compile: {result.error}"]
    covering = [exemption for exemption in exemptions if exemption.covers(launch)]
    may_spill = max((exemption.spilled for exemption in covering), default=0)
    found = []
    if result.shared > SHARED_BYTES:
        found.append(f"{launch} takes {result.shared} bytes of shared memory, and there are {SHARED_BYTES}")
    if result.spilled > may_spill:
        found.append(
            f"{launch} has {result.registers} registers and spills {result.spilled} bytes, and may spill {may_spill}"
        )
    if result.serialised and not any(exemption.serialised for exemption in covering):
        found.append(f"{launch} has products of matrices that wait for each other: ptxas warns {result.serialised}")
    return found


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """Two processes that compile. They are started anew: this one may know a GPU, and has a cache."""
    cache = str(tmp_path_factory.mktemp("compiled"))
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), prepare, (cache,)) as pool:
        yield pool


@pytest.mark.parametrize("problem", STARTS)
def test_kernels_compile_for_a_hopper_gpu_and_keep_to_its_memory_and_registers(
    problem: str, compilers: Executor
) -> None:
    started = launches(problem)
    results = compilers.map(compiled, started)
    found = [fault for pair in zip(started, results, strict=True) for fault in faults(*pair)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("problem", sorted(path.stem for path in (ROOT / "solutions").glob("[!_]*.py")))
def test_every_kernel_of_a_solution_is_compiled(problem: str) -> None:
    names = vars(import_module(f"solutions.{problem}"))
    kernels = {name: value for name, value in names.items() if name.endswith("_kernel")}
    assert all(isinstance(kernel, JITFunction) for kernel in kernels.values())
    started = launches(problem) if problem in STARTS else []
    assert {launch.kernel for launch in started} == set(kernels)


def test_every_exemption_is_for_a_launch() -> None:
    started = [launch for problem in STARTS for launch in launches(problem)]
    unused = [exemption for exemption in EXEMPTIONS if not any(map(exemption.covers, started))]
    assert not unused


def first_launch(kernel: str, head_dim: int) -> Launch:
    of_kernel = (launch for launch in kept("flash_attention", torch.bfloat16) if launch.kernel == kernel)
    return next(launch for launch in of_kernel if launch.options["HEAD_DIM"] == head_dim)


@pytest.mark.parametrize(
    ("table", "kernel", "tile", "said"),
    [
        ("KEYS_TILES", KEYS, flash_attention.Tile(64, 128, 8, 2), r"spills \d{3} bytes, and may spill 0"),
        ("FORWARD_TILES", FORWARD, flash_attention.Tile(128, 8, 4, 1), r"does not compile: .* K >= 16"),
        # q, and nine times the keys and values of a tile: 32 KiB and 9 * 32 KiB
        ("FORWARD_TILES", FORWARD, flash_attention.Tile(128, 64, 8, 9),
         "takes 327680 bytes of shared memory, and there are 232448"),
    ],
    ids=["spills", "does not compile", "too much shared memory"],
)  # fmt: skip
def test_a_tile_that_does_not_fit_is_told_with_its_kernel_and_number(
    table: str, kernel: str, tile: flash_attention.Tile, said: str, compilers: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(getattr(flash_attention, table), 128, tile)
    launch = first_launch(kernel, head_dim=128)
    [fault] = faults(launch, compilers.submit(compiled, launch).result())
    assert fault.startswith(f"{kernel} (bfloat16, IS_CAUSAL=False, HEAD_DIM=128,")
    assert f"BLOCK_QUERIES={tile.queries}, BLOCK_KEYS={tile.keys}, num_warps={tile.warps}" in fault
    assert re.search(said, fault), fault


def test_serialised_products_are_told_where_they_are_not_exempt(compilers: Executor) -> None:
    launch = first_launch(KEYS, head_dim=64)
    [fault] = faults(launch, compilers.submit(compiled, launch).result(), exemptions=())
    assert fault.startswith(f"{KEYS} (bfloat16, IS_CAUSAL=False, HEAD_DIM=64,")
    assert fault.endswith("wait for each other: ptxas warns C7515")
