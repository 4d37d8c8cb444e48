"""How much memory a call takes, seen from outside the process that makes it.

On a CPU that is the memory of the runner's processes, looked at all the time, and the kernel's high-water mark of the
child (`VmHWM`, after 5 was written to `clear_refs`), which misses nothing but which the child can reset itself. On a
GPU it is the memory of the device that is in use by anybody, so the device must have no other user meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grader.sandbox.limits import taken_bytes
from grader.sandbox.processes import descendants

RESET_HIGH_WATER_MARK = "5"  # proc(5), of clear_refs
LOOK_EVERY_S = 0.001


@dataclass
class Footprint:
    """Bytes that were in use at most, beyond what was in use before."""

    bytes: int = 0


@contextmanager
def of_process(pid: int, leader: int) -> Iterator[Footprint]:
    """The memory of a child, and of all below its server, while this is entered."""

    def of_family() -> int:
        return sum(map(taken_bytes, descendants(leader)))

    found = Footprint()
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text(RESET_HIGH_WATER_MARK)
    before, resident = of_family(), _status(pid, "VmRSS")
    with _looking(of_family) as most:
        yield found
    found.bytes = max(most.bytes - before, _status(pid, "VmHWM") - resident, 0)


@contextmanager
def of_gpu(uuid: str) -> Iterator[Footprint]:
    """The memory of a GPU in use by anybody while this is entered."""
    from grader.sandbox.gpu import ManagedGpu

    found, gpu = Footprint(), ManagedGpu(uuid)
    before = gpu.used_bytes()
    with _looking(gpu.used_bytes) as most:
        yield found
    found.bytes = max(most.bytes - before, 0)


@contextmanager
def _looking(look: Callable[[], int]) -> Iterator[Footprint]:
    """The largest of the numbers seen while this is entered."""
    most, over = Footprint(look()), threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_EVERY_S):
            most.bytes = max(most.bytes, look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()
    most.bytes = max(most.bytes, look())


def _status(pid: int, name: str) -> int:
    """A line of `/proc/PID/status` in bytes; 0 once the process is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return 0
