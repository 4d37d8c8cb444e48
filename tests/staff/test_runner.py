"""What a submission finds in its process: one connection, a clean environment, and nothing of the judge.

A submission here looks around and reports by an exception, whose text reaches the test unabridged.
"""

import ast
import io
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.judge.cases import Input
from grader.judge.servers import Servers
from grader.judge.submission import CheckProcess, Submission
from grader.sandbox.levels import RUNNER_FOLDER

from .conftest import ROOT, seen_inside

LookAround = Callable[[str], Any]
# Lines of code, with what is written in comments and docstrings aside. One sitting each: what is imported beside
# a kernel; how that is watched; what a check of several ranks has besides; and what the clock has.
SITTINGS = {
    "kernels": (500, {"__main__", "loading", "probe", "protocol", "tensors", "verbs"}),
    "watching": (320, {"operators", "origins", "watch"}),
    "ranks": (380, {"scenario", "group", "networks"}),
    "clock": (140, {"timing", "blocks", "estimate"}),
}
HAVE_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef)
TOKEN = "a-token-of-the-judge"


@pytest.fixture
def look_around(servers: Servers, tmp_path: Path) -> LookAround:
    """Evaluate an expression inside a submission; its value came through JSON."""
    return lambda expression: seen_inside(servers, tmp_path, expression)


@pytest.fixture(scope="module")
def servers_with_secrets() -> Iterator[Servers]:
    """Servers of a judge that has a token in its environment and an open file that children would inherit."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryFile() as file:
        patch.setenv("STAFF_TOKEN", TOKEN)
        patch.setenv("PYTHONPATH", f"/{TOKEN}")
        os.set_inheritable(file.fileno(), True)
        servers = Servers()
        servers.ready()
        yield servers
        servers.close()


DESCRIPTORS = """
found = {}
for name in os.listdir("/proc/self/fd"):
    try:
        found[name] = os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:  # the listing's own
        pass
return found
"""


def test_a_child_has_one_descriptor_besides_input_and_outputs(servers_with_secrets: Servers, tmp_path: Path) -> None:
    found = seen_inside(servers_with_secrets, tmp_path, DESCRIPTORS)
    assert found.pop("0") == "/dev/null"
    assert found.pop("1").startswith("pipe:")
    assert found.pop("2").startswith("pipe:")
    assert [target.partition(":")[0] for target in found.values()] == ["socket"]


def test_two_children_share_no_connection(look_around: LookAround) -> None:
    def connections() -> set[str]:
        """Sockets and pipes, by their numbers; a GPU's device files and event counters connect nobody."""
        return {target for target in look_around(DESCRIPTORS).values() if target.startswith(("socket:", "pipe:"))}

    first, second = connections(), connections()
    assert first
    assert not first & second


def test_nothing_of_the_judges_environment_is_in_the_childs(servers_with_secrets: Servers, tmp_path: Path) -> None:
    seen = seen_inside(
        servers_with_secrets,
        tmp_path,
        """
        places = [f"/proc/{process}/{name}" for process in ("self", os.getppid()) for name in ("environ", "cmdline")]
        files = [open(place, "rb").read().decode() for place in places]
        return [dict(os.environ), sys.argv, sys.orig_argv, sys.path, *files]
        """,
    )
    assert TOKEN not in json.dumps(seen)
    assert seen[0]["USER"] == "runner"


def test_the_environment_holds_what_a_kernel_needs_and_no_more(look_around: LookAround) -> None:
    known = {
        "HOME", "TMPDIR", "USER", "LANG", "PATH", "XDG_CACHE_HOME", "TRITON_CACHE_DIR", "OMP_NUM_THREADS",
        "TRITON_INTERPRET", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME",
        "TRITON_LIBCUDA_PATH", "CC", "LC_CTYPE", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TORCHINDUCTOR_CACHE_DIR",
        "CUDA_CACHE_PATH", "MALLOC_MMAP_THRESHOLD_",
    }  # fmt: skip
    assert set(look_around("return list(os.environ)")) <= known


def test_the_working_folder_is_scratch_and_goes_with_the_server(tmp_path: Path) -> None:
    servers = Servers()
    try:
        folder, home, writable = seen_inside(
            servers, tmp_path, "return os.getcwd(), os.environ['HOME'], os.access('.', os.W_OK)"
        )
    finally:
        servers.close()
    assert folder == home
    assert writable
    assert Path(folder).parent == Path(tempfile.gettempdir())
    assert not Path(folder).exists()


def test_nothing_of_the_judge_is_imported(look_around: LookAround) -> None:
    folders = look_around(f"""
    files = {{name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}}
    ours = [name for name, file in files.items() if file.startswith({str(ROOT)!r}) and sys.prefix not in file]
    return sorted({{os.path.dirname(files[name]) for name in ours}}), "grader" in sys.modules, "pytest" in sys.modules
    """)
    assert folders == [[str(RUNNER_FOLDER)], False, False]


def test_no_search_path_leads_to_the_grader(look_around: LookAround) -> None:
    assert look_around("return [place for place in sys.path if os.path.isdir(place + '/grader')]") == []
    assert str(RUNNER_FOLDER) not in look_around("return sys.path")
    assert "" not in look_around("return sys.path")


