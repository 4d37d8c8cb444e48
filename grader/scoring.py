"""Scores as a function of verdicts, reviews and the rubric, and of nothing else.

So a change of the rubric needs no new run: `rescored` gives an old result under a new rubric.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TypedDict

from grader.judge.verdict import Verdict
from grader.result import CheckResult, Result, Review, Score
from grader.rubric import Rubric

ZERO = Decimal(0)
GONE = "the rubric does not know this check any more"


class Award(TypedDict):
    """What a check gets: fields of `CheckResult`."""

    score: Decimal | None  # points; None while there is no score
    max: Decimal
    bonus: bool
    void: str | None


def award(rubric: Rubric, check: str, verdict: Verdict, review: Review | None) -> Award:
    """The points of `problem.check` for a verdict, and for what people decided on it."""
    entry = rubric.entry(check)
    if entry is None or entry.void:
        return Award(score=ZERO, max=ZERO, bonus=False, void=entry.void if entry else GONE)
    points = rubric.points[check]
    return Award(score=_score(points, verdict, review), max=points, bonus=entry.bonus is not None, void=None)


def _score(points: Decimal, verdict: Verdict, review: Review | None) -> Decimal | None:
    if not verdict.scored or (review and review.open):
        return None
    accepted = review is None or review.decision == "accept"
    return points if verdict is Verdict.PASS and accepted else ZERO


def total(checks: Iterable[CheckResult], stopped: bool = False) -> Score:
    """The sum over checks that have a score; not complete where one has none, or some did not run."""
    checks = list(checks)
    scores = [(check, check.score) for check in checks if check.score is not None]
    return Score(
        raw=sum((score for check, score in scores if not check.bonus), ZERO),
        max=sum((check.max for check, _ in scores if not check.bonus), ZERO),
        bonus=sum((score for check, score in scores if check.bonus), ZERO),
        complete=len(scores) == len(checks) and not stopped,
    )


def rescored(result: Result, rubric: Rubric) -> Result:
    """The same result under another rubric."""
    checks = tuple(
        CheckResult.model_validate(check.model_dump() | award(rubric, check.id, check.verdict, check.review))
        for check in result.checks
    )
    grader = result.grader.model_copy(update={"rubric_sha256": rubric.sha256})
    score = total(checks, result.run.stopped)
    return result.model_copy(update={"checks": checks, "grader": grader, "score": score})
