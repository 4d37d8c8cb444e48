"""Each promise of the sandbox, with a program inside that tries to break it. Run as root and as an ordinary user.

A program reports by an exception, whose text reaches the test unabridged: see `seen_inside`.
"""

import ctypes
import errno
import hashlib
import json
import os
import platform
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.doctor import Machine, can_run_kernels
from grader.judge.cases import Input
from grader.judge.replies import Raised
from grader.judge.server import RunnerBroken, RunnerServer
from grader.judge.servers import Servers
from grader.judge.submission import CheckProcess, Submission
from grader.judge.verdict import Outcome, Verdict
from grader.sandbox import bubblewrap, obstacles
from grader.sandbox.bubblewrap import HOME, SCRATCH_BYTES, SHM_BYTES, Bubblewrap, python_folders
from grader.sandbox.limits import BEHIND_THE_JUDGE, Limits
from grader.sandbox.obstacles import OBSTACLES, why_not_confined
from grader.sandbox.processes import descendants
from grader.sandbox.seccomp import ARCHITECTURES

from .conftest import ROOT, seen_inside

LookAround = Callable[[str], Any]
TOKEN = "a-token-of-the-judge"
MIB = 1 << 20

pytestmark = pytest.mark.skipif(bool(can_run_kernels(Machine.here())), reason=str(can_run_kernels(Machine.here())))


@pytest.fixture
def inside(confined: Servers) -> LookAround:
    """Evaluate an expression in a confined submission; its value came through JSON."""
    return lambda expression: seen_inside(confined, confined.sandbox.tree, expression)


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Confined servers with small limits."""
    if obstacle := why_not_confined():
        pytest.skip(obstacle.sentence)
    limits = Limits(memory_bytes=1024 * MIB, processes=150, files=2000, file_bytes=400 * MIB)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Limits, "for_device", lambda _: limits)
        servers = Servers((), Bubblewrap(tmp_path_factory.mktemp("tight").resolve()))
        servers.ready()
        yield servers
        servers.close()


def outcome_inside(servers: Servers, body: str) -> Outcome | Raised:
    """How a function ends that runs these lines."""
    assert isinstance(servers.sandbox, Bubblewrap)
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    (servers.sandbox.tree / "gelu.py").write_text(f"import os, sys, time\n\n\ndef gelu(x):\n{lines}\n    return x\n")
    process = CheckProcess(servers, servers.sandbox.tree, "gelu", 30.0)
    try:
        reply = Submission(process).gelu.exception(Input((3,)).draw(torch.Generator()))
        assert isinstance(reply, Raised), reply
        return reply
    except Outcome as outcome:
        return outcome
    finally:
        process.close()


def minor(servers: Servers) -> int:
    """The number in the name of the GPU's device node."""
    from grader.sandbox.gpu import ManagedGpu

    assert servers.gpu
    return int(ManagedGpu(servers.gpu.uuid).nodes()[-1].removeprefix("/dev/nvidia"))


# Files


@pytest.mark.parametrize("place", ["grader/hidden/rubric.yaml", "grader/hidden/test_gelu.py", "solutions/gelu.py"])
def test_the_graders_files_cannot_be_read(inside: LookAround, place: str) -> None:
    assert (ROOT / place).is_file()
    found = inside(f"""
    found = []
    starts = [{str(ROOT)!r}, "/runner/../..", "/proc/1/root{ROOT}", "/proc/1/cwd", os.path.dirname(__file__) + "/.."]
    for start in starts:
        found.append(os.path.exists(start + "/{place}"))
    return found
    """)
    assert not any(found)


