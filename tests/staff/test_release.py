"""What students get: without anything of staff's, which a scan proves; and working, as a student would use it."""

import ast
import builtins
import keyword
import os
import re
import shutil
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from grader.doctor import Machine, can_run_kernels
from grader.release import write
from grader.release.plan import STAFF, Plan, Unplanned, student_project
from grader.release.scan import scan
from grader.release.secrets import Secrets
from grader.rubric import ROOT, Rubric

PLAN, SECRETS = Plan.of(ROOT), Secrets.of(ROOT)
SOLUTIONS = sorted((ROOT / "solutions").glob("*.py"))
HIDDEN = sorted((ROOT / "grader" / "hidden").glob("test_*.py"))
HINTS = yaml.safe_load((ROOT / "grader" / "hidden" / "rubric.yaml").read_text())["problems"]
runs_kernels = pytest.mark.skipif(bool(can_run_kernels(Machine.here())), reason=str(can_run_kernels(Machine.here())))


def run(*arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"COLUMNS": "120"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)


def release(dest: Path, *arguments: object, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run("-m", "grader", "release", dest, *arguments, cwd=root)


def tree(folder: Path) -> dict[str, bytes]:
    """All files below a folder but git's."""
    paths = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.relative_to(folder).parts]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def released(tmp_path_factory) -> Path:
    dest = tmp_path_factory.mktemp("course") / "release"
    done = release(dest)
    assert done.returncode == 0, done.stderr
    return dest


@pytest.fixture
def student(released, tmp_path) -> Path:
    """A student's clone."""
    subprocess.run(["git", "clone", "--quiet", str(released), str(tmp_path / "mine")], check=True)
    return tmp_path / "mine"


def planted(file: str, text: str, at_end: bool = True) -> list[str]:
    """What the scan says of the release with a text more in a file."""
    before = PLAN.files.get(file, b"").decode()
    files = {**PLAN.files, file: (before + text if at_end else text + before).encode()}
    return [str(finding) for finding in scan(replace(PLAN, files={file: files[file]}), SECRETS, ROOT)]


# What is in it


def test_the_release_has_what_a_student_needs_and_nothing_of_staffs(released):
    names = set(tree(released))
    assert {
        "README.md", "AGENTS.md", "LICENSE", "handout.md", "pyproject.toml", "conftest.py", ".gitignore",
        ".python-version", ".github/workflows/check.yml", "docs/measurements.md", "docs/check.svg",
        "grader/rubric.yaml", "grader/cli.py", "grader/pack/handed_in.py",
    } <= names  # fmt: skip
    assert not [name for name in names if name.startswith(tuple(f"{folder}/" for folder in STAFF))]
    for problem in Rubric.read().problems:
        assert {f"assignment/{problem}.py", f"tests/test_{problem}.py"} <= names
    assert not names - set(PLAN.files)


def test_a_stray_file_does_not_slip_in(tmp_path):
    root = copied_repository(tmp_path)
    for stray in ("assignment/answer.py", "grader/notes.md", "tests/stray.py"):
        (root / stray).write_text("")
    assert not {"assignment/answer.py", "grader/notes.md", "tests/stray.py"} & set(Plan.of(root).files)


def test_without_git_the_same_files_are_found_by_rule(tmp_path):
    root = copied_repository(tmp_path)
    shutil.rmtree(root / ".git")
    (root / "assignment" / "__pycache__").mkdir()
    (root / "assignment" / "__pycache__" / "gelu.cpython-311.pyc").write_bytes(b"")
    plan = Plan.of(root)
    assert (plan.files, plan.tracked) == (PLAN.files, False)
    done = release(tmp_path / "release", root=root)
    assert done.returncode == 0
    assert done.stderr.startswith("This is no git repository: all files of assignment, grader, tests are released.")


def test_a_git_that_fails_is_told_and_does_not_let_strays_in(tmp_path):
    root = copied_repository(tmp_path)
    (root / ".git" / "HEAD").write_text("broken")
    with pytest.raises(Unplanned, match="`git ls-files` failed: fatal"):
        Plan.of(root)


