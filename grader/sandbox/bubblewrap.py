"""The recipe: what a submission finds inside bubblewrap, mount by mount.

The order matters. Later mounts cover earlier ones, and after `--remount-ro` nothing can be created below, so each of
these closes its tree. Needs bubblewrap 0.8 (`--size`, `--disable-userns`).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from grader.sandbox.levels import RUNNER_FOLDER, SCRATCH, CannotStart, Device, Level, environment, runner_command
from grader.sandbox.seccomp import program

PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
SCRATCH_BYTES = SHM_BYTES = 1 << 30  # each; the caches of a GPU's compiler need some hundred MB of the first
SUBMISSION, RUNNER, HOME = "/submission", "/runner", SCRATCH[0]
SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # links into /usr, or folders
FILES_OF_ETC = ("/etc/ld.so.cache", "/etc/alternatives")  # where libraries are, and which compiler `cc` is
PACKAGES = ("torch", "triton", "numpy")
LOCK = ".lock"  # of an environment
BASIC_NODES = ("null", "zero", "full", "random", "urandom", "tty")  # which bubblewrap's --dev takes from the machine

# Of /proc: keys and locks of others, addresses, and what tells how others use memory. A masked file cannot be opened.
HIDDEN_IN_PROC = {
    "keys", "key-users", "locks", "kcore", "kmsg", "kallsyms", "timer_list", "sched_debug", "slabinfo", "vmallocinfo",
    "pagetypeinfo", "kpagecount", "kpageflags", "kpagecgroup", "config.gz", "cmdline",
}  # fmt: skip

# For root, a device node is its own inside as well, and a chmod of /dev/null would be one for the whole machine. So the
# nodes are made read-only first, in a mount namespace that nobody else is in. (That protects the node: what is written
# to the device still reaches it.) Standard input is opened there, too.
PROTECT_NODES = """
while [ "$1" != -- ]; do
    mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 1
    shift
done
shift
exec "$@" </dev/null
"""


class Bubblewrap:
    """Confines servers for the submission in `tree`, which its code sees read-only as /submission."""

    level: Level = "bwrap"

    def __init__(self, tree: Path) -> None:
        self.tree = tree

    def start(self, device: Device, gpus: Sequence[str], control: int, output: int) -> subprocess.Popen[bytes]:
        """Start a server as the first process of its own world.

        From a thread that outlives it: bubblewrap kills the sandbox when the thread that started it ends.
        """
        nodes = gpu_nodes(gpus)
        options = [*recipe(self.tree, device, gpus, nodes)]
        try:
            return run_confined(options, runner_command(RUNNER, control, device), control, output, nodes)
        except FileNotFoundError:
            raise CannotStart("bubblewrap is not installed") from None

    def seen_at(self, folder: Path) -> str:
        assert folder == self.tree, "one sandbox holds one submission"
        return SUBMISSION

    def clean(self) -> None:
        """Nothing outlives the sandbox."""


def run_confined(
    options: Sequence[str], command: Sequence[str], control: int | None, output: int, nodes: Sequence[str] = ()
) -> subprocess.Popen[bytes]:
    """Run a command in a sandbox with these options and device nodes.

    Raises `CannotStart`, or `FileNotFoundError` where bubblewrap is missing.
    """
    # Its own environment is empty and its options go through a pipe: nothing of ours can be read off the process.
    with (
        pipe_with(b"".join(os.fsencode(option) + b"\0" for option in options)) as listed,
        pipe_with(program()) as calls,
    ):
        started = [bwrap_path(), "--args", str(listed), "--seccomp", str(calls), "--", *command]
        if os.geteuid() == 0:
            protected = [node for node in (*(f"/dev/{name}" for name in BASIC_NODES), *nodes) if os.path.exists(node)]
            shell = ["sh", "-c", PROTECT_NODES, "sh", *protected, "--", *started]
            started = ["unshare", "--mount", "--propagation", "private", "--", *shell]
        return subprocess.Popen(
            started,
            pass_fds=[listed, calls, *([] if control is None else [control])],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env={"PATH": PATH},
        )


@contextmanager
def pipe_with(content: bytes) -> Iterator[int]:
    """The reading end of a pipe that holds these bytes, no more than its 64 KiB."""
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(content)
        yield reading
    finally:
        os.close(reading)


def bwrap_path() -> str:
    """The program, from the system's folders before all others. Raises `FileNotFoundError`."""
    if found := shutil.which("bwrap", path=f"{PATH}:{os.environ.get('PATH', '')}"):
        return found
    raise FileNotFoundError("bwrap")


def gpu_nodes(gpus: Sequence[str]) -> list[str]:
    """The device nodes of the granted GPUs. Raises `CannotStart` where they are unknown."""
    if not gpus:
        return []
    from grader.sandbox.gpu import ManagedGpu

    return list(dict.fromkeys(node for gpu in gpus for node in ManagedGpu(gpu).nodes()))


