"""What staff see of an intake: who needs them first, in 80 columns, and nothing that does something to a terminal."""

import io
import json
import unicodedata
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from rich.cells import cell_len

from grader.batch.intake import CLAIMED, Intake, Report, Status, take_in
from grader.batch.join import Course
from grader.batch.late import Deadlines
from grader.batch.layouts import Entry, Source
from grader.batch.people import read_roster
from grader.batch.show import show_intake
from grader.rubric import LatePolicy
from grader.terminal import make_console

KNOWN = ("gelu.py", "softmax.py")
SUBMITTERS = {
    101: ("No", "0123"), 102: ('Gauß, Carl "CF" 🎉', "3032"), 103: ("evil\u202eRed\x1b[31m", "3033"),
    104: ("משה כהן", "3034"), 105: ("張偉 " * 20, "3035"),
}  # fmt: skip
DUE = datetime(2026, 10, 2, 22, tzinfo=UTC)


@pytest.fixture
def export(tmp_path) -> Path:
    """A Gradescope export: five students, the second day late, and files that need a person."""
    root = tmp_path / "export"
    lines = []
    for number, (name, sid) in SUBMITTERS.items():
        package = root / f"submission_{number}" / "assignment"
        package.mkdir(parents=True)
        for module in KNOWN:
            (package / module).write_text("x = 1\n")
        lines += [f"submission_{number}:", "  :submitters:", f"  - :name: {json.dumps(name, ensure_ascii=False)}"]
        lines += [f"    :sid: {sid}", f"  :created_at: 2026-10-0{3 if number == 102 else 2} 21:58:03.365935000 Z"]
    (root / "submission_metadata.yml").write_text("\n".join(lines))
    first, second, third, fourth, _ = (root / f"submission_{number}" / "assignment" for number in SUBMITTERS)
    (first / "softmax.py").rename(first / "Softmax.py")
    (first / "notes\x1b[2J.txt").write_text("")
    (second / "gelu.py").write_text("def (")
    for path in third.iterdir():
        path.unlink()
    (fourth / "gelu.py").unlink()
    (fourth / "gelu.py").symlink_to("/etc/passwd")
    (root / "submission_999").mkdir()
    return root


def seen(report: Report, deadlines: Deadlines | None = None, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding)
    console = make_console(stream)
    console.width = 80
    show_intake(report, console, deadlines or Deadlines())
    stream.flush()
    return raw.getvalue().decode(encoding)


@pytest.fixture
def report(export, tmp_path) -> Report:
    roster = tmp_path / "roster.csv"
    roster.write_text('sid,name\n0123,No\n3032,"Gauß, Carl"\n9,"Absent, Eve"\n')
    return take_in(export, KNOWN, course=Course(read_roster(roster)))


def test_what_needs_a_person_comes_first_with_what_to_do(report):
    lines = [line.strip() for line in seen(report).splitlines() if line.strip()]
    assert lines[:7] == [
        "gradescope: submission_metadata.yml is there. 5 submissions.",
        "Rejected, and waiting for you: 1",
        "gradescope-104 [link] submission_104",
        "assignment/gelu.py is a link, or no regular file: ask for the file itself",
        "Nothing to grade: 1",
        "gradescope-103 submission_103",
        "no known module is there: ask for the folder assignment",
    ]


def test_each_submission_has_a_row_with_who_when_and_how_late(report):
    deadlines = Deadlines(LatePolicy(due=DUE, per_day=Decimal("12.5")))
    rows = [line.split("  ") for line in seen(report, deadlines).splitlines() if "2026-10-0" in line]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert [row[0] for row in cells] == [f"gradescope-{number}" for number in (104, 103, 101, 102, 105)]
    assert cells[2] == ["gradescope-101", "No", "2026-10-02 21:58", "no", "ok"]
    assert cells[3] == ["gradescope-102", "Gauß, Carl", "2026-10-03 21:58", "1 d -12.5 %", "ok"]


def test_notes_and_who_is_missing_are_at_the_end(report):
    said = seen(report)
    for sentence in (
        "    there is no softmax.py: is it Softmax.py?", "    gelu.py: line 1: invalid syntax",
        "Ignored in submissions, since they are no sources: 1 file.", "Without a submission: Absent, Eve.",
        "Not in the roster: gradescope-103; gradescope-104; gradescope-105.",
        "Ignored, submission_metadata.yml does not name it as a folder: submission_999.",
    ):  # fmt: skip
        assert sentence in said


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_no_line_is_too_long_and_none_holds_a_control_character(report, encoding):
    said = seen(report, encoding=encoding)
    rows = said[said.index("when (UTC)") :].splitlines()[2:]
    assert [row.strip("| ").split()[0] for row in rows[:5]] == [f"gradescope-{n}" for n in (104, 103, 101, 102, 105)]
    assert not rows[5].strip(" +-|")  # a long name goes on in no other line
    assert max(map(cell_len, said.splitlines())) <= 80
    assert {unicodedata.category(letter) for letter in said if letter != "\n"}.isdisjoint({"Cc", "Cf", "Cs"})


def test_a_late_mark_without_a_time_says_that_it_is_late_and_not_by_how_much(tmp_path):
    (tmp_path / "ada_LATE_7_1_gelu.py").write_text("x = 1\n")
    (tmp_path / "eve_8_2_gelu.py").write_text("x = 1\n")
    rows = seen(take_in(tmp_path, KNOWN), Deadlines(LatePolicy(due=DUE))).splitlines()
    late, on_time = (next(row for row in rows if id in row).split() for id in ("canvas-7", "canvas-8"))
    assert late == ["canvas-7", "ada", "?", "yes,", "?", "ok"]
    assert on_time == ["canvas-8", "eve", "?", "no", "ok"]


def test_a_time_that_only_a_commit_claims_is_marked():
    at = {"submitted_at": DUE, "submitted_at_source": CLAIMED}
    one = Intake(Entry("github-ada", Path("ada"), name="ada", **at), Status.NO_SUBMISSION)
    said = seen(Report(Source.GITHUB, (one,), {}))
    assert "2026-10-02 22:00*" in said
    assert "* as the last commit says, whose date its author sets." in said


def test_nothing_at_all_is_said_in_a_line(tmp_path):
    assert seen(take_in(tmp_path, KNOWN)) == "plain: nothing of another source. 0 submissions.\n"


def test_what_a_student_is_called_is_no_markup():
    stream = io.StringIO()
    make_console(stream).print("[bold]Ada[/bold] [/x] [link=https://example.edu]grade[/link]")
    assert stream.getvalue() == "[bold]Ada[/bold] [/x] [link=https://example.edu]grade[/link]\n"
