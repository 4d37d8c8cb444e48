"""What waits for a person: shown with the evidence and where the files lie, and decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grader.batch.gradebook import Decided, Gradebook, GradebookError, Row
from grader.batch.results import result_of
from grader.batch.trees import TREES
from grader.closest import did_you_mean
from grader.judge.output import clean
from grader.judge.snapshot import PACKAGE
from grader.result import CheckResult
from grader.rubric import Rubric

MOST_EVIDENCE = 3  # sentences that are shown of one reason


def show_reviews(book: Gradebook, rubric: Rubric, grades: Path, console: Console, only: str | None = None) -> None:
    """Everything that is open, by submission and reason; of one submission, what is decided, too.

    Raises `GradebookError` for a submission that is not there.
    """
    rows = _rows(book, only) if only else book.attempts()
    waiting = 0
    for row in rows:
        for (problem, _, decision), checks in _by_reason(_reviewed(book, row, rubric)).items():
            if decision is None or only:
                waiting += decision is None
                _show(row, problem, checks, grades, console)
    console.print(_total(waiting, grades))


def decide(book: Gradebook, rubric: Rubric, id: str, name: str, decision: Decided, words: str) -> list[str]:
    """Decide on a check of a submission, or on all of a problem: the checks it was. A decision can be changed.

    It counts for every submission of the same files. Raises `GradebookError` where nothing of that name waits.
    """
    decided: list[str] = []
    with book.transaction():
        for row in _rows(book, id):
            for check in _reviewed(book, row, rubric):
                if check.review and name in (check.id, check.problem):
                    book.decide(row.tree_sha256, check.id, check.review.reason, decision, words)
                    decided.append(check.id)
    if not decided:
        known = [check.id for row in _rows(book, id) for check in _reviewed(book, row, rubric)]
        there = f"; there are {', '.join(known)}" if known else "; nothing of it waits for a person"
        raise GradebookError(f"there is no review of `{clean(name, 80)}` in {clean(id, 80)}{there}")
    return decided


def _rows(book: Gradebook, id: str) -> list[Row]:
    """The attempts of a submission. Raises `GradebookError` where there is none."""
    if rows := book.attempts(id):
        return rows
    known = [row.submission for row in book.attempts()]
    raise GradebookError(f"there is no submission `{clean(id, 80)}`{did_you_mean(id, known)}")


def _reviewed(book: Gradebook, row: Row, rubric: Rubric) -> list[CheckResult]:
    result = result_of(book, row, rubric)
    return [check for check in result.checks if check.review] if result else []


def _by_reason(checks: Sequence[CheckResult]) -> dict[tuple[str, str, str | None], list[CheckResult]]:
    """By problem, reason and decision: the evidence of many checks hangs together."""
    found: dict[tuple[str, str, str | None], list[CheckResult]] = {}
    for check in checks:
        if check.review:
            found.setdefault((check.problem, check.review.reason, check.review.decision), []).append(check)
    return found


def _show(row: Row, problem: str, checks: Sequence[CheckResult], grades: Path, console: Console) -> None:
    """A block for checks that wait, or were decided, for one reason."""
    reviews = [check.review for check in checks if check.review]
    decision, points = reviews[0].decision, sum(check.max for check in checks)
    style = "dim" if decision else "yellow"
    console.print(Text.assemble((f"{row.submission}  {problem}", "bold"), (f"  {decision or 'open'}", style)))
    where = grades / TREES / row.tree_sha256 / PACKAGE / f"{problem}.py"
    evidence = list(dict.fromkeys(review.evidence for review in reviews))
    said = "; ".join(evidence[:MOST_EVIDENCE]) + (", and so on" if len(evidence) > MOST_EVIDENCE else "")
    names = ", ".join(check.id for check in checks)
    for line in (f"{reviews[0].reason}: {said}", f"{points:.2f} points: {names}"):
        console.print(Padding(Text(clean(line)), (0, 0, 0, 6), expand=False))
    console.print(Text(f"      code: {clean(str(where))}"), soft_wrap=True)  # in one piece, to be copied


def _total(waiting: int, grades: Path) -> str:
    if not waiting:
        return "Nothing waits for a person."
    return (
        f"Waiting for a person: {waiting}. `review {grades} ID PROBLEM accept --reason TEXT` lets the points stand, "
        "`reject` makes them 0; PROBLEM.CHECK decides one check alone."
    )
