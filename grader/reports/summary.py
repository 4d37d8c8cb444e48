"""What staff read first of a batch, at 80 columns: `Tally` takes attempts one by one, `show_tally` prints it.

What needs a person comes first, then what is missing, then how the class did. Only what is shown is kept of a result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from statistics import median

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grader.judge.output import clean
from grader.judge.verdict import Verdict
from grader.reports.graded import Graded, hundredths
from grader.reports.words import sentence
from grader.result import CheckResult, Result
from grader.rubric import Rubric
from grader.scoring import total
from grader.terminal import plain_table

BINS = 10
BLOCKS, DIGITS = " ▁▂▃▄▅▆▇█", " 12345678"
MOST_NAMED = 20  # submissions in a line; the table names all
MOST_CHECKS = 10
BROKEN, UNDECIDED, REJECTED, OTHER = range(4)  # why a person has to look, the most urgent first
SUSPICIOUS = 0.95  # a check that more than this part fails is probably at fault itself
CLAIMED = "commit (claimed)"  # a time that the student could set


@dataclass
class Tally:
    """What is kept of a batch."""

    attempts: int = 0
    graded: int = 0  # number of attempts with a result
    students: int = 0
    finals: list[Decimal] = field(default_factory=list)
    attention: list[tuple[int, str, str]] = field(default_factory=list)  # rank, submission, why
    ungraded: list[str] = field(default_factory=list)  # submissions that count and have no result yet
    missing: dict[str, list[str]] = field(
        default_factory=lambda: defaultdict(list)
    )  # why -> submissions without a grade
    unowned: list[str] = field(default_factory=list)  # submissions of nobody known
    skipped: dict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )  # reason -> submission -> checks
    points: dict[str, list[tuple[Decimal, Decimal]]] = field(default_factory=lambda: defaultdict(list))  # of a problem
    tried: Counter[str] = field(default_factory=Counter)  # check -> number of submissions in which it was not to do
    failed: Counter[str] = field(default_factory=Counter)
    trees: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # tree -> submissions
    undated: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)  # late by a time that the student could set

    @property
    def whole(self) -> bool:
        """Whether every attempt that counts has a result, and none waits for more than a decision."""
        return not self.ungraded and all(rank == UNDECIDED for rank, *_ in self.attention)

    def add(self, graded: Graded) -> None:
        """Count one attempt. Of those that give nobody a grade only what needs a person is kept."""
        self.attempts += 1
        self.attention += [(rank, graded.submission, why) for rank, why in _attention(graded)]
        if graded.result and _status(graded.result) == "ok":
            self.graded += 1
        if not graded.counts:
            return
        students = graded.graded_students
        self.students += len(students)
        self.finals += [student.final for student in students if student.final is not None]
        if not students:
            self.unowned.append(graded.submission)
        if why := _why_no_grade(graded):
            self.missing[why].append(graded.submission)
        if graded.result:
            self._add_result(graded, graded.result)
        else:
            self.ungraded.append(graded.submission)

    def _add_result(self, graded: Graded, result: Result) -> None:
        status = _status(result)
        if status == "ok":
            if any(check.verdict is Verdict.PASS for check in result.checks):  # stubs are alike
                self.trees[result.submission.tree_sha256].add(graded.submission)
            self._add_checks(graded.submission, result.checks)
        told = result.submission.submitted_at or result.submission.submitted_at_source
        if status != "no_submission" and not told:
            self.undated.append(graded.submission)
        penalties = [student.late_penalty for student in graded.graded_students]
        if result.submission.submitted_at_source == CLAIMED and any(penalties):
            self.claimed.append(graded.submission)

    def _add_checks(self, submission: str, checks: Sequence[CheckResult]) -> None:
        for problem in dict.fromkeys(check.problem for check in checks):
            score = total(check for check in checks if check.problem == problem)
            if score.max:
                self.points[problem].append((score.raw, score.max))
        for check in checks:
            if check.verdict is Verdict.SKIPPED and not check.void:
                self.skipped[check.message][submission] += 1
            elif check.verdict.scored and check.verdict is not Verdict.TODO and not check.void:
                self.tried[check.id] += 1
                self.failed[check.id] += check.verdict is not Verdict.PASS


def _status(result: Result) -> str:
    return result.submission.intake.status if result.submission.intake else "ok"


def _why_no_grade(graded: Graded) -> str:
    """Why students have no grade yet, in one word or two; empty where they have one."""
    result = graded.result
    if result is None:
        return "not run"
    if result.score.complete:
        return ""
    counted = [check for check in result.checks if not check.void]
    reasons = {
        "errors of the grader's": any(check.verdict is Verdict.GRADER_ERROR for check in counted),
        "open reviews": any(check.review and check.review.open for check in counted),
        "checks that were skipped": any(check.verdict is Verdict.SKIPPED for check in counted),
    }
    return " and ".join(why for why, holds in reasons.items() if holds) or "problems that were not run"


def _attention(graded: Graded) -> Iterator[tuple[int, str]]:
    """Why a person has to look, with a rank: our own faults and open reviews first, then what was rejected."""
    checks = graded.result.checks if graded.result else ()
    broken = [check.id for check in checks if check.verdict is Verdict.GRADER_ERROR and not check.void]
    undecided = [check.id for check in checks if check.review and check.review.open and not check.void]
    rejected = bool(
        graded.result and graded.result.submission.intake and graded.result.submission.intake.status == "rejected"
    )
    if broken:
        yield BROKEN, f"the grader itself failed: {_few(broken, 4)}"
    if undecided:
        yield UNDECIDED, f"open review: {_few(undecided, 4)}"
    if graded.attention or rejected:
        said = clean(graded.attention, 300).replace("\n", " ")
        yield (REJECTED if rejected else OTHER), f"rejected: {said}".rstrip(": ") if rejected else said


def show_tally(tally: Tally, rubric: Rubric, console: Console) -> None:
    """Print it."""
    named = tally.graded, tally.attempts, tally.students, len(tally.finals)
    console.print(Text("{} of {} attempts are graded; {} students, {} with a grade.".format(*named), style="bold"))
    _show_skipped(tally, console)
    _show_attention(tally, console)
    for why, submissions in tally.missing.items():
        _show_list(f"No grade yet, {why}", submissions, console, "yellow")
    _show_list("Of nobody known", tally.unowned, console, "yellow")
    _show_points(tally, rubric, console)
    _show_failing(tally, console)
    twins = [sorted(submissions) for submissions in tally.trees.values() if len(submissions) > 1]
    for submissions in twins:
        _show_list("The same files", submissions, console)
    if rubric.public.late.due:
        _show_list("Lateness unknown, no penalty", tally.undated, console)
    _show_list("Late by a commit's date, which the student could set", tally.claimed, console, "yellow")


def _show_skipped(tally: Tally, console: Console) -> None:
    """Loudly: these points are in nobody's grade."""
    for reason, checks in tally.skipped.items():
        many = f"SKIPPED: {checks.total()} checks of {len(checks)} submissions have no score."
        console.print(Text(f"{many} {sentence(clean(reason, 200))}", style="bold red"))


