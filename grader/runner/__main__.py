"""The untrusted side: a server that imports torch and triton, and forks a child for each check.

Started as `python -I -B RUNNER_FOLDER DESCRIPTOR DEVICE`. The server runs no tensor operation and touches
no driver (one parallel operation before a fork, and the children hang), and it never sees a submission.
"""

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import shutil
import signal
import socket
import sys
import time
import traceback
import warnings
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36  # linux/prctl.h
CONNECTION_LOST = os.EX_IOERR  # exit status of a child that can no longer speak: the judge hung up, or the student did


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(control.fileno(), False)
    gc.disable()  # a fifth of the import time is garbage collection that finds nothing
    if sys.argv[3:]:
        be_alone(control, sys.argv[4:])
    import estimate  # noqa: F401  (imported here, as all of these, so that children find them when the path is gone)
    import numpy
    import probe  # noqa: F401
    import protocol
    import scenario  # noqa: F401
    import timing  # noqa: F401
    import torch
    import triton
    import verbs  # noqa: F401

    if sys.argv[2] == "cpu":
        import watch  # noqa: F401

    forget_this_folder()
    gc.enable()
    gc.freeze()
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)  # no child can trace the server, or read its memory
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a first process is spared what it has no handler for
    versions = {"torch": torch.__version__, "triton": triton.__version__, "numpy": numpy.__version__}
    protocol.send(control, {"status": "ready", **versions})
    serve(control)


def serve(control: socket.socket) -> None:
    """Obey the judge: `open` forks a child with its socket and two pipes, `wait` tells how it ended, `end` ends all."""
    import protocol

    while True:
        try:
            message, _ = protocol.receive(control, payload_limit=0)
        except protocol.Closed:
            return
        if message["verb"] == "open":
            _, descriptors, _, _ = socket.recv_fds(control, 1, 3)
            for module in message["modules"]:
                importlib.import_module(module)
            pid = os.fork()
            if pid == 0:
                control.close()
                be_a_child(*descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            protocol.send(control, {"status": "opened", "pid": pid})
        elif message["verb"] == "wait":
            protocol.send(control, {"ended": wait(message["pid"], message["seconds"])})
        else:
            protocol.send(control, {"clean": end(message["seconds"], message["scratch"], message["kept"])})


def forget_this_folder() -> None:
    """Take this folder off the path: nothing here shadows what a submission imports."""
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))


def be_alone(conversation: socket.socket, modules: list[str]) -> None:
    """Be a child without a server: for machines without Triton, and where nobody may fork."""
    import scenario  # noqa: F401
    import verbs  # noqa: F401

    for module in modules:
        importlib.import_module(module)
    forget_this_folder()
    gc.enable()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)
    answer(conversation)


def be_a_child(conversation: int, output: int, errors: int) -> None:
    """Serve one check, then leave without unwinding into the server's code."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # the judge looks at its memory
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for descriptor, standard in ((output, 1), (errors, 2)):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.makedirs(os.environ["HOME"], exist_ok=True)
    os.chdir(os.environ["HOME"])  # an earlier check may have removed the scratch folder
    warnings.filterwarnings("ignore", module="triton.runtime.interpreter")  # numpy's, on infinities that are meant
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=False)  # the judge asks where a child hangs
    answer(socket.socket(fileno=conversation))


def answer(conversation: socket.socket) -> None:
    """Obey the judge until it hangs up."""
    import torch
    import verbs

    # Fresh memory is filled with NaN. (`use_deterministic_algorithms` does the same, but imports the compiler.)
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    try:
        verbs.Child(sys.argv[2]).serve(conversation)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(CONNECTION_LOST)


def end(seconds: float, scratch: list[str], kept: str) -> bool:
    """Kill every other process of this sandbox and empty its scratch but for what is kept; whether that is all.

    As its first process only. One call reaches all, also those that fork all the time, which no list of processes does.
    """
    with contextlib.suppress(ProcessLookupError):  # there is none
        os.kill(-1, signal.SIGKILL)
    wait(0, seconds)
    if sum(map(str.isdigit, os.listdir("/proc"))) > 1:
        return False
    for folder in scratch:
        os.chmod(folder, 0o1777)
        for entry in os.scandir(folder):
            remove = shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink
            with contextlib.suppress(OSError):
                remove(entry.path) if entry.path != kept else None
    return [entry.path for folder in scratch for entry in os.scandir(folder)] in ([], [kept])


def wait(pid: int, seconds: float) -> dict[str, Any] | None:
    """How a child ended, or None if it has not within `seconds`. Orphans are reaped on the way."""
    give_up, how = time.monotonic() + seconds, None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return how
        if ended == pid:
            code = os.waitstatus_to_exitcode(status)
            how = {"signal": -code} if code < 0 else {"code": code}
        elif ended == 0:
            if how or time.monotonic() >= give_up:
                return how
            time.sleep(0.002)


main()
