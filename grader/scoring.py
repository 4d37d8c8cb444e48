"""Scores as a function of verdicts, speeds, reviews and the rubric, and of nothing else.

So a change of the rubric needs no new run: `rescored` gives an old result under a new rubric. A timed check counts
where the checks that it needs have passed: `settled` looks at all of a run together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TypedDict

from grader.clock.curve import share
from grader.judge.verdict import Outcome, Verdict
from grader.result import CheckResult, Result, Review, Score, Speed
from grader.rubric import Rubric
from grader.units import duration

ZERO = Decimal(0)
HUNDREDTH = Decimal("0.01")
GONE = "the rubric does not know this check any more"
NEEDS = "needs"  # the cause of a timed check that fails because of others


class Award(TypedDict):
    """What a check gets: fields of `CheckResult`."""

    score: Decimal | None  # points; None while there is no score
    max: Decimal
    bonus: bool
    void: str | None
    speed: Speed | None  # with the rubric's thresholds


def award(rubric: Rubric, check: str, verdict: Verdict, review: Review | None, speed: Speed | None = None) -> Award:
    """The points of `problem.check` for a verdict and a speed, and for what people decided on it.

    Raises `ValueError` where a timed check has passed without a speed.
    """
    entry = rubric.entry(check)
    if entry is None or entry.void:
        return Award(score=ZERO, max=ZERO, bonus=False, void=entry.void if entry else GONE, speed=speed)
    points = earned = rubric.points[check]
    if (timed := rubric.timed(check)) and speed:
        speed = speed.model_copy(update={"threshold": timed.threshold_on(speed.gpu.name)})
        earned = part_of(points, speed)
    elif timed and verdict is Verdict.PASS:
        raise ValueError(f"{check} is timed, and has passed without a speed")
    score = _score(earned, verdict, review)
    return Award(score=score, max=points, bonus=entry.bonus is not None, void=None, speed=speed)


def part_of(points: Decimal, speed: Speed) -> Decimal:
    """What a speed earns of the points, to the hundredth; half of one is rounded up."""
    part = Decimal(str(share(speed.ratio, speed.threshold)))
    return (points * part).quantize(HUNDREDTH, ROUND_HALF_UP)


def _score(earned: Decimal, verdict: Verdict, review: Review | None) -> Decimal | None:
    if not verdict.scored or (review and review.open):
        return None
    accepted = review is None or review.decision == "accept"
    return earned if verdict is Verdict.PASS and accepted else ZERO


def bound_review(speed: Speed | None) -> Review | None:
    """A doubt about a speed that this GPU cannot have."""
    if speed is None or speed.bound_s is None or speed.time_s >= speed.bound_s:
        return None
    said = f"{duration(speed.time_s)} a call; {speed.gpu.name} needs {duration(speed.bound_s)} at least"
    return Review(reason="faster than this GPU can be", evidence=said)


def unmet(rubric: Rubric, check: str, others: Iterable[CheckResult]) -> list[str]:
    """Which of the checks that a timed check needs did not pass, or did not run.

    What was skipped, failed by our fault or is void costs no points, so not those of speed either.
    """
    if (timed := rubric.timed(check)) is None:
        return []
    problem, found = check.partition(".")[0], {other.id: other for other in others}
    checks = rubric.problems[problem].checks
    counted = [f"{problem}.{name}" for name in timed.needed(checks) if not checks[name].void]
    return [name for name in counted if name not in found or not _holds(found[name])]


def _holds(check: CheckResult) -> bool:
    """Whether nothing speaks against speed: no failure, and no person who rejected it."""
    rejected = check.review is not None and check.review.decision == "reject"
    return not check.verdict.scored or (check.verdict is Verdict.PASS and not rejected)


def unmet_outcome(unmet: Sequence[str]) -> Outcome:
    """The end of a timed check that lacks others."""
    names = ", ".join(unmet[:4]) + (f" and {len(unmet) - 4} more" if len(unmet) > 4 else "")
    said = f"speed counts once these checks pass in the same run: {names}"
    return Outcome(Verdict.FAIL, said, hint="make it right first, then fast", cause=NEEDS)


def settled(checks: Sequence[CheckResult], rubric: Rubric) -> tuple[CheckResult, ...]:
    """The checks of a run with their points by the rubric; timed ones fail where one that they need did not pass."""
    return tuple(_settled(check, unmet(rubric, check.id, checks), rubric) for check in checks)


def _settled(check: CheckResult, lacking: Sequence[str], rubric: Rubric) -> CheckResult:
    outcome = unmet_outcome(lacking) if lacking else Outcome(Verdict.PASS, "")
    held_back = check.cause == NEEDS and check.speed is not None  # and comes back when the others pass after all
    fields = check.model_dump()
    if held_back or (lacking and check.verdict is Verdict.PASS):
        fields |= {name: getattr(outcome, name) for name in ("verdict", "message", "why", "hint", "cause")}
    fields |= award(rubric, check.id, fields["verdict"], check.review, check.speed)
    return CheckResult.model_validate(fields)


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
    """The same result under another rubric: other points, thresholds or needs, and speeds as they were measured."""
    checks = settled(result.checks, rubric)
    grader = result.grader.model_copy(update={"rubric_sha256": rubric.sha256})
    score = total(checks, result.run.stopped)
    return result.model_copy(update={"checks": checks, "grader": grader, "score": score})
