"""From runs, decisions and the rubric as it is now to the result of each attempt: nothing here runs a check.

So points, weights, thresholds, a voided check and a decision count at once, for what was measured long ago.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence

import grader
from grader.batch.gradebook import Decided, Gradebook, Row, RunRow, State
from grader.judge.identity import checks_sha256
from grader.judge.verdict import Verdict
from grader.result import (
    CheckResult,
    GraderInfo,
    IntakeInfo,
    Result,
    Run,
    SubmissionInfo,
    Target,
)
from grader.rubric import CHECKS, Rubric, Visibility
from grader.rubric_files import Part, titles
from grader.scoring import award, rescored, total


def result_of(book: Gradebook, row: Row, rubric: Rubric, states: Sequence[State] = (State.DONE,)) -> Result | None:
    """What an attempt has reached by now, of runs in these states; None where nothing has run yet.

    What could not be taken in has reached nothing: all its checks are to do.
    """
    if row.status != "ok":
        return _described(nothing_of(row, rubric), row)
    latest = _latest(book, row, states)
    if not latest:
        return None
    runs = {
        number: Result.model_validate_json(text) for number in set(latest.values()) if (text := book.result(number))
    }
    checks = _decided(_together(latest, runs), book.decisions(row.tree_sha256))
    newest = runs[max(runs)]
    result = rescored(newest.model_copy(update={"checks": tuple(checks)}), rubric)
    if set(rubric.problems) - set(latest):  # of a batch with --only: no grade yet
        result = result.model_copy(update={"score": result.score.model_copy(update={"complete": False})})
    return _described(result, row)


def _latest(book: Gradebook, row: Row, states: Sequence[State]) -> dict[str, int]:
    """For each problem, the newest run; one without errors of ours goes before all others."""
    found: dict[str, RunRow] = {}
    for run in book.runs(row):
        if run.state in states:
            for problem in run.problems:
                known = found.get(problem)
                if not known or known.grader_errors or not run.grader_errors:
                    found[problem] = run
    return {problem: run.number for problem, run in found.items()}


def _together(latest: Mapping[str, int], runs: Mapping[int, Result]) -> list[CheckResult]:
    """The checks of each problem from its run."""
    return [check for problem, number in latest.items() for check in runs[number].checks if check.problem == problem]


def _decided(checks: Sequence[CheckResult], decisions: Mapping[tuple[str, str], Decided]) -> list[CheckResult]:
    """Reviews with what people have decided. Points come later: `rescored`."""
    found = []
    for check in checks:
        if check.review and (decision := decisions.get((check.id, check.review.reason))):
            review = check.review.model_copy(update={"decision": decision})
            check = check.model_copy(update={"review": review})
        found.append(check)
    return found


def _described(result: Result, row: Row) -> Result:
    """With what the intake knows."""
    at = row.submitted_at.isoformat() if row.submitted_at else None
    submission = SubmissionInfo(
        id=row.submission, attempt=row.attempt, tree_sha256=row.tree_sha256, submitted_at=at,
        submitted_at_source=row.submitted_at_source, intake=IntakeInfo(status=row.status, notes=row.notes),
    )  # fmt: skip
    return result.model_copy(update={"submission": submission})


def nothing_of(row: Row, rubric: Rubric) -> Result:
    """The result of what could not be taken in, or is not there."""
    checks = tuple(_todo(rubric, check, _for_student(row, check[0])) for check in all_checks(rubric))
    return Result(
        assignment=rubric.public.assignment,
        submission=SubmissionInfo(id=row.submission, tree_sha256=row.tree_sha256),
        grader=GraderInfo(version=grader.__version__, checks_sha256=checks_sha256(), rubric_sha256=rubric.sha256),
        target=Target(device="none", torch="none", triton="none", numpy="none", python="none", sandbox="none"),
        score=total(checks), checks=checks,
        run=Run(started_at="", ended_at="", host=platform.node(), wall_s=0.0),
    )  # fmt: skip


def _for_student(row: Row, check: str) -> str:
    """Why a check is to do: what was found, without what staff are to ask for, and what a module was called instead."""
    found = row.reason.rpartition(": ")[0] or row.reason or "nothing was handed in"
    module = f"there is no {check.partition('.')[0]}.py"
    return ". ".join([found, *(note for note in row.notes if note.startswith(module))])


def _todo(rubric: Rubric, check: tuple[str, str, Visibility], message: str) -> CheckResult:
    name, title, visibility = check
    return CheckResult(
        id=name, problem=name.partition(".")[0], title=title, visibility=visibility, verdict=Verdict.TODO,
        message=message, **award(rubric, name, Verdict.TODO, None),
    )  # fmt: skip


def all_checks(rubric: Rubric) -> list[tuple[str, str, Visibility]]:
    """Full name, title and visibility of each, in the order in which they run."""
    found: list[tuple[str, str, Visibility]] = []
    parts: tuple[Part, ...] = (Visibility.PUBLIC, "speed", Visibility.HIDDEN)
    for part in parts:
        visibility = Visibility.HIDDEN if part == Visibility.HIDDEN else Visibility.PUBLIC
        for problem in rubric.problems:
            known = titles(CHECKS[visibility] / f"test_{problem}.py")
            found += [(f"{problem}.{name}", known[name], visibility) for name in rubric.part(problem, part)]
    return found
