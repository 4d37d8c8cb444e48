"""What this machine can do for the assignment, and how to mend the rest.

`Machine.here()` looks (torch and triton are read, never imported), `examine` judges, `render` prints.
Others ask `uses_gpu(machine)` and `can_run_kernels(machine)`: `None`, or the reason for `skipped`.
A new finding is a line in one of the functions between, or a new function in `BLOCKERS` (no kernel runs)
or `OTHERS`.  All text is ASCII, because it also goes through pipes and old terminals.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import sysconfig
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.sandbox.obstacles import Obstacle

TORCH, TRITON = "2.13.0", "3.7.1"  # the pins of pyproject.toml
TESTED_PAIRS = (((2, 13), (3, 7, 1)), ((2, 11), (3, 6, 0)))  # torch major.minor, triton
NEWEST_TRITON = (3, 7)  # the newest that is tested; in it block pointers only warn
WHEEL_ARCHITECTURES = ("x86_64", "aarch64")
OLDEST_GLIBC = (2, 28)  # the wheels' tag: manylinux_2_28
OLDEST_DRIVER = {12: "525", 13: "580"}  # by CUDA major version (NVIDIA, "CUDA Compatibility")
OLDEST_CARD_OF_CUDA_13 = (7, 5)  # compute capability (PyTorch, "CUDA support matrix")
OLDEST_TENSOR_CORES = (8, 0)  # for bfloat16, and for Triton at all (triton pull request 5066)
SMALL_SHARED_BYTES = 128 * 1024  # consumer cards have 99 KB, an A100 163, an H100 227
ON_THE_CPU = 'or stay on the CPU: CUDA_VISIBLE_DEVICES="" uv run python -m grader'
ELSEWHERE = "For the kernels use Docker (a Linux image), Colab or a Linux machine."
Level = Literal["ok", "note", "problem"]  # fine; a limit to know of; something to mend


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU, as its driver describes it."""

    name: str
    capability: tuple[int, int]  # compute capability: (9, 0) on an H100
    shared_bytes: int  # the most shared memory that one block can ask for ("opt-in")
    memory_bytes: int
    uuid: str = ""  # "GPU-…": the one name that means the same to every library


@dataclass(frozen=True)
class Machine:
    """What matters here of a machine.  Versions are as printed; `None` is "not there"."""

    system: str  # "Linux", "Darwin" (macOS), "Windows"
    architecture: str  # "x86_64", "aarch64", "arm64"
    python: str
    glibc: str | None
    wsl: bool  # Linux inside Windows
    torch: str | None
    torch_cuda: str | None  # "13.0"; None for a CPU wheel
    triton: str | None
    numpy: str | None
    nvidia_driver: bool  # its library can be loaded
    driver_cuda: str | None  # the newest CUDA that the driver supports
    gpus: tuple[Gpu, ...]  # those that CUDA_VISIBLE_DEVICES leaves; checks use the first
    compiler: str | None  # path of the C compiler that Triton would call
    python_headers: bool  # Python.h, which Triton's launchers include

    @classmethod
    def here(cls) -> Machine:
        """Looks at this machine.  It initialises the NVIDIA driver: fork for no CUDA work afterwards."""
        libc, libc_version = platform.libc_ver()
        nvidia_driver, driver_cuda, gpus = _ask_driver()
        return cls(
            system=platform.system(),
            architecture=platform.machine(),
            python=platform.python_version(),
            glibc=libc_version if libc == "glibc" else None,
            wsl="microsoft" in platform.release().lower(),
            torch=_installed("torch"),
            torch_cuda=_cuda_of_torch(),
            triton=_installed("triton"),
            numpy=_installed("numpy"),
            nvidia_driver=nvidia_driver,
            driver_cuda=driver_cuda,
            gpus=gpus,
            compiler=_find_compiler(),
            python_headers=Path(sysconfig.get_paths("posix_prefix")["include"], "Python.h").is_file(),
        )


