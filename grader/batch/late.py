"""How late a submission is for a student, and what that costs: exact arithmetic on dates and points, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

from grader.batch.layouts import Student
from grader.batch.people import keys
from grader.batch.times import Extension
from grader.result import Score
from grader.rubric import LatePolicy

DAY = timedelta(hours=24)
HUNDREDTH = Decimal("0.01")


@dataclass(frozen=True)
class Lateness:
    """How late a submission is for one student."""

    late: bool | None  # null where nobody knows
    days: int = 0  # begun after the student's date, if it is late
    percent: Decimal = Decimal(0)  # of the raw score, that it costs

    @property
    def known(self) -> bool:
        """Whether it is known what it costs: an export may say that it is late, and not by how much."""
        return self.late is False or self.days > 0


@dataclass(frozen=True)
class Deadlines:
    """When the assignment is due for each student, and what lateness costs."""

    policy: LatePolicy = field(default_factory=LatePolicy)
    extensions: Mapping[str, Extension] = field(default_factory=dict)  # by a student's key

    def due(self, student: Student | None) -> datetime | None:
        """A student's date in UTC; an extension never shortens it. None: nothing is late."""
        due = self.policy.due
        found = keys(student) if student else []
        extension = next((self.extensions[key] for key in found if key in self.extensions), None)
        if due is None or extension is None:
            return due
        return max(due, extension.due or due) + extension.extra

    def lateness(self, submitted_at: datetime | None, late: bool | None, student: Student | None) -> Lateness:
        """Of a submission. late: as the export says it, which is all that is known without a time."""
        due = self.due(student)
        if due is None:
            return Lateness(False)
        if submitted_at is None:
            return Lateness(late)
        if submitted_at <= due + timedelta(minutes=self.policy.grace_minutes):
            return Lateness(False)
        days = -(-(submitted_at - due) // DAY)
        percent = min(self.policy.cap, self.policy.per_day * max(0, days - self.policy.slip_days))
        return Lateness(True, days, percent)


NO_DEADLINES = Deadlines()


def penalty(score: Score, percent: Decimal) -> Decimal:
    """Points that lateness takes, in hundredths; half a hundredth is one. Nothing else is rounded."""
    return (score.raw * percent / 100).quantize(HUNDREDTH, ROUND_HALF_UP)


def final(score: Score, percent: Decimal) -> Decimal | None:
    """Points of a student: raw and bonus, less the penalty. None while the score is not complete."""
    return score.raw + score.bonus - penalty(score, percent) if score.complete else None
