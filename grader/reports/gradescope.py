"""Gradescope's `results.json` of a submission: `results_json`. Source: gradescope/autograder_samples, docs/specs.md.

The score is the raw one: penalties for lateness belong to one place, and that is not here. Everything is plain text,
so nothing that a student wrote is rendered. Timed tests are shown when grades are published; until then students see
no total.
"""

from __future__ import annotations

from typing import Any

from grader.judge.verdict import Verdict
from grader.reports.graded import hundredths, numbers
from grader.reports.redact import for_students
from grader.reports.words import lines, not_whole, reservations
from grader.result import CheckResult, Result
from grader.rubric import Rubric
from grader.scoring import ZERO


class NoGrade(Exception):
    """A result that is no grade, so that nothing may be written for it: why, in a sentence."""


def results_json(result: Result, rubric: Rubric) -> dict[str, Any]:
    """The content of `results.json`: what the students of this submission may see. Raises `NoGrade`."""
    _refuse_unfinished(result)
    shown, known = for_students(result, rubric), numbers(rubric)
    most = sum((check.max for check in shown.checks if not check.bonus), ZERO)
    raw = shown.score.raw
    bonus = f" + {hundredths(shown.score.bonus)}" if shown.score.bonus else ""
    said = [
        f"{hundredths(raw)} of {hundredths(most)} points{bonus} on {shown.target.device}.",
        *reservations(shown, rubric), _lateness(result), not_whole(hundredths(most), rubric),
    ]  # fmt: skip
    return {
        "execution_time": round(shown.run.wall_s, 3),
        "extra_data": {"complete": shown.score.complete, "schema": shown.schema_},
        "output": "\n".join(sentence for sentence in said if sentence),
        "output_format": "text",
        "score": float(raw + shown.score.bonus),
        "stdout_visibility": "hidden",
        "test_name_format": "text",
        "test_output_format": "text",
        "tests": [_test(check, rubric, known.get(check.id)) for check in shown.checks],
    }


def _refuse_unfinished(result: Result) -> None:
    broken = [check.id for check in result.checks if check.verdict is Verdict.GRADER_ERROR and not check.void]
    if broken:
        names = ", ".join(broken[:4]) + (f" and {len(broken) - 4} more" if len(broken) > 4 else "")
        raise NoGrade(f"{result.submission.id}: the grader itself failed in {names}; grade it again")
    if result.run.stopped:
        raise NoGrade(f"{result.submission.id}: its run was stopped before all checks had ended; grade it again")


def _lateness(result: Result) -> str:
    """Whether something will be taken off elsewhere. Of a group, without saying of whom."""
    penalties = {student.late_penalty for student in result.students}
    if not any(penalties):
        return ""
    if len(penalties) > 1:
        return "Late: a penalty, not the same for all of the group, is not taken off here."
    return f"Late: a penalty of {hundredths(penalties.pop())} points is not taken off here."


def _test(check: CheckResult, rubric: Rubric, number: str | None) -> dict[str, Any]:
    """One test. A bonus is on top of its points, and a skipped or undecided one is neither passed nor failed."""
    undecided = check.review is not None and check.review.open and not check.void
    rejected = check.review is not None and check.review.decision == "reject"
    test: dict[str, Any] = {"max_score": 0.0 if check.bonus else float(check.max)}
    test["name"] = f"{check.problem}: {'bonus: ' if check.bonus else ''}{check.title}"
    test["name_format"] = "text"
    if number:
        test["number"] = number
    test["output"] = "\n".join(f"{label}: {words}" if label else words for label, words in lines(check, rubric))
    test["output_format"] = "text"
    if undecided:
        test["score"] = 0.0
        test["output"] += "\nIt counts 0 until then."
    elif check.score is not None and check.verdict.scored:
        test["score"] = float(check.score)
        test["status"] = "passed" if check.verdict is Verdict.PASS and not rejected else "failed"
    timed = check.speed is not None or rubric.timed(check.id) is not None
    if timed:
        test["tags"] = ["speed"]
    test["visibility"] = "after_published" if timed else "visible"
    return test
