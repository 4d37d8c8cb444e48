"""All reports in one folder: whole files, nothing hidden in those for students, nothing left of an earlier report."""

import csv
import io
import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader.files import written_whole
from grader.judge.verdict import Verdict
from grader.reports.canvas import ExportRefused
from grader.reports.folder import LIST, ReportFolder
from grader.reports.graded import Graded
from grader.reports.write import CanvasExport, write_reports
from grader.result import Review
from tests.staff.reported import RUBRIC, a_check, a_result, a_student, graded
from tests.staff.test_reports_canvas import EXPORT

WORTH_85 = EXPORT.replace("10.00", "85.00").encode()


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def a_class() -> list[Graded]:
    return [
        graded(a_result(submission="gradescope-1"), a_student("Ada", "86", sid="3031")),
        graded(a_result(submission="gradescope-2"), a_student("Bob", "86"), a_student("Cyd", "80", late="6")),
        graded(a_result({"gelu.sizes": Verdict.GRADER_ERROR}, submission="gradescope-3"), a_student("Dan", None)),
        graded(a_result(submission="plain-x-00aa"), a_student("Eve")),
        graded(a_result(submission="gradescope-5"), a_student("Old"), counts=False),
        graded(None, a_student("Fay", None), submission="gradescope-6"),
    ]


def test_everything_is_written_and_files_are_named_by_ids(tmp_path):
    written = write_reports(a_class(), RUBRIC, tmp_path / "new" / "reports", CanvasExport(WORTH_85, 98765))
    assert files(tmp_path / "new" / "reports") == {
        LIST, "grades.csv", "results.json", "summary.txt", "canvas.csv", "gradescope-publish.zip",
        "feedback/gradescope-1.html", "feedback/gradescope-2_1.html", "feedback/gradescope-2_2.html",
        "feedback/gradescope-3.html", "feedback/plain-x-00aa.html", "gradescope/1.json", "gradescope/2.json",
    }  # fmt: skip
    assert written.without_grade == ["gradescope-3: the grader itself failed in gelu.sizes; grade it again"]
    assert written.canvas
    assert written.canvas.changed == ["Example, Ada (ID 1001): 7.50 -> 86.00"]
    assert written.tally.attempts == 6


def test_the_files_say_the_same(tmp_path):
    write_reports(a_class(), RUBRIC, tmp_path)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "grades.csv").read_text())))
    assert [row["name"] for row in rows] == ["Ada", "Bob", "Cyd", "Dan", "Eve", "Fay"]
    assert len(json.loads((tmp_path / "results.json").read_text())) == 4
    with zipfile.ZipFile(tmp_path / "gradescope-publish.zip") as archive:
        assert archive.read("results/1.json") == (tmp_path / "gradescope" / "1.json").read_bytes()
    assert "5 of 6 attempts are graded" in (tmp_path / "summary.txt").read_text()


def test_nothing_hidden_and_nobody_else_is_in_a_file_for_students(tmp_path):
    hidden = a_check(
        "softmax.half_sums", Verdict.FAIL, message="SECRET", detail="SECRET", why="SECRET", printed="SECRET",
        case="SECRET", cause="SECRET", replay="SECRET", hint="SECRET",
        review=Review(reason="SECRET", evidence="SECRET", decision="accept"),
    )  # fmt: skip
    result = a_result(checks=[hidden], submission="gradescope-1", students=(a_student("Ada"), a_student("Bob", "3")))
    write_reports([graded(result, a_student("Ada"), a_student("Bob", "3"), attention="SECRET")], RUBRIC, tmp_path)
    for name in files(tmp_path) - {"grades.csv", "results.json", "summary.txt"}:
        content = (tmp_path / name).read_bytes()
        assert b"SECRET" not in content, name
        assert b"Ada" not in content or name == "feedback/gradescope-1_1.html", name
        assert b"Bob" not in content or name == "feedback/gradescope-1_2.html", name