def test_a_repository_without_a_commit_is_released_too(tmp_path):
    root = copied_repository(tmp_path)
    subprocess.run(["git", "update-ref", "-d", "HEAD"], cwd=root, check=True)
    done = release(tmp_path / "release", root=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "release" / ".git").is_dir()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda root: (root / "assignment/gelu.py").unlink(), r"assignment/gelu\.py is tracked by git, and is not"),
        (lambda root: relink(root / "assignment/gelu.py"), r"assignment/gelu\.py is a link"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, change, said):
    root = copied_repository(tmp_path)
    change(root)
    with pytest.raises(Unplanned, match=said):
        Plan.of(root)


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to(ROOT / "solutions" / "gelu.py")


def test_the_readme_and_the_handout_link_to_files_that_are_there(released):
    for file in ("README.md", "handout.md", "AGENTS.md"):
        links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)\)", (released / file).read_text())
        assert all((released / link).is_file() for link in links), file
    named = re.findall(r"`([\w./]+\.(?:md|py|yaml|yml))`", (released / "README.md").read_text())
    assert named
    assert all((released / name).exists() for name in named), named


def test_the_readme_names_the_commands_that_there_are_and_no_others(released):
    readme = (released / "README.md").read_text()
    listed = re.findall(r"^  (\w+)  ", run("-m", "grader", "--help", cwd=released).stdout, re.MULTILINE)
    assert listed == ["check", "bench", "pack", "doctor"]
    named = set(re.findall(r"python -m grader (\w+)", readme))
    assert named <= set(listed)
    assert {"bench", "pack", "doctor", "check"} <= named


def test_students_check_their_own_package_and_have_no_tools_of_staffs(released):
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())
    theirs = tomllib.loads((released / "pyproject.toml").read_text())
    options = theirs["tool"]["pytest"]["ini_options"]
    assert (options["submission"], options["testpaths"]) == ("assignment", ["tests"])
    assert theirs["project"] == ours["project"]
    assert theirs["tool"]["uv"] == ours["tool"]["uv"]
    assert set(theirs) == {"project", "tool"}
    assert set(theirs["tool"]) == {"uv", "pytest"}
    kept = {"minversion", "addopts", "pythonpath", "timeout", "timeout_method"}
    assert {key: options[key] for key in kept} == {key: ours["tool"]["pytest"]["ini_options"][key] for key in kept}


def test_what_is_written_as_toml_is_read_as_it_was():
    text = 'a = "say \\"×\\" \\\\ \\n"\n[tool.uv]\nx = [1, 2.5]\ny = true\n[tool.pytest.ini_options]\nz = ["one"]\n'
    found = tomllib.loads(student_project(text))
    assert found["a"] == 'say "×" \\ \n'
    assert found["tool"]["uv"] == {"x": [1, 2.5], "y": True}
    assert found["tool"]["pytest"]["ini_options"]["z"] == ["one"]


def test_the_workflow_runs_the_self_check_and_is_red_until_it_passes(released):
    workflow = yaml.safe_load((released / ".github/workflows/check.yml").read_text())
    [job] = workflow["jobs"].values()
    assert "continue-on-error" not in job
    assert not any("continue-on-error" in step for step in job["steps"])
    [check] = [step["run"] for step in job["steps"] if "grader" in step.get("run", "")]
    assert check == "uv run python -m grader --json result.json"
    [upload] = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    assert (upload["if"], upload["with"]["path"]) == ("always()", "result.json")


# How it is written


def test_the_folder_is_a_repository_with_one_commit_of_nobodys(released):
    log = subprocess.run(
        ["git", "log", "--format=%an <%ae> %cn|%s", "--stat=0"], cwd=released, capture_output=True, text=True
    )
    assert log.stdout.splitlines()[0] == "Course staff <staff@localhost> Course staff|The assignment"
    assert log.stdout.count("Course staff <") == 1
    status = subprocess.run(["git", "status", "--porcelain"], cwd=released, capture_output=True, text=True)
    assert status.stdout == ""
    assert not (released / ".git" / "hooks").exists()


