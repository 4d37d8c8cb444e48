"""Tables for staff, of the attempts that count: a CSV file with a row for each student, and JSON with every result."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator

from grader.judge.output import clean
from grader.reports.graded import Graded, hundredths
from grader.reports.strict import strict_json
from grader.result import Result, StudentScore
from grader.rubric import Rubric
from grader.scoring import total

COLUMNS = (
    "sid", "email", "login", "name", "submission", "attempt", "raw", "bonus", "late_penalty", "final", "complete",
    "status", "attention",
)  # fmt: skip
# How a cell begins that a spreadsheet carries out, in wide letters, too; also behind what it may split a cell at.
FORMULA = re.compile(r"""(?:^|(?<=[;\t,]))(?=["'\s]*[=+\-@\uff1d\uff0b\uff0d\uff20])""")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
NOT_GRADED = "not graded"
CELL_LENGTH = 1000  # characters


def header(rubric: Rubric) -> bytes:
    """The first line of the CSV file."""
    return _line([*COLUMNS, *rubric.problems])


def rows(graded: Graded, rubric: Rubric) -> bytes:
    """The lines of the CSV file of one attempt: one for each student whom it gives the grade, or for nobody known."""
    if not graded.counts:
        return b""
    shared = _of_submission(graded, rubric)
    students = graded.graded_students or (StudentScore(final=None),)
    return b"".join(_line([*_of_student(student, shared)]) for student in students)


def json_pieces(graded: Iterable[Graded]) -> Iterator[bytes]:
    """A list of the results of the attempts that count, as JSON, in pieces."""
    before = "[\n"
    for one in graded:
        if one.counts and one.result:
            yield (before + as_json(one.result)).encode()
            before = ",\n"
    yield ("[]\n" if before == "[\n" else "\n]\n").encode()


def as_json(result: Result) -> str:
    """A whole result, for staff."""
    return strict_json(result.model_dump(by_alias=True)).rstrip("\n")


def cell(text: str) -> str:
    """A text as a cell that no spreadsheet carries out."""
    shown = clean(text.replace("\r", "\n"), CELL_LENGTH).replace("\n", " ")
    if NUMBER.fullmatch(shown):
        return shown
    harmless = FORMULA.sub("'", shown)
    return f"'{harmless}" if text.startswith(("\t", "\r")) and not harmless.startswith("'") else harmless


def _line(cells: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _of_student(student: StudentScore, shared: list[str]) -> Iterator[str]:
    yield from (cell(value or "") for value in (student.sid, student.email, student.login, student.name))
    submission, attempt, raw, bonus, *others = shared
    final = "" if student.final is None else hundredths(student.final)
    yield from (submission, attempt, raw, bonus, hundredths(student.late_penalty), final, *others)


def _of_submission(graded: Graded, rubric: Rubric) -> list[str]:
    """What all students of an attempt have in common. A number that there is not is an empty cell."""
    result, start = graded.result, [graded.submission, str(graded.attempt)]
    if result is None:
        return [*start, "", "", "false", NOT_GRADED, cell(graded.attention), *("" for _ in rubric.problems)]
    status = result.submission.intake.status if result.submission.intake else "ok"
    complete = "true" if result.score.complete else "false"
    return [
        *start, hundredths(result.score.raw), hundredths(result.score.bonus), complete, status,
        cell(graded.attention), *(_of_problem(result, problem) for problem in rubric.problems),
    ]  # fmt: skip


def _of_problem(result: Result, problem: str) -> str:
    """Points of a problem, those on top included; empty where none of its checks has a score."""
    checks = [check for check in result.checks if check.problem == problem]
    score = total(checks)
    return hundredths(score.raw + score.bonus) if any(check.score is not None for check in checks) else ""
