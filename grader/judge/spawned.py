"""The runner where no server may fork children (macOS): each is started by itself, and imports torch for itself.

Unconfined, and for scenarios of ranks only: there is no Triton on such a machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from importlib.metadata import version

from grader.judge.output import OutputPipe
from grader.judge.server import Line, RunnerBroken, RunnerServer
from grader.sandbox.levels import Device, Unconfined
from grader.sandbox.limits import Limits

END_S = 5.0  # for the kernel to end a killed process


class SpawnedRunner:
    """What a `RunnerServer` offers, without a server."""

    device: Device = "cpu"
    sound = True
    excess: str | None = None  # nobody watches what they take
    compiled_s = 0.0  # it has no compiler

    def __init__(self, sandbox: Unconfined) -> None:
        self.sandbox, self.limits = sandbox, Limits.for_device(self.device)
        self.leader = os.getpid()  # no process is above the children but the judge
        self.children: dict[int, subprocess.Popen[bytes]] = {}

    def await_ready(self) -> dict[str, str]:
        """The version of torch, which children import from where the judge does."""
        return {"torch": version("torch"), "triton": "none", "numpy": version("numpy")}

    def open(self, modules: Sequence[str] = ()) -> Line:
        """Start a child that imports these modules of the library's first. Does not wait for it."""
        ours, theirs = socket.socketpair()
        output, errors = OutputPipe(), OutputPipe()
        try:
            child = self.sandbox.spawn(theirs.fileno(), output.write, errors.write, modules)
        except OSError as error:
            raise RunnerBroken(f"the runner cannot be started: {error}") from None
        finally:
            theirs.close()
            output.close_write()
            errors.close_write()
        self.children[child.pid] = child
        return Line(child.pid, child.pid, ours, output, errors)

    def how_ended(self, pid: int, seconds: float) -> dict[str, int] | None:
        """How a child ended, or None if it has not within `seconds`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.children[pid].wait(seconds)
            return {"signal": -code} if code < 0 else {"code": code}
        return None

    def end(self, pid: int) -> None:
        """Kill a child, and everything that it has started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        self.how_ended(pid, END_S)

    def close(self) -> None:
        """Kill all children, and remove what they have left."""
        for pid in self.children:
            self.end(pid)
        self.sandbox.clean()


Runner = RunnerServer | SpawnedRunner
