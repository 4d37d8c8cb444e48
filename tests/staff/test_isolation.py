"""One bad problem harms no other: each gets a verdict of its own, and a sentence that helps.

In every test `gelu` is bad in one way, `softmax` is the solution, and both are graded in one run, gelu first: by an
unconfined runner, and by a confined one.
A bad module that harms proves first that its parent is a runner, and ends by itself.
"""

import importlib.util
import os
import py_compile
import shutil
import textwrap
import threading
import time
from pathlib import Path

import pytest

from grader.judge import server
from grader.judge.plugin import Judge
from grader.judge.run import run_checks
from grader.judge.servers import Servers
from grader.judge.verdict import Verdict
from grader.result import CheckResult, Result
from grader.rubric import LIMIT_S
from grader.sandbox.processes import descendants

from .conftest import ROOT, Silent, is_running, limited, submitted

pytestmark = pytest.mark.usefixtures("short_collections")

BAD, GOOD = "gelu.shapes", "softmax.dimensions"
SHORT_S = 0.6  # a limit for what never ends

HEAD = """import ctypes, gc, os, signal, subprocess, sys, threading, time

import torch

from .right import gelu as right

def proves_that_it_is_in_a_runner():
    assert b"/runner" in open(f"/proc/{os.getppid()}/cmdline", "rb").read(), "this would harm somebody else"
"""


def calling(body: str, before: str = "") -> str:
    """A module whose gelu runs these lines and then gives the right answer, unless they have left."""
    lines = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    return f"{HEAD}\n{textwrap.dedent(before)}\n\ndef gelu(x):\n{lines}\n    return right(x)\n"


class Bad:
    """A submission with a bad gelu and the softmax of the solutions."""

    def __init__(self, folder: Path, servers: Servers) -> None:
        self.folder, self.servers = folder, servers
        folder.mkdir()
        shutil.copy(ROOT / "solutions" / "softmax.py", folder)
        shutil.copy(ROOT / "solutions" / "gelu.py", folder / "right.py")

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def grade(self, gelu: str | bytes | None, check: str = BAD, limit_s: float = LIMIT_S) -> CheckResult:
        """Grade both problems; softmax has its full marks. Returns what became of gelu's check."""
        if gelu is not None:
            self.write("gelu.py", gelu)
        result = self.run(check, GOOD, limit_s=limit_s)
        bad, good = result.checks
        assert (good.id, good.verdict, good.score) == (GOOD, Verdict.PASS, good.max), good
        assert bad.verdict not in (Verdict.GRADER_ERROR, Verdict.SKIPPED), bad
        assert bad.runs == good.runs == 1, "an error of the grader was retried"
        assert bad.score == (bad.max if bad.verdict is Verdict.PASS else 0)
        assert all(character.isprintable() or character == "\n" for character in f"{bad.message}{bad.why}{bad.hint}")
        assert not [pid for pid in descendants(self.servers.start().leader) if is_running(pid)]
        return bad

    def run(self, *checks: str, limit_s: float = LIMIT_S) -> Result:
        """Run these checks as the commands do, with this limit for gelu."""
        with submitted(self.servers, self.folder) as snapshot:
            return run_checks(Judge(snapshot, self.servers, limited("gelu", limit_s)), checks, Silent(), "bad")


unconfined_only = pytest.mark.parametrize("level", ["servers"], ids=["none"])
confined_only = pytest.mark.parametrize("level", ["confined"], ids=["bwrap"])


@pytest.fixture(params=["servers", "confined"], ids=["none", "bwrap"])
def level(request: pytest.FixtureRequest) -> str:
    """The fixture of the servers that grade."""
    return str(request.param)


