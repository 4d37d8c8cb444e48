"""What a student reads of a check, in the words of `python -m grader check`. Of redacted results only."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from grader.judge.verdict import Verdict
from grader.reports.graded import hundredths
from grader.result import CheckResult, Result, Speed
from grader.rubric import Rubric, Visibility
from grader.scoring import ZERO
from grader.units import duration

Line = tuple[str, str]  # a label, which may be empty, and words

INTAKE = {
    "ok": "",
    "no_submission": "Nothing that could be graded was handed in.",
    "rejected": "What was handed in could not be read, so nothing of it was graded: please ask the course's staff.",
}


def lines(check: CheckResult, rubric: Rubric) -> list[Line]:
    """The lines of a check, those without words left out."""
    return [(label, words) for label, words in _lines(check, rubric) if words]


def _lines(check: CheckResult, rubric: Rubric) -> Iterator[Line]:
    failed = check.verdict.scored and check.verdict is not Verdict.PASS
    if failed and check.case and check.verdict is not Verdict.TODO and check.cause != "not_tried":
        several = check.cases > 1 and check.verdict is Verdict.FAIL
        yield "case", check.case + (f" ({check.failed_cases} of {check.cases} cases failed)" if several else "")
    yield "", check.message
    yield "likely" if failed else "right, but", check.why
    yield "try", check.hint
    if check.speed:
        yield "speed", speed_words(check.speed)
    if check.review:
        yield "review", check.review.reason
    if check.void:
        yield "void", f"counts nothing: {check.void}"
    if failed and check.visibility is Visibility.PUBLIC and check.problem in rubric.problems:
        yield "handout", rubric.problems[check.problem].handout
        yield "again", check.replay or ""


def speed_words(speed: Speed) -> str:
    """How fast, and what full points take."""
    full = f"{speed.threshold.full:.2f} ({duration(speed.baseline_s / speed.threshold.full)})"
    return f"{duration(speed.time_s)}, {speed.ratio:.2f} of the speed of {speed.baseline}; full points take {full}"


def reservations(result: Result, rubric: Rubric) -> list[str]:
    """What has to be said beside the number of points, in sentences."""
    return [said for said in _reservations(result, rubric) if said]


def _reservations(result: Result, rubric: Rubric) -> Iterator[str]:
    yield INTAKE[result.submission.intake.status] if result.submission.intake else ""
    if undecided := [check for check in result.checks if check.review and check.review.open and not check.void]:
        points = hundredths(sum((check.max for check in undecided), ZERO))
        yield f"A person has to decide on {_checks(undecided)}, {points} points: they count 0 until then."
    for reason in dict.fromkeys(check.message for check in result.checks if check.verdict is Verdict.SKIPPED):
        alike = [check for check in result.checks if check.verdict is Verdict.SKIPPED and check.message == reason]
        points = hundredths(sum((check.max for check in alike), ZERO))
        yield f"Not run, no points either way: {_checks(alike)}, {points} points. {sentence(reason)}"
    if broken := [check for check in result.checks if check.verdict is Verdict.GRADER_ERROR and not check.void]:
        yield f"The grader itself failed in {_checks(broken)}, which is not your fault: staff will grade again."
    missing = len(set(rubric.points) - {check.id for check in result.checks})
    if missing:
        yield f"Not run: {missing} {'check' if missing == 1 else 'checks'} of the rubric, which are not counted here."


def not_whole(points: str, rubric: Rubric) -> str:
    """Why the checks' points are not the assignment's, or nothing."""
    if points == hundredths(Decimal(rubric.public.points)):
        return ""
    coming = ", ".join(f"{problem} ({worth})" for problem, worth in rubric.public.coming.items())
    why = f"; {coming} will come later and count nothing yet" if coming else ""
    return f"The checks here add up to {points} points, not to {rubric.public.points}{why}."


def _checks(checks: list[CheckResult]) -> str:
    return "1 check" if len(checks) == 1 else f"{len(checks)} checks"


def sentence(words: str) -> str:
    """Words as a sentence."""
    return f"{words[:1].upper()}{words[1:].rstrip('.')}."
