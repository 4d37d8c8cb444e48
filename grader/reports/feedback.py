"""What a student reads after grading: one page of HTML that needs nothing else, `feedback_html`.

Pages hold the redacted copy of a result only, and one student's name at most. Members of a group whose points differ
get a page each: `feedback_pages`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from grader.judge.verdict import Verdict
from grader.reports.graded import Graded, hundredths, maximum
from grader.reports.redact import for_students
from grader.reports.words import Line, lines, not_whole, reservations, speed_words
from grader.result import CheckResult, Result, Speed, StudentScore
from grader.rubric import Rubric, Visibility
from grader.scoring import total
from grader.summary import by_reason, is_of_the_module

TEMPLATES = Path(__file__).parent / "templates"
NONE_AT, FULL_AT = 20.0, 80.0  # percent of a bar's width where points begin, and where they are full


@dataclass(frozen=True)
class Failure:
    """Checks of a problem that did not pass for one reason, the first of them in full."""

    verdict: str
    title: str
    lines: Sequence[Line]
    printed: str
    same: Sequence[str]  # titles of the others


@dataclass(frozen=True)
class Bar:
    """A speed beside its thresholds. Points grow with the logarithm of the ratio, and so does the bar."""

    title: str
    points: str
    words: str
    width: float  # percent


@dataclass(frozen=True)
class Section:
    """A problem."""

    problem: str
    handout: str
    points: str
    passed: str  # how many of how many
    failures: Sequence[Failure]
    notes: Sequence[Failure]  # right, and something is to be said
    bars: Sequence[Bar]
    checks: Sequence[tuple[CheckResult, str]]  # with their points


def feedback_pages(graded: Graded, rubric: Rubric) -> Iterator[tuple[str, str]]:
    """The pages of an attempt that counts, by the end of their file's name: "" for one that all of its students share.

    Where members of a group have other points than others, each has one: "_1", "_2", …
    """
    if not graded.counts or graded.result is None:
        return
    students = graded.graded_students
    if len({(student.final, student.late_penalty) for student in students}) <= 1:
        student = (
            students[0].model_copy(update={"name": students[0].name if len(students) == 1 else None})
            if students
            else None
        )
        yield "", feedback_html(graded.result, rubric, student)
        return
    for number, student in enumerate(students, 1):
        yield f"_{number}", feedback_html(graded.result, rubric, student)


def feedback_html(result: Result, rubric: Rubric, student: StudentScore | None = None) -> str:
    """The page of a submission, for this student or for nobody in particular."""
    shown = for_students(result, rubric, student)
    sections = [_section(shown, problem, rubric) for problem in rubric.problems]
    gone = [check for check in shown.checks if check.problem not in rubric.problems]
    most = hundredths(maximum(rubric))
    notes = [*reservations(shown, rubric), not_whole(most, rubric)]
    if gone:
        notes.append(f"{len(gone)} checks belong to no problem any more, and count nothing.")
    return _page().render(
        result=shown, student=shown.students[0] if shown.students else None, raw=hundredths(shown.score.raw), most=most,
        bonus=hundredths(shown.score.bonus) if shown.score.bonus else "", notes=[note for note in notes if note],
        sections=[section for section in sections if section.checks], points=hundredths,
        none_at=NONE_AT, full_at=FULL_AT,
    )  # fmt: skip


@cache
def _page() -> Template:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("feedback.html")


def _section(result: Result, problem: str, rubric: Rubric) -> Section:
    checks = [check for check in result.checks if check.problem == problem]
    scored = [check for check in checks if check.score is not None]
    passed = sum(check.verdict is Verdict.PASS for check in scored)
    score = total(checks)
    bonus = f" + {hundredths(score.bonus)}" if score.bonus else ""
    return Section(
        problem=problem, handout=rubric.problems[problem].handout,
        points=f"{hundredths(score.raw)} of {hundredths(score.max)}{bonus}", passed=f"{passed} of {len(scored)}",
        failures=[_failure(group, checks, rubric) for group in by_reason(checks, passed=False)],
        notes=[_failure(group, [], rubric) for group in by_reason(checks, passed=True)],
        bars=[_bar(check, check.speed) for check in checks if check.speed],
        checks=[(check, _points(check)) for check in checks],
    )  # fmt: skip


def _failure(group: Sequence[CheckResult], checks: Sequence[CheckResult], rubric: Rubric) -> Failure:
    """A group as `check` shows it; where nothing of a module could be called, without naming each check."""
    first, others = group[0], group[1:]
    if checks and is_of_the_module(group, checks):
        said = [(label, words) for label, words in lines(first, rubric) if label in ("likely", "try")]
        return Failure(first.verdict.replace("_", " "), first.message or first.title, said, "", ())
    said = [(label, words) for label, words in lines(first, rubric) if label != "speed"]
    return Failure(
        first.verdict.replace("_", " "), _title(first), said, first.printed.strip(), [_title(one) for one in others]
    )


def _title(check: CheckResult) -> str:
    kind = "hidden: " if check.visibility is Visibility.HIDDEN else ""
    return f"{kind}{'bonus: ' if check.bonus else ''}{check.title}"


def _points(check: CheckResult) -> str:
    if check.void:
        return "void"
    if check.score is None:
        return "undecided" if check.review and check.review.open else "no score"
    return f"{hundredths(check.score)} of {hundredths(check.max)}"


def _bar(check: CheckResult, speed: Speed) -> Bar:
    none, full = speed.threshold.none, speed.threshold.full
    grown = math.log(speed.ratio / none) / math.log(full / none)
    width = min(max(NONE_AT + (FULL_AT - NONE_AT) * grown, 1.0), 100.0)
    return Bar(check.title, _points(check), speed_words(speed), round(width, 2))
