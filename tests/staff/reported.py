"""Results to report on, made by hand: `a_result` has every check of the rubric, and `graded` an attempt of somebody."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from grader.judge.verdict import Verdict
from grader.reports.graded import Graded
from grader.result import (
    CheckResult,
    Clocks,
    Gpu,
    GraderInfo,
    IntakeInfo,
    Place,
    Result,
    Review,
    Run,
    Speed,
    StudentScore,
    SubmissionInfo,
    Target,
)  # fmt: skip
from grader.rubric import Rubric, Visibility
from grader.rubric_files import PARTS
from grader.scoring import award, total

RUBRIC = Rubric.read()
TREE = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
OPEN = Review(reason="torch computed it", evidence="aten::softmax was called 12 times")


def a_speed(check: str, ratio: float = 2.0) -> Speed:
    """A call of 2 ms beside the baseline of a timed check."""
    timed = RUBRIC.timed(check)
    assert timed
    return Speed(
        function=timed.function, time_s=2e-3, iqr_s=1e-5, samples=20, baseline=timed.baseline, baseline_s=ratio * 2e-3,
        ratio=ratio, bound_s=None, threshold=timed.threshold,
        gpu=Gpu(
            name="NVIDIA H200", clocks_mhz=Clocks(min=1470, median=1500, max=1980), power_w=640.5, temperature_c=61
        ),
    )  # fmt: skip


def a_check(check: str, verdict: Verdict = Verdict.PASS, **fields: Any) -> CheckResult:
    """One check with its points by the rubric; what did not pass says so."""
    problem, _, name = check.partition(".")
    hidden = name in RUBRIC.checks(problem, Visibility.HIDDEN)
    speed = fields.pop("speed", a_speed(check) if RUBRIC.timed(check) and verdict is Verdict.PASS else None)
    said: dict[str, Any] = {}
    if verdict is Verdict.SKIPPED:
        said = {"message": "needs a GPU: speed is measured there"}
    elif verdict is not Verdict.PASS and not hidden:
        said = {
            "message": "first wrong value at [0, 7]: got 0.0021, expected 0.0019",
            "why": "the last lanes are not masked", "hint": "mask the load",
            "case": "127 x 511 float16, rows strided by 640", "cases": 4, "failed_cases": 2,
            "seed": 551203, "cause": "red_zone_read", "where": Place(file="assignment/softmax.py", line=31),
            "replay": f"python -m grader check {check} --submission /staff/trees/5f70 --seed 551203",
            "detail": "a traceback",
        }  # fmt: skip
    return CheckResult(
        id=check, problem=problem, title=f"{name.replace('_', ' ').capitalize()} are right.", verdict=verdict,
        visibility=Visibility.HIDDEN if hidden else Visibility.PUBLIC,
        **{**award(RUBRIC, check, verdict, fields.get("review"), speed), **said, **fields},
    )  # fmt: skip


def a_result(
    verdicts: Mapping[str, Verdict] | None = None,
    checks: Iterable[CheckResult] = (),
    submission: str = "gradescope-123456",
    info: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Result:
    """A run in which all checks pass but for these verdicts, by full name or problem, and for these checks.

    `info` has other fields of what came in.
    """
    verdicts, given = verdicts or {}, {check.id: check for check in checks}
    names = [
        f"{problem}.{name}" for part in PARTS for problem in RUBRIC.problems for name in RUBRIC.part(problem, part)
    ]
    found = tuple(
        given.get(name) or a_check(name, verdicts.get(name, verdicts.get(name.partition(".")[0], Verdict.PASS)))
        for name in names
    )
    came = {"tree_sha256": TREE, "submitted_at": "2026-10-02T21:58:03Z", "submitted_at_source": "gradescope",
            "intake": IntakeInfo(status="ok", notes=("ignored: __MACOSX/ (2 files)",))}  # fmt: skip
    others = {
        "score": total(found), "grader": GraderInfo(version="1.0.0", checks_sha256="9f86", rubric_sha256=RUBRIC.sha256),
        "target": Target(
            device="NVIDIA H200", torch="2.13.0", triton="3.7.1", numpy="2.4.0", python="3.11.9", sandbox="bwrap"
        ),
        "run": Run(started_at="2026-10-03T08:00:00Z", ended_at="2026-10-03T08:00:42Z", host="gpu-a", wall_s=41.7),
    }  # fmt: skip
    submitted = SubmissionInfo(id=submission, **came | dict(info or {}))
    return Result(assignment=RUBRIC.public.assignment, submission=submitted, checks=found, **others | fields)


def a_student(name: str = "Ada Example", final: str | None = "80.00", late: str = "0", **fields: Any) -> StudentScore:
    return StudentScore(
        name=name, final=None if final is None else Decimal(final), late_penalty=Decimal(late), **fields
    )  # fmt: skip


def graded(
    result: Result | None, *students: StudentScore, submission: str = "", attention: str = "", **fields: Any
) -> Graded:
    """The attempt of a result, which counts."""
    found = result.submission.id if result else submission
    counts = fields.pop("counts", True)
    return Graded(result, submission or found, 1, counts, attention, students, **fields)
