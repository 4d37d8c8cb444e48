"""The answer is right. A process stays behind that nobody waits for: it ignores signals and computes for a minute."""

import os
import signal
import time
from pathlib import Path

from . import honest

LASTS_S = 60.0


def prove_that_nobody_else_is_here():
    first = Path("/proc/1/cmdline").read_bytes()
    inside = Path(__file__).is_relative_to("/submission") and Path.home() == Path("/scratch") and os.getppid() == 1
    if not inside or b"/runner" not in first:
        raise RuntimeError("this is no sandbox: somebody would be harmed")


def survive():
    os.setpgid(0, 0)  # a session of its own is refused
    if os.fork():
        os._exit(0)
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    end = time.monotonic() + LASTS_S
    while time.monotonic() < end:
        pass
    os._exit(0)


def gelu(x):
    prove_that_nobody_else_is_here()
    child = os.fork()
    if child == 0:
        survive()
    os.waitpid(child, 0)
    return honest.gelu(x)
