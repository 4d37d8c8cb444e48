"""All reports of a batch in one folder, in one pass over its attempts: `write_reports`.

    grades.csv               a row for each student
    results.json             every result that counts, whole: staff only
    summary.txt              what staff read first
    canvas.csv               the course's export with our grades in it, where there is one
    feedback/ID.html         for students: redacted; ID_1.html, ID_2.html where members of a group differ
    gradescope/ID.json       for students: redacted; results.json of a submission, by Gradescope's own id
    gradescope-publish.zip   an autograder that gives these out, where there are some

Names of files are ids only. A submission without a grade has no file for Gradescope: the reason is in `Written`.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from grader.reports import canvas, tables
from grader.reports.canvas import Filled
from grader.reports.feedback import feedback_pages
from grader.reports.folder import ReportFolder
from grader.reports.graded import Graded, maximum
from grader.reports.gradescope import NoGrade, results_json
from grader.reports.gradescope_zips import publish_zip
from grader.reports.strict import strict_json
from grader.reports.summary import Tally, show_tally
from grader.rubric import Rubric

GRADESCOPE = "gradescope-"  # how the ids of Gradescope's submissions begin


@dataclass(frozen=True)
class CanvasExport:
    """A course's gradebook as Canvas exports it, and the id of the assignment whose column is to be filled."""

    content: bytes
    column: int


@dataclass
class Written:
    """What a report has to say besides its files."""

    tally: Tally = field(default_factory=Tally)
    canvas: Filled | None = None
    without_grade: list[str] = field(default_factory=list)  # why nothing is written for Gradescope, in sentences
    results: dict[str, bytes] = field(default_factory=dict)  # for Gradescope, by its ids


def write_reports(
    graded: Iterable[Graded], rubric: Rubric, folder: Path, export: CanvasExport | None = None
) -> Written:
    """Write all reports. Raises `ExportRefused` before anything is written where the export cannot be filled at all."""
    if export:
        canvas.fill(export.content, export.column, (), maximum(rubric))
    files, written, rows = ReportFolder(folder), Written(), []
    with ExitStack() as stack:
        table = stack.enter_context(files.writing("grades.csv"))
        everything = stack.enter_context(files.writing("results.json"))
        table.write(tables.header(rubric))

        def passing() -> Iterator[Graded]:
            for one in graded:
                table.write(tables.rows(one, rubric))
                written.tally.add(one)
                rows.append(replace(one, result=None))
                _write_for_students(one, rubric, files, written)
                yield one

        for piece in tables.json_pieces(passing()):
            everything.write(piece)
    if written.results:
        files.write("gradescope-publish.zip", publish_zip(written.results))
    if export:
        written.canvas = canvas.fill(export.content, export.column, rows, maximum(rubric))
        files.write("canvas.csv", written.canvas.content)
    files.write("summary.txt", _summary(written.tally, rubric))
    files.finish()
    return written


def _write_for_students(one: Graded, rubric: Rubric, files: ReportFolder, written: Written) -> None:
    for end, page in feedback_pages(one, rubric):
        name = f"feedback/{one.submission}{end}.html"
        if name in files.names:  # two attempts give grades, to different members of a group
            name = f"feedback/{one.submission}_attempt{one.attempt}{end}.html"
        files.write(name, page.encode())
    if not (one.counts and one.result and one.submission.startswith(GRADESCOPE)):
        return
    try:
        content = strict_json(results_json(one.result, rubric)).encode()
    except NoGrade as error:
        written.without_grade.append(str(error))
        return
    number = one.submission.removeprefix(GRADESCOPE)
    written.results[number] = content
    files.write(f"gradescope/{number}.json", content)


def _summary(tally: Tally, rubric: Rubric) -> bytes:
    text = io.StringIO()
    show_tally(tally, rubric, Console(file=text, width=80, emoji=False, highlight=False))
    return text.getvalue().encode()
