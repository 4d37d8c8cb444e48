"""Find and kill whatever a submission has left running, by `/proc`."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """The processes below `pid`, found by parent: a runner's server adopts the orphans of its children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_descendants(pid: int, patience_s: float = 1.0) -> int:
    """Kill everything below `pid`, again until nothing new has appeared. How many died."""
    killed: set[int] = set()
    give_up = time.monotonic() + patience_s
    while (alive := [child for child in descendants(pid) if _running(child)]) and time.monotonic() < give_up:
        for child in alive:
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                continue
        killed.update(alive)
        time.sleep(0.002)
    return len(killed)


def _parent(entry: Path) -> int | None:
    fields = _status(entry)
    return int(fields[1]) if fields else None


def _running(pid: int) -> bool:
    fields = _status(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in ("Z", "X")


def _status(entry: Path) -> list[str]:
    """The fields of `/proc/PID/stat` after the name: state, parent, … Empty for a process that is gone."""
    try:
        return (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
