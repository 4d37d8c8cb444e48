"""The engine of this machine: a slot for each GPU, or some for its cores, and a supervisor process for each job.

A thread for each slot lives as long as the engine: a supervisor's children die with the thread that started them.
The death of a supervisor fails one job, and no other notices.
"""

from __future__ import annotations

import base64
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.batch.engines import CPU, MOST_REPLY_BYTES, EngineError, Job, Slot, Told
from grader.doctor import Gpu, Machine, uses_gpu
from grader.judge.output import clean
from grader.rubric import ROOT

CORES_A_SLOT = 4
MOST_USED_BYTES = 2 << 30  # of a GPU's memory, by its driver
SUPERVISOR = (sys.executable, "-m", "grader.batch.supervisor")
LAST_WORDS_BYTES = 2000


def slots_of(machine: Machine, wanted: int | None = None, busy: Callable[[Gpu], str] = lambda gpu: "") -> list[Slot]:
    """One for each GPU that is not busy, or `max(1, cores // 4)` groups of cores; or as many of either as are wanted.

    On a machine with GPUs that are all busy there is none. `busy` says why a GPU cannot be used; empty if it can.
    """
    host, cores = platform.node(), sorted(os.sched_getaffinity(0))
    if uses_gpu(machine):
        gpus = [gpu for gpu in machine.gpus if not busy(gpu)][:wanted]
        share = max(1, len(cores) // max(len(gpus), 1))
        return [
            Slot(f"{host}/{gpu.uuid}", gpu.name, gpu.uuid, tuple(cores[at * share : (at + 1) * share]))
            for at, gpu in enumerate(gpus)
        ]
    count = min(wanted or max(1, len(cores) // CORES_A_SLOT), len(cores))
    share = len(cores) // count
    groups = [tuple(cores[at * share : (at + 1) * share]) for at in range(count)]
    return [Slot(f"{host}/cpu{group[0]}-{group[-1]}", CPU, None, group) for group in groups]


def why_busy(gpu: Gpu) -> str:
    """Why a GPU cannot be used: others compute on it, or hold its memory; empty if it can."""
    from grader.sandbox.gpu import ManagedGpu

    there = ManagedGpu(gpu.uuid)
    if count := there.processes():
        return f"{count} processes compute on it"
    used = there.used_bytes()
    return f"{used >> 30} GiB of its memory are in use" if used > MOST_USED_BYTES else ""


@dataclass
class Local:
    """Supervisors on this machine."""

    all_slots: Sequence[Slot]
    scratch: Path  # for temporary files, and what supervisors print
    confined: bool = True
    command: Sequence[str] = SUPERVISOR
    _threads: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _killed: bool = False

    def slots(self) -> list[Slot]:
        return list(self.all_slots)

    def submit(self, job: Job, slot: Slot, told: Told) -> Future[str]:
        thread = self._threads.setdefault(slot.name, ThreadPoolExecutor(1, thread_name_prefix=slot.name))
        return thread.submit(self._run, job, slot, told)

    def close(self, kill: bool = False) -> None:
        self._killed = kill
        for process in list(self._running.values()) if kill else ():
            _kill(process)
        for thread in self._threads.values():
            thread.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: Job, slot: Slot, told: Told) -> str:
        """Raises `EngineError`."""
        if self._killed:
            raise EngineError("the batch was stopped")
        log = self.scratch / f"{slot.name.rpartition('/')[2]}.log"
        with log.open("w+b") as printed:
            process = subprocess.Popen(
                self.command, cwd=ROOT, env=self._environment(slot), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=printed, start_new_session=True,  # Ctrl-C is the driver's
            )  # fmt: skip
            self._running[slot.name] = process
            try:
                if slot.cpus:
                    os.sched_setaffinity(process.pid, slot.cpus)  # it imports nothing before it has its job
                return _conversation(process, job, self.confined, told)
            except EngineError as error:
                raise EngineError(f"{error}{_last_words(log)}") from None
            finally:
                _kill(process)
                process.wait()
                for pipe in (process.stdin, process.stdout):
                    with suppress(OSError):
                        pipe.close()  # type: ignore[union-attr]
                del self._running[slot.name]

    def _environment(self, slot: Slot) -> dict[str, str]:
        own = {"TMPDIR": str(self.scratch)} | ({"CUDA_VISIBLE_DEVICES": slot.gpu} if slot.gpu else {})
        return os.environ | own | ({"CUDA_VISIBLE_DEVICES": ""} if slot.kind == CPU else {})


def _conversation(process: subprocess.Popen[bytes], job: Job, confined: bool, told: Told) -> str:
    """Hand the job over, and hear until there is a result. Raises `EngineError`."""
    assert process.stdin
    assert process.stdout
    silence = _Silence(process, job.deadline_s)
    try:
        process.stdin.write(json.dumps(_header(job, confined)).encode() + b"\n")
        process.stdin.flush()
        while line := process.stdout.readline(MOST_REPLY_BYTES + 1):
            silence.broken()
            said = _understood(line)
            if "result" in said:
                return json.dumps(said["result"])
            if "error" in said:
                raise EngineError(clean(str(said["error"]), 1000))
            told(int(said["done"]), int(said["of"]), clean(str(said["check"]), 100))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise EngineError(f"the supervisor's words are none: {clean(str(error), 200)}") from None
    finally:
        silence.over()
    process.wait()
    if silence.lasted:
        raise EngineError(f"the supervisor said nothing for {job.deadline_s:.0f} s and was killed")
    raise EngineError(f"the supervisor ended with {process.returncode}, without a result")


def _understood(line: bytes) -> dict[str, Any]:
    """Raises `ValueError`."""
    if len(line) > MOST_REPLY_BYTES:
        raise ValueError(f"more than {MOST_REPLY_BYTES >> 20} MiB in one line")
    said = json.loads(line)
    if not isinstance(said, dict):
        raise ValueError("no object")
    return said


def _header(job: Job, confined: bool) -> Mapping[str, object]:
    files = {name: base64.b64encode(content).decode() for name, content in job.files.items()}
    return {
        "submission": job.submission, "attempt": job.attempt, "files": files, "tree_sha256": job.tree_sha256,
        "checks_sha256": job.checks_sha256, "problems": job.problems, "confined": confined,
    }  # fmt: skip


class _Silence:
    """Kills a process that says nothing for too long."""

    def __init__(self, process: subprocess.Popen[bytes], most_s: float) -> None:
        self.process, self.most_s, self.lasted = process, most_s, False
        self.broken()

    def broken(self) -> None:
        """It has said something: the time begins anew."""
        self.over()
        self._timer = threading.Timer(self.most_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    def over(self) -> None:
        if timer := getattr(self, "_timer", None):
            timer.cancel()

    def _end(self) -> None:
        self.lasted = True
        _kill(self.process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a supervisor and its group; what is confined dies with it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_words(log: Path) -> str:
    """The end of what a supervisor has printed, for staff."""
    words = clean(log.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace")).strip()
    return f". It printed last:\n{words}" if words else ""