@dataclass(frozen=True)
class Finding:
    """One sentence about the machine, and what to do about it."""

    level: Level
    sentence: str
    remedy: str = ""  # a command or a sentence


def examine(machine: Machine) -> list[Finding]:
    """All findings, in the order in which to read and mend them."""
    return [finding for look in (*BLOCKERS, *OTHERS) for finding in look(machine)]


def can_run_kernels(machine: Machine) -> str | None:
    """`None` if Triton kernels run here, on a GPU or interpreted; else the reason in one sentence."""
    findings = (finding for look in BLOCKERS for finding in look(machine))
    return next((finding.sentence for finding in findings if finding.level == "problem"), None)


def can_run_ranks(machine: Machine) -> str | None:
    """`None` if several ranks of a training run here, which takes no Triton; else the reason in one sentence."""
    if machine.system == "Windows":
        return "Ranks are processes that share sockets: on Windows use WSL."
    lacking = next((name for name in ("torch", "numpy") if getattr(machine, name) is None), None)
    return f"{lacking} is not installed: nothing can be checked." if lacking else None


def uses_gpu(machine: Machine) -> bool:
    """Whether kernels run on a GPU: one is visible, and both torch and the driver can use it."""
    linux_torch = machine.system == "Linux" and machine.torch is not None
    return linux_torch and bool(machine.gpus) and not any(_gpu_out_of_reach(machine))


def confinement(obstacle: Obstacle | None) -> Finding:
    """Whether submissions can be confined here, after a trial; only staff need it."""
    if obstacle is None:
        return Finding("ok", "Submissions can be confined (bubblewrap), as in grading.")
    sentence = (
        f"Submissions cannot be confined here: {obstacle.sentence}. Grading refuses to run; `check` needs no sandbox."
    )
    return Finding("note", sentence, obstacle.remedy)


def render(findings: list[Finding], console: Console) -> None:
    """Prints a row for each finding, its remedy below it."""
    styles = {"ok": "green", "note": "yellow", "problem": "bold red"}
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        table.add_row(Text(finding.level, style=styles[finding.level]), Text(finding.sentence))
        if finding.remedy:
            table.add_row("", Text(f"-> {finding.remedy}", style="bold"))
    console.print(table)


def _platform(machine: Machine) -> Iterator[Finding]:
    name, skipped = machine.system.replace("Darwin", "macOS"), "the kernel problems are skipped."
    under = " under WSL" if machine.wsl else ""
    yield Finding("ok", f"{name}{under} on {machine.architecture}, Python {machine.python}.")
    if _numbers(machine.python) < (3, 11):
        remedy = "uv sync, or: a new virtual environment with Python 3.11 or newer"
        yield Finding("problem", f"Python {machine.python} is too old: the grader needs 3.11.", remedy)
    if name == "Windows":
        remedy = "Use WSL: run `wsl --install`, and set the assignment up inside it."
        yield Finding("problem", f"Triton's wheels are for Linux: on Windows {skipped}", remedy)
    elif name != "Linux":
        yield Finding("problem", f"There is no Triton for {name}: {skipped}", ELSEWHERE)
    elif machine.triton is None and not _has_wheels(machine):
        kind = f"{machine.architecture} with {f'glibc {machine.glibc}' if machine.glibc else 'no glibc'}"
        yield Finding("problem", f"There is no Triton wheel for {kind}: {skipped}", ELSEWHERE)


def _packages(machine: Machine) -> Iterator[Finding]:
    if machine.torch is None:
        remedy = f"uv sync, or: pip install torch=={TORCH}"
        yield Finding("problem", "torch is not installed: nothing can be checked.", remedy)
    if machine.triton is None and _has_wheels(machine):
        remedy = f"uv sync, or: pip install triton=={TRITON}"
        yield Finding("problem", "Triton is not installed: the kernel problems are skipped.", remedy)
    if machine.numpy is None:
        remedy = "uv sync, or: pip install numpy"
        yield Finding("problem", "numpy is not installed: Triton's interpreter needs it.", remedy)
    elif _numbers(machine.triton)[:2] == (3, 6) and _numbers(machine.numpy) >= (2, 4):
        pair = f"numpy {machine.numpy} with triton {machine.triton}"
        level: Level = "note" if uses_gpu(machine) else "problem"  # nothing is interpreted on a GPU
        remedy = "uv sync, or: pip install 'numpy<2.4'"
        yield Finding(level, f"{pair} breaks every loop on the CPU.", remedy)


