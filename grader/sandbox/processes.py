"""Find and kill whatever a submission has left running, by `/proc`."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """The processes below the session leader `pid`, and those of its session.

    A runner's server adopts the orphans of its children; its session tells what is left where it was killed itself.
    """
    children: dict[int, list[int]] = {}
    queue, found = [pid], {pid}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _status(entry)):
            process, parent, session = int(entry.name), int(fields[1]), int(fields[3])
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


def inner_pid(pid: int) -> int:
    """The number that a process has in its own pid namespace; 0 once it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return 0


def _running(pid: int) -> bool:
    fields = _status(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in ("Z", "X")


def _status(entry: Path) -> list[str]:
    """The fields of `/proc/PID/stat` after the name: state, parent, group, session, … Empty if the process is gone."""
    try:
        return (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
