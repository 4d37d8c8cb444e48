"""What a regrade changes: drops first, and as CSV. Nothing counts before somebody says so."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from rich.console import Console

from grader.batch.gradebook import Gradebook, Row, State
from grader.batch.results import result_of
from grader.files import write_whole
from grader.result import CheckResult, Result
from grader.rubric import Rubric
from grader.terminal import plain_table

FILE = "regrade.csv"
COLUMNS = ("submission", "check", "old", "old verdict", "new", "new verdict", "reason")
MOST_SHOWN = 40


@dataclass(frozen=True)
class Change:
    """A check that has another score."""

    submission: str
    check: str
    old: CheckResult | None
    new: CheckResult
    reason: str

    @property
    def gain(self) -> Decimal:
        """Points up, or down where it is negative; a score that is gone counts as nothing."""
        return (self.new.score or Decimal(0)) - ((self.old and self.old.score) or Decimal(0))


def changes(book: Gradebook, rows: Sequence[Row], rubric: Rubric) -> list[Change]:
    """Checks whose score or verdict the held runs would change, drops first."""
    found: list[Change] = []
    for row in rows:
        old, new = (result_of(book, row, rubric, states) for states in ((State.DONE,), (State.DONE, State.HELD)))
        found += _changes(old, new) if new else []
    return sorted(found, key=lambda change: (change.gain, change.submission, change.check))


def _changes(old: Result | None, new: Result) -> Iterator[Change]:
    known = {check.id: check for check in old.checks} if old else {}
    for check in new.checks:
        before = known.get(check.id)
        if before is None or (before.score, before.verdict) != (check.score, check.verdict):
            yield Change(new.submission.id, check.id, before, check, _reason(before, check, old, new))


def _reason(before: CheckResult | None, check: CheckResult, old: Result | None, new: Result) -> str:
    if old is None or before is None:
        return "had no result"
    if old.grader.checks_sha256 != new.grader.checks_sha256:
        return "other checks"
    if old.target.device != new.target.device:
        return f"{old.target.device} -> {new.target.device}"
    if check.speed and before.speed:
        return f"ratio {before.speed.ratio:.2f} -> {check.speed.ratio:.2f}"
    return "run again"


def show_changes(found: Sequence[Change], students: int, console: Console) -> None:
    """A table, and the sum."""
    if found:
        table = plain_table(console, "submission", "check", "old", "new", "reason")
        for change in found[:MOST_SHOWN]:
            table.add_row(
                change.submission,
                change.check,
                _said(change.old),
                _said(change.new),
                change.reason,
                style="red" if change.gain < 0 else "",
            )
        console.print(table)
    if len(found) > MOST_SHOWN:
        console.print(f"and {len(found) - MOST_SHOWN} more, in {FILE}")
    by_submission: dict[str, Decimal] = {}
    for change in found:
        by_submission[change.submission] = by_submission.get(change.submission, Decimal(0)) + change.gain
    down = [gain for gain in by_submission.values() if gain < 0]
    up = [gain for gain in by_submission.values() if gain > 0]
    console.print(
        f"{len(down) + len(up)} of {students} submissions change: {len(down)} down ({-sum(down):.2f}), "
        f"{len(up)} up ({sum(up):.2f})"
    )


def write_changes(grades: Path, found: Sequence[Change]) -> Path:
    """All of them as CSV, in the gradebook's folder: the file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for change in found:
        old, new = change.old, change.new
        old_cells = (_points(old), old.verdict) if old else ("", "")
        writer.writerow([change.submission, change.check, *old_cells, _points(new), new.verdict, change.reason])
    write_whole(grades / FILE, text.getvalue().encode())
    return grades / FILE


def _points(check: CheckResult) -> str:
    return "" if check.score is None else f"{check.score:.2f}"


def _said(check: CheckResult | None) -> str:
    return f"{_points(check) or '-'} {check.verdict}" if check else "-"