@pytest.mark.parametrize("name", ["grader", "grader.judge", "grader.hidden", "solutions", "tests", "conftest"])
def test_modules_of_the_repository_cannot_be_imported(look_around: LookAround, name: str) -> None:
    trying = f"""
    try:
        import {name}
    except ModuleNotFoundError as error:
        return str(error)
    """
    assert look_around(trying) == f"No module named '{name.partition('.')[0]}'"


def test_the_interpreter_is_isolated(look_around: LookAround) -> None:
    flags = look_around("return [sys.flags.isolated, sys.flags.no_user_site, sys.dont_write_bytecode]")
    assert flags == [1, 1, True]


def test_one_thread_computes(look_around: LookAround) -> None:
    assert look_around("import torch\nreturn torch.get_num_threads()") == 1


def test_a_child_is_new_for_each_check(look_around: LookAround) -> None:
    expression = "sys.seen = getattr(sys, 'seen', 0) + 1\nreturn sys.seen"
    assert [look_around(expression), look_around(expression)] == [1, 1]


# The runner's own source, and the judge's


KEEPS_ITS_ARGUMENTS = """import torch

SEEN = []


def gelu(x):
    SEEN.append(x)
    return torch.tensor([float(SEEN[0] is x)])
"""


def test_a_second_call_has_the_same_tensor_with_new_content(servers: Servers, tmp_path: Path) -> None:
    (tmp_path / "gelu.py").write_text(KEEPS_ITS_ARGUMENTS)
    process = CheckProcess(servers, tmp_path, "gelu", 20.0)
    first, second = (Input((3,)).draw(torch.Generator()) for _ in range(2))
    try:
        gelu = Submission(process).gelu
        gelu(first)
        again, _ = gelu.again(second)
        third = gelu(second)
    finally:
        process.close()
    assert (again.plain().item(), third.plain().item()) == (1.0, 0.0)


def test_the_runner_imports_nothing_else_of_the_grader() -> None:
    own = {path.stem for path in RUNNER_FOLDER.glob("*.py")}
    allowed = sys.stdlib_module_names | own | {"torch", "triton", "numpy"}
    for path in RUNNER_FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path.name}:{node.lineno}"
                assert str(node.module).partition(".")[0] in allowed, f"{path.name}:{node.lineno}"
            elif isinstance(node, ast.Import):
                names = {alias.name.partition(".")[0] for alias in node.names}
                assert names <= allowed, f"{path.name}:{node.lineno}"


def lines_of_code(source: str) -> int:
    """Lines that hold a token of code; a docstring is a statement of its own that is nothing but a string."""
    nodes = [node.body[0] for node in ast.walk(ast.parse(source)) if isinstance(node, HAVE_DOCSTRING) and node.body]
    docstrings = {
        line
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    ignored = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for token in tokens if token.type not in ignored for line in range(token.start[0], token.end[0] + 1)}
    return len(code - docstrings)


def test_lines_of_code_leave_out_blank_lines_comments_and_docstrings() -> None:
    source = (
        '"""A module."""\n\nx = 1  # one\n# two\n\n\ndef f():\n    """Three\n    lines."""\n    return """a\nb"""\n'
    )
    assert lines_of_code(source) == 4


@pytest.mark.parametrize("about", SITTINGS)
def test_the_runner_can_be_read_in_one_sitting_about_each_thing(about: str) -> None:
    most, names = SITTINGS[about]
    lines = {name: lines_of_code((RUNNER_FOLDER / f"{name}.py").read_text()) for name in names}
    assert sum(lines.values()) < most, lines


def test_every_file_of_the_runner_is_read_in_one_of_the_sittings() -> None:
    assert {path.stem for path in RUNNER_FOLDER.rglob("*.py")} == {
        name for _, names in SITTINGS.values() for name in names
    }


def test_a_second_watch_takes_the_place_of_the_first(tmp_path: Path) -> None:
    """As under `pytest --here`, where all checks run in one process: the first would take new tensors for none."""
    program = f"""
    import sys
    sys.path.insert(0, {str(RUNNER_FOLDER)!r})
    import origins, torch, triton, watch
    import triton.language as tl

    @triton.jit
    def kernel(x):
        tl.load(x + 1000)

    watches = [watch.Watch(lambda: None, origins.Origins()) for _ in range(2)]
    for one in watches:
        one.install()
    kernel[(1,)](torch.zeros(1))
    print([len(one.reports) for one in watches])
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=120, env=environment
    )
    assert ended.stdout.splitlines() == ["[0, 1]"], ended


def test_the_judge_never_imports_triton(tmp_path: Path) -> None:
    program = """
    import sys
    from grader.cli import main
    sys.argv = ["grader", "check", "gelu.sizes", "--submission", "solutions"]
    try:
        main()
    except SystemExit as end:
        print(end.code, [name for name in sys.modules if name.partition(".")[0] in ("triton", "assignment")])
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ended.stdout.splitlines()[-1:] == ["0 []"], ended
