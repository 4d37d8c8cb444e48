"""From the cases of a check to its result: the verdict, the score, and what is said about it to whom.

A student sees of a hidden check its title and staff's hint; everything else goes into `detail`, for staff.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from grader.judge.borrowed import Borrowed
from grader.judge.output import Room
from grader.judge.plugin import CaseResult, Judge
from grader.judge.verdict import Outcome, Verdict
from grader.result import CheckResult, Place, Review
from grader.rubric import Visibility
from grader.scoring import award, bound_review

RUN = "uv run " if "UV" in os.environ else ""  # as this command was started

MOST_BYTES = (
    256 << 10
)  # of a submission's words in a result, and again of what it printed: a driver takes 4 MiB of JSON
WORDS, PRINTED = ("message", "why", "hint", "case"), ("detail", "printed")

Fields = dict[str, Any]  # of a `CheckResult`


def verdict_of(cases: Sequence[CaseResult]) -> Verdict:
    """A check has the worst verdict of its cases."""
    return Verdict.worst([case.verdict for case in cases])


def conclude(judge: Judge, check: str, cases: Sequence[CaseResult], runs: int) -> CheckResult:
    """The result of `problem.check`, which ran `runs` times; `cases` are those of the last run."""
    verdict, first = verdict_of(cases), cases[0]
    review = _review(judge, verdict, cases)
    speed = next((case.speed for case in cases if case.speed), None)
    return CheckResult(
        id=check, problem=check.partition(".")[0], title=first.title, visibility=first.visibility, verdict=verdict,
        review=review, runs=runs, time_s=round(sum(case.seconds for case in cases), 3), cases=len(cases),
        failed_cases=sum(case.verdict not in (Verdict.PASS, Verdict.SKIPPED) for case in cases),
        **award(judge.rubric, check, verdict, review, speed), **_said(judge, check, verdict, cases),
    )  # fmt: skip


def fitted(checks: Sequence[CheckResult]) -> list[CheckResult]:
    """Checks whose texts have no more than their room together, however much a submission says in each of them."""
    words, printed = Room(MOST_BYTES), Room(MOST_BYTES)
    return [
        check.model_copy(update={
            **words.fit({name: getattr(check, name) for name in WORDS}, MOST_BYTES),
            **printed.fit({name: getattr(check, name) for name in PRINTED}, MOST_BYTES),
        })
        for check in checks
    ]  # fmt: skip


def _review(judge: Judge, verdict: Verdict, cases: Sequence[CaseResult]) -> Review | None:
    """In staff grading, points that the library may have earned, or a speed that cannot be, wait for a person."""
    if verdict is not Verdict.PASS or not judge.staff:
        return None
    if found := _borrowed(cases):
        return Review(reason=found.reason, evidence=found.evidence)
    return next((review for case in cases if (review := bound_review(case.speed))), None)


def _said(judge: Judge, check: str, verdict: Verdict, cases: Sequence[CaseResult]) -> Fields:
    hidden = cases[0].visibility is Visibility.HIDDEN
    telling = next(case for case in cases if case.verdict is verdict)
    if verdict is Verdict.PASS:
        return {} if hidden else {"seed": judge.seed_of(check), **_advice(cases)}
    assert telling.outcome
    if verdict is Verdict.SKIPPED:
        return {"message": telling.outcome.message}
    if hidden:
        said = f"{telling.words}\n{telling.outcome}\n{telling.outcome.detail}".strip()
        return {"hint": judge.rubric.hint(check), "detail": f"{said}\n--seed {judge.seed_of(check)}"}
    return _failure(judge, check, telling.words, telling.outcome)


def _advice(cases: Sequence[CaseResult]) -> Fields:
    """What a student should know about a check that passed all the same."""
    if found := _borrowed(cases):
        return {
            "cause": "borrowed", "why": f"{found.reason}: {found.evidence}",
            "hint": f"{found.hint}. In grading a person looks at this before it earns points",
        }  # fmt: skip
    if advice := next((case.advice for case in cases if case.advice), None):
        return {"cause": advice.name, "why": advice.why, "hint": advice.hint}
    return {}


def _failure(judge: Judge, check: str, words: str, outcome: Outcome) -> Fields:
    """A public check that did not pass, as its student reads it."""
    seed = judge.seed_of(check)
    return {
        "message": outcome.message, "why": outcome.why, "hint": outcome.hint, "cause": outcome.cause,
        "detail": outcome.detail, "printed": outcome.printed, "case": words or None, "seed": seed,
        "where": Place(file=outcome.where.file, line=outcome.where.line) if outcome.where else None,
        "replay": f"{RUN}python -m grader check {check}{judge.options} --seed {seed}",
    }  # fmt: skip


def _borrowed(cases: Sequence[CaseResult]) -> Borrowed | None:
    """What was seen up to the last case: it adds up."""
    return cases[-1].borrowed
