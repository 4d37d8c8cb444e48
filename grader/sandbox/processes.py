"""Find and kill whatever a submission has left running, by `/proc`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator

MOST_BYTES = 1 << 16  # of a file that is read here


def descendants(pid: int) -> set[int]:
    """The processes below the session leader `pid`, and those of its session.

    A runner's server adopts the orphans of its children; its session tells what is left where it was killed itself.
    None where there is no `/proc`.
    """
    children: dict[int, list[int]] = {}
    queue, found = [pid], {pid}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and (fields := _status(f"/proc/{name}")):
            process, parent, session = int(name), int(fields[1]), int(fields[3])
            children.setdefault(parent, []).append(process)
            queue += [process] if session == pid else []
    while queue:
        below = set(children.get(process := queue.pop(), [])) - found
        found |= below | {process}
        queue += below
    return found - {pid}


def kill_descendants(pid: int, patience_s: float = 1.0) -> bool:
    """Kill everything below `pid`, again until nothing new has appeared. Whether all of it is gone."""
    give_up = time.monotonic() + patience_s
    while alive := [child for child in descendants(pid) if _running(child)]:
        if time.monotonic() >= give_up:
            return False
        for child in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone, or runs a set-user-id program
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)
    return True


def is_stopped(pid: int) -> bool:
    """Whether no thread of a process does anything until it is told to go on; one that is gone does nothing either."""
    return all(not (fields := _status(thread)) or fields[0] in ("T", "Z", "X") for thread in _threads(pid))


def running_ns(pids: Iterable[int]) -> int:
    """Nanoseconds that all threads of these processes have had of a processor."""
    total = 0
    for pid in pids:
        for thread in _threads(pid):
            with contextlib.suppress(OSError, ValueError):
                total += int(_read(f"{thread}/schedstat").split()[0])
    return total


def inner_pid(pid: int) -> int:
    """The number that a process has in its own pid namespace; 0 once it is gone."""
    with contextlib.suppress(OSError):
        for line in _read(f"/proc/{pid}/status").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return 0


def memory_bytes(pid: int, *names: str) -> int:
    """The sum of these lines of `/proc/PID/status` ("RssAnon", ...) in bytes; 0 once the process is gone.

    Of any living thread: where the first one has ended and others have not, the process's own file has no such lines.
    """
    for thread in _threads(pid):
        found = []
        with contextlib.suppress(OSError):
            lines = _read(f"{thread}/status").splitlines()
            found = [int(line.split()[1]) * 1024 for line in lines if line.partition(":")[0] in names]
        if found:
            return sum(found)
    return 0


def _running(pid: int) -> bool:
    """Whether any thread of a process lives: the first one may have ended alone."""
    return any((fields := _status(thread)) and fields[0] not in ("Z", "X") for thread in _threads(pid))


def _threads(pid: int) -> Iterator[str]:
    """The folders of a process's threads in `/proc`, the first one's first; none once it is gone."""
    with contextlib.suppress(OSError):
        yield from (f"/proc/{pid}/task/{thread}" for thread in os.listdir(f"/proc/{pid}/task"))


def _status(folder: str) -> list[str]:
    """The fields of `/proc/PID/stat` after the name: state, parent, group, session, … Empty if the process is gone."""
    try:
        return _read(f"{folder}/stat").rpartition(")")[2].split()
    except OSError:
        return []


def _read(path: str) -> str:
    """A short file of `/proc`: in a tenth of the time of Python's own files, which counts between timed calls."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, MOST_BYTES).decode(errors="replace")
    finally:
        os.close(descriptor)
