"""Which of a student's attempts gives the grade, and what of the attempts a person should look at.

Files of two attempts are never mixed: the newest is the newest as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from grader.batch.join import copy_of
from grader.batch.late import Deadlines, Lateness, final
from grader.batch.layouts import Student
from grader.batch.people import identity
from grader.result import Score
from grader.rubric import Attempts

Key = tuple[str, int]  # submission and attempt
NO_SCORES: Mapping[Key, Score] = {}
UNDECIDED = Decimal("-Infinity")


@dataclass(frozen=True)
class Attempt:
    """One attempt as the gradebook has it."""

    submission: str
    attempt: int
    name: str  # what it is called in the export, for the order of those without a time
    submitted_at: datetime | None  # in UTC
    late: bool | None  # as the export says it, without a time
    students: tuple[Student, ...] = ()

    @property
    def key(self) -> Key:
        return self.submission, self.attempt

    @property
    def owners(self) -> dict[str, Student | None]:
        """Who handed it in, by identity; itself, if nobody is known, and a student of whom only the name is known."""
        found: dict[str, Student | None] = {self.owner(student): student for student in self.students}
        return found or {self.submission: None}

    def owner(self, student: Student) -> str:
        """The identity of one of its students."""
        return identity(student) or f"{self.submission}/{student.name}"


@dataclass(frozen=True)
class Counted:
    """The attempt that gives a student's grade."""

    owner: str  # identity of the student; id of a submission that is nobody's
    student: Student | None
    submission: str
    attempt: int
    lateness: Lateness


def counting(
    attempts: Iterable[Attempt], deadlines: Deadlines, scores: Mapping[Key, Score] = NO_SCORES
) -> list[Counted]:
    """For each student the attempt that counts. scores: of those that are graded, which `best` needs."""
    return [
        _counted(owner, _Theirs(student, attempts, deadlines, scores))
        for owner, (student, attempts) in _by_owner(attempts).items()
    ]


def can_count(attempts: Sequence[Attempt], deadlines: Deadlines) -> set[Key]:
    """The attempts that have to be graded."""
    if deadlines.policy.attempts is Attempts.BEST:
        return {attempt.key for attempt in attempts}
    return {(counted.submission, counted.attempt) for counted in counting(attempts, deadlines)}


def warnings(attempts: Iterable[Attempt]) -> list[str]:
    """Students who are in more than one submission, in a sentence each."""
    found = []
    for owner, (_, theirs) in _by_owner(attempts).items():
        if len(submissions := dict.fromkeys(attempt.submission for attempt in theirs)) > 1:
            found.append(f"{owner.partition(':')[2]} is in {' and '.join(submissions)}: one of them counts")
    return found


@dataclass(frozen=True)
class _Theirs:
    """Attempts of one student, and what they are worth for them."""

    student: Student | None
    attempts: Sequence[Attempt]  # the oldest first
    deadlines: Deadlines
    scores: Mapping[Key, Score] = field(default_factory=dict)

    def lateness(self, attempt: Attempt) -> Lateness:
        return self.deadlines.lateness(attempt.submitted_at, attempt.late, self.student)

    def final(self, attempt: Attempt) -> Decimal:
        score = self.scores.get(attempt.key)
        found = final(score, self.lateness(attempt).percent) if score else None
        return UNDECIDED if found is None else found

    def chosen(self) -> Attempt:
        """By the policy."""
        match self.deadlines.policy.attempts:
            case Attempts.FIRST:
                return self.attempts[0]
            case Attempts.LATEST_ON_TIME:
                on_time = [attempt for attempt in self.attempts if not self.lateness(attempt).late]
                return on_time[-1] if on_time else self.attempts[0]
            case Attempts.BEST:
                return max(reversed(self.attempts), key=self.final)
            case Attempts.LATEST:
                return self.attempts[-1]


def _counted(owner: str, theirs: _Theirs) -> Counted:
    chosen = theirs.chosen()
    return Counted(owner, theirs.student, chosen.submission, chosen.attempt, theirs.lateness(chosen))


def _by_owner(attempts: Iterable[Attempt]) -> dict[str, tuple[Student | None, list[Attempt]]]:
    """Each student with their attempts, the oldest first."""
    found: dict[str, tuple[Student | None, list[Attempt]]] = {}
    for attempt in sorted(attempts, key=_age):
        for owner, student in attempt.owners.items():
            found.setdefault(owner, (student, []))[1].append(attempt)
    return found


def _age(attempt: Attempt) -> tuple[object, ...]:
    """By time; those without one are the newest, by their names: ada, ada (2), ada (10)."""
    unknown = attempt.submitted_at is None
    stem, number = copy_of(attempt.name)
    parts = re.split(r"(\d+)", stem.casefold())
    by_name = ([(int(part) if part.isdecimal() else -1, part) for part in parts], number, attempt.name)
    return (unknown, attempt.submitted_at or datetime.min.replace(tzinfo=UTC), by_name, *attempt.key)