def test_the_same_results_give_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_reports(a_class(), RUBRIC, tmp_path / name)
    for name in files(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_files_of_an_earlier_report_are_removed_and_nothing_else(tmp_path):
    write_reports(a_class(), RUBRIC, tmp_path, CanvasExport(WORTH_85, 98765))
    for name in ("notes.txt", "feedback/notes.html", "gradescope/99.json"):
        (tmp_path / name).write_text("by hand")
    (tmp_path / "canvas.csv").unlink()  # by hand, too
    write_reports(a_class()[:1], RUBRIC, tmp_path)
    assert files(tmp_path) == {
        LIST, "grades.csv", "results.json", "summary.txt", "gradescope-publish.zip", "feedback/gradescope-1.html",
        "gradescope/1.json", "notes.txt", "feedback/notes.html", "gradescope/99.json",
    }  # fmt: skip


def test_what_a_report_wrote_before_it_broke_is_removed_by_the_next(tmp_path):
    def broken() -> Iterator[Graded]:
        yield from a_class()[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_reports(broken(), RUBRIC, tmp_path)
    assert "feedback/gradescope-2_1.html" in files(tmp_path)
    assert not {"grades.csv", "results.json"} & files(tmp_path)
    assert len(files(tmp_path)) == 6  # the list, three pages and two results: no temporary file
    write_reports(a_class()[:1], RUBRIC, tmp_path)
    assert "feedback/gradescope-2_1.html" not in files(tmp_path)


def test_a_list_that_names_files_elsewhere_removes_none_of_them(tmp_path):
    (tmp_path / "reports" / "feedback").mkdir(parents=True)
    (tmp_path / "mine.txt").write_text("mine")
    names = ("../mine.txt", str(tmp_path / "mine.txt"), "feedback/../../mine.txt", "/etc/hostname", "")
    (tmp_path / "reports" / LIST).write_text("\n".join(names))
    write_reports([], RUBRIC, tmp_path / "reports")
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("submission", ["../x", "a/b", "A", "", "x y", "x.html/../.."])
def test_an_id_that_is_no_name_of_a_file_is_refused(tmp_path, submission):
    with pytest.raises(ValueError, match="is no name of a report's file"):
        ReportFolder(tmp_path / "reports").write(f"feedback/{submission}.html", b"")
    assert files(tmp_path) == set()


def test_attempts_are_taken_one_by_one_and_once(tmp_path):
    alive = []

    def attempts() -> Iterator[Graded]:
        for place in range(3):
            written = len(list((tmp_path / "feedback").glob("*.html"))) if place else 0
            alive.append(place - written)
            yield graded(a_result(submission=f"plain-{place}"), a_student())

    write_reports(attempts(), RUBRIC, tmp_path)
    assert alive == [0, 0, 0]


def test_two_attempts_of_one_submission_that_count_have_files_of_their_own(tmp_path):
    first = graded(a_result(submission="github-a"), a_student("Ada"), a_student("Bob"), elsewhere=frozenset({1}))
    second = Graded(a_result(submission="github-a"), "github-a", 2, True, "", first.students, frozenset({0}))
    write_reports([first, second], RUBRIC, tmp_path)
    assert "Ada" in (tmp_path / "feedback" / "github-a.html").read_text()
    assert "Bob" in (tmp_path / "feedback" / "github-a_attempt2.html").read_text()


def test_an_export_that_is_refused_leaves_everything_as_it_was(tmp_path):
    write_reports(a_class(), RUBRIC, tmp_path)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)}
    with pytest.raises(ExportRefused):
        write_reports(a_class(), RUBRIC, tmp_path, CanvasExport(WORTH_85, 5))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in files(tmp_path)} == before


def test_a_file_written_in_pieces_takes_its_place_at_the_end_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with written_whole(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    with pytest.raises(TypeError), written_whole(path) as file:
        file.writelines([b"half", None])
    assert path.read_bytes() == b"after"
    assert os.listdir(tmp_path) == ["file"]
