"""From what came in to rows of the gradebook: which attempt each submission is, and its tree, kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from grader.batch import trees
from grader.batch.gradebook import Gradebook, Row
from grader.batch.intake import Intake, Report
from grader.batch.layouts import Student
from grader.batch.people import identity
from grader.batch.rejected import Code, shown
from grader.judge.snapshot import tree_sha256

ROSTER = "roster"  # the source of those who are missing
TRIED_AGAIN = (Code.IO, Code.GRADER_ERROR)  # not the fault of what was handed in
NO_TREE = tree_sha256({})


def admit(book: Gradebook, grades: Path, report: Report) -> None:
    """Write every submission of a report to the gradebook, and its tree to `grades`.

    The same files at the same time are the attempt that is known; others are the next one.
    """
    rows = [_row(one, report.source, grades) for one in report.submissions]
    os.sync()
    with book.transaction():
        book.remove(ROSTER)
        for student in report.absent:
            book.add(_absent(student))
        for row in rows:
            book.add(replace(row, attempt=_number(row, book.attempts(row.submission))))


def _row(intake: Intake, source: str, grades: Path) -> Row:
    files = intake.tree.files if intake.tree else {}
    sha256 = trees.keep(grades, files) if files else NO_TREE
    entry = intake.entry
    told = None if entry.late is None else source  # whether it is late, and no time
    return Row(
        submission=entry.id, attempt=1, name=entry.name, source=source, status=intake.status.value,
        tree_sha256=sha256, code=intake.code, reason=intake.reason, notes=tuple(_notes(intake)),
        submitted_at=entry.submitted_at, submitted_at_source=entry.submitted_at_source or told,
        late=entry.late,
        students=entry.students,
    )  # fmt: skip


def _absent(student: Student) -> Row:
    """A student of the roster who has handed in nothing."""
    who = identity(student)
    return Row(
        submission=f"{ROSTER}-{hashlib.sha256(who.encode()).hexdigest()[:12]}", attempt=1, name="", source=ROSTER,
        status="no_submission", tree_sha256=NO_TREE, code=None, reason="nothing was handed in", notes=(),
        submitted_at=None, submitted_at_source=None, late=None, students=(student,),
    )  # fmt: skip


def _notes(intake: Intake) -> Iterable[str]:
    """What staff may want to know of a submission."""
    yield from intake.notes
    yield from (f"{shown(path)}: {why}" for path, why in intake.mistakes.items())
    if intake.tree and (count := len(intake.tree.ignored)):
        yield f"ignored: {count} files, such as {shown(next(iter(intake.tree.ignored)))}"


def _number(row: Row, known: Iterable[Row]) -> int:
    """Which attempt this is."""
    newest = max(known, key=lambda other: other.attempt, default=None)
    if newest is None:
        return 1
    tried_again = newest.code in TRIED_AGAIN
    same_files = (row.tree_sha256, row.status) == (newest.tree_sha256, newest.status)
    same_time = row.submitted_at == newest.submitted_at or None in (row.submitted_at, newest.submitted_at)
    return newest.attempt if (tried_again or same_files) and same_time else newest.attempt + 1
