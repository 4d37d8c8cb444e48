"""`pack`: each problem's state as the text says it, what comes along, and one file whose bytes are its content's."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from grader.judge.snapshot import Snapshot
from grader.pack.handed_in import contents_of
from grader.pack.manifest import Manifest
from grader.rubric import ROOT, Rubric

RUBRIC = Rubric.read()
RIGHT = "def {}(*arguments):\n    return arguments[0]\n"


def pack(folder: Path, *arguments: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "grader", "pack", "--submission", str(folder), *map(str, arguments)]
    environment = os.environ | {"COLUMNS": "160", "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture
def whole(tmp_path):
    """A folder in which all can be graded, as far as its text says."""
    folder = tmp_path / "assignment"
    folder.mkdir()
    for problem, entry in RUBRIC.problems.items():
        (folder / f"{problem}.py").write_text("\n\n".join(RIGHT.format(name) for name in entry.functions))
    return folder


def manifest_of(folder: Path) -> Manifest:
    snapshot = Snapshot.of(folder)
    try:
        return Manifest.of(snapshot, contents_of(snapshot), RUBRIC.problems)
    finally:
        snapshot.remove()


def told(folder: Path, problem: str) -> list[str]:
    """The words on each function of a problem, or what keeps it from being imported."""
    [row] = [row for row in manifest_of(folder).rows if row.problem == problem]
    return list(row.faults) or [function.words for function in row.functions]


def test_what_is_whole_is_written_and_ends_with_0(whole, tmp_path):
    done = pack(whole, "--out", tmp_path / "mine.zip")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Earns nothing" not in done.stdout
    written = (tmp_path / "mine.zip").read_bytes()
    assert hashlib.sha256(written).hexdigest() in done.stdout
    names = zipfile.ZipFile(tmp_path / "mine.zip").namelist()
    assert names == sorted(f"assignment/{problem}.py" for problem in RUBRIC.problems)


def test_the_archive_is_the_same_whenever_and_wherever_it_is_written(whole, tmp_path):
    pack(whole, "--out", tmp_path / "first.zip")
    other = tmp_path / "elsewhere" / "of other rights"
    shutil.copytree(whole, other)
    for path in other.iterdir():
        path.chmod(0o700)
        os.utime(path, (0, 2_000_000_000))
    pack(other, "--out", tmp_path / "second.zip")
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()
    assert {info.external_attr >> 16 for info in zipfile.ZipFile(tmp_path / "first.zip").infolist()} == {0o100644}


def test_what_is_unpacked_has_the_hash_that_was_told_and_that_results_show(tmp_path):
    done = pack(ROOT / "tests/staff/submissions/wrong/gelu_overflow", "--out", tmp_path / "mine.zip")
    zipfile.ZipFile(tmp_path / "mine.zip").extractall(tmp_path / "unpacked")
    hashed = Snapshot.of(tmp_path / "unpacked").sha256
    assert f"content: {hashed}" in done.stdout
    result = tmp_path / "result.json"
    command = [sys.executable, "-m", "grader", "grade", "--unsafe-no-sandbox", tmp_path / "unpacked", "--json", result]
    subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert json.loads(result.read_text())["submission"]["tree_sha256"] == hashed


def test_a_second_run_is_not_confused_by_the_file_of_the_first(whole):
    first = pack(whole, "--out", whole / "submission.zip")
    written = (whole / "submission.zip").read_bytes()
    second = pack(whole, "--out", whole / "submission.zip")
    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout == second.stdout
    assert (whole / "submission.zip").read_bytes() == written
    assert sorted(path.suffix for path in whole.iterdir()) == [".py"] * len(RUBRIC.problems) + [".zip"]


def test_untouched_stubs_are_to_do_and_written_all_the_same(tmp_path):
    done = pack(ROOT / "assignment", "--out", tmp_path / "mine.zip")
    assert done.returncode == 1
    assert "still to do: __init__, forward, no_sync, finish_gradient_synchronization" in done.stdout
    assert f"Earns nothing as it is: {', '.join(RUBRIC.problems)}." in done.stdout
    assert "Comes along: _autotune.py." in done.stdout
    assert zipfile.is_zipfile(tmp_path / "mine.zip")


def test_only_what_earns_nothing_is_named(whole, tmp_path):
    unwritten = 'def flash_attention_backward(q):\n    """To come."""\n    raise NotImplementedError("later")\n'
    with (whole / "flash_attention.py").open("a") as file:
        file.write(unwritten)
    done = pack(whole, "--out", tmp_path / "mine.zip")
    assert done.returncode == 1
    assert "Earns nothing as it is: flash_attention.flash_attention_backward." in done.stdout


def test_a_class_that_is_partly_done_is_not_said_to_earn_nothing(whole, tmp_path):
    text = (ROOT / "solutions" / "sharded_optimizer.py").read_text()
    unwritten = "\n\nclass ShardedOptimizer:\n    def __init__(self):\n        self.a = 1\n\n    def step(self):\n"
    (whole / "sharded_optimizer.py").write_text(text + unwritten + "        raise NotImplementedError\n")
    done = pack(whole, "--out", tmp_path / "mine.zip")
    assert done.returncode == 1
    assert "partly done: still to do: step" in done.stdout
    assert "Incomplete: sharded_optimizer.ShardedOptimizer. Checks that need the rest earn nothing." in done.stdout
    assert "Earns nothing" not in done.stdout


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def gelu(x):\n    raise NotImplementedError\n", ["still to do"]),
        ("def gelu(x):\n    '''Words.'''\n", ["still to do"]),
        ("def gelu(x):\n    ...\n", ["still to do"]),
        ("def gelu(x):\n    if x is None:\n        raise NotImplementedError\n    return x\n", ["ready"]),
        ("def gelu_(x):\n    return x\n", ["missing; `gelu_`: did you mean `gelu`?"]),
        ("def other(x):\n    return x\n", ["missing"]),
        ("gelu = torch_gelu = lambda x: x\n", ["ready"]),
        ("gelu: object\n", ["missing"]),
        ("try:\n    import triton\nexcept ImportError:\n    gelu = 1\n", ["ready"]),
        ("from .own import mine as gelu\n", ["ready"]),
        ("from .own import later as gelu\n", ["still to do"]),
        ("from .own import *\n", ["ready"]),
        ("from assignment.own import gelu\n", ["ready"]),
        ("from assignment.own import later as gelu\n", ["still to do"]),
        ("from assignment.owm import gelu\n", ["gelu.py, line 1: there is no module `owm` beside it; did you mean "
                                               "`own`?"]),
        ("import assignment.owm\ndef gelu(x): return x\n", ["gelu.py, line 1: there is no module `owm` beside it; did "
                                                            "you mean `own`?"]),
        ("def gelu(x):\n    return (x\n", ["gelu.py, line 2: not Python: '(' was never closed"]),
        ("from .owm import gelu\n", ["gelu.py, line 1: there is no module `owm` beside it; did you mean `own`?"]),
        ("from . import owm\ndef gelu(x): return x\n", ["gelu.py, line 1: there is no module `owm` beside it; did you "
                                                       "mean `own`?"]),
        ("from .own import gelo\ndef gelu(x): return x\n", ["gelu.py, line 1: own.py has no `gelo`; did you mean "
                                                           "`gelu`?"]),
        ("import own\ndef gelu(x): return x\n", ["gelu.py, line 1: `import own` does not find it when graded: write "
                                                "`from . import own`"]),
        ("def gelu(x):\n    from own import mine\n    return x\n", ["gelu.py, line 2: `from own import` does not find "
                                                                  "it when graded: write `from .own import`"]),
        ("from ..own import gelu\n", ["gelu.py, line 1: there are more dots than folders: it leads out of what is "
                                      "graded"]),
        ("try:\n    import own\nexcept ImportError:\n    from . import own\ndef gelu(x): return x\n", ["ready"]),
        ("import random, torch\ndef gelu(x): return x\n", ["ready"]),
        ("from .folder.inner import mine\ndef gelu(x): return x\n", ["folder/inner.py, line 1: there is no module "
                                                                    "`zzz` beside it"]),
    ],
)  # fmt: skip
def test_a_module_is_read_as_it_would_be_imported(whole, source, words):
    (whole / "gelu.py").write_text(source)
    (whole / "own.py").write_text(RIGHT.format("gelu") + RIGHT.format("mine") + "def later(x):\n    pass\n")
    (whole / "random.py").write_text("")  # shadows nothing: `import random` is the library's
    (whole / "folder").mkdir()
    (whole / "folder" / "inner.py").write_text("from .. import zzz\nmine = 1\n")
    assert told(whole, "gelu") == words


def test_a_broken_package_file_or_shared_module_keeps_back_every_problem_that_needs_it(whole):
    (whole / "__init__.py").write_text("from .own import\n")
    broken = [row for row in manifest_of(whole).rows if row.faults]
    assert [row.problem for row in broken] == list(RUBRIC.problems)
    (whole / "__init__.py").write_text("")
    (whole / "own.py").write_text("x = (\n")
    (whole / "softmax.py").write_text("from .own import x\n" + RIGHT.format("softmax"))
    assert [row.problem for row in manifest_of(whole).rows if row.faults] == ["softmax"]


def test_a_module_with_a_name_like_a_problems_is_told(whole):
    (whole / "flash_attention.py").rename(whole / "flash_atention.py")
    assert set(told(whole, "flash_attention")) == {
        "there is no flash_attention.py; `flash_atention.py`: did you mean `flash_attention.py`?"
    }


def test_what_stays_behind_is_told_with_the_reason(whole, tmp_path):
    (whole / "notes.txt").write_text("")
    (whole / "data").mkdir()
    (whole / "data" / "a.csv").write_text("")
    (whole / "__pycache__").mkdir()
    (whole / "__pycache__" / "own.py").write_text("")
    (whole / "linked.py").symlink_to(tmp_path / "somewhere.py")
    os.mkfifo(whole / "pipe.py")
    (whole / "kernels").mkdir()
    (whole / "kernels" / "tiles.py").write_text("")
    (whole / "kernels" / "tiles.json").write_text("")
    manifest = manifest_of(whole)
    assert manifest.along == ("kernels/tiles.py",)
    assert sorted(manifest.behind) == [
        "__pycache__/", "data/", "kernels/tiles.json (not Python)", "linked.py (a link)", "notes.txt (not Python)",
        "pipe.py (no regular file)",
    ]  # fmt: skip


def test_what_lies_beside_the_folder_that_is_graded_is_told(whole, tmp_path):
    (tmp_path / "gelu.py").write_text("")
    done = pack(tmp_path, "--out", tmp_path / "mine.zip")
    assert done.returncode == 0
    assert "Only its folder assignment is graded, and not gelu.py beside it." in done.stdout
    assert "beside it" not in pack(whole, "--out", tmp_path / "mine.zip").stdout


def test_a_submission_that_grading_refuses_is_refused_and_not_written(whole, tmp_path):
    with (whole / "gelu.py").open("wb") as file:
        file.truncate(1 << 21)
    done = pack(whole, "--out", tmp_path / "mine.zip")
    assert (done.returncode, done.stderr) == (1, "The submission is refused: gelu.py has more than 1048576 bytes.\n")
    assert not (tmp_path / "mine.zip").exists()


@pytest.mark.parametrize(
    ("folder", "out", "said"),
    [
        ("docs", "mine.zip", "Docs has no module of a problem (gelu.py, softmax.py"),
        ("nowhere", "mine.zip", "There is no folder nowhere."),
        ("assignment", "assignment/gelu.py", "What is handed in is a .zip, and gelu.py ends otherwise."),
        ("assignment", "nowhere/mine.zip", "There is no folder nowhere to write mine.zip to."),
    ],
)
def test_a_wrong_command_is_one_sentence_and_ends_with_2(folder, out, said):
    done = pack(Path(folder), "--out", out)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (ROOT / "mine.zip").exists()


def test_nothing_of_a_submission_is_run(whole, tmp_path):
    (whole / "gelu.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n" + RIGHT.format("gelu"))
    (whole / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert pack(whole, "--out", tmp_path / "mine.zip").returncode == 0
    assert not (tmp_path / "ran").exists()
