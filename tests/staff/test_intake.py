"""Every submission comes in with its tree or with a reason, whatever the others are."""

import io
import os
import random
import shutil
import signal
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grader.batch import intake, trees
from grader.batch.contents import Contents
from grader.batch.intake import GAVE_UP, Intake, Report, Status, mistakes, take_in
from grader.batch.join import Course
from grader.batch.layouts import Entry, Source, Student
from grader.batch.people import read_roster
from grader.batch.rejected import Code
from grader.batch.times import read_times
from grader.judge.snapshot import MOST_BYTES, Snapshot
from grader.located import Mistake
from tests.staff.test_commit import AT, git

KNOWN = ("gelu.py", "softmax.py")
GELU = "def gelu(x):\n    return x\n"


def packed(contents: dict[str, str | bytes]) -> bytes:
    """A zip of these."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            info = zipfile.ZipInfo("x")
            info.filename = name
            archive.writestr(info, content)
    return file.getvalue()


def stable(report: Report) -> list[tuple[object, ...]]:
    """A report without where it lay."""
    found = [(one.entry.id, one.status, one.tree, one.reason, one.notes, one.mistakes) for one in report.submissions]
    return [*found, (report.source, report.marker, report.ignored)]


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


def test_what_is_there_instead_of_the_modules_is_told(tmp_path):
    (tmp_path / "ada.zip").write_bytes(packed({"Softmax.py": GELU, "work.zip": b""}))
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "assignment").symlink_to(tmp_path)
    ada, eve = take_in(tmp_path, KNOWN).submissions
    assert ada.status is eve.status is Status.NO_SUBMISSION
    assert ada.notes == (
        "there is no softmax.py: is it Softmax.py?", "work.zip is an archive in it: ask for one that is packed once",
    )  # fmt: skip
    assert eve.notes == ("assignment is a link: ask for the files themselves",)


def test_the_input_may_be_an_archive(course, tmp_path_factory):
    for pack in ("zip", "gztar", "xztar"):
        archive = Path(shutil.make_archive(str(tmp_path_factory.mktemp("packed") / "class"), pack, course))
        packed, unpacked = take_in(archive, KNOWN), take_in(course, KNOWN)
        assert stable(packed) == stable(unpacked)
        assert packed == take_in(archive, KNOWN)
        assert all(archive in one.entry.place.parents for one in packed.submissions)


def test_archives_of_students_in_an_archive_are_read_as_any(tmp_path):
    inner = {name: packed({f"{name}/gelu.py": GELU}) for name in ("ada", "eve")} | {"lee": b"Rar!\x1a\x07\x00"}
    (tmp_path / "class.zip").write_bytes(packed({f"{name}.zip": content for name, content in inner.items()}))
    found = {one.entry.name: one for one in take_in(tmp_path / "class.zip", KNOWN).submissions}
    assert {name: one.status for name, one in found.items()} == {
        "ada.zip": Status.OK, "eve.zip": Status.OK, "lee.zip": Status.REJECTED,
    }  # fmt: skip
    assert found["lee.zip"].code is Code.BAD_ARCHIVE


def test_an_archive_of_canvas_is_recognised(tmp_path):
    names = {"ada_7_1_gelu.py": GELU, "carl_LATE_8_2_work.zip": packed({"gelu.py": GELU}), "__MACOSX/._ada": b"\0"}
    (tmp_path / "submissions.zip").write_bytes(packed(names))
    report = take_in(tmp_path / "submissions.zip", KNOWN)
    assert (report.source, report.ignored) == (Source.CANVAS, {"__MACOSX": "left by the operating system"})
    assert [(one.entry.id, one.status, one.entry.late) for one in report.submissions] == [
        ("canvas-7", Status.OK, False), ("canvas-8", Status.OK, True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "source", "ids"),
    [
        (("hw/ada/gelu.py", "hw/eve/gelu.py"), Source.PLAIN, ["ada", "eve"]),
        (("hw/assignment/gelu.py", "hw/readme"), Source.PLAIN, ["hw"]),
        (("hw/gelu.py", "hw/more/x.py"), Source.PLAIN, ["hw"]),
        (("ada/work/gelu.py",), Source.PLAIN, ["ada"]),
        (("hw/ada_7_1_gelu.py", "hw/eve_8_2_gelu.py"), Source.CANVAS, ["7", "8"]),
        (("hw/Ada_7_assignsubmission_file/gelu.py",), Source.MOODLE, ["7"]),
        (("k-submissions/k-ada/gelu.py", "k-submissions/k-eve/gelu.py"), Source.GITHUB, ["ada", "eve"]),
    ],
)  # fmt: skip
def test_a_folder_around_all_submissions_is_looked_into_and_a_submission_is_not(tmp_path, names, source, ids):
    (tmp_path / "class.zip").write_bytes(packed(dict.fromkeys(names, GELU)))
    report = take_in(tmp_path / "class.zip", KNOWN)
    assert (report.source, [one.entry.id.split("-")[1] for one in report.submissions]) == (source, ids)
    assert all(one.status is Status.OK for one in report.submissions)


def test_a_member_of_an_export_that_leads_out_is_left_out_and_stops_nobody(tmp_path):
    evil = {"../evil.py": GELU, "/evil.py": GELU, "eve/..\\..\\evil.py": GELU, "n" * 300 + ".py": GELU}
    (tmp_path / "class.zip").write_bytes(packed({"ada/gelu.py": GELU, "eve/gelu.py": GELU, **evil}))
    before = sorted(tmp_path.iterdir())
    report = take_in(tmp_path / "class.zip", KNOWN)
    assert {one.entry.name: one.status for one in report.submissions} == {"ada": Status.OK, "eve": Status.OK}
    assert set(report.ignored) == set(evil)
    assert sorted(tmp_path.iterdir()) == before


def test_a_link_in_an_export_stays_one_and_leads_nowhere(tmp_path):
    with tarfile.open(tmp_path / "class.tar", "w") as archive:
        for name, target in (
            ("ada/gelu.py", "/etc/passwd"),
            ("eve", "/etc"),
            ("eve/passwd", None),
            ("kim/gelu.py", None),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = (tarfile.SYMTYPE, target) if target else (tarfile.REGTYPE, "")
            archive.addfile(info)
    report = take_in(tmp_path / "class.tar", KNOWN)
    found = {one.entry.name: one for one in report.submissions}
    assert {name: (one.status, one.code) for name, one in found.items()} == {
        "ada": (Status.REJECTED, Code.LINK), "kim": (Status.OK, None),
    }  # fmt: skip
    assert set(report.ignored) == {"eve", "eve/passwd"}


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_of_a_member_that_is_there_twice_the_first_is_taken_and_the_other_is_told(tmp_path):
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for content in (GELU, "x = 1\n"):
            archive.writestr("ada/gelu.py", content)
        archive.writestr("eve/gelu.py", GELU)
    report = take_in(tmp_path / "class.zip", KNOWN)
    assert report.submissions[0].tree.files == {"gelu.py": GELU.encode()}
    assert report.ignored == {"ada/gelu.py (again)": "it is there twice, and the first one is taken"}


def test_a_file_in_an_export_is_written_up_to_the_limit_of_a_submission(tmp_path, monkeypatch):
    big, small = packed({"gelu.py": random.Random(0).randbytes(5000)}), packed({"gelu.py": GELU})
    (tmp_path / "class.zip").write_bytes(packed({"ada.zip": big, "eve.zip": small}))
    for module in ("contents", "unpack"):
        monkeypatch.setattr(f"grader.batch.{module}.MOST_IN_BYTES", 1000)
    monkeypatch.setattr("grader.batch.unpack.MOST_OUT_BYTES", 3000)
    found = {one.entry.name: one for one in take_in(tmp_path / "class.zip", KNOWN).submissions}
    assert (found["ada.zip"].code, found["eve.zip"].status) == (Code.TOO_BIG, Status.OK)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"Rar!\x1a\x07\x00", "class.zip is a RAR archive: unpack it yourself"), (b"", "class.zip is empty"),
        (b"PK\x03\x04 and no more", "class.zip is no whole archive"),
        (None, "is neither a folder nor an archive: name the course's export"),
    ],
)  # fmt: skip
def test_an_input_that_cannot_be_taken_is_one_sentence(tmp_path, content, words):
    if content is not None:
        (tmp_path / "class.zip").write_bytes(content)
    with pytest.raises(Mistake) as raised:
        take_in(tmp_path / "class.zip", KNOWN)
    assert words in str(raised.value)


@pytest.mark.parametrize(("limit", "value"), [("MOST_OUT_BYTES", 100), ("MOST_ENTRIES", 3)])
def test_a_class_has_limits_too(tmp_path, monkeypatch, limit, value):
    monkeypatch.setattr(f"grader.batch.unpack.{limit}", value)
    (tmp_path / "class.zip").write_bytes(packed({f"{name}/gelu.py": GELU for name in "abcdefgh"}))
    with pytest.raises(Mistake, match=r"^class\.zip cannot be taken, since "):
        take_in(tmp_path / "class.zip", KNOWN)


def test_what_nobody_thought_of_is_ours_and_stops_nobody(course, monkeypatch):
    def stumble(contents: Contents, known: object) -> None:
        if "notes.txt" in contents.ignored:
            raise KeyError("surprise")

    monkeypatch.setattr("grader.batch.intake.tree_of", stumble)
    found = {one.entry.name: one for one in take_in(course, KNOWN).submissions}
    assert (found["ada"].status, found["ada"].code) == (Status.REJECTED, Code.GRADER_ERROR)
    assert "KeyError: 'surprise'" in found["ada"].reason
    assert "not the student's" in found["ada"].reason
    assert found["kim"].status is Status.NO_SUBMISSION


def test_who_and_when_come_from_staffs_tables(course, tmp_path_factory):
    tables = tmp_path_factory.mktemp("tables")
    (tables / "roster.csv").write_text("sid,login,name\n0123,ada,Ada\n4,bob,Bob\n")
    (tables / "times.csv").write_text("sid,submitted_at\n0123,2026-10-02T21:58:03Z\n")
    said = Course(read_roster(tables / "roster.csv"), times=read_times(tables / "times.csv"))
    report = take_in(course, KNOWN, course=said)
    ada = report.submissions[0].entry
    assert ada.students == (Student("0123", login="ada", name="Ada"),)
    assert (ada.submitted_at, ada.submitted_at_source) == (datetime(2026, 10, 2, 21, 58, 3, tzinfo=UTC), "times file")
    assert report.absent == (Student("4", login="bob", name="Bob"),)
    assert len(report.strangers) == len(report.submissions) - 1
    assert {one.entry.submitted_at for one in report.submissions[1:]} == {None}


def test_a_commit_claims_a_time_that_a_times_file_replaces(tmp_path):
    root = tmp_path / "k-submissions"
    (root / "k-ada").mkdir(parents=True)
    (root / "k-ada" / "gelu.py").write_text(GELU)
    git(root / "k-ada", "init")
    git(root / "k-ada", "add", ".")
    git(root / "k-ada", "commit", "-m", "done")
    [ada] = take_in(root, KNOWN).submissions
    assert (ada.entry.submitted_at, ada.entry.submitted_at_source) == (AT, "commit (claimed)")
    assert set(ada.tree.files) == {"gelu.py"}
    (tmp_path / "times.csv").write_text("id,submitted_at\ngithub-ada,2026-10-05T00:00Z\n")
    [ada] = take_in(root, KNOWN, course=Course(times=read_times(tmp_path / "times.csv"))).submissions
    assert (ada.entry.submitted_at.day, ada.entry.submitted_at_source) == (5, "times file")


# What a student may hand in, by its suffix.
HANDED_IN = {
    "folder": "", "zip": ".zip", "rar": ".zip", "empty": ".zip", "outside": ".zip", "source": ".py", "text": ".txt",
    "two": "", "no archive": ".tar.gz",
}  # fmt: skip


def hand_in(root: Path, name: str, kind: str, number: int) -> None:
    path = root / f"{name}{HANDED_IN[kind]}"
    source = f"{GELU}# {number}\n"
    match kind:
        case "folder" | "two":
            for folder in ("a", "b") if kind == "two" else ("assignment",):
                (path / folder).mkdir(parents=True)
                (path / folder / "gelu.py").write_text(source)
        case "zip":
            path.write_bytes(packed({"assignment/gelu.py": source}))
        case "outside":
            path.write_bytes(packed({"../gelu.py": source}))
        case _:
            path.write_bytes({"rar": b"Rar!\x1a\x07\x00", "empty": b""}.get(kind, source.encode()))


NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        NAMES.filter(lambda name: not name.startswith(".")), st.sampled_from(sorted(HANDED_IN)), max_size=5
    ),
    st.data(),
)
def test_every_entry_comes_out_once_twice_the_same_and_the_same_without_any_other(tmp_path, handed_in, data):
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    for number, (name, kind) in enumerate(handed_in.items()):
        hand_in(root, name, kind, number)
    report = take_in(root, KNOWN, Source.PLAIN)
    assert sorted([*(one.entry.name for one in report.submissions), *report.ignored]) == sorted(os.listdir(root))
    assert len({one.entry.id for one in report.submissions}) == len(report.submissions)
    assert report == take_in(root, KNOWN, Source.PLAIN)
    if report.submissions:
        gone = data.draw(st.sampled_from(report.submissions))
        others = [one for one in report.submissions if one is not gone]
        shutil.rmtree(gone.entry.place) if gone.entry.place.is_dir() else gone.entry.place.unlink()
        assert list(take_in(root, KNOWN, Source.PLAIN).submissions) == others


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


def test_an_archive_that_python_reads_for_days_is_rejected_and_stops_nobody(tmp_path, monkeypatch):
    """A header of digits, which `tarfile` goes through once for each of them."""
    folder = tmp_path / "class"
    for name in ("ada", "zoe"):
        (folder / name).mkdir(parents=True)
        (folder / name / "gelu.py").write_text(GELU)
    header = tarfile.TarInfo("header")
    header.type, header.size = tarfile.XHDTYPE, 1 << 20
    (folder / "eve.tar").write_bytes(header.tobuf(tarfile.USTAR_FORMAT) + b"1" * header.size + bytes(1024))
    monkeypatch.setattr(intake, "LIMIT_S", 1.0)
    start = time.monotonic()
    found = {one.entry.name: one for one in take_in(folder, KNOWN).submissions}
    assert time.monotonic() - start < 20
    assert found["eve.tar"].code == Code.TOO_BIG
    assert "to read: ask for it packed anew" in found["eve.tar"].reason
    assert found["ada"].status == found["zoe"].status == Status.OK


def test_a_process_that_dies_of_a_submission_is_ours_and_stops_nobody(course, monkeypatch):
    read = intake._read

    def dying(entry: Entry, known: Collection[str]) -> Intake:
        if entry.name == "eve":
            os.kill(os.getpid(), signal.SIGKILL)
        return read(entry, known)

    monkeypatch.setattr(intake, "_read", dying)
    found = {one.entry.name: one for one in take_in(course, KNOWN).submissions}
    assert (found["eve"].status, found["eve"].code) == (Status.REJECTED, Code.GRADER_ERROR)
    assert found["ada"].status == Status.OK


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ([f"m{number}.py" for number in range(250)], "too_big"),
        ([f"d{number}/m.py" for number in range(250)], "too_big"),
        (["/".join(["d" * 250] * 20 + ["m.py"])], "too_big"),
        (["large.py"], "too_big"),
        ([f"half{number}.py" for number in range(20)], "too_big"),
        (["caf\u00e9.py", "cafe\u0301.py"], "duplicate"),
        (["a/caf\u00e9/b.py", "a/cafe\u0301/b.py"], "duplicate"),
        ([".py", "a/.py"], None),
        (["a.b.py", "-.py", " .py", "caf\u00e9.py"], None),
    ],
    ids=[
        "files", "folders", "a long path", "a large file", "large together", "one spelt twice", "a folder spelt twice",
        "a suffix alone", "odd names",
    ],
)  # fmt: skip
def test_what_is_taken_in_is_what_a_judge_takes_and_hashes(tmp_path, names, code):
    """Or a judge would refuse it time and again, and that would be our fault and no zero."""
    folder = tmp_path / "class"
    folder.mkdir()
    sizes = {"large": MOST_BYTES + 1, "half": MOST_BYTES // 2 + 1}
    with zipfile.ZipFile(folder / "eve.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ["gelu.py", *names]:
            archive.writestr(name, "#" * next((size for key, size in sizes.items() if name.startswith(key)), 1))
    [found] = take_in(folder, KNOWN).submissions
    assert found.code == code
    if found.tree:
        sha256 = trees.keep(tmp_path, found.tree.files)
        assert trees.kept(tmp_path, sha256) == found.tree.files
        assert Snapshot.of(tmp_path / trees.TREES / sha256, tmp_path / "copy").sha256 == found.tree.sha256 == sha256