def test_nothing_of_the_machine_can_be_read_but_what_python_needs(inside: LookAround, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    canary.write_text(TOKEN)
    private = [str(canary), str(Path.home()), "/etc/passwd", "/etc/hostname", "/var", "/run", "/home", "/boot", "/mnt"]
    readable = inside(f"return [place for place in {private} if os.access(place, os.R_OK)]")
    assert set(readable) <= {place for place in private if any(f"{at}/".startswith(place) for at in python_folders())}


def test_a_walk_finds_the_sandboxes_own_tree_only(inside: LookAround, confined: Servers) -> None:
    folders, on_gpu = [*python_folders(), "/usr"], confined.device == "cuda"
    hardware = "/sys" if on_gpu else "/sys/devices/system/cpu"
    system = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/etc/alternatives"]
    found = inside(f"""
    known, found = {[*folders, *system, hardware]!r}, []
    for place, folders, files in os.walk("/"):
        folders[:] = [name for name in folders if os.path.join(place, name) not in known]
        found += [os.path.join(place, name) for name in files]
    return found
    """)
    ours = ("/runner/", "/submission/", f"{HOME}/", "/dev/", "/etc/ld.so.cache")
    assert [path for path in found if not path.startswith(ours)] == []
    devices = {
        "core",
        "null",
        "zero",
        "full",
        "random",
        "urandom",
        "tty",
        "console",
        "ptmx",
        "stdin",
        "stdout",
        "stderr",
        "fd",
    }
    assert {Path(path).name for path in found if path.startswith("/dev/")} <= devices | (
        {"nvidiactl", "nvidia-uvm", f"nvidia{minor(confined)}"} if on_gpu else set()
    )
    assert {path for path in found if path.startswith("/submission/")} == {"/submission/gelu.py"}


def test_a_file_that_others_lock_is_not_there_to_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock is on the file, which is the same outside: `uv` would wait for whoever holds that of an environment."""
    environment, tree = tmp_path / "environment", tmp_path / "tree"
    for folder in (environment, tree):
        folder.mkdir()
    for name in (".lock", "pyvenv.cfg"):
        (environment / name).touch()
    known = python_folders()
    monkeypatch.setattr(bubblewrap, "python_folders", lambda: [*known, str(environment)])
    servers = Servers((), Bubblewrap(tree.resolve()))
    try:
        locked = seen_inside(
            servers,
            tree,
            f"""
            import fcntl
            locked = []
            for folder in {[str(environment), sys.prefix, sys.base_prefix]}:
                for name in (".lock", "pyvenv.cfg"):
                    try:
                        fcntl.flock(os.open(folder + "/" + name, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)
                        locked.append(folder + "/" + name)
                    except OSError:
                        pass
            return locked
            """,
        )
    finally:
        servers.close()
    assert str(environment / "pyvenv.cfg") in locked
    assert [path for path in locked if path.endswith(".lock")] == []


def test_nothing_can_be_written_but_scratch(inside: LookAround, confined: Servers) -> None:
    def contents() -> dict[Path, bytes]:
        folders = (ROOT / folder for folder in ("grader", "tests", "solutions"))
        return {path: path.read_bytes() for folder in folders for path in folder.rglob("*.py")}

    before = contents()
    places = [
        "/", "/usr", "/usr/bin", "/dev", "/etc", "/etc/alternatives", "/runner", "/submission", "/sys",
        "/sys/devices/system/cpu", *python_folders(), str(ROOT),
    ]  # fmt: skip
    files = [
        "/submission/gelu.py", "/runner/__main__.py", "/usr/bin/env", sys.executable, "/proc/sysrq-trigger",
        *(f"/proc/sys/kernel/{name}" for name in ("core_pattern", "hostname", "modprobe")),
    ]  # fmt: skip
    written = inside(f"""
    written = []
    for folder in {places!r}:
        for name in (folder + "/planted", "/proc/1/root" + folder + "/planted"):
            try:
                open(name, "w").close()
                written.append(name)
            except OSError:
                pass
        try:
            os.chmod(folder, 0o777)
            written.append("mode of " + folder)
        except OSError:
            pass
    for file in {files}:
        try:
            open(file, "r+").close()
            written.append(file)
        except OSError:
            pass
    for folder in (os.environ["HOME"], os.environ["TMPDIR"], os.getcwd(), "/dev/shm"):
        open(folder + "/scratch", "w").close()
    return written
    """)
    assert written == []
    assert contents() == before
    assert not (ROOT / "planted").exists()


def test_no_setting_of_the_kernel_can_be_written(inside: LookAround) -> None:
    """Root's user number may, without any capability, unless it is mounted read-only."""
    opened, seen = inside("""
    opened, seen = [], 0
    for start in ("/proc", "/sys"):
        for place, folders, files in os.walk(start):
            folders[:] = [name for name in folders if not (start == place == "/proc" and name.isdigit())]
            for name in folders + files:
                path = os.path.join(place, name)
                if not os.path.islink(path):
                    try:
                        os.chmod(path, os.stat(path).st_mode)
                        opened.append("mode of " + path)
                    except OSError:
                        pass
            for name in files:
                seen += 1
                try:
                    os.close(os.open(os.path.join(place, name), os.O_WRONLY | os.O_NONBLOCK))
                    opened.append(os.path.join(place, name))
                except OSError:
                    pass
    return opened[:20], seen
    """)
    assert opened == []
    assert seen > 100


def test_mounts_devices_and_namespaces_cannot_be_made(inside: LookAround) -> None:
    done = inside("""
    import ctypes, stat
    libc, done = ctypes.CDLL(None, use_errno=True), []
    bind, remount, recursive = 4096, 32, 16384
    for place in (b"/", b"/usr", b"/submission", b"/dev"):
        if libc.mount(None, place, None, bind | remount, None) == 0:
            done.append("remount " + place.decode())
    if libc.mount(b"/usr", b"/scratch", None, bind | recursive, None) == 0:
        done.append("bind")
    if libc.mount(b"none", b"/scratch", b"tmpfs", 0, None) == 0:
        done.append("tmpfs")
    for flag in (0x10000000, 0x00020000, 0x40000000, 0x20000000):  # user, mount, network, pid
        if os.fork() == 0:
            os._exit(0 if libc.unshare(flag) == 0 else 1)
        if os.wait()[1] == 0:
            done.append(hex(flag))
    try:
        os.mknod("disk", stat.S_IFBLK | 0o666, os.makedev(8, 0))
        done.append("block device")
    except OSError:
        pass
    try:
        os.chroot(".")
        done.append("chroot")
    except OSError:
        pass
    return done
    """)
    assert done == []


def test_a_submission_has_no_capabilities(inside: LookAround) -> None:
    status = dict(line.split(":", 1) for line in inside("return open('/proc/self/status').read()").splitlines())
    capabilities = {name: int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
    assert set(capabilities.values()) == {0}, capabilities
    assert int(status["NoNewPrivs"]) == 1


def test_no_node_of_a_device_can_be_changed(inside: LookAround) -> None:
    """They are the machine's own; as root, one chmod of /dev/null would be one for everybody."""
    before = {name: os.stat(f"/dev/{name}").st_mode for name in os.listdir("/dev") if os.path.exists(f"/dev/{name}")}
    changed, written = inside("""
    changed = []
    for name in os.listdir("/dev"):
        path = f"/dev/{name}"
        if os.path.islink(path) or os.path.isdir(path):
            continue
        mode = os.stat(path).st_mode
        for what, change in (("mode", lambda: os.chmod(path, mode)), ("times", lambda: os.utime(path, (1, 1)))):
            try:
                change()
                changed.append((what, path))
            except OSError:
                pass
    try:
        os.fchmod(0, os.fstat(0).st_mode)
        changed.append(("mode", "standard input"))
    except OSError:
        pass
    return changed, open("/dev/null", "w").write("it still works")
    """)
    assert changed == []
    assert written == len("it still works")
    assert {name: os.stat(f"/dev/{name}").st_mode for name in before} == before


REFUSED = {
    "keys": "syscall(CALLS['keyctl'], 0, -3, 0)",
    "a new key": "syscall(CALLS['add_key'], b'user', b'planted', b'x', 1, -2)",
    "watches on files": "inotify_init1(0)",
    "System V memory": "shmget(0, 4096, 0o1666)",
    "a queue of messages": "syscall(CALLS['mq_open'], b'planted', 0o102, 0o600, None)",
    "the first process's limits": "prlimit(1, 7, (ctypes.c_long * 2)(100, 100), None)",
    "its priority": "setpriority(0, 1, 5)",
    "the priority of all": "setpriority(2, 0, 19)",
    "its processors": "sched_setaffinity(1, 8, bytes([1] + 7 * [0]))",
    "its disk's": "syscall(CALLS['ioprio_set'], 1, 1, 3 << 13)",
    "memory behind no file": "memfd_create(b'x', 0)",
    "queues for the kernel": "syscall(CALLS['io_uring_setup'], 8, bytes(120))",
    "page faults of one's own": "syscall(CALLS['userfaultfd'], 1)",
    "programs in the kernel": "syscall(CALLS['bpf'], 0, bytes(72), 72)",
    "a session of its own": "setsid()",
    "tracing": "ptrace(16, 1, None, None)",
    "the hypervisor": "socket(40, 1, 0)",
    "a lease": "fcntl(os.open(os.__file__, os.O_RDONLY), 1024, 0)",
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_calls_that_know_no_namespace_are_refused(inside: LookAround, call: str) -> None:
    calls = ARCHITECTURES[platform.machine()].calls
    result, error = inside(f"""
    import ctypes
    CALLS, libc = {calls!r}, ctypes.CDLL(None, use_errno=True)
    return libc.{call}, ctypes.get_errno()
    """)
    assert result == -1
    assert error in (errno.EPERM, errno.EAFNOSUPPORT)


def test_a_process_may_change_what_is_its_own(inside: LookAround) -> None:
    done = inside("""
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    return resource.getrlimit(resource.RLIMIT_NOFILE), -os.nice(0) + os.nice(1), len(os.sched_getaffinity(0))
    """)
    assert [list(done[0]), *done[1:]] == [[100, 200], 1, 1]


def test_every_process_is_behind_the_judge_and_in_the_session_of_the_first(inside: LookAround) -> None:
    """Each session may be given the processor by turns (sched_autogroup), however nice its processes are."""
    first, of_children = inside("""
    def seen():
        return [os.getpriority(os.PRIO_PROCESS, 0), os.getsid(0)]

    def child(depth):
        if os.fork():
            os.wait()
            return
        try:
            os.setsid()
        except OSError:
            pass
        os.write(writing, json.dumps(seen()).encode() + b"\\n")
        if depth:
            child(depth - 1)
        os._exit(0)

    reading, writing = os.pipe()
    child(3)
    return seen(), [json.loads(line) for line in os.read(reading, 1000).splitlines()]
    """)
    assert first == [BEHIND_THE_JUDGE, 1]
    assert of_children == [first] * 4


def test_an_unknown_processor_has_no_filter_and_so_no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    obstacle = why_not_confined()
    assert obstacle
    assert "no filter of system calls for riscv64" in obstacle.sentence


def test_what_others_do_cannot_be_read_in_proc(inside: LookAround) -> None:
    names = sorted(bubblewrap.HIDDEN_IN_PROC)
    opened = inside(f"""
    opened = []
    for name in {names}:
        try:
            opened.append((name, open("/proc/" + name, "rb").read(1).decode()))
        except OSError:
            pass
    return opened
    """)
    assert opened == []
    assert inside("return len(open('/proc/meminfo').read()) > 0")


# Secrets


def test_nothing_of_the_judges_environment_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAFF_TOKEN", TOKEN)
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/{TOKEN}")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:/{TOKEN}")
    servers = Servers((), Bubblewrap(tmp_path.resolve()))
    try:
        seen = seen_inside(
            servers,
            tmp_path,
            """
            seen = [dict(os.environ), sys.argv, sys.orig_argv, sys.path]
            for process in filter(str.isdigit, os.listdir("/proc")):
                for name in ("environ", "cmdline", "mountinfo", "maps"):
                    try:
                        seen.append(open(f"/proc/{process}/{name}", "rb").read().decode(errors="replace")[:1000])
                    except OSError:
                        pass
            return json.dumps(seen).count("a-token" + "-of-the-judge"), len(seen), dict(os.environ)
            """,
        )
    finally:
        servers.close()
    assert seen[0] == 0
    assert seen[1] > 4
    assert seen[2]["PATH"] == bubblewrap.PATH


def test_neither_environment_nor_memory_of_the_judge_or_the_server_can_be_read(inside: LookAround) -> None:
    secret = ctypes.create_string_buffer(os.urandom(16).hex().encode())
    environment = Path("/proc/self/environ").read_bytes()
    read = inside(f"""
    import hashlib
    found = []
    for name, place, size in (("mem", {ctypes.addressof(secret)}, 32), ("environ", 0, -1)):
        try:
            with open(f"/proc/{os.getpid()}/{{name}}", "rb", buffering=0) as file:
                file.seek(place)
                found.append(hashlib.sha256(file.read(size)).hexdigest())
        except OSError:
            pass
    for name in ("mem", "environ", "maps"):
        try:
            open(f"/proc/1/{{name}}", "rb").read(1)
            found.append(name)
        except OSError:
            pass
    return found
    """)
    hashes = {hashlib.sha256(content).hexdigest() for content in (secret.value, environment)}
    assert not (hashes | {"mem", "environ", "maps"}) & set(read)


def test_a_child_has_one_connection_besides_input_and_outputs(inside: LookAround, confined: Servers) -> None:
    targets = inside("""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except FileNotFoundError:  # the listing's own
            pass
    return found
    """)
    if confined.device == "cuda":  # whose driver opens its device files, and event counters and pipes of its own
        assert targets[:4] == ["/dev/null", "pipe", "pipe", "socket"]
        own = ("/dev/nvidia", "anon_inode", "pipe", "socket", "/dev/shm", "/proc")
        assert [target for target in targets[4:] if not target.startswith(own)] == [], targets
    else:
        assert targets == ["/dev/null", "pipe", "pipe", "socket"]


# Other processes and the network


def test_no_service_of_this_machine_can_be_reached(inside: LookAround, tmp_path: Path) -> None:
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
    services = [socket.socket(socket.AF_INET, kind) for kind in kinds]
    by_path, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    name = f"\0grader-test-{os.getpid()}"
    try:
        for service in services:
            service.bind(("127.0.0.1", 0))
            service.settimeout(0.2)
        by_path.bind(str(tmp_path / "s"))
        abstract.bind(name)
        for listening in (services[0], by_path, abstract):
            listening.listen()
        tcp, udp = (service.getsockname()[1] for service in services)
        reached = inside(f"""
        import socket
        reached = []
        for kind, address in ((socket.AF_INET, ("127.0.0.1", {tcp})), (socket.AF_UNIX, {str(tmp_path / "s")!r}),
                              (socket.AF_UNIX, {name!r}), (socket.AF_INET, ("10.0.0.1", 6817))):
            with socket.socket(kind) as sock:
                sock.settimeout(0.2)
                reached += [address] if sock.connect_ex(address) == 0 else []
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"heard", ("127.0.0.1", {udp}))
        return reached, [name for _, name in socket.if_nameindex()]
        """)
        assert reached == [[], ["lo"]]
        with pytest.raises(TimeoutError):
            services[1].recv(10)
    finally:
        for sock in (*services, by_path, abstract):
            sock.close()


def test_its_own_loopback_works(inside: LookAround) -> None:
    assert inside("""
    import socket
    with socket.create_server(("127.0.0.1", 0)) as service:
        with socket.create_connection(service.getsockname()) as client:
            client.sendall(b"heard")
            return service.accept()[0].recv(5).decode()
    """) == "heard"  # fmt: skip


def test_only_its_own_processes_can_be_seen_or_signalled(inside: LookAround) -> None:
    found, killed = inside(f"""
    killed = []
    for pid in ({os.getpid()}, {os.getppid()}):
        try:
            os.kill(pid, 0)
            killed.append(pid)
        except ProcessLookupError:
            pass
    return sorted(map(int, filter(str.isdigit, os.listdir("/proc")))), killed
    """)
    assert found[0] == 1
    assert len(found) == 2
    assert killed == []


def test_shared_memory_of_the_machine_cannot_be_attached(inside: LookAround) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o1666)
    assert segment >= 0
    try:
        attaching = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.shmat.restype = ctypes.c_ssize_t\n"
        assert inside(attaching + f"return libc.shmat({segment}, None, 0)") == -1
    finally:
        libc.shmctl(segment, 0, None)


def test_the_server_cannot_be_traced(inside: LookAround) -> None:
    attach = 16
    assert inside(f"import ctypes\nreturn ctypes.CDLL(None).ptrace({attach}, 1, None, None)") == -1


def test_a_process_has_the_user_that_cuda_ipc_needs(inside: LookAround) -> None:
    assert inside("return os.getuid()") == os.getuid()


# What is used up


def test_memory_is_limited_and_the_verdict_says_so(tight: Servers) -> None:
    outcome = outcome_inside(tight, "kept = b'x' * (3 << 30)\ntime.sleep(5)")
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.OUT_OF_MEMORY
    assert "more than the 1 GiB of memory" in outcome.message
    assert seen_inside(tight, tight.sandbox.tree, "return 1") == 1


def test_memory_of_processes_that_were_left_behind_counts(tight: Servers) -> None:
    body = """
for _ in range(3):
    if not os.fork():
        if os.fork():
            os._exit(0)
        os.setpgid(0, 0)
        kept = b'x' * (600 << 20)
        time.sleep(20)
time.sleep(20)"""
    outcome = outcome_inside(tight, body)
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.OUT_OF_MEMORY


def test_memory_of_processes_whose_first_thread_has_ended_counts(tight: Servers) -> None:
    """Their `/proc/PID/status` says that they are zombies, and nothing of memory."""
    body = """
import ctypes, threading
def hold():
    time.sleep(0.1)
    kept = b'x' * (600 << 20)
    time.sleep(20)
for _ in range(3):
    if not os.fork():
        threading.Thread(target=hold).start()
        ctypes.CDLL(None).pthread_exit(None)
time.sleep(20)"""
    outcome = outcome_inside(tight, body)
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.OUT_OF_MEMORY
    assert not descendants(tight.ready().leader)


def test_a_fork_bomb_ends_and_the_next_check_runs(tight: Servers) -> None:
    outcome = outcome_inside(tight, "while True:\n    os.fork()")
    if isinstance(outcome, Raised):  # an ordinary user's
        assert outcome.type == "BlockingIOError"
    else:  # root's, whose processes have no limit but the watchdog
        assert "more than 150 processes and threads" in outcome.message
    assert seen_inside(tight, tight.sandbox.tree, "return 1") == 1
    assert not [pid for pid in descendants(tight.ready().leader) if Path(f"/proc/{pid}/maps").read_text()]


def test_threads_are_counted(tight: Servers) -> None:
    body = """
import threading
for _ in range(300):
    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
time.sleep(20)"""
    outcome = outcome_inside(tight, body)
    if isinstance(outcome, Raised):
        assert "start new thread" in outcome.message
    else:
        assert "more than 150 processes and threads" in outcome.message


@pytest.mark.parametrize(("folder", "size"), [(HOME, SCRATCH_BYTES), ("/dev/shm", SHM_BYTES)])
def test_scratch_has_a_size(tight: Servers, folder: str, size: int) -> None:
    filling = f"""
    import errno
    written, chunk = 0, bytes(1 << 20)
    try:
        for name in range(20):
            with open(f"{folder}/full-{{name}}", "wb", buffering=0) as file:
                for _ in range(200):
                    written += file.write(chunk)
    except OSError as error:
        return written, errno.errorcode[error.errno]
    finally:
        for name in range(20):
            if os.path.exists(f"{folder}/full-{{name}}"):
                os.unlink(f"{folder}/full-{{name}}")
    return written, None
    """
    written, error = seen_inside(tight, tight.sandbox.tree, filling)
    assert error == "ENOSPC"
    assert size - 64 * MIB < written <= size


def test_the_number_of_files_is_limited(tight: Servers) -> None:
    outcome = outcome_inside(tight, "for name in range(3000):\n    os.symlink('x', str(name))\ntime.sleep(5)")
    assert isinstance(outcome, Outcome)
    assert outcome.verdict is Verdict.CRASH
    assert "more than 2000 files" in outcome.message
    assert seen_inside(tight, tight.sandbox.tree, "return os.listdir(os.environ['HOME'])") == []


def test_a_file_has_a_largest_size(tight: Servers) -> None:
    growing = """
    try:
        os.truncate(os.open('big', os.O_CREAT | os.O_RDWR), 401 << 20)
    except OSError as error:
        return error.errno
    """
    assert seen_inside(tight, tight.sandbox.tree, growing) == 27  # EFBIG


def test_limits_cannot_be_raised_again(tight: Servers) -> None:
    raising = """
    import resource
    raised = []
    for limit in (resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_CORE):
        try:
            resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            raised.append(limit)
        except (OSError, ValueError):
            pass
    return raised
    """
    assert seen_inside(tight, tight.sandbox.tree, raising) == []


# The end


def test_a_killed_judge_leaves_no_process_a_second_later(tmp_path: Path) -> None:
    folder = tmp_path / "submission"
    folder.mkdir()
    (folder / "gelu.py").write_text(
        "import os, time\n\ndef gelu(x):\n"
        "    for _ in range(3):\n        if not os.fork():\n            os.setpgid(0, 0)\n            os.fork()\n"
        "            time.sleep(60)\n    time.sleep(60)\n"
    )
    judge = subprocess.Popen(
        [sys.executable, "-m", "grader", "grade", str(folder)],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    give_up = time.monotonic() + 60
    while len(family := descendants(judge.pid)) < 9 and time.monotonic() < give_up:
        assert judge.poll() is None, judge.stderr
        time.sleep(0.05)
    assert len(family) >= 9  # bubblewrap, the server, its child, and six more
    judge.send_signal(signal.SIGKILL)
    judge.wait()
    time.sleep(1)
    assert [pid for pid in family if is_alive(pid)] == []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_gloo_runs_with_four_ranks(inside: LookAround) -> None:
    sums = inside("""
    import torch
    import torch.distributed as dist

    def rank(number, pipe):
        store = dist.FileStore(os.environ["HOME"] + "/ranks", 4)
        dist.init_process_group("gloo", store=store, rank=number, world_size=4)
        total = torch.tensor([float(number + 1)])
        dist.all_reduce(total)
        os.write(pipe, bytes([int(total)]))
        dist.destroy_process_group()
        os._exit(0)

    reading, writing = os.pipe()
    for number in range(4):
        if not os.fork():
            rank(number, writing)
    for _ in range(4):
        os.wait()
    return list(os.read(reading, 100))
    """)
    assert sums == [10, 10, 10, 10]


# Where there is no sandbox


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("bwrap: setting up uid map: Permission denied", "apparmor_parser -r /etc/apparmor.d/grader-bwrap"),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "profile grader-bwrap /usr/bin/bwrap"),
        ("bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user "
         "namespaces.", "kernel.unprivileged_userns_clone=1"),
        ("bwrap: Creating new namespace failed: No space left on device", "user.max_user_namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "--security-opt systempaths=unconfined"),
        ("bwrap: Unknown option --disable-userns", "bubblewrap 0.8"),
        ("bwrap: something new", "another one"),
    ],
)  # fmt: skip
def test_what_keeps_bubblewrap_from_starting_has_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, remedy: str
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "bwrap_path", lambda: str(fake))
    obstacle = why_not_confined()
    assert obstacle
    assert said.removeprefix("bwrap: ")[:60] in obstacle.sentence
    assert remedy in obstacle.remedy


