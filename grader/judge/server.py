"""The runner's server as the judge sees it: started, asked for children, killed.

Imports no torch: a command starts the server first, and its imports run beside the judge's own.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from grader.judge.output import OutputPipe
from grader.judge.processes import kill_descendants
from grader.runner import protocol

RUNNER_FOLDER = Path(__file__).resolve().parent.parent / "runner"
START_LIMIT_S = 180.0  # torch from a cold disk
SERVER_LIMIT_S = 20.0  # for the server itself to fork
LOOK_LIMIT_S = 5.0  # for the server itself to look for a child
KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "TRITON_LIBCUDA_PATH", "CC")


class RunnerBroken(Exception):
    """The runner's server does not start or answer: the machine's fault or ours, never the submission's."""


@dataclass(frozen=True)
class Line:
    """The judge's ends of one child: its process, the conversation, and what it prints."""

    pid: int
    conversation: socket.socket
    output: OutputPipe
    errors: OutputPipe


class RunnerServer:
    """The process that imports torch and triton once and forks a child for each check."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, scratch: Path, errors: OutputPipe):
        self.process, self.control, self.scratch, self.errors = process, control, scratch, errors
        self.versions: dict[str, str] = {}
        self.limits = ""  # resource limits, once it is ready
        self.silent = False  # a submission can stop the server: one that has not answered is not asked again

    @classmethod
    def start(cls, device: str) -> RunnerServer:
        """Start a server for `device` ("cpu": the interpreter, or "cuda"), without waiting for it."""
        ours, theirs = socket.socketpair()
        scratch = Path(tempfile.mkdtemp(prefix="runner-"))
        errors = OutputPipe()
        process = subprocess.Popen(
            [sys.executable, "-I", "-B", "-u", str(RUNNER_FOLDER), str(theirs.fileno()), device],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=errors.write,
            stderr=errors.write,
            cwd=scratch,
            env=_environment(device, scratch),
            start_new_session=True,
        )
        theirs.close()
        errors.close_write()
        return cls(process, ours, scratch, errors)

    def await_ready(self) -> dict[str, str]:
        """Wait until the server has imported everything; its versions of torch, triton and numpy."""
        if not self.versions:
            hello = self._hear(START_LIMIT_S)
            self.limits = self._limits_now()
            self.versions = {name: str(hello.get(name)) for name in ("torch", "triton", "numpy")}
        return self.versions

    def open(self) -> Line:
        """Fork a fresh child. Raises `RunnerBroken`."""
        self.await_ready()
        ours, theirs = socket.socketpair()
        output, errors = OutputPipe(), OutputPipe()
        try:
            protocol.send(self.control, {"verb": "open"}, deadline=time.monotonic() + SERVER_LIMIT_S)
            socket.send_fds(self.control, [b"!"], [theirs.fileno(), output.write, errors.write])
            pid = int(self._hear(SERVER_LIMIT_S)["pid"])  # type: ignore[call-overload]
        except (protocol.ConversationError, RunnerBroken, OSError, KeyError, TypeError, ValueError) as error:
            self.silent = True
            raise RunnerBroken(f"the runner could not fork: {error}") from None
        finally:
            theirs.close()
            output.close_write()
            errors.close_write()
        return Line(pid, ours, output, errors)

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
        """Kill a child, and everything that it or an earlier one has started."""
        kill_descendants(self.process.pid)
        if self.sound:
            self.how_ended(pid, 1.0)

    @property
    def sound(self) -> bool:
        """Whether it lives, answers, and has the limits that it was started with: a child can change its parent's."""
        return not self.silent and self.process.poll() is None and self.limits in ("", self._limits_now())

    def _limits_now(self) -> str:
        try:
            return Path(f"/proc/{self.process.pid}/limits").read_text()
        except OSError:
            return "gone"

    def close(self) -> None:
        """Kill the server and everything below it, and remove its scratch folder."""
        kill_descendants(self.process.pid)
        self.process.kill()
        self.process.wait()
        self.control.close()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _hear(self, seconds: float) -> dict[str, object]:
        try:
            message, _ = protocol.receive(self.control, 0, time.monotonic() + seconds)
        except protocol.ConversationError as error:
            last_words = self.errors.text().strip()[-2000:]
            raise RunnerBroken(f"the runner's server does not answer: {error}\n{last_words}") from None
        if not isinstance(message, dict):
            raise RunnerBroken("the runner's server sent no object")
        return message


def _environment(device: str, scratch: Path) -> dict[str, str]:
    """All that a submission sees of the environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    interpreter = {"TRITON_INTERPRET": "1"} if device == "cpu" else {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return kept | interpreter | {
        "HOME": str(scratch), "TMPDIR": str(scratch), "USER": "runner", "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": f"{scratch}/cache", "TRITON_CACHE_DIR": f"{scratch}/cache/triton",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