def _show_attention(tally: Tally, console: Console) -> None:
    if not tally.attention:
        return
    console.print(Text(f"\nA person has to look ({len(tally.attention)}):", style="bold yellow"))
    for _, submission, why in sorted(tally.attention, key=lambda found: found[0]):
        console.print(Padding(Text.assemble((submission, "bold"), f"  {why}"), (0, 0, 0, 2), expand=False))


def _show_points(tally: Tally, rubric: Rubric, console: Console) -> None:
    """Per problem: the middle, and how many have which part of the points."""
    if not tally.points:
        return
    console.print()
    table = plain_table(console, "problem", "number", "median", "none", "0 to 100 %", "all")
    for place, column in enumerate(table.columns):
        column.justify, column.no_wrap = "right" if place in (1, 2, 3, 5) else "left", True
    for problem in rubric.problems:
        if points := tally.points.get(problem):
            parts = sorted(raw / most for raw, most in points)
            middle = hundredths(median(raw for raw, _ in points))
            reached = f"{middle} of {max(most for _, most in points)}"
            none, whole = sum(part == 0 for part in parts), sum(part >= 1 for part in parts)
            table.add_row(problem, str(len(parts)), reached, str(none), histogram(parts, console), str(whole))
    console.print(table)


def histogram(parts: Sequence[Decimal], console: Console) -> Text:
    """How many parts lie in each tenth from 0 to 1, as a row of bars; digits where a terminal has no bars."""
    counts = Counter(min(int(part * BINS), BINS - 1) for part in parts)
    heights = BLOCKS if console.encoding.startswith("utf") else DIGITS
    most = max(counts.values(), default=1)
    bars = (heights[-(-counts[place] * (len(heights) - 1) // most)] for place in range(BINS))
    return Text("|" + "".join(bars) + "|")


def _show_failing(tally: Tally, console: Console) -> None:
    """Checks that most submissions fail, among those in which they were not to do."""
    parts = {check: tally.failed[check] / tried for check, tried in tally.tried.items() if tally.failed[check]}
    if not parts:
        return
    console.print(Text("Checks that fail most often, where there was something to check:", style="bold"))
    for check in sorted(parts, key=lambda check: (-parts[check], -tally.tried[check], check))[:MOST_CHECKS]:
        said = f"  {check:<38}{tally.failed[check]:>4} of {tally.tried[check]:<4}{100 * parts[check]:4.0f} %"
        ours = "  at fault itself?" if parts[check] > SUSPICIOUS else ""
        console.print(Text.assemble(said, (ours, "bold yellow")))


def _show_list(label: str, submissions: Sequence[str], console: Console, style: str = "") -> None:
    if submissions:
        said = f"{label} ({len(submissions)}): {_few(submissions, MOST_NAMED)}."
        console.print(Text(f"\n{said}", style=style))


def _few(names: Sequence[str], most: int) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
