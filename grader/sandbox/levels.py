"""The levels of confinement: what they have in common, and the one that confines nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

RUNNER_FOLDER = Path(__file__).resolve().parent.parent / "runner"
Device = Literal["cpu", "cuda"]
Level = Literal["none", "bwrap"]
SCRATCH = ("/scratch", "/dev/shm")  # in a sandbox, the only folders that can be written
ALONE = "alone"  # the word for a runner that is no server, but one child
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"
CACHE = "cache"  # below the first of them: compiled kernels
SMALLEST_MAPPING_BYTES = 1 << 16  # of malloc: larger blocks go back to the kernel as soon as they are freed
GPU_VARIABLES = ("LD_LIBRARY_PATH", "TRITON_LIBCUDA_PATH")  # where the driver's libraries are, if nowhere usual


class CannotStart(Exception):
    """What a sandbox needs is not there."""


class Sandbox(Protocol):
    """Starts runner's servers, one after the other, for one submission."""

    level: Level

    def start(self, device: Device, gpus: Sequence[str], control: int, output: int) -> subprocess.Popen[bytes]:
        """Start a server: it speaks on the descriptor `control`, and prints to `output`. `gpus` are UUIDs.

        Raises `CannotStart`.
        """

    def seen_at(self, folder: Path) -> str:
        """Where the server's children see the submission's `folder`."""

    def clean(self) -> None:
        """Remove what a server has left, once it is dead."""


class Unconfined:
    """No confinement: the same processes with the judge's rights, in a scratch folder."""

    level: Level = "none"

    def __init__(self) -> None:
        self._scratch: Path | None = None

    def spawn(self, conversation: int, output: int, errors: int, modules: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a child without a server, on a CPU: it speaks on the descriptor `conversation`."""
        self._scratch = self._scratch or Path(tempfile.mkdtemp(prefix="runner-"))
        return subprocess.Popen(
            [*runner_command(str(RUNNER_FOLDER), conversation, "cpu"), ALONE, *modules],
            pass_fds=[conversation],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=self._scratch,
            env={"PATH": os.environ.get("PATH", "")} | environment("cpu", (), str(self._scratch)),
            start_new_session=True,
        )

    def start(self, device: Device, gpus: Sequence[str], control: int, output: int) -> subprocess.Popen[bytes]:
        self._scratch = Path(tempfile.mkdtemp(prefix="runner-"))
        kept = {name: os.environ[name] for name in ("PATH", "CC", "CUDA_HOME") if name in os.environ}
        return subprocess.Popen(
            runner_command(str(RUNNER_FOLDER), control, device),
            pass_fds=[control],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self._scratch,
            env=kept | environment(device, gpus, str(self._scratch)),
            start_new_session=True,
        )

    def seen_at(self, folder: Path) -> str:
        return str(folder)

    def clean(self) -> None:
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None


def runner_command(folder: str, control: int, device: Device) -> list[str]:
    """How Python runs the server: isolated from folders, packages and variables of the user, and without bytecode."""
    return [sys.executable, "-I", "-B", "-u", folder, str(control), device]


def environment(device: Device, gpus: Sequence[str], home: str) -> dict[str, str]:
    """All that a submission sees of the environment, but for `PATH`."""
    cache = f"{home}/{CACHE}"
    common = {
        "HOME": home, "TMPDIR": home, "USER": "runner", "LANG": "C.UTF-8", "XDG_CACHE_HOME": cache,
        "TRITON_CACHE_DIR": f"{cache}/triton", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor", "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": LOOPBACK, "NCCL_SOCKET_IFNAME": LOOPBACK,
        "MALLOC_MMAP_THRESHOLD_": str(SMALLEST_MAPPING_BYTES),
    }  # fmt: skip
    if device == "cpu":
        return common | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    kept = {name: os.environ[name] for name in GPU_VARIABLES if name in os.environ}
    return common | kept | {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(gpus), "CUDA_CACHE_PATH": f"{cache}/cuda",
        "NCCL_NVLS_ENABLE": "0",  # multicast is set up in the whole machine's fabric, for a few kilobytes
    }  # fmt: skip
