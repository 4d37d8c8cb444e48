"""How much memory a call takes, seen from outside the process that makes it.

On a CPU by the kernel's high-water mark of the process (`VmHWM`, after 5 was written to `clear_refs`); on a GPU by the
memory of the device that is in use, looked at all the time, so the GPU must have no other user meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grader.judge.server import RunnerBroken

RESET_HIGH_WATER_MARK = "5"  # proc(5), of clear_refs


@dataclass
class Footprint:
    """Bytes that a process, or a GPU, had in use at most, beyond what was in use before."""

    bytes: int = 0


@contextmanager
def of_process(pid: int) -> Iterator[Footprint]:
    """The resident memory of a process while this is entered. Raises `RunnerBroken` if it cannot be seen."""
    found = Footprint()
    try:
        Path(f"/proc/{pid}/clear_refs").write_text(RESET_HIGH_WATER_MARK)
        before = _status(pid, "VmRSS")
    except (OSError, ValueError) as error:
        raise RunnerBroken(f"the runner's memory cannot be seen: {error}") from None
    yield found
    found.bytes = max(_status(pid, "VmHWM") - before, 0)


@contextmanager
def of_gpu(uuid: str) -> Iterator[Footprint]:
    """The memory of a GPU in use by anybody while this is entered."""
    from grader.sandbox.gpu import Gpu, MostUsed

    found, gpu = Footprint(), Gpu(uuid)
    before = gpu.used_bytes()
    with MostUsed(gpu) as most:
        yield found
    found.bytes = max(most.bytes - before, 0)


def _status(pid: int, name: str) -> int:
    """A line of `/proc/PID/status` in bytes. Raises `ValueError` if it is not there."""
    for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"no {name}")