def _compiler(machine: Machine) -> Iterator[Finding]:
    if uses_gpu(machine) and machine.compiler is None:
        remedy = f"sudo apt install gcc libc6-dev, {ON_THE_CPU}"
        yield Finding("problem", "There is no C compiler: Triton calls gcc, clang or $CC on a GPU.", remedy)
    elif uses_gpu(machine) and not machine.python_headers:
        remedy = f"sudo apt install python3-dev, {ON_THE_CPU}"
        yield Finding("problem", "Python.h is missing: Triton compiles with it on a GPU.", remedy)


def _pair(machine: Machine) -> Iterator[Finding]:
    torch, triton = _numbers(machine.torch), _numbers(machine.triton)
    pair = f"torch {machine.torch} with triton {machine.triton}"
    remedy = f"uv sync, or: pip install torch=={TORCH} triton=={TRITON}"
    if not torch:
        return
    if not triton:
        yield Finding("ok", f"torch {machine.torch}.")
    elif triton[:2] > NEWEST_TRITON:
        sentence = f"{pair}: newer than the tested {TRITON}, and newer ones lose block pointers."
        yield Finding("note", sentence, remedy)
    elif (torch[:2], triton) in TESTED_PAIRS:
        yield Finding("ok", f"{pair}: a tested pair.")
    else:
        yield Finding("note", f"{pair}: not a tested pair.", remedy)


def _gpu_out_of_reach(machine: Machine) -> Iterator[Finding]:
    if machine.system != "Linux" or machine.torch is None or not machine.gpus:
        return
    gpu, cuda, driver = machine.gpus[0], _numbers(machine.torch_cuda), _numbers(machine.driver_cuda)
    torch = f"torch {machine.torch} (CUDA {machine.torch_cuda})"
    if not cuda:
        remedy = f"uv sync, or: pip install --force-reinstall torch=={TORCH}"
        yield Finding("problem", f"torch {machine.torch} is a CPU wheel and cannot use the GPU.", remedy)
    elif driver[:1] < cuda[:1]:  # a driver serves every CUDA of its own major version
        needed, found = f"needs a driver with CUDA {cuda[0]}.0", f"this one has CUDA {machine.driver_cuda}"
        newer = f"NVIDIA driver {OLDEST_DRIVER.get(cuda[0], f'for CUDA {cuda[0]}.0')} or newer"
        remedy = f"Install {newer}{' in Windows' if machine.wsl else ''}, {ON_THE_CPU}"
        yield Finding("problem", f"{torch} {needed} or newer, {found}: it cannot use the GPU.", remedy)
    elif cuda >= (13,) and gpu.capability < OLDEST_CARD_OF_CUDA_13:
        remedy = f"Use a newer GPU, {ON_THE_CPU}"
        yield Finding("problem", f"{torch} needs capability 7.5: it cannot use {_named(gpu)}.", remedy)


def _gpus(machine: Machine) -> Iterator[Finding]:
    for index, gpu in enumerate(machine.gpus):
        shared = f"{gpu.shared_bytes // 1024} KB of shared memory per block"
        yield Finding("ok", f"GPU {index}: {_named(gpu)}, {shared}, {gpu.memory_bytes / 1e9:.0f} GB.")
    if not uses_gpu(machine):
        return
    gpu = machine.gpus[0]
    if gpu.capability < OLDEST_TENSOR_CORES:
        lacks = "has no bfloat16 tensor cores: those cases are skipped, and Triton's products are slow"
        yield Finding("note", f"{_named(gpu)} {lacks}.", "Nothing to mend: float16 covers the same code.")
    if gpu.shared_bytes < SMALL_SHARED_BYTES:
        small = f"{gpu.shared_bytes // 1024} KB of shared memory per block (an H100: 227)"
        remedy = "When Triton raises OutOfResources, halve a side of the tile or num_stages."
        yield Finding("note", f"{gpu.name} has {small}: large tiles do not fit.", remedy)


