"""What reports are made from: an attempt as the gradebook has it, and the rubric's checks in their order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

from grader.result import CheckResult, Result, StudentScore
from grader.rubric import Rubric
from grader.rubric_files import PARTS
from grader.scoring import HUNDREDTH


@dataclass(frozen=True)
class Graded:
    """One attempt of one submission."""

    result: Result | None  # None: not graded yet, of a batch that was stopped
    submission: str
    attempt: int
    counts: bool  # whether it gives a grade to at least one of its students
    attention: str  # for staff: why a person has to look; empty where nobody has to
    students: tuple[StudentScore, ...]
    elsewhere: frozenset[int] = frozenset()  # places in `students` of those whom another attempt gives the grade

    @property
    def graded_students(self) -> tuple[StudentScore, ...]:
        """Those whom this attempt gives the grade."""
        if not self.counts:
            return ()
        return tuple(student for place, student in enumerate(self.students) if place not in self.elsewhere)


def numbers(rubric: Rubric) -> dict[str, str]:
    """The number of every check by its full name: "2.1" is the first of the second problem. Public, hidden, timed."""
    return {
        f"{problem}.{name}": f"{place}.{number}"
        for place, problem in enumerate(rubric.problems, 1)
        for number, name in enumerate((name for part in PARTS for name in rubric.part(problem, part)), 1)
    }


def in_order(checks: Iterable[CheckResult], rubric: Rubric) -> list[CheckResult]:
    """Checks in the rubric's order; those that it does not know any more come last."""
    places = {check: place for place, check in enumerate(numbers(rubric))}
    return sorted(checks, key=lambda check: places.get(check.id, len(places)))


def maximum(rubric: Rubric) -> Decimal:
    """Points of all checks that there are: what is still coming, and what is on top, is not in it."""
    return sum((points for check, points in rubric.points.items() if not _is_bonus(rubric, check)), Decimal(0))


def hundredths(points: Decimal) -> str:
    """Points as they are written: two digits, half of one rounded up."""
    return f"{points.quantize(HUNDREDTH, ROUND_HALF_UP):.2f}"


def _is_bonus(rubric: Rubric, check: str) -> bool:
    entry = rubric.entry(check)
    return entry is not None and entry.bonus is not None
