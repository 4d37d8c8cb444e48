"""The runner's server as the judge sees it: started, asked for children, killed.

Imports no torch: a command starts the server first, and its imports run beside the judge's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.judge.output import OutputPipe
from grader.runner import protocol
from grader.sandbox.levels import CACHE, SCRATCH, CannotStart, Device, Sandbox
from grader.sandbox.limits import Limits, Watchdog, go_first, prefer
from grader.sandbox.processes import descendants, inner_pid, kill_descendants

START_LIMIT_S = 180.0  # torch from a cold disk
SERVER_LIMIT_S = 20.0  # for the server itself to fork
LOOK_LIMIT_S = 5.0  # for the server itself to look for a child
END_LIMIT_S = 30.0  # for the kernel to end a killed sandbox; a process stuck in a driver cannot be killed


class RunnerBroken(Exception):
    """The runner's server does not start or answer: the machine's fault or ours, never the submission's."""


@dataclass(frozen=True)
class Line:
    """The judge's ends of one child: its process, the conversation, and what it prints."""

    pid: int  # as the server knows it
    process: int  # as the judge does
    conversation: socket.socket
    output: OutputPipe
    errors: OutputPipe


class RunnerServer:
    """The process that imports torch and triton once and forks children."""

    def __init__(self, device: Device, sandbox: Sandbox, gpus: Sequence[str] = ()) -> None:
        """Start a server for `device`, for "cuda" on the GPUs of these UUIDs. Does not wait for it."""
        self.device, self.sandbox, self.limits = device, sandbox, Limits.for_device(device)
        self.versions: dict[str, str] = {}
        self.errors = OutputPipe()
        self.control, theirs = socket.socketpair()
        try:
            self.process = sandbox.start(device, gpus, theirs.fileno(), self.errors.write)
        except CannotStart as error:
            raise RunnerBroken(f"the runner cannot be started: {error}") from None
        finally:
            theirs.close()
            self.errors.close_write()
        self.leader = self.process.pid  # the server's own process, once it is ready
        self.watchdog: Watchdog | None = None
        self.treatment = ""  # by the kernel: limits and priorities, once it is ready
        self.compiled_s = 0.0  # of its children, by their own word
        self.silent = False  # a submission can stop the server: one that has not answered is not asked again

    def await_ready(self) -> dict[str, str]:
        """Wait until the server has imported everything; its versions of torch, triton and numpy."""
        if not self.versions:
            hello = self._hear(START_LIMIT_S)
            self._take_hold()
            self.versions = {name: str(hello.get(name)) for name in ("torch", "triton", "numpy")}
        return self.versions

    def open(self, modules: Sequence[str] = ()) -> Line:
        """Fork a fresh child that finds these modules of the library's imported. Raises `RunnerBroken`."""
        self.await_ready()
        ours, theirs = socket.socketpair()
        output, errors = OutputPipe(), OutputPipe()
        try:
            protocol.send(
                self.control, {"verb": "open", "modules": modules}, deadline=time.monotonic() + SERVER_LIMIT_S
            )
            socket.send_fds(self.control, [b"!"], [theirs.fileno(), output.write, errors.write])
            pid = int(self._hear(START_LIMIT_S if modules else SERVER_LIMIT_S)["pid"])  # type: ignore[call-overload]
        except (protocol.ConversationError, RunnerBroken, OSError, KeyError, TypeError, ValueError) as error:
            self.silent = True
            raise RunnerBroken(f"the runner could not fork: {error}") from None
        finally:
            theirs.close()
            output.close_write()
            errors.close_write()
        assert self.watchdog
        self.watchdog.forget()
        process = self._seen_from_here(pid)
        go_first(process)
        return Line(pid, process, ours, output, errors)

    def how_ended(self, pid: int, seconds: float) -> dict[str, int] | None:
        """How a child ended, by the server's word: for messages only."""
        try:
            message = {"verb": "wait", "pid": pid, "seconds": seconds}
            protocol.send(self.control, message, deadline=time.monotonic() + LOOK_LIMIT_S)
            ended = self._hear(LOOK_LIMIT_S + seconds)["ended"]
        except (protocol.ConversationError, RunnerBroken, KeyError):
            self.silent = True
            return None
        return ended if isinstance(ended, dict) and all(type(number) is int for number in ended.values()) else None

    def end(self, pid: int) -> None:
        """Kill a child, and everything that it or an earlier one has started; empty a sandbox's scratch folders."""
        if not self.sound:
            return
        if self.sandbox.level == "bwrap":
            self.silent = not self._end_all()
        elif kill_descendants(self.leader):
            self.how_ended(pid, 1.0)
        else:
            self.silent = True  # something forks faster than it can be killed: it goes with the whole server

    def _end_all(self) -> bool:
        """Let the first process of a sandbox end all others. Whether it could."""
        try:
            kept = f"{SCRATCH[0]}/{CACHE}" if self.device == "cuda" else ""  # compiling takes a second a kernel
            message = {"verb": "end", "seconds": END_LIMIT_S, "scratch": SCRATCH, "kept": kept}
            protocol.send(self.control, message, deadline=time.monotonic() + LOOK_LIMIT_S)
            return self._hear(LOOK_LIMIT_S + END_LIMIT_S).get("clean") is True
        except (protocol.ConversationError, RunnerBroken):
            return False

    @property
    def sound(self) -> bool:
        """Whether it lives, answers, and is treated by the kernel as at first: a child can change that."""
        return not self.silent and self.process.poll() is None and self.treatment in ("", self._treatment_now())

    @property
    def excess(self) -> str | None:
        """What the last child took too much of: "memory", "processes" or "files"."""
        return self.watchdog.excess if self.watchdog else None

    def _take_hold(self) -> None:
        """Find the server's own process, before it has forked any other, and limit it and all that follow."""
        if self.sandbox.level == "bwrap":
            inside = [pid for pid in descendants(self.process.pid) if inner_pid(pid) == 1]
            if len(inside) != 1:
                raise RunnerBroken("the sandbox has no first process")
            [self.leader] = inside
        try:
            self.limits.apply(self.leader, self.sandbox.level)
        except OSError as error:
            raise RunnerBroken(f"the runner's limits cannot be set: {error}") from None
        self.treatment = self._treatment_now()
        self.watchdog = Watchdog(self.leader, self.limits, self._kill_excess)

    def _kill_excess(self, what: str) -> None:
        """Kill children that take too much of `what`; a fork bomb, or full scratch folders, with the server."""
        if self.process.poll() is not None:
            return
        if what != "memory":
            prefer(self.leader)  # or it waits for its turn behind all the others before it can die
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.leader, signal.SIGKILL)  # in a sandbox all others go with it, but only once it has gone
        kill_descendants(self.leader)

    def _seen_from_here(self, pid: int) -> int:
        """The child's number among the judge's processes."""
        found = [process for process in descendants(self.leader) if inner_pid(process) == pid]
        return found[0] if found else 0

    def _treatment_now(self) -> str:
        """Its limits, and how it is scheduled: on which processors, in which class, how nice."""
        try:
            files = [Path(f"/proc/{self.leader}/{name}").read_text() for name in ("limits", "oom_score_adj")]
            processors, policy = os.sched_getaffinity(self.leader), os.sched_getscheduler(self.leader)
            return f"{files} {processors} {policy} {os.getpriority(os.PRIO_PROCESS, self.leader)}"
        except OSError:
            return "gone"

    def close(self) -> None:
        """Kill the server and everything below it, and remove what it has left."""
        if self.watchdog:
            self.watchdog.close()
        if self.sandbox.level == "none":
            kill_descendants(self.leader)
        if self.process.poll() is None:  # then nobody else can have its number yet
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.leader, signal.SIGKILL)  # the first process of a sandbox takes all others with it
        self.control.close()
        try:
            self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            raise RunnerBroken("a process of the submission cannot be killed: is it stuck in a driver?") from None
        finally:
            self.sandbox.clean()

    def _hear(self, seconds: float) -> dict[str, object]:
        try:
            message, _ = protocol.receive(self.control, 0, time.monotonic() + seconds)
        except protocol.ConversationError as error:
            last_words = self.errors.text().strip()[-2000:]
            raise RunnerBroken(f"the runner's server does not answer: {error}\n{last_words}") from None
        if not isinstance(message, dict):
            raise RunnerBroken("the runner's server sent no object")
        return message