def _where_kernels_run(machine: Machine) -> Iterator[Finding]:
    if can_run_kernels(machine) is not None:
        return
    if uses_gpu(machine):
        yield Finding("ok", "Kernels run on the GPU.")
        return
    remedy = "Check once more on a GPU before you hand in."
    if machine.nvidia_driver and not machine.gpus:
        remedy = "There is a driver: does `nvidia-smi` list a GPU, does CUDA_VISIBLE_DEVICES hide it?"
    reason = "The GPU cannot be used" if machine.gpus else "There is no GPU"
    skipped = "bfloat16, TF32, races, speed and the largest sizes are skipped"
    yield Finding("note", f"{reason}, so kernels are interpreted: values are checked; {skipped}.", remedy)


Look = Callable[[Machine], Iterator[Finding]]
BLOCKERS: tuple[Look, ...] = (_platform, _packages, _compiler)
OTHERS: tuple[Look, ...] = (_pair, _gpu_out_of_reach, _gpus, _where_kernels_run)


def _numbers(version: str | None) -> tuple[int, ...]:
    """The first three numbers: `"2.13.0+cu130"` is `(2, 13, 0)`; of `None` nothing."""
    return tuple(int(digits) for digits in re.findall(r"\d+", (version or "").split("+")[0])[:3])


def _named(gpu: Gpu) -> str:
    return f"{gpu.name} (capability {gpu.capability[0]}.{gpu.capability[1]})"


def _has_wheels(machine: Machine) -> bool:
    """Whether Triton's wheels fit: they are for Linux, which alone has a glibc."""
    return machine.architecture in WHEEL_ARCHITECTURES and _numbers(machine.glibc) >= OLDEST_GLIBC


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cuda_of_torch() -> str | None:
    """From `torch/version.py`, read as text."""
    try:
        text = Path(str(metadata.distribution("torch").locate_file("torch/version.py"))).read_text("utf-8")
    except (metadata.PackageNotFoundError, OSError):
        return None
    found = re.search(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _find_compiler() -> str | None:
    """As Triton looks for it: $CC alone if that is set, else gcc, else clang."""
    names = [os.environ["CC"]] if "CC" in os.environ else ["gcc", "clang"]
    return next(filter(None, map(shutil.which, names)), None)


def _ask_driver() -> tuple[bool, str | None, tuple[Gpu, ...]]:
    """Whether there is a driver, the CUDA it supports, and its visible GPUs, from its own library."""
    version, count = ctypes.c_int(), ctypes.c_int()
    try:
        cuda = ctypes.CDLL("nvcuda.dll" if platform.system() == "Windows" else "libcuda.so.1")
        cuda.cuDriverGetVersion(ctypes.byref(version))  # 12080 is 12.8
        supported = f"{version.value // 1000}.{version.value % 1000 // 10}" if version.value else None
        if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
            return True, supported, ()
        return True, supported, tuple(_describe(cuda, index) for index in range(count.value))
    except (OSError, AttributeError):  # no such library, or one without these functions
        return False, None, ()


def _describe(cuda: ctypes.CDLL, index: int) -> Gpu:
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name) - 1, device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    identity = (ctypes.c_uint8 * 16)()
    cuda.cuDeviceGetUuid(identity, device)

    def attribute(number: int) -> int:  # numbers of CUdevice_attribute in cuda.h
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    return Gpu(
        name.value.decode("ascii", "backslashreplace"),
        (attribute(75), attribute(76)),
        shared_bytes=attribute(97),
        memory_bytes=memory.value,
        uuid=f"GPU-{uuid.UUID(bytes=bytes(identity))}",
    )