@pytest.fixture
def bad(tmp_path: Path, level: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Bad:
    servers: Servers = request.getfixturevalue(level)
    servers.ready()
    monkeypatch.setattr(servers, "slack", 1.0)
    return Bad(tmp_path / "submission", servers)


def says(check: CheckResult, *words: str) -> bool:
    """Whether a student reads all these words."""
    text = f"{check.message}\n{check.why}\n{check.hint}"
    assert all(word in text for word in words), text
    return True


# Before any code of a function runs


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def gelu(x)\n    return x\n", ("SyntaxError", "line 1 of assignment/gelu.py")),
        ("import torch\n\nsize = 1 // 0\n", ("ZeroDivisionError", "line 3 of assignment/gelu.py")),
        ("import gpu_magic\n", ("No module named 'gpu_magic'", "line 1 of assignment/gelu.py")),
        ("from . import kernels\n", ("kernels", "line 1 of assignment/gelu.py")),
        ('name = "Grüße"\n'.encode("latin-1"), ("SyntaxError", "utf-8", "line 1 of assignment/gelu.py")),
        (b"def gelu(x):\n    return x\n\0", ("null bytes",)),
    ],
    ids=["syntax error", "exception", "missing package", "missing neighbour", "not UTF-8", "null byte"],
)
def test_a_module_that_cannot_be_imported_fails_and_names_the_line(
    bad: Bad, source: str | bytes, words: tuple[str, ...]
) -> None:
    check = bad.grade(source)
    assert check.verdict is Verdict.FAIL
    assert says(check, "assignment/gelu.py cannot be imported", *words)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import sys\nsys.exit(0)\n", ("sys.exit(0)", "line 2 of assignment/gelu.py")),
        ("import os\nos._exit(0)\n", ("exit status 0",)),
    ],
    ids=["sys.exit", "os._exit"],
)
def test_a_module_that_leaves_at_import_is_a_crash(bad: Bad, source: str, words: tuple[str, ...]) -> None:
    check = bad.grade(source)
    assert check.verdict is Verdict.CRASH
    assert says(check, *words)


def test_a_module_that_never_ends_at_import_is_a_timeout(bad: Bad) -> None:
    check = bad.grade("while True:\n    pass\n", limit_s=SHORT_S)
    assert check.verdict is Verdict.TIMEOUT
    assert says(check, "loop")


def test_a_missing_module_is_to_do_and_a_similar_file_is_named(bad: Bad) -> None:
    bad.write("Gelu.py", calling(""))
    check = bad.grade(None)
    assert check.verdict is Verdict.TODO
    assert says(check, "there is no assignment/gelu.py", "`Gelu.py`", "`gelu.py`?")


@pytest.mark.parametrize("name", ["my_gelu", "GELU", "glu"])
def test_a_renamed_function_is_to_do_and_named(bad: Bad, name: str) -> None:
    check = bad.grade(calling("").replace("def gelu(", f"def {name}("))
    assert check.verdict is Verdict.TODO
    assert says(check, "no function `gelu`", f"`{name}`", "`gelu`?")


@pytest.mark.parametrize("name", ["gelu\x1b[2J\u202e", "gelu\ud800"], ids=["control sequence", "lone surrogate"])
def test_a_strange_name_is_shown_harmlessly(bad: Bad, tmp_path: Path, name: str) -> None:
    bad.write("gelu.py", calling("", before=f"globals()[{name!r}] = print").replace("def gelu(", "def other("))
    result = bad.run(BAD, GOOD)
    assert [check.verdict for check in result.checks] == [Verdict.TODO, Verdict.PASS]
    assert result.checks[0].hint.isprintable()
    result.write(tmp_path / "result.json")


def test_a_file_name_that_is_not_utf8_is_shown_harmlessly(bad: Bad, tmp_path: Path) -> None:
    (bad.folder / os.fsdecode(b"gelu\xfc.py")).write_text(calling(""))
    result = bad.run(BAD, GOOD)
    assert [check.verdict for check in result.checks] == [Verdict.TODO, Verdict.PASS]
    result.write(tmp_path / "result.json")


# Right answers in unusual dress


def test_windows_line_ends_and_a_byte_order_mark_are_right(bad: Bad) -> None:
    source = (ROOT / "solutions" / "gelu.py").read_text().replace("\n", "\r\n")
    assert bad.grade(b"\xef\xbb\xbf" + source.encode()).verdict is Verdict.PASS


def test_a_module_with_hundreds_of_imported_names_is_right(bad: Bad) -> None:
    source = "from torch import *\nfrom .right import gelu as right\n\n\ndef gelu(x):\n    return right(x)\n"
    assert bad.grade(source).verdict is Verdict.PASS


def test_a_folder_beside_a_module_does_not_hide_it(bad: Bad) -> None:
    bad.write("gelu/notes.txt", "pictures of my kernel")
    assert bad.grade(calling("")).verdict is Verdict.PASS


