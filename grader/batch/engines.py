"""What an engine is: it runs jobs on slots, and knows nothing of students, points or retries, which are the driver's.

A job is a tree and what to check; what comes back is the JSON text of a result, or an `EngineError`, which is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

CPU = "cpu"
MOST_REPLY_BYTES = 4 << 20  # of a result

Told = Callable[[int, int, str], None]  # checks that are done, of how many, and the one that runs


class EngineError(Exception):
    """A job without a result, in one sentence: ours, whatever the submission did."""


@dataclass(frozen=True)
class Slot:
    """A place where one job runs at a time."""

    name: str  # the same in each batch on this machine
    kind: str  # "cpu", or the GPU's product name
    gpu: str | None = None  # its UUID
    cpus: tuple[int, ...] = ()  # the cores; all where empty


@dataclass(frozen=True)
class Job:
    """What a supervisor is asked for."""

    submission: str
    attempt: int
    files: Mapping[str, bytes]  # Python sources by their path below the package
    tree_sha256: str
    checks_sha256: str
    problems: tuple[str, ...]
    deadline_s: float  # without a word from it for so long, it is killed


class Engine(Protocol):
    """Runs jobs."""

    def slots(self) -> list[Slot]:
        """Those that can be used now."""

    def submit(self, job: Job, slot: Slot, told: Told) -> Future[str]:
        """Start a job on a free slot: the JSON text of its result, or `EngineError`. Never waits for it."""

    def close(self, kill: bool = False) -> None:
        """Wait for what runs, or kill it."""