def test_a_missing_bubblewrap_has_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda *_, **__: None)
    assert why_not_confined() == obstacles.MISSING


@pytest.mark.parametrize("fault", ["wrong option", "no Python"])
def test_a_sandbox_that_does_not_start_is_the_graders_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "wrong option":
        monkeypatch.setattr(bubblewrap, "recipe", lambda *_: ["--nonsense"])
    else:
        monkeypatch.setattr(bubblewrap, "python_folders", lambda: [])
    servers = Servers((), Bubblewrap(tmp_path.resolve()))
    try:
        with pytest.raises(RunnerBroken, match=r"does not answer.*\n.*bwrap: "):
            servers.ready()
    finally:
        servers.close()


def test_grade_refuses_where_nothing_can_be_confined_and_check_does_not() -> None:
    program = (
        "import sys; from grader.sandbox import bubblewrap; bubblewrap.shutil.which = lambda *_, **__: None;"
        "from grader.cli import main; sys.argv = ['grader', *sys.argv[1:]]; main()"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", program, *arguments], cwd=ROOT, capture_output=True, text=True)

    refused = run("grade", "solutions")
    assert refused.returncode == 3
    assert "cannot be confined here: bubblewrap is not installed" in refused.stderr
    assert "sudo apt install bubblewrap" in refused.stderr
    assert run("check", "gelu.sizes", "--submission", "solutions").returncode == 0


def test_every_obstacle_is_tested() -> None:
    assert len({known.remedy for known in OBSTACLES}) == len(OBSTACLES)


def test_no_server_of_an_earlier_test_is_left(confined: Servers) -> None:
    server = confined.ready()
    assert isinstance(server, RunnerServer)
    assert [pid for pid in descendants(server.leader) if is_alive(pid)] == []
    assert json.dumps(server.versions)
