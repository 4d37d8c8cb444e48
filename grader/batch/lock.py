"""One batch at a time on a gradebook: a lock that its holder's death frees, on whatever it dies."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK = "lock"


class Locked(Exception):
    """Somebody else holds the lock, in one sentence."""


@contextmanager
def locked(grades: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises `Locked` with its holder's host and process number."""
    file = os.open(grades / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(file, 200, 0).decode(errors="replace").strip() or "unknown"
            raise Locked(f"another batch works on {grades}: {holder}") from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {platform.node()}\n".encode(), 0)
        yield
    finally:
        os.close(file)
