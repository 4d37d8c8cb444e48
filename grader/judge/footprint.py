"""How much memory a call takes, seen from outside the process that makes it.

On a CPU that is the memory of the runner's processes and of files in a sandbox's scratch folders, looked at all the
time, and the kernel's high-water mark of the child (`VmHWM`, after 5 was written to `clear_refs`), which misses nothing
but which the child can reset itself. What was taken before the call, at import, counts beyond an allowance. Of several
ranks it is that of the one that takes most. On a GPU it is the memory of the device that is in use by anybody, so the
device must have no other user meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grader.sandbox.limits import scratch_bytes, taken_bytes
from grader.sandbox.processes import descendants, memory_bytes

RESET_HIGH_WATER_MARK = "5"  # proc(5), of clear_refs
LOOK_EVERY_S = 0.001
IMPORTS_BYTES = 6 << 20  # that a module and a first call may keep; solutions and fixtures keep 1 to 3.2 MiB


@dataclass
class Footprint:
    """Bytes that were in use at most, beyond what was in use before."""

    bytes: int = 0


@contextmanager
def of_processes(when_forked: Mapping[int, int], leader: int) -> Iterator[Footprint]:
    """The memory of one of these children, and of all that is below their server beside them, while this is entered.

    `when_forked` is what each child had in bytes before it had loaded anything: see `taken_bytes`.
    """

    def beside() -> int:
        family = descendants(leader)
        return sum(map(taken_bytes, family - set(when_forked))) + max(map(scratch_bytes, family), default=0)

    def look() -> int:
        return max(taken_bytes(pid) - before[pid] for pid in before) + beside()

    found, beside_before = Footprint(), beside()
    for pid in when_forked:
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text(RESET_HIGH_WATER_MARK)
    resident = {pid: memory_bytes(pid, "VmRSS") for pid in when_forked}
    before = {
        pid: min(taken_bytes(pid) + beside_before, at_first + IMPORTS_BYTES) for pid, at_first in when_forked.items()
    }
    with _looking(look) as most:
        yield found
    found.bytes = max(most.bytes, *(memory_bytes(pid, "VmHWM") - resident[pid] for pid in resident), 0)


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