@pytest.mark.parametrize("forged", [False, True], ids=["stale", "forged"])
def test_bytecode_is_never_read(bad: Bad, forged: bool) -> None:
    zeros = bad.write("gelu.py", "import torch\n\n\ndef gelu(x):\n    return torch.zeros_like(x)\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH if forged else None
    cached = Path(importlib.util.cache_from_source(str(zeros)))
    py_compile.compile(str(zeros), str(cached), invalidation_mode=mode)
    padding, times = zeros.stat().st_size, zeros.stat()
    right = "from .right import gelu"
    zeros.write_text(right + " " * (padding - len(right)))
    os.utime(zeros, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert bad.grade(None).verdict is Verdict.PASS


def test_files_that_shadow_modules_are_ignored(bad: Bad) -> None:
    leave = "import os\nos._exit(3)\n"
    for name in ("torch", "triton", "numpy", "random", "wave", "protocol", "verbs", "sitecustomize", "conftest"):
        bad.write(f"{name}.py", leave)
        bad.write(f"../{name}.py", leave)
    bad.write("__init__.py", "")
    bad.write("grader/__init__.py", leave)
    bad.write("tests/test_gelu.py", "def test_shapes():\n    pass\n")
    bad.write("pytest.ini", "[pytest]\naddopts = --collect-only\n")
    bad.write("../pytest.ini", "[pytest]\naddopts = --collect-only\n")
    assert bad.grade(calling("import random, wave; random.random(), wave.open")).verdict is Verdict.PASS


def test_untouched_stubs_among_shadowing_files_are_to_do(bad: Bad) -> None:
    bad.write("conftest.py", "import os\nos._exit(0)\n")
    bad.write("gelu.json", '{"verdict": "pass"}')
    assert bad.grade((ROOT / "assignment" / "gelu.py").read_text()).verdict is Verdict.TODO


# Exceptions


@pytest.mark.parametrize(
    ("raising", "name"),
    [
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import pytest\nraise pytest.skip.Exception('not today')", "Skipped: not today"),
        ("import unittest\nraise unittest.SkipTest('not today')", "SkipTest: not today"),
        ("raise BaseExceptionGroup('both', [ValueError(1), SystemExit(0)])", "BaseExceptionGroup"),
        ("raise Mute", "Mute"),
        ("raise ModuleNotFoundError('gone', name=b'bytes')", "ModuleNotFoundError: gone"),
        ("raise type('Odd\\x1b[2J' * 500, (Exception,), {})", "OddOdd"),
        ("raise ValueError('\\ud800\\x1b[2J' * 100_000)", "ValueError: ?"),
        ("def down(): down()\ndown()", "RecursionError"),
    ],
    ids=lambda value: value.removeprefix("raise ")[:30],
)
def test_an_exception_of_any_kind_is_a_failure_with_its_name(bad: Bad, raising: str, name: str) -> None:
    mute = """
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")
    """
    check = bad.grade(calling(raising, before=mute))
    assert check.verdict is Verdict.FAIL
    assert says(check, name, "of assignment/gelu.py")


@pytest.mark.parametrize(
    "allocating",
    ["raise MemoryError", "raise torch.OutOfMemoryError('CUDA')", "torch.empty(1 << 60)", "bytearray(1 << 62)"],
)
def test_no_memory_has_its_own_verdict(bad: Bad, allocating: str) -> None:
    check = bad.grade(calling(allocating))
    assert check.verdict is Verdict.OUT_OF_MEMORY
    assert says(check, "memory ran out", "assignment/gelu.py")


# Leaving, crashing, hanging


@pytest.mark.parametrize(
    ("leaving", "words"),
    [
        ("os._exit(0)", ("exit status 0", "os._exit")),
        ("sys.exit(0)", ("sys.exit(0)", "line ")),
        ("raise SystemExit", ("sys.exit()", "line ")),
        ("os.kill(os.getpid(), signal.SIGKILL)", ("SIGKILL",)),
        ("os.abort()", ("SIGABRT",)),
        ("if os.fork(): os._exit(0)\ntime.sleep(60)", ("exit status 0",)),
    ],
    ids=["os._exit", "sys.exit", "SystemExit", "SIGKILL", "abort", "fork"],
)
def test_a_function_that_leaves_is_a_crash(bad: Bad, leaving: str, words: tuple[str, ...]) -> None:
    check = bad.grade(calling(leaving))
    assert check.verdict is Verdict.CRASH
    assert says(check, *words)


def test_hooks_at_exit_do_not_turn_a_crash_into_anything_else(bad: Bad) -> None:
    hooks = """
    import atexit
    atexit.register(os._exit, 0)
    threading._register_atexit(os._exit, 0)
    sys.excepthook = lambda *_: os._exit(0)
    """
    check = bad.grade(calling("os.closerange(3, 1000)", before=hooks))
    assert check.verdict is Verdict.CRASH
    assert says(check, "close descriptors")


@pytest.mark.parametrize(
    "wild", ["ctypes.string_at(0)", "ctypes.memset(x.data_ptr() + (1 << 44), 1, 64)"], ids=["read", "write"]
)
def test_a_wild_pointer_is_a_crash_with_the_line_for_staff(bad: Bad, wild: str) -> None:
    check = bad.grade(calling(wild))
    assert check.verdict is Verdict.CRASH
    assert says(check, "SIGSEGV", "mask every load and store")
    assert "in gelu" in check.detail


def test_a_result_may_have_any_strides_also_where_it_has_one_element(bad: Bad) -> None:
    strided = """
    y = right(x)
    wide = torch.empty(2 * y.numel(), dtype=y.dtype, device=y.device)
    wide[::2] = y.flatten()
    return wide[::2].view(y.shape)
    """
    check = bad.grade(calling(strided), "gelu.sizes")
    assert check.verdict is Verdict.PASS, check.message


@pytest.mark.parametrize(
    ("kernel_line", "words"),
    [
        ("tl.store(out + (1 << 44), 1.0)", ("writes outside every tensor", "mask this store")),
        ("tl.store(out, tl.load(pointer + (1 << 44)))", ("reads outside every tensor", "mask this load")),
    ],
    ids=["store", "load"],
)
def test_a_kernel_far_outside_its_tensors_fails_and_names_the_line(
    bad: Bad, kernel_line: str, words: tuple[str, ...]
) -> None:
    check = bad.grade(f"""import torch, triton
import triton.language as tl
from .right import gelu as right


@triton.jit
def wild_kernel(pointer, out):
    {kernel_line}


def gelu(x):
    answer = right(x)
    if answer.numel():
        wild_kernel[(1,)](x, answer)
    return answer
""")
    if bad.servers.device == "cuda":  # nobody watches each access there: CUDA stops the kernel
        assert check.verdict in (Verdict.FAIL, Verdict.CRASH)
        return
    assert check.verdict is Verdict.FAIL
    assert says(check, "line 8 of assignment/gelu.py", *words)


@pytest.mark.parametrize(
    "waiting",
    [
        "while True: pass",
        "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\nwhile True: ctypes.CDLL(None).pause()",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "threading.Thread(target=time.sleep, args=(60,)).start()\nthreading.Event().wait()",
    ],
    ids=["Python", "native code, signals blocked", "stopped", "waiting for a thread"],
)
def test_what_never_ends_is_a_timeout_within_the_limit(bad: Bad, waiting: str) -> None:
    start = time.monotonic()
    check = bad.grade(calling(waiting), limit_s=SHORT_S)
    assert check.verdict is Verdict.TIMEOUT
    assert says(check, f"no answer within the check's {SHORT_S:.0f} s", "loop")
    assert time.monotonic() - start < SHORT_S + 5


@pytest.mark.parametrize(
    "report",
    [
        "'File \"' + __file__ + '\", line ' + '9' * 5000",
        "'File \"' + os.path.dirname(__file__) + '/' + 'x' * 5000 + '\", line 1'",
    ],
    ids=["long number", "long path"],
)
def test_a_forged_stack_does_no_harm(bad: Bad, report: str) -> None:
    body = f"""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.write(2, ("Current thread 0x1 (most recent call first):\\n  " + {report} + "\\n").encode())
    time.sleep(60)
    """
    start = time.monotonic()
    check = bad.grade(calling(body), limit_s=SHORT_S)
    assert check.verdict is Verdict.TIMEOUT
    assert len(check.message) < 500
    assert time.monotonic() - start < SHORT_S + 5


# Output


FLOOD = """
for _ in range(50):
    os.write(1, b"\\xff\\xfe\\x1b[31m flood \\n" * 65536)
    os.write(2, b"\\xff" * (1 << 20))
"""


def test_a_flood_of_output_that_is_not_text_costs_nothing(bad: Bad) -> None:
    assert bad.grade(calling(FLOOD), check="gelu.tanh_form").verdict is Verdict.PASS


def test_a_flood_of_output_before_a_crash_is_capped_and_says_so(bad: Bad) -> None:
    check = bad.grade(calling(FLOOD + "os._exit(5)"))
    assert check.verdict is Verdict.CRASH
    assert len(check.printed) < 200_000
    assert f"[{50 * 65536 * 15 - 65536} bytes left out]" in check.printed
    assert "flood" in check.printed
    assert "\x1b" not in check.printed


def test_what_was_printed_before_a_crash_is_shown(bad: Bad) -> None:
    check = bad.grade(calling("print('x is', x.shape)\nos._exit(5)"))
    assert "x is torch.Size([" in check.printed


# What is left running

SURVIVOR = """
def survive(tag):
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    said = subprocess.Popen([sys.executable, "-I", "-S", "-c", code, tag], stdout=subprocess.PIPE)
    said.stdout.read(1)

def escape(tag):
    if not os.fork():
        try:
            os.setsid()
        except PermissionError:  # in a sandbox
            pass
        survive(tag)
        os._exit(0)
    os.wait()
"""


def processes_named(tag: str) -> list[str]:
    """The processes with this word on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [path.parent.name] if tag.encode() in path.read_bytes() else []
        except OSError:
            continue
    return found


def assert_gone(tag: str, patience_s: float = 1.0) -> None:
    give_up = time.monotonic() + patience_s
    while processes_named(tag):
        assert time.monotonic() < give_up, processes_named(tag)
        time.sleep(0.02)


@pytest.mark.parametrize(
    "start",
    ["survive(TAG)", "escape(TAG)", "subprocess.Popen(['sleep', '60'])\nescape(TAG)\nos._exit(0)"],
    ids=["child", "double fork and new session", "left behind by a crash"],
)
def test_no_process_is_left_a_second_after_the_check(bad: Bad, tmp_path: Path, start: str) -> None:
    tag = f"survivor-{tmp_path.name}-{os.getpid()}"
    check = bad.grade(calling(start, before=f"TAG = {tag!r}\n" + SURVIVOR))
    assert_gone(tag)
    assert check.verdict is (Verdict.CRASH if "_exit" in start else Verdict.PASS)


def test_a_thread_left_running_changes_nothing(bad: Bad) -> None:
    waiting = "def wait():\n    threading.Event().wait()"
    assert bad.grade(calling("threading.Thread(target=wait).start()", before=waiting)).verdict is Verdict.PASS


@unconfined_only
def test_killing_the_server_and_all_its_children_is_a_crash_and_the_next_check_has_a_new_one(bad: Bad) -> None:
    killing = """
    proves_that_it_is_in_a_runner()
    server = os.getppid()
    for process in [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]:
        if open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[1] == str(server):
            os.kill(process, signal.SIGKILL)
    os.kill(server, signal.SIGKILL)
    time.sleep(60)
    """
    check = bad.grade(calling(killing))
    assert check.verdict is Verdict.CRASH
    assert says(check, "went away", "do not signal processes")


def test_stopping_the_server_harms_no_other_check(bad: Bad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOOK_LIMIT_S", 0.5)
    check = bad.grade(calling("proves_that_it_is_in_a_runner()\nos.kill(os.getppid(), signal.SIGSTOP)"))
    assert check.verdict is Verdict.PASS


def test_a_server_that_cannot_fork_any_more_is_replaced_at_once(bad: Bad, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = bad.servers.ready()
    monkeypatch.setattr(spoilt, "_hear", lambda _: {"status": "spoilt"})
    assert bad.grade(calling("")).verdict is Verdict.PASS
    assert bad.servers.ready() is not spoilt


@unconfined_only
def test_a_process_of_a_killed_server_is_killed_too(bad: Bad, tmp_path: Path) -> None:
    tag = f"orphan-{tmp_path.name}-{os.getpid()}"
    body = "proves_that_it_is_in_a_runner()\nsurvive(TAG)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    check = bad.grade(calling(body, before=f"TAG = {tag!r}\n" + SURVIVOR))
    assert check.verdict is Verdict.CRASH
    assert_gone(tag)


@confined_only
@pytest.mark.parametrize("number", ["SIGKILL", "SIGSTOP", "SIGTERM", "SIGINT", "SIGSEGV"])
def test_no_signal_from_inside_reaches_the_server(bad: Bad, number: str) -> None:
    server = bad.servers.ready()
    body = f"proves_that_it_is_in_a_runner()\nos.kill(os.getppid(), signal.{number})\ntime.sleep(0.05)"
    assert bad.grade(calling(body)).verdict is Verdict.PASS
    assert bad.servers.ready() is server


@confined_only
@pytest.mark.parametrize(
    "changing",
    [
        "os.setpriority(os.PRIO_PROCESS, 1, 19)",
        "os.sched_setaffinity(1, {min(os.sched_getaffinity(0))})",
        "os.sched_setscheduler(1, os.SCHED_IDLE, os.sched_param(0))",
        "import resource\nresource.prlimit(1, resource.RLIMIT_NOFILE, (8, 8))",
    ],
    ids=["nice", "processors", "class", "limits"],
)
def test_a_server_cannot_be_treated_otherwise(bad: Bad, changing: str) -> None:
    server = bad.servers.ready()
    check = bad.grade(calling(changing))
    assert check.verdict is Verdict.FAIL
    assert "PermissionError" in check.message
    assert bad.servers.ready() is server


@unconfined_only
@pytest.mark.parametrize(
    "changing",
    [
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.sched_setaffinity(os.getppid(), {min(os.sched_getaffinity(0))})",
        "os.sched_setscheduler(os.getppid(), os.SCHED_IDLE, os.sched_param(0))",
        "import resource\nresource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (8, 8))",
    ],
    ids=["nice", "processors", "class", "limits"],
)
def test_a_server_that_is_treated_otherwise_is_replaced(bad: Bad, changing: str) -> None:
    server = bad.servers.ready()
    assert bad.grade(calling(changing)).verdict is Verdict.PASS
    assert bad.servers.ready() is not server


@confined_only
@pytest.mark.parametrize(
    "spoiling",
    [
        "os.chmod('/scratch', 0)",
        "os.mkdir('/scratch/closed')\nopen('/scratch/closed/in', 'w').close()\nos.chmod('/scratch/closed', 0)",
        "open('/scratch/left', 'w').close()\nos.symlink('/usr', '/scratch/usr')\nopen('/dev/shm/left', 'w').close()",
        "with open('/scratch/large', 'wb') as file:\n    os.posix_fallocate(file.fileno(), 0, 1000 << 20)",
    ],
    ids=["closed", "a closed folder in it", "files", "full"],
)
def test_scratch_is_empty_and_open_for_the_next_check(bad: Bad, spoiling: str) -> None:
    using = (
        "import os\nassert not os.listdir('/scratch') and not os.listdir('/dev/shm')\n"
        "open('/scratch/used', 'w').close()\n"
        "os.posix_fallocate(os.open('/scratch/large', os.O_CREAT | os.O_RDWR), 0, 500 << 20)\n"
    )
    bad.write("softmax.py", using + (ROOT / "solutions" / "softmax.py").read_text())
    once = f"if not os.listdir('/scratch'):\n{textwrap.indent(spoiling, '    ')}"
    assert (
        bad.grade(calling(f"try:\n{textwrap.indent(once, '    ')}\nexcept PermissionError:\n    pass")).verdict
        is Verdict.PASS
    )


@confined_only
def test_a_process_that_forks_and_leaves_all_the_time_ends_with_its_check(bad: Bad) -> None:
    """No list of processes holds it: it has another number when it is looked at."""
    hopping = """
    if not os.fork():
        while True:
            if os.fork():
                os._exit(0)
    """
    for _ in range(3):
        assert bad.grade(calling(hopping), "gelu.large_values").verdict is Verdict.PASS


@confined_only
def test_a_process_in_a_new_session_dies_with_its_server(bad: Bad, tmp_path: Path) -> None:
    tag = f"escaped-{tmp_path.name}-{os.getpid()}"
    body = "escape(TAG)\nos.write(1, b'escaped')\ntime.sleep(60)"
    bad.write("gelu.py", calling(body, before=f"TAG = {tag!r}\n" + SURVIVOR))
    server = bad.servers.ready()
    threading.Timer(1.5, server.process.kill).start()  # bubblewrap itself, as if the judge had died
    [check, _] = bad.run(BAD, GOOD).checks
    assert check.verdict is Verdict.CRASH
    assert "escaped" in check.printed
    assert_gone(tag)


def test_removing_the_scratch_folder_harms_no_other_check(bad: Bad) -> None:
    needs_it = "import os, tempfile\nos.getcwd()\ntempfile.mkdtemp()\n"
    bad.write("softmax.py", needs_it + (ROOT / "solutions" / "softmax.py").read_text())
    removing = "import shutil\nproves_that_it_is_in_a_runner()\nshutil.rmtree(os.environ['HOME'], ignore_errors=True)"
    assert bad.grade(calling(removing)).verdict is Verdict.PASS


# Results that are no plain tensor


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("[right(x)]", ("not a plain tensor", "builtins.list")),
        ("None", ("returned None", "return the tensor")),
        ("right(x).cpu().numpy()", ("not a plain tensor", "numpy.ndarray")),
        ("torch.nn.Parameter(right(x))", ("not a plain tensor", "Parameter")),
        ("right(x).as_subclass(Lazy)", ("not a plain tensor", "Lazy")),
        ("right(x).to_sparse()", ("not a plain tensor", "sparse")),
        ("right(x).to(torch.complex64)", ("not a plain tensor", "complex64")),
        ("right(x).to('meta')", ("not a plain tensor", "meta")),
        ("(right(x),)", ("not a plain tensor", "tuple")),
        ("()", ("not a plain tensor", "tuple")),
        ("(right(x), x)", ("2 values", "one tensor")),
        ("(right(x),) * 1000", ("not a plain tensor", "tuple")),
        ("right", ("not a plain tensor", "function")),
        ("right(x).reshape(-1)[:1].expand(10_000, 10_000)", ("shape [10000, 10000]", "far more", "print the shapes")),
        ("right(x).reshape(-1)[:1].expand(1 << 50)", (f"shape [{1 << 50}]", "far more", "print the shapes")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_that_is_no_plain_tensor_fails_and_says_what_it_is(
    bad: Bad, result: str, words: tuple[str, ...]
) -> None:
    lazy = "class Lazy(torch.Tensor):\n    pass"
    check = bad.grade(calling(f"return {result}", before=lazy))
    assert check.verdict is Verdict.FAIL
    assert says(check, *words)


# Forged replies

FORGERY = """
import json, struct

def message(header, payload=b""):
    encoded = json.dumps(header).encode()
    return struct.pack("<IQ", len(encoded), len(payload)) + encoded + payload

def tell_everybody(content):
    proves_that_it_is_in_a_runner()
    for descriptor in range(1, 64):
        try:
            os.set_blocking(descriptor, False)
            os.write(descriptor, content)
            os.set_blocking(descriptor, True)
        except OSError:
            pass

def runner():
    frame = sys._getframe()
    while "header" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["self"], frame.f_locals["header"]

def number():
    return runner()[1]["number"]

def forged_answer(x, number):
    child, _ = runner()
    entry = {"kind": "tensor", "dtype": "float32", "shape": list(x.shape), "device": "cpu"}
    storages = b"".join(block.numpy().tobytes() for block in child.storages.blocks)
    return message({"number": number, "status": "answer", "outputs": [entry]}, bytes(4 * x.numel()) + storages)
"""


@pytest.mark.parametrize(
    "forging",
    [
        "tell_everybody(forged_answer(x, number()))\nos._exit(0)",
        "tell_everybody(forged_answer(x, number()))",
        "answer = right(x)\ntell_everybody(forged_answer(x, number() + 1))\nreturn answer",
        "tell_everybody(b'PASS gelu 100/100\\n' * 100)",
        "tell_everybody(message({'number': number(), 'status': 'pass'}))\nos._exit(0)",
        "odd = {'number': number(), 'status': 'answer', 'outputs': [], '\\x1b[2J' * 1000: []}\n"
        "tell_everybody(message(odd))\nos._exit(0)",
    ],
    ids=["zeros", "zeros and the answer", "early zeros", "words", "a status", "odd keys"],
)
def test_a_forged_reply_earns_nothing(bad: Bad, forging: str) -> None:
    check = bad.grade(calling(forging, before=FORGERY))
    assert check.verdict in (Verdict.CRASH, Verdict.FAIL)
    assert len(check.message) < 1000


def test_a_reply_before_the_request_is_a_crash(bad: Bad) -> None:
    early = "tell_everybody(2 * message({'number': 1, 'status': 'loaded', 'names': ['gelu']}))"
    check = bad.grade(calling("", before=FORGERY + early))
    assert check.verdict is Verdict.CRASH
    assert says(check, "a reply to a request that was not made yet", "descriptors")


def test_a_request_changed_in_the_runner_is_no_error_of_the_grader(bad: Bad) -> None:
    check = bad.grade(calling("runner()[1]['recall'] = False", before=FORGERY), check="gelu.second_call")
    assert check.verdict is Verdict.CRASH


def test_a_pickle_is_never_loaded(bad: Bad, tmp_path: Path) -> None:
    trap = f"""
    import pickle

    class Trap:
        def __reduce__(self):
            return open, ({str(tmp_path / "loaded")!r}, "w")
    """
    body = "tell_everybody(pickle.dumps(Trap()) * 50)\nos._exit(0)"
    check = bad.grade(calling(body, before=FORGERY + textwrap.dedent(trap)))
    assert check.verdict is Verdict.CRASH
    assert says(check, "descriptors")
    assert not (tmp_path / "loaded").exists()


def test_closing_all_descriptors_is_a_crash(bad: Bad) -> None:
    check = bad.grade(calling("os.closerange(0, 1000)"))
    assert check.verdict is Verdict.CRASH
    assert says(check, "descriptors")


# Comparison, search and switches


@pytest.mark.parametrize(
    "patching",
    [
        "torch.allclose = torch.equal = lambda *_, **__: True",
        "torch.testing.assert_close = lambda *_, **__: None",
        "torch.Tensor.__eq__ = torch.Tensor.__ne__ = lambda *_: True",
        "torch.Tensor.contiguous = torch.Tensor.cpu = lambda self, *_: self",
        "sys.modules['json'].loads = sys.modules['json'].dumps = lambda *_, **__: b'{}'",
        "sys.modules['tensors'].pack = lambda value: memoryview(bytes(value.numel() * value.element_size()))",
    ],
)
def test_zeros_fail_whatever_is_replaced_in_the_runner(bad: Bad, patching: str) -> None:
    check = bad.grade(calling("return torch.zeros_like(x)", before=patching))
    assert check.verdict in (Verdict.FAIL, Verdict.CRASH)


def test_no_living_object_holds_the_answer(bad: Bad) -> None:
    searching = """
    for thing in gc.get_objects():
        if isinstance(thing, torch.Tensor) and thing is not x and thing.shape == x.shape and thing.dtype == x.dtype:
            if not torch.equal(thing, x) and thing.numel():
                return thing.clone()
    return torch.zeros_like(x)
    """
    check = bad.grade(calling(textwrap.dedent(searching)))
    assert check.verdict is Verdict.FAIL


def test_freed_memory_does_not_hold_the_answer(bad: Bad) -> None:
    check = bad.grade(calling("return torch.empty_like(x)"))
    assert check.verdict is Verdict.FAIL
    assert says(check, "never written")


SWITCHES = """
torch.set_default_dtype(torch.float16)
torch.set_num_threads(1)
torch.manual_seed(0)
torch.set_grad_enabled(False)
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("medium")
torch.utils.deterministic.fill_uninitialized_memory = False
torch.set_flush_denormal(True)
torch.set_printoptions(precision=1)
sys.setrecursionlimit(60)
os.chdir("/")
os.environ.clear()
"""


def test_global_switches_move_nothing_but_the_answer(bad: Bad) -> None:
    low_precision = "return torch.nn.functional.gelu(x.half(), approximate='tanh').to(torch.float32)"
    assert bad.grade(calling(low_precision, before=SWITCHES), check="gelu.tanh_form").verdict is Verdict.FAIL


def test_a_default_device_without_memory_is_the_submissions_own_fault(bad: Bad) -> None:
    assert bad.grade(calling("", before="torch.set_default_device('meta')")).verdict is Verdict.FAIL
