"""Results as a judge would give them, made up from what a tree says of itself: for tests of batches.

A tree's `gelu.py` is text; each line that it has is an order: `fail gelu.sizes`, `grader_error gelu.sizes`, `skip ...`,
`review gelu.sizes`, `seconds 0.1`. All other checks pass.
"""

from __future__ import annotations

import platform
import time
from decimal import Decimal
from functools import cache

from grader.batch.engines import Job, Slot
from grader.batch.results import all_checks
from grader.judge.verdict import Verdict
from grader.result import CheckResult, GraderInfo, Result, Review, Run, Speed, SubmissionInfo, Target
from grader.rubric import Rubric
from grader.scoring import settled, total

ORDERS = {
    "fail": Verdict.FAIL, "crash": Verdict.CRASH, "skip": Verdict.SKIPPED, "grader_error": Verdict.GRADER_ERROR,
    "todo": Verdict.TODO,
}  # fmt: skip
GPU = {
    "name": "NVIDIA H200", "clocks_mhz": {"min": 1980, "median": 1980, "max": 1980}, "power_w": 400.0,
    "temperature_c": 50.0,
}  # fmt: skip


@cache
def rubric() -> Rubric:
    return Rubric.read()


@cache
def checks() -> list:
    return all_checks(rubric())


def answer(job: Job, slot: Slot | None = None) -> str:
    """The JSON text of a result."""
    return result(job, slot.kind if slot else "cpu").model_dump_json(by_alias=True)


def result(job: Job, device: str = "cpu") -> Result:
    said = orders(job.files)
    time.sleep(float(said.get("seconds", "0")))
    found = tuple(_check(*check, said) for check in checks() if check[0].partition(".")[0] in job.problems)
    found = settled(found, rubric())
    return Result(
        assignment="gpu-kernels", submission=SubmissionInfo(id=job.submission, tree_sha256=job.tree_sha256),
        grader=GraderInfo(version="1", checks_sha256=job.checks_sha256, rubric_sha256=rubric().sha256),
        target=Target(device=device, torch="2", triton="3", numpy="2", python="3", sandbox="bwrap"),
        score=total(found), checks=found,
        run=Run(started_at="2026-10-03T08:00:00Z", ended_at="2026-10-03T08:00:42Z", host=platform.node(), wall_s=1.0),
    )  # fmt: skip


def orders(files) -> dict[str, str]:
    """By check, or `seconds`: what a tree says of itself. Trees of ours, the solutions and the stubs, are known."""
    text = files.get("gelu.py", b"").decode()
    if "raise NotImplementedError" in text:
        return {check[0]: "todo" for check in checks()}
    lines = [line.split() for line in text.splitlines() if line.count(" ") == 1]
    return {line[1]: line[0] for line in lines if line[0] in ORDERS or line[0] == "review"} | {
        line[0]: line[1] for line in lines if line[0] == "seconds"
    }


def _check(name, title, visibility, said) -> CheckResult:
    timed = rubric().timed(name)
    verdict = ORDERS.get(said.get(name, ""), Verdict.PASS)
    review = Review(reason="borrowed", evidence="torch.softmax") if said.get(name) == "review" else None
    speed = None
    if timed and verdict is Verdict.PASS:
        speed = Speed(
            function=timed.function, time_s=1e-3, iqr_s=1e-6, samples=24, baseline=timed.baseline, baseline_s=2e-3,
            ratio=2.0, bound_s=None, threshold=timed.threshold, gpu=GPU,
        )  # fmt: skip
    scored = verdict.scored and not review
    points = rubric().points[name]
    earned = (points if verdict is Verdict.PASS else Decimal(0)) if scored else None
    return CheckResult(
        id=name, problem=name.partition(".")[0], title=title, visibility=visibility, verdict=verdict, review=review,
        score=earned, max=points, bonus=rubric().entry(name).bonus is not None, speed=speed,
        message="" if verdict is Verdict.PASS else "as ordered",
    )  # fmt: skip