def recipe(tree: Path, device: Device, gpus: Sequence[str] = (), nodes: Sequence[str] = ()) -> Iterator[str]:
    """The options, in order."""
    # --unshare-all only tries a user namespace: the next two make its absence an error, and forbid another one inside.
    yield from ("--unshare-all", "--unshare-user", "--disable-userns")
    yield from ("--cap-drop", "ALL")  # or root keeps all of them, and could remount what is read-only
    # No --uid: CUDA IPC needs the judge's. --as-pid-1: the server is the first process of its namespace, so no signal
    # from inside can kill or stop it, orphans come to it, and the kernel ends everything with it.
    yield from ("--as-pid-1", "--die-with-parent", "--new-session", "--hostname", "sandbox", "--clearenv")
    for name, value in ({"PATH": PATH} | environment(device, gpus, HOME)).items():
        yield from ("--setenv", name, value)
    yield from _programs()
    yield from _kernel(device, nodes)
    yield from ("--ro-bind", str(RUNNER_FOLDER), RUNNER, "--ro-bind", str(tree), SUBMISSION)
    yield from ("--chdir", HOME, "--remount-ro", "/")


def _programs() -> Iterator[str]:
    """The system's programs and libraries, Python, and a scratch folder."""
    yield from ("--ro-bind", "/usr", "/usr")
    for folder in SYSTEM_FOLDERS:
        if os.path.islink(folder):
            yield from ("--symlink", os.readlink(folder), folder)
        else:
            yield from ("--ro-bind-try", folder, folder)
    for file in FILES_OF_ETC:
        yield from ("--ro-bind-try", file, file)
    for folder in python_folders():
        yield from ("--ro-bind", folder, folder)
    for lock in locks():
        yield from ("--ro-bind", "/dev/null", lock)  # which cannot be opened there
    yield from ("--size", str(SCRATCH_BYTES), "--tmpfs", HOME)
    if not any(Path(folder).is_relative_to("/tmp") for folder in python_folders()):
        yield from ("--symlink", HOME, "/tmp")  # elsewhere /tmp holds Python, and is read-only


def _kernel(device: Device, nodes: Sequence[str]) -> Iterator[str]:
    """What shows the kernel and the hardware: /proc, /dev, /sys."""
    yield from ("--proc", "/proc")
    for entry in machine_in_proc():
        yield from ("--ro-bind-try", "/dev/null" if entry.removeprefix("/proc/") in HIDDEN_IN_PROC else entry, entry)
    yield from ("--dev", "/dev")  # new, so that none of the host's devices is there, nor its shared memory
    for node in nodes:  # after --dev, which would cover them
        yield from ("--dev-bind-try", node, node)
    yield from ("--size", str(SHM_BYTES), "--tmpfs", "/dev/shm")
    yield from ("--remount-ro", "/dev")  # itself a tmpfs, without limit
    if device == "cuda":
        yield from ("--ro-bind", "/sys", "/sys", "--tmpfs", "/sys/fs/cgroup", "--remount-ro", "/sys/fs/cgroup")
    else:
        yield from ("--ro-bind", "/sys/devices/system/cpu", "/sys/devices/system/cpu")


def machine_in_proc() -> list[str]:
    """What in /proc is not a process but speaks of the whole machine: folders and files, but no links to a process.

    Capabilities or not, root's own user number may write these or change their modes, outside as well: one of them,
    /proc/sys/kernel/core_pattern, is a program that the kernel runs as root. If all of /proc were read-only, CUDA would
    not start (error 304).
    """
    entries = [entry for entry in os.scandir("/proc") if not entry.name.isdigit() and not entry.is_symlink()]
    return sorted(entry.path for entry in entries)


def locks() -> list[str]:
    """The files by which `uv` and others say that they change an environment.

    A lock is on the file, however it is mounted: who held one inside would keep those outside waiting.
    """
    places = (Path(folder, LOCK) for folder in dict.fromkeys([sys.prefix, sys.base_prefix, *python_folders()]))
    return [str(place) for place in places if place.is_file() and not place.is_symlink()]


def python_folders() -> list[str]:
    """The interpreter, the virtual environment, and wherever else the runner's packages lie; none within another."""
    found = [sys.prefix, sys.base_prefix, str(Path(sys.executable).resolve().parent.parent)]
    for package in PACKAGES:
        if (spec := importlib.util.find_spec(package)) and spec.origin:
            place = Path(spec.origin)
            found += [str(place.parent.parent), str(place.resolve().parent.parent)]
    folders: list[str] = []
    for folder in sorted(set(found), key=len):
        if not any(Path(folder).is_relative_to(other) for other in ("/usr", *folders)):
            folders.append(folder)
    return folders
