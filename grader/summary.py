"""What a person sees of a result: a table, a block per failure, doubts, and what the numbers mean. At 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grader.judge.verdict import Verdict
from grader.result import CheckResult, Result, Score
from grader.rubric import Rubric, Visibility
from grader.scoring import total
from grader.terminal import STYLES, problem_table
from grader.units import duration

MOST_BLOCKS = 5  # failures of a problem that are shown in full; they mostly hang together


def show_result(result: Result, rubric: Rubric, console: Console, staff: bool, result_file: Path | None = None) -> None:
    """The table, the failures, and what the numbers mean."""
    if staff and result.target.sandbox == "none":
        console.print(
            "Graded unconfined: this submission's code could read and change whatever you can.", style="bold red"
        )
    rows = [(check.problem, check.verdict) for check in result.checks]
    points = {problem: _points(result, problem) for problem in rubric.problems}
    console.print(problem_table(rows, points, console))
    for problem in dict.fromkeys(check.problem for check in result.checks):
        _show_failures([check for check in result.checks if check.problem == problem], rubric, console, staff)
    _show_speeds(result.checks, console)
    for advice in result.advice:
        place = f"line {advice.where.line} of {advice.where.file}"
        _show_note("look", f"{place}: {advice.what}", (f"try: {advice.hint}",), console)
    _show_total(result, rubric, console, staff)
    if result_file:
        console.print(f"Written to {result_file}.")


def _show_failures(checks: Sequence[CheckResult], rubric: Rubric, console: Console, staff: bool) -> None:
    """A block per failure, in which checks of the problem that fail for the same reason are only named."""
    for place, group in enumerate(by_reason(checks, passed=False)):
        first, others = group[0], group[1:]
        verdict = (f"{first.verdict.replace('_', ' ')}  ", STYLES[first.verdict])
        if place >= MOST_BLOCKS:
            title = f"  {_title(first)}" if len(group) == 1 else f"  and {len(others)} more"
            console.print(Text.assemble(verdict, (first.id, "bold"), title), overflow="ellipsis", no_wrap=True)
            continue
        console.print()
        if is_of_the_module(group, checks):
            console.print(Text.assemble(verdict, f"{first.problem}: {first.message}"))
            _show_below(_reasons(first), console)
            continue
        console.print(Text.assemble(verdict, (first.id, "bold"), f"  {_title(first)}"))
        lines = _lines(first, rubric, staff)
        if others:
            lines.append(Text(f"the same: {_names(others)}", style="dim"))
        _show_below(lines, console)
        if first.replay:
            again = Text(f"      again: {first.replay}", style="dim")
            console.print(again, soft_wrap=True)  # in one piece, to be copied
    if len(by_reason(checks, passed=False)) > MOST_BLOCKS:
        console.print("      (the last ones in short: name one to see it, check PROBLEM.CHECK)", style="dim")
    for group in by_reason(checks, passed=True):
        _show_doubt(group, console)


def is_of_the_module(group: Sequence[CheckResult], checks: Sequence[CheckResult]) -> bool:
    """Whether no check of a problem could call anything: nothing is written, or its module cannot be imported."""
    first = group[0]
    all_of_them = len(group) == sum(check.verdict.scored for check in checks)
    return all_of_them and (first.verdict is Verdict.TODO or "cannot be imported" in first.message)


def _show_doubt(checks: Sequence[CheckResult], console: Console) -> None:
    """Checks that passed, with what is to be said about all of them: staff read a review, students a note."""
    first = checks[0]
    label, reason, hint = "note", f"right, but: {first.why}", f"try: {first.hint}"
    if first.review and first.review.open:
        label, reason = "review", f"{first.problem}: {first.review.reason} ({first.review.evidence})"
        hint = "a person has to decide whether it counts; until then there is no score"
    elif first.cause == "borrowed":
        label = "warning"
    _show_note(label, reason, (hint, f"in: {_names(checks)}"), console)


def _show_speeds(checks: Sequence[CheckResult], console: Console) -> None:
    """For each timed function: its time, its points, how far from its baseline, and what full points take."""
    timed = [(check, check.speed) for check in checks if check.speed]
    if timed:
        console.print()
    for check, speed in timed:
        points = "waits for a person" if check.score is None else f"{check.score:.2f} of {check.max:.2f} points"
        console.print(
            Text.assemble(("speed", "cyan"), "  ", (check.id, "bold"), f"  {duration(speed.time_s)}, {points}")
        )
        full = f"{speed.threshold.full:.2f} ({duration(speed.baseline_s / speed.threshold.full)})"
        said = f"{speed.ratio:.2f} of the speed of {speed.baseline}; full points take {full}"
        _show_below([Text(said)], console)


def _title(check: CheckResult) -> str:
    """What a check is about, and whether it is one that nobody has to pass."""
    return f"bonus, comes on top: {check.title}" if check.bonus else check.title


def _names(checks: Sequence[CheckResult]) -> str:
    """Checks of one problem by name, or how many there are."""
    return (
        ", ".join(f"{check.id} (bonus)" if check.bonus else check.id for check in checks)
        if len(checks) <= 8
        else f"{len(checks)} checks of {checks[0].problem}"
    )


def _show_note(label: str, said: str, below: Sequence[str], console: Console) -> None:
    """Something that costs no points: a label, a sentence, and indented lines."""
    console.print()
    console.print(Text.assemble((label, "yellow"), "  ", said))
    _show_below([Text(line) for line in below], console)


def _show_below(lines: Sequence[Text], console: Console) -> None:
    """Indented lines."""
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 6), expand=False))


def by_reason(checks: Sequence[CheckResult], passed: bool) -> list[list[CheckResult]]:
    """What did not pass, or passed with advice, grouped by verdict and likely cause (by the message without one)."""
    groups: dict[tuple[str, ...], list[CheckResult]] = {}
    for check in checks:
        doubt = check.review.reason if check.review else check.cause
        if check.verdict.scored and (check.verdict is Verdict.PASS) == passed and (doubt or not passed):
            without = check.where is None and check.verdict is Verdict.FAIL  # wrong numbers, and nobody knows why
            key: tuple[str, ...] = (check.verdict, doubt or check.why or ("" if without else check.message), check.hint)
            if check.verdict is Verdict.TODO and check.visibility is Visibility.HIDDEN:  # as the public ones
                key = next((known for known in groups if known[0] is Verdict.TODO), key)
            groups.setdefault(key, []).append(check)
    return list(groups.values())


def _lines(check: CheckResult, rubric: Rubric, staff: bool) -> list[Text]:
    """The lines of a failure: case, what, why, next, handout, replay."""
    lines = []
    if check.case and check.verdict is not Verdict.TODO and check.cause != "not_tried":
        several = check.cases > 1 and check.verdict is Verdict.FAIL
        of = f" ({check.failed_cases} of {check.cases} cases failed)" if several else ""
        lines.append(Text(f"case: {check.case}{of}", style="dim"))
    lines += [Text(part) for part in (check.message,) if part]
    lines += _reasons(check)
    if staff and check.visibility is Visibility.HIDDEN:
        lines += [Text(line, style="dim") for line in check.detail.splitlines()]
    if check.printed.strip():
        last = check.printed.strip().splitlines()[-3:]
        lines += [Text(f"printed: {line[:60]}", style="dim") for line in last]
    section = rubric.problems[check.problem].handout
    if check.visibility is Visibility.PUBLIC:
        lines.append(Text(f"handout: {section}", style="dim"))
    return lines


def _reasons(check: CheckResult) -> list[Text]:
    """Why, and what to try."""
    return [Text(f"{label}: {words}") for label, words in (("likely", check.why), ("try", check.hint)) if words]


def _show_total(result: Result, rubric: Rubric, console: Console, staff: bool) -> None:
    scored = [check for check in result.checks if check.score is not None]
    skipped = [check for check in result.checks if check.verdict is Verdict.SKIPPED]
    passed = sum(check.verdict is Verdict.PASS for check in scored)
    kind = "" if staff else "public "
    undecided = [check for check in result.checks if check.review and check.review.open]
    console.print()
    if not scored and not undecided:
        console.print(Text("None of these checks can run on this machine, so nothing is judged.", style="yellow"))
    if result.run.stopped:
        console.print(Text("Stopped: what had not ended is missing here and counts nothing.", style="yellow"))
    console.print(Text(f"{passed} of {len(scored)} {kind}checks passed: {_sum(result.score)} points", style="bold"))
    if compiling_s := round(result.run.phases.get("compiling", 0)):
        took = f"It took {result.run.wall_s:.0f} s, {compiling_s} s of it to compile kernels, as the runner says."
        console.print(Text(took, style="dim"))
    if undecided:
        points = sum(check.max for check in undecided)
        said = f"Not complete: {len(undecided)} checks, {points:.2f} points more, wait for a person to decide."
        console.print(Text(said, style="yellow"))
    for check in [check for check in result.checks if check.void]:
        console.print(f"Void, counts nothing: {check.id}. {check.void}.")
    if warned := [check for check in scored if check.cause == "borrowed" and not check.review]:
        points = sum(check.max for check in warned)
        said = f"{len(warned)} of these have a warning: in grading, {points:.2f} of the points wait for a person."
        console.print(Text(said, style="yellow"))
    if not staff:
        graded = "Hidden checks" if any(check.speed for check in result.checks) else "Hidden checks and speed"
        console.print(f"{graded} are graded by staff, and come on top.")
    for reason in dict.fromkeys(check.message for check in skipped):
        names = [check.id for check in skipped if check.message == reason]
        console.print(f"Skipped, no points either way: {', '.join(names)}. {reason[:1].upper()}{reason[1:]}.")
    for check in [check for check in result.checks if check.verdict is Verdict.GRADER_ERROR]:
        said = f"{check.id}: {check.message or check.detail}. Not your fault: please report it."
        console.print(Text(said, style=STYLES[check.verdict]))
    if {check.problem for check in result.checks} == set(rubric.problems):
        speed = [] if any(rubric.timed(check.id) for check in result.checks) else ["speed"]
        console.print(Text(f"Coming later, not counted: {', '.join([*speed, *rubric.public.coming])}.", style="dim"))


def _points(result: Result, problem: str) -> str:
    score = total(tuple(check for check in result.checks if check.problem == problem))
    return _sum(score)


def _sum(score: Score) -> str:
    """Points reached and possible, and what comes on top."""
    bonus = f" + {score.bonus:.2f}" if score.bonus else ""
    return f"{score.raw:.2f} of {score.max:.2f}{bonus}"
