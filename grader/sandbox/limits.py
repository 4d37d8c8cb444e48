"""How much a submission may take of the machine: rlimits on its processes, and a watch on their number and memory.

`RLIMIT_AS` and `RLIMIT_DATA` stay as they are: CUDA reserves far more address space than it uses.
"""

from __future__ import annotations

import contextlib
import os
import resource
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from grader.sandbox.levels import SCRATCH, Device, Level
from grader.sandbox.processes import descendants, memory_bytes

GIB = 1 << 30
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
LEAST_MEMORY = {"cpu": 4 * GIB, "cuda": 24 * GIB}  # on a GPU the largest inputs pass through the runner's memory
LOOK_EVERY_S, LOOK_AT_LEAST_EVERY_S = 0.1, 1.0
RESERVE_BYTES = GIB // 2  # of the machine's memory, which nobody may take
SHARE_OF_TIME = 0.05  # that looking may take where it is slow, with thousands of processes on the machine
BEFORE_ALL_OTHERS, BEHIND_THE_JUDGE = -20, 10  # of nice: a tenth of the processor, where somebody else wants it
FIRST_TO_GO = 1000  # of oom_score_adj: where the whole machine runs out of memory, the kernel kills this process


@dataclass(frozen=True)
class Limits:
    """What all processes of a submission may have together, or each."""

    memory_bytes: int  # together
    processes: int = 512  # together, threads counted; four ranks with gloo have about a hundred
    files: int = 100_000  # in scratch folders, together: each takes a kilobyte of the machine's memory
    file_bytes: int = GIB  # each file; as large as a shared-memory segment may be
    open_files: int = 4096  # each

    @classmethod
    def for_device(cls, device: Device) -> Limits:
        """Half of the machine's memory, and on small machines enough for the solutions."""
        total = PAGE_BYTES * os.sysconf("SC_PHYS_PAGES")
        return cls(max(total // 2, LEAST_MEMORY[device]))

    def apply(self, pid: int, level: Level) -> None:
        """Set the rlimits of a process, which those that it forks inherit."""
        limits = {
            resource.RLIMIT_FSIZE: self.file_bytes,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_CORE: 0,
        }
        if level == "bwrap":  # elsewhere the processes of the whole user count; root's never do
            limits[resource.RLIMIT_NPROC] = self.processes
            os.setpriority(os.PRIO_PROCESS, pid, BEHIND_THE_JUDGE)
        for limit, value in limits.items():
            _, hard = resource.prlimit(pid, limit)
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, limit, (value, value))


def go_first(pid: int) -> None:
    """Let the kernel kill this process before any other where memory runs out."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(FIRST_TO_GO))


def prefer(thread: int) -> None:
    """Give a thread, or a process's first one, the processor before all others, if we may: as root."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, BEFORE_ALL_OTHERS)


class Watchdog:
    """Looks at everything below a server, calls `kill` where it takes too much, and keeps in `excess` what that was."""

    def __init__(self, leader: int, limits: Limits, kill: Callable[[str], None]) -> None:
        self.leader, self.limits, self.kill = leader, limits, kill
        self.inherited = taken_bytes(leader)  # bytes that each child shares with the server until it changes them
        self.excess: str | None = None  # "memory", "processes" or "files", since `forget`
        self._over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def forget(self) -> None:
        """From now on it is another check's turn."""
        self.excess = None

    def close(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        pause_s = LOOK_EVERY_S
        prefer(threading.get_native_id())  # where processes have no limit on their number (root's), be faster than they
        while not self._over.wait(pause_s):
            start = time.monotonic()
            excess = self._look()
            pause_s = min(max(LOOK_EVERY_S, (time.monotonic() - start) / SHARE_OF_TIME), LOOK_AT_LEAST_EVERY_S)
            if excess:
                self.excess = excess
                self.kill(excess)

    def _look(self) -> str | None:
        family = descendants(self.leader)
        if sum(map(_threads, family)) > self.limits.processes:
            return "processes"
        taken = [taken_bytes(pid) for pid in family]
        if sum(max(taken_by_one - self.inherited, 0) for taken_by_one in taken) > self.limits.memory_bytes:
            return "memory"
        if max(map(_files_in_scratch, family), default=0) > self.limits.files:
            return "files"
        # What a child inherits and then changes is missing in that sum: so the machine itself is looked at as well.
        return "memory" if sum(taken) > self.limits.memory_bytes and _available() < RESERVE_BYTES else None


def _threads(pid: int) -> int:
    """How many threads a process has; none once it is gone."""
    with contextlib.suppress(OSError):
        return len(os.listdir(f"/proc/{pid}/task"))
    return 0


def taken_bytes(pid: int) -> int:
    """Bytes of memory that a process has and that no file stands behind, with what it shares with its parent.

    Not from `smaps_rollup`, which would tell shared memory apart: it waits for a lock that a process which forks
    without a pause never gives back.
    """
    return memory_bytes(pid, "RssAnon", "RssShmem")


def _files_in_scratch(pid: int) -> int:
    """How many files there are in the scratch folders that a confined process sees."""
    return sum(folder.f_files - folder.f_ffree for folder in _scratch(pid))


def scratch_bytes(pid: int) -> int:
    """Bytes of memory that files take in the scratch folders that a confined process sees."""
    return sum((folder.f_blocks - folder.f_bfree) * folder.f_frsize for folder in _scratch(pid))


def _scratch(pid: int) -> list[os.statvfs_result]:
    """The scratch folders that a confined process sees; none once it is gone, or where it is not confined."""
    with contextlib.suppress(OSError):  # without a sandbox, the root has no folder of the first name
        return [os.statvfs(f"/proc/{pid}/root{folder}") for folder in SCRATCH]
    return []


def _available() -> int:
    """Bytes of memory that the machine can still give away."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