def test_the_same_repository_gives_the_same_commit_and_the_same_archive(released, tmp_path):
    assert release(tmp_path / "again").returncode == 0
    heads = {
        subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True).stdout
        for folder in (released, tmp_path / "again")
    }
    assert len(heads) == 1
    for name in ("a.zip", "b.zip"):
        assert release(tmp_path / name, "--zip").returncode == 0
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    zipfile.ZipFile(tmp_path / "a.zip").extractall(tmp_path / "unpacked")
    [folder] = (tmp_path / "unpacked").iterdir()
    assert folder.name == Rubric.read().public.assignment
    assert tree(folder) == tree(released)


def test_an_empty_folder_may_be_there(tmp_path):
    (tmp_path / "empty").mkdir()
    assert release(tmp_path / "empty").returncode == 0
    assert (tmp_path / "empty" / "README.md").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize(
    ("dest", "arguments", "said"),
    [
        ("full", [], "is not empty"),
        ("file", [], "is there already, and is no folder"),
        ("nowhere/release", [], "There is no folder"),
        ("release", ["--zip"], "does not end in .zip"),
        ("there.zip", ["--zip"], "is there already"),
    ],
)
def test_nothing_that_is_there_is_overwritten(tmp_path, dest, arguments, said):
    (tmp_path / "full").mkdir()
    for name in ("full/mine", "file", "there.zip"):
        (tmp_path / name).write_text("mine")
    before = tree(tmp_path)
    done = release(tmp_path / dest, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert tree(tmp_path) == before


def test_where_git_is_missing_it_is_said_and_the_folder_is_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(write.shutil, "which", lambda name: None)
    said = []
    write.write_folder(tmp_path / "release", PLAN, "", told=said.append)
    assert said == ["There is no git here: the folder is no repository yet."]
    assert tree(tmp_path / "release") == dict(PLAN.files)
    assert not (tmp_path / "release" / ".git").exists()


def test_nothing_half_written_stays_where_writing_fails(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(write, "commit_all", refuse)
    with pytest.raises(OSError, match="full"):
        write.write_folder(tmp_path / "release", PLAN, "", told=print)
    assert list(tmp_path.iterdir()) == []


def copied_repository(tmp_path: Path) -> Path:
    """A copy of this repository as it lies here, with its git."""
    root = tmp_path / "staff"
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    for arguments in (["init", "--quiet"], ["add", "--all", "--force"]):
        subprocess.run(["git", *arguments], cwd=root, check=True)
    commit = ["git", "-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "--quiet", "--message=all"]
    subprocess.run(commit, cwd=root, check=True)
    return root


def test_a_leak_is_one_line_ends_with_1_and_writes_nothing(tmp_path):
    root = copied_repository(tmp_path)
    hint = HINTS["softmax"]["half_sums"]["hint"]
    with (root / "handout.md").open("a") as file:
        file.write(f"\nBeware: {hint}.\n")
    lines = (root / "handout.md").read_text().count("\n")
    done = release(tmp_path / "release", root=root)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == (f"handout.md, line {lines}: the hint of the hidden check softmax.half_sums")
    assert len(done.stderr.splitlines()) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["staff"]
    assert release(tmp_path / "release.zip", "--zip", root=root).returncode == 1
    assert not (tmp_path / "release.zip").exists()


def test_what_is_not_committed_is_said(tmp_path):
    root = copied_repository(tmp_path)
    with (root / "handout.md").open("a") as file:
        file.write("\nOne line more.\n")
    (root / "README.md").write_text("ours, not theirs")
    done = release(tmp_path / "release", root=root)
    assert done.returncode == 0
    assert done.stderr == "Released as they lie here, not as committed: handout.md.\n"


# The scan


def test_the_scan_finds_nothing_in_what_is_released():
    assert [str(finding) for finding in scan(PLAN, SECRETS, ROOT)] == []


def renamed(code: str) -> str:
    """Code with another name for everything that its writer could have called otherwise."""
    names: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        word = match.group()
        fixed = keyword.iskeyword(word) or hasattr(builtins, word)
        return word if fixed else names.setdefault(word, f"other{len(names)}")

    return re.sub(r"(?<![\w.])[A-Za-z_]\w*", other, code)


def functions(path: Path) -> list[str]:
    """The source of the functions of a solution, without words, that are long enough to find: 40 tokens and more."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    for node in found:
        if ast.get_docstring(node):
            node.body[:1] = []
    return [ast.unparse(node) for node in found if node.body and len(ast.unparse(ast.Module(node.body, []))) > 300]


ANSWERS = [code for path in SOLUTIONS for code in functions(path)]
PLACES = {
    "a check": ("tests/test_gelu.py", "\n\n{}\n"),
    "a stub": ("assignment/softmax.py", "\n\n{}\n"),
    "a new module": ("assignment/own.py", "{}\n"),
    "Markdown": ("handout.md", "\n```python\n{}\n```\n"),
    "a comment": ("grader/judge/reference/gelu.py", "\n# {}\n"),
    "a comment in YAML": ("grader/rubric.yaml", "\n# {}\n"),
    "a docstring": ("assignment/gelu.py", '\n\ndef later():\n    """Later.\n\n    {}\n    """\n'),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_scan_finds_every_solution_wherever_it_is_and_whatever_its_names(place):
    file, around = PLACES[place]
    assert len(ANSWERS) >= 30
    for code in ANSWERS:
        before, _, after = around.partition("{}")
        prefix = "# " if before.endswith("# ") else "    " if before.endswith("    ") else ""
        text = before + renamed(code).replace("\n", f"\n{prefix}") + after
        assert any("40 tokens of " in found and found.startswith(file) for found in planted(file, text)), text


@pytest.mark.parametrize("between", ["  # a remark\n", '\n"""A remark."""\n', "\n\n"])
def test_the_scan_finds_a_solution_with_remarks_between_its_lines(between):
    for code in ANSWERS:
        assert planted("handout.md", "\n" + code.replace("\n", between)), code


def longest(path: Path) -> ast.FunctionDef:
    """The longest function of a solution."""
    found = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return max(found, key=lambda node: len(ast.unparse(node.body)))


def test_the_scan_finds_a_solution_as_it_is_written_and_with_other_breaks_of_lines():
    for path in SOLUTIONS[1:]:
        function = longest(path)
        text = ast.get_source_segment(path.read_text(), function)
        for written in (text, re.sub(r",\n\s*\)", ")", text), " ".join(re.sub("#.*", "", text).split())):
            found = planted("handout.md", f"\n{written}\n")
            assert any(one.endswith(f"40 tokens of solutions/{path.name}, {function.name}") for one in found), written


def test_the_scan_finds_a_part_of_a_solution_and_says_the_line():
    path = ROOT / "solutions" / "matmul.py"
    function = longest(path)
    text = ast.unparse(function.body[len(function.body) // 2 :])
    lines = PLAN.files["tests/test_gelu.py"].decode().count("\n")
    [found] = [one for one in planted("tests/test_gelu.py", f"\n\n{text}\n") if "solutions/matmul.py" in one]
    line = int(re.search(r"line (\d+)", found)[1])
    assert lines <= line <= lines + 3  # what stands before may end as a line of the solution does
    assert found.endswith(f": 40 tokens of solutions/matmul.py, {function.name}")


def test_a_long_list_of_names_is_no_solution(tmp_path):
    root = copied_repository(tmp_path)
    names = ", ".join(f"argument{number}" for number in range(60))
    (root / "solutions" / "gelu.py").write_text(f"def launch({names}):\n    return kernel({names})\n")
    files = {"tests/test_gelu.py": f"from somewhere import ({names})\n".encode()}
    assert scan(replace(PLAN, files=files), Secrets.of(root), ROOT) == []


@pytest.mark.parametrize("path", HIDDEN, ids=lambda path: path.stem)
def test_the_scan_finds_every_hidden_title_however_it_is_broken_into_lines(path):
    checks = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)]
    titles = [(ast.get_docstring(node) or "").splitlines()[0] for node in checks if node.name.startswith("test_")]
    assert titles
    for title in titles:
        for text in (title, title.upper(), title.replace(" ", "\n# "), title.replace(" ", "\n    ")):
            assert planted("handout.md", f"\n{text}\n"), text


@pytest.mark.parametrize("problem", HINTS)
def test_the_scan_finds_every_hidden_hint(problem):
    for name, entry in HINTS[problem].items():
        broken = entry["hint"].replace(" ", "\n# ", 3)
        found = planted("grader/rubric.yaml", f"\n# {broken}\n")
        assert [one.partition(": ")[2] for one in found] == [f"the hint of the hidden check {problem}.{name}"]


@pytest.mark.parametrize("case", [
    "Input((51, 83), layout=row_pitch(97))",
    "Input(\n    (51, 83),\n    layout=row_pitch(97),\n)",
    "# Input((51, 83), layout=row_pitch(97.0))",
    "(3, 63, 129, 2047, 12345)",
    "Input((5, 333), values=SCATTERED)",
    "Training(MLP, world=3, rows=(2, 5, 9), note='each rank another number of rows')",
])  # fmt: skip
def test_the_scan_finds_a_hidden_case(case):
    found = planted("tests/test_gelu.py", f"\n\n{case}\n")
    assert len(found) == 1
    assert "a case of grader/hidden/test_" in found[0]


def test_the_scan_finds_a_hidden_network_and_not_a_number_that_is_anybodys():
    source = (ROOT / "grader" / "hidden" / "test_ddp.py").read_text()
    start = source.index("UNEVEN = ")
    assert any("a case of" in one for one in planted("handout.md", source[start : source.index("BATCHES", start)]))
    assert planted("tests/test_gelu.py", "\n\nTURNED, SOME = permuted(1, 0), (51, 83)\n") == []


@pytest.mark.parametrize(("file", "text", "what"), [
    ("handout.md", "see solutions/gelu.py", "the staff path solutions/"),
    ("assignment/gelu.py", "# as in ../solutions/gelu.py", "the staff path solutions/"),
    ("tests/test_gelu.py", "# tests/staff/test_gpu.py has more", "the staff path tests/staff"),
    ("grader/rubric.yaml", "# more in grader/hidden.", "the staff path grader/hidden"),
    ("README.md", "run `.ci/run`", "the staff path .ci/"),
    ("README.md", "`docs/capture.py` takes it", "the staff path docs/capture.py"),
    ("tests/test_gelu.py", "from solutions.gelu import gelu", "an import of solutions.gelu.gelu"),
    ("tests/test_gelu.py", "from solutions import gelu", "an import of solutions.gelu"),
    ("tests/test_gelu.py", "def f():\n    import tests.staff.conftest", "an import of tests.staff.conftest"),
    ("grader/cli.py", "from grader import staff", "an import of grader.staff"),
    ("README.md", f"made in {ROOT}", "the repository's path on this machine"),
])  # fmt: skip
def test_the_scan_finds_a_staff_path(file, text, what):
    line = PLAN.files[file].count(b"\n") + 2
    assert f"{file}, line {line + text.count(chr(10))}: {what}" in planted(file, f"\n{text}\n")


@pytest.mark.parametrize("text", [
    "the solutions of others", "a hidden check", "`grader/hiding`", "my-solutions/x", "the staff", "grade.ci/cd",
    'HIDDEN = ROOT / "grader" / "hidden"', "from grader import staffing", "import solutionsx",
])  # fmt: skip
def test_the_scan_lets_pass_what_is_no_staff_path(text):
    assert planted("tests/test_gelu.py", f"\n{text}\n") == []


@pytest.mark.parametrize("file", [
    "solutions/gelu.py", "solutions/not/tracked.py", "tests/staff/coverage.yaml", "docs/capture.py", ".ci/run",
])  # fmt: skip
def test_the_scan_finds_a_file_at_a_staff_path(file):
    assert f"{file}, line 1: a staff path" in planted(file, "")


def test_the_scan_finds_a_speed_compared_with_a_solution_and_a_file_that_is_no_text():
    rubric = PLAN.files["grader/rubric.yaml"].decode()
    assert planted("grader/rubric.yaml", "\n# baseline: solution\n") == []
    for before, after in (("baseline: cublas", "baseline: solution"), ("baseline: cublas", 'baseline: "solution"')):
        files = {"grader/rubric.yaml": rubric.replace(before, after, 1).encode()}
        [found] = scan(replace(PLAN, files=files), SECRETS, ROOT)
        line = rubric[: rubric.index(before)].count("\n") + 1
        assert str(found) == (
            f"grader/rubric.yaml, line {line}: a speed compared with a solution, which students do not have"
        )
    title = "Every&#160;finite</text><text class='a'>value is&#160;right."
    [found] = planted("docs/check.svg", f"<text>{title}</text>\n")
    assert "the title of grader/hidden/test_gelu.py, test_mixed_values" in found
    files = {"docs/picture.png": b"\x89PNG"}
    assert [one.what for one in scan(replace(PLAN, files=files), SECRETS, ROOT)] == ["no text: it cannot be searched"]


def test_without_anything_to_look_for_nothing_is_released(tmp_path):
    root = copied_repository(tmp_path)
    shutil.rmtree(root / "grader" / "hidden")
    with pytest.raises(Unplanned, match="there are no sentences to look for"):
        Secrets.of(root)


# As a student uses it


def test_every_module_of_the_release_imports_with_what_is_there(released):
    program = """
    import importlib, pathlib, sys
    for path in sorted(pathlib.Path("grader").rglob("*.py")):
        if path.stem != "__main__" and path.parent.name != "runner":
            importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    sys.path.insert(0, "grader/runner")
    for path in sorted(pathlib.Path("grader/runner").glob("*.py")):
        if path.stem != "__main__":
            importlib.import_module(path.stem)
    print("all", sorted({name for name in sys.modules if name.startswith(("grader.staff", "grader.hidden"))}))
    """
    done = run("-c", textwrap.dedent(program), cwd=released)
    assert done.stdout == "all []\n", done.stderr
    files = [path for path in released.rglob("*.py") if path.parent.name != "runner"]
    named = {name for path in files for name in grader_modules(ast.parse(path.read_text()))}
    assert not [name for name in named if not (released / f"{name.replace('.', '/')}.py").is_file()
                and not (released / name.replace(".", "/")).is_dir()]  # fmt: skip


def grader_modules(tree: ast.Module) -> set[str]:
    """The modules of the grader that a module imports, in functions too."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {node.module for node in nodes if (node.module or "").startswith("grader")}


@runs_kernels
def test_the_first_command_says_what_is_to_do_and_ends_with_1(student):
    done = run("-m", "grader", "check", "gelu", cwd=student)
    assert done.returncode == 1
    assert "todo  gelu: not written yet" in done.stdout
    assert done.stderr == ""


@runs_kernels
def test_a_right_kernel_passes_check_and_pytest(student):
    shutil.copy(ROOT / "solutions" / "gelu.py", student / "assignment" / "gelu.py")
    assert run("-m", "grader", "check", "gelu", cwd=student).returncode == 0
    done = run("-m", "pytest", "tests/test_gelu.py", "-k", "sizes", cwd=student)
    assert done.returncode == 0, done.stdout
    assert f"submission: {student / 'assignment'}" in done.stdout


def test_pack_doctor_and_bench_work_and_staffs_commands_are_not_there(student):
    done = run("-m", "grader", "pack", cwd=student)
    assert done.returncode == 1
    assert (student / "submission.zip").is_file()
    status = subprocess.run(["git", "status", "--porcelain"], cwd=student, capture_output=True, text=True)
    assert status.stdout == ""  # what is handed in is not committed
    done = run("-m", "grader", "doctor", cwd=student)
    assert done.returncode in (0, 1)
    assert "torch" in done.stdout
    done = run("-m", "grader", "bench", "--plot", "x.txt", cwd=student)
    assert (done.returncode, done.stderr) == (2, "A picture is .svg or .png, and x.txt ends otherwise.\n")
    for command in ("grade", "release"):
        done = run("-m", "grader", command, "assignment", cwd=student)
        assert done.returncode == 2
        assert f"There is no problem or check `{command}`" in done.stderr


def test_a_name_like_a_command_is_suggested_only_where_there_is_one(student):
    assert "did you mean `pack`?" in run("-m", "grader", "pck", cwd=student).stderr
    assert "did you mean `grade`?" in run("-m", "grader", "graed").stderr
    assert "did you mean" not in run("-m", "grader", "graed", cwd=student).stderr
