"""Every submission comes in with its tree or with a reason, whatever the others are."""

from pathlib import Path

import pytest

from grader.batch.contents import Code
from grader.batch.intake import GAVE_UP, Status, mistakes, take_in

KNOWN = ("gelu.py", "softmax.py")
GELU = "def gelu(x):\n    return x\n"


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A folder with one of each kind."""
    files = {
        "ada/assignment/gelu.py": GELU, "ada/assignment/softmax.py": GELU, "ada/notes.txt": "notes",
        "carl/a/assignment/gelu.py": GELU, "carl/b/assignment/gelu.py": GELU, "eve/readme.md": "nothing yet",
        "kim/gelu.py": "def gelu(x):\n    return (\n", "kim/Softmax.py": GELU,
    }  # fmt: skip
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "lee.zip").write_bytes(b"Rar!\x1a\x07\x00")
    (tmp_path / "todo.txt").write_text("a list")
    return tmp_path


def test_each_submission_has_a_tree_or_a_reason(course):
    report = take_in(course, KNOWN)
    found = {one.entry.id.split("-")[1]: one for one in report.submissions}
    assert {name: one.status for name, one in found.items()} == {
        "ada": Status.OK, "carl": Status.REJECTED, "eve": Status.NO_SUBMISSION, "kim": Status.OK,
        "lee": Status.REJECTED,
    }  # fmt: skip
    assert found["ada"].tree
    assert set(found["ada"].tree.files) == set(KNOWN)
    assert found["ada"].tree.ignored == {"notes.txt": "not a Python source"}
    assert (found["carl"].code, found["lee"].code) == (Code.AMBIGUOUS, Code.BAD_ARCHIVE)
    assert found["kim"].notes == ("there is no softmax.py: is it Softmax.py?",)
    assert "line 2" in found["kim"].mistakes["gelu.py"]
    assert report.ignored == {"todo.txt": "no folder, archive or Python file"}


def test_a_bad_submission_changes_nothing_for_the_others_and_twice_is_the_same(course):
    whole, again = take_in(course, KNOWN), take_in(course, KNOWN)
    assert whole == again
    (course / "lee.zip").unlink()
    without = {one.entry.id: one for one in take_in(course, KNOWN).submissions}
    assert without == {one.entry.id: one for one in whole.submissions if one.entry.id in without}
    assert len(without) == len(whole.submissions) - 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"x = (\n", "line 1"), (b"x = 1\0", "null bytes"), (b"# coding: klingon\n", "unknown encoding"),
        (b"x = '\xff'\n", "encoding"), (b"(" * 1000, "nested"), (b"-" * 500_000 + b"1", ""),
    ],
)  # fmt: skip
def test_what_python_cannot_read_is_told(content, words):
    found = mistakes({"gelu.py": content, "softmax.py": GELU.encode()})
    assert set(found) == {"gelu.py"}
    assert words in found["gelu.py"]


@pytest.mark.parametrize(
    "content",
    ["\ufeffx = 1\n".encode(), b"x = 1\r\ny = 2\r\n", b"if x:\n\ty = 1\n", b"# coding: latin-1\nx = '\xff'\n"],
)
def test_what_python_can_read_is_fine(content):
    assert not mistakes({"gelu.py": content})


def test_a_parser_that_dies_takes_no_other_source_with_it(monkeypatch, tmp_path):
    parser = tmp_path / "parse.py"
    parser.write_text("import os, sys\nif '62616421' in sys.stdin.read(): os.abort()\nprint('{}')\n")
    monkeypatch.setattr("grader.batch.intake.PARSER", parser)
    assert mistakes({"gelu.py": b"bad!", "softmax.py": b"good"}) == {"gelu.py": GAVE_UP}
