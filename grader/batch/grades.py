"""Every attempt with its result, and what it is worth for each student: what reports are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from grader.batch.attempts import Attempt, Key, counting
from grader.batch.gradebook import Gradebook, Row, RunRow, State
from grader.batch.late import Deadlines, final, penalty
from grader.batch.layouts import Student
from grader.batch.results import result_of
from grader.batch.validity import MOST_RUNS
from grader.judge.verdict import Verdict
from grader.reports.graded import Graded
from grader.result import Result, Score, StudentScore
from grader.rubric import Rubric
from grader.rubric_files import Attempts


def graded(book: Gradebook, rubric: Rubric) -> Iterator[Graded]:
    """Each attempt, one after the other: those that need a person first, else by id."""
    rows, deadlines = book.attempts(), Deadlines(rubric.public.late, book.extensions())
    attempts = [attempt_of(row) for row in rows]
    by_points = rubric.public.late.attempts is Attempts.BEST
    scores = {row.key: result.score for row in rows if by_points and (result := result_of(book, row, rubric))}
    owners: dict[Key, set[str]] = {}
    for one in counting(attempts, deadlines, scores):
        owners.setdefault((one.submission, one.attempt), set()).add(one.owner)
    for row in sorted(rows, key=lambda row: (row.status != "rejected", row.key)):
        yield _graded(book, row, rubric, deadlines, owners.get(row.key, set()))


def attempt_of(row: Row) -> Attempt:
    """A row as the policy on attempts sees it."""
    return Attempt(row.submission, row.attempt, row.name, row.submitted_at, row.late, row.students)


def _graded(book: Gradebook, row: Row, rubric: Rubric, deadlines: Deadlines, owners: set[str]) -> Graded:
    result = result_of(book, row, rubric)
    score = result.score if result else None
    named = row.students or (Student(name=row.name),)  # so that what nobody is known for has points, too
    students = tuple(_score_of(student, row, score, deadlines) for student in named)
    owned_by = map(attempt_of(row).owner, row.students)
    elsewhere = {place for place, owner in enumerate(owned_by) if owner not in owners}
    attention = _attention(book, row, result, deadlines) if owners else ""
    return Graded(
        result=result.model_copy(update={"students": students}) if result else None, submission=row.submission,
        attempt=row.attempt, counts=bool(owners), attention=attention, students=students,
        elsewhere=frozenset(elsewhere),
    )  # fmt: skip


def _score_of(student: Student, row: Row, score: Score | None, deadlines: Deadlines) -> StudentScore:
    percent = deadlines.lateness(row.submitted_at, row.late, student).percent
    known: dict[str, Any] = {
        name: value for name, value in asdict(student).items() if name in StudentScore.model_fields
    }
    if score is None:
        return StudentScore(**known, final=None)
    return StudentScore(**known, late_penalty=penalty(score, percent), final=final(score, percent))


def _attention(book: Gradebook, row: Row, result: Result | None, deadlines: Deadlines) -> str:
    """Why a person has to look at an attempt that gives a grade; empty where nobody has to."""
    if row.status == "rejected":
        return row.reason
    if row.status == "no_submission" and row.notes:
        return f"{row.reason} ({row.notes[0]})"
    if row.late and row.submitted_at is None and deadlines.policy.per_day:
        return f"late, as {row.source} says, and not by how much: give its time with --times"
    runs = book.runs(row)
    failed = [run for run in runs if run.state is State.FAILED or run.grader_errors]
    if result and any(check.verdict is Verdict.GRADER_ERROR for check in result.checks):
        return f"checks ended in errors of the grader's{_suspicion(book, row, failed)}"
    if result is None and len(failed) >= MOST_RUNS:
        return f"{len(failed)} runs gave no result{_suspicion(book, row, failed)}: {failed[-1].error}"
    return ""


def _suspicion(book: Gradebook, row: Row, failed: Sequence[RunRow]) -> str:
    """Who can break our side has found something, which is no grade."""
    alone = any(book.others_pass(row, run) for run in failed)
    return ", while others pass on the same slot (look at what it does)" if alone else ""
