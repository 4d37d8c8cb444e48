"""The copy of a result that students may see: `for_students`. Every report for them is made from one.

Fields are named here one by one, so a new field of a result is not shown until somebody says so. Of a hidden check
they get the title, staff's hint, the verdict and the points. Of times they get those of public checks, since code that
waits by what a hidden input is like would tell it by any other. Text that may be a submission's is cleaned and capped.
"""

from __future__ import annotations

from grader.judge.output import Room, capped
from grader.judge.verdict import Verdict
from grader.reports.graded import in_order
from grader.result import Advice, CheckResult, IntakeInfo, Place, Result, Review, Run, StudentScore, SubmissionInfo
from grader.rubric import Rubric, Visibility

CHECK_BYTES, SUBMISSION_BYTES = 8 << 10, 64 << 10  # of a submission's text, in a check and in all of a report
NAME_BYTES = 200
DAY = len("2026-10-02")  # the second would tell how long whoever ran before took
DECIDED = {
    None: "a person has to decide whether it counts",
    "accept": "a person has looked at it: it counts",
    "reject": "a person has looked at it: it does not count",
}
UNSCORED = {
    Verdict.SKIPPED: "not run: the machine that graded lacks what this check needs",
    Verdict.GRADER_ERROR: "the grader itself failed here, which is not your fault and costs nothing",
}
AGAIN = "this check ran twice; the command below runs it on the same inputs and says what is wrong"
TAKEN_OUT = "staff have taken it out of the score"

SHOWN_OF_HIDDEN = ("id", "problem", "title", "visibility", "verdict", "score", "max", "bonus")
SHOWN_OF_AGAIN = (*SHOWN_OF_HIDDEN, "void", "seed", "runs", "speed")  # of a public check that ran after hidden inputs
SHOWN_OF_PUBLIC = (*SHOWN_OF_AGAIN, "cases", "failed_cases", "cause", "time_s")
TEXTS = ("message", "why", "hint", "case", "printed")  # of a public check, the first ones first where room is short


def for_students(result: Result, rubric: Rubric, student: StudentScore | None = None) -> Result:
    """A result without what is hidden or staff's; with the name of this student only, or without any."""
    room = Room(SUBMISSION_BYTES)
    submission, run = result.submission, result.run
    checks = tuple(
        _hidden(check, rubric) if check.visibility is Visibility.HIDDEN else _public(check, room)
        for check in in_order(result.checks, rubric)
    )
    return Result(
        schema=result.schema_, assignment=result.assignment, grader=result.grader, target=result.target,
        score=result.score,
        submission=SubmissionInfo(
            id=submission.id, attempt=submission.attempt, tree_sha256=submission.tree_sha256,
            submitted_at=submission.submitted_at, submitted_at_source=submission.submitted_at_source,
            intake=IntakeInfo(status=submission.intake.status) if submission.intake else None,
        ),
        students=(_own(student),) if student else (),
        checks=checks,
        advice=tuple(_advice(advice, room) for advice in result.advice),
        run=Run(
            started_at=run.started_at[:DAY], ended_at="", host="", wall_s=sum(check.time_s for check in checks),
            stopped=run.stopped,
        ),
    )  # fmt: skip


def _own(student: StudentScore) -> StudentScore:
    name = capped(student.name or "", NAME_BYTES)[0].replace("\n", " ")
    return StudentScore(name=name or None, late_penalty=student.late_penalty, final=student.final)


def _hidden(check: CheckResult, rubric: Rubric) -> CheckResult:
    fields = {name: getattr(check, name) for name in SHOWN_OF_HIDDEN}
    failed = check.verdict.scored and check.verdict is not Verdict.PASS
    return CheckResult(
        **fields, review=_review(check.review), void=TAKEN_OUT if check.void else None,
        message=UNSCORED.get(check.verdict, ""),
        hint=rubric.hint(check.id) if failed and rubric.entry(check.id) else "",
    )  # fmt: skip


def _public(check: CheckResult, room: Room) -> CheckResult:
    again = check.runs > 1  # after hidden inputs, which the submission may tell
    fields = {name: getattr(check, name) for name in (SHOWN_OF_AGAIN if again else SHOWN_OF_PUBLIC)}
    texts = {name: getattr(check, name) for name in TEXTS}
    if check.verdict is Verdict.GRADER_ERROR:
        texts = {"message": UNSCORED[Verdict.GRADER_ERROR]}
    elif again:
        texts = {"message": AGAIN, "hint": check.hint}
    if check.review:  # what was seen is evidence
        fields, texts = fields | {"cause": None}, texts | {"why": "", "hint": ""}
    return CheckResult(
        **fields, **room.fit(texts, CHECK_BYTES), review=_review(check.review),
        where=None if again else _place(check.where),
        replay=f"uv run python -m grader check {check.id} --seed {check.seed}" if check.replay else None,
    )  # fmt: skip


def _review(review: Review | None) -> Review | None:
    return Review(reason=DECIDED[review.decision], evidence="", decision=review.decision) if review else None


def _advice(advice: Advice, room: Room) -> Advice:
    texts = room.fit({"what": advice.what, "hint": advice.hint}, CHECK_BYTES)
    where = Place(file=capped(advice.where.file, NAME_BYTES)[0], line=advice.where.line)
    return Advice(name=advice.name, where=where, **texts)


def _place(where: Place | None) -> Place | None:
    return Place(file=capped(where.file, NAME_BYTES)[0], line=where.line) if where else None
