"""What came in, for a terminal of 80 columns: what needs a person first, then every submission, then who is missing."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grader.batch.intake import CLAIMED, Intake, Report, Status
from grader.batch.late import NO_DEADLINES, Deadlines, Lateness
from grader.batch.layouts import Entry, Student
from grader.batch.people import identity
from grader.batch.rejected import shown
from grader.judge.output import clean
from grader.terminal import plain_table

STYLES = {Status.OK: "green", Status.NO_SUBMISSION: "yellow", Status.REJECTED: "red"}
ORDER = (Status.REJECTED, Status.NO_SUBMISSION, Status.OK)
CLAIM = "*"
MOST_IN_A_LINE = 8  # names that are listed
ID_COLUMNS, OTHER_COLUMNS = 20, 66  # of a terminal, for the id, and for all but names of people
LEAST_COLUMNS = 12
WORDS = {Status.OK: "ok", Status.NO_SUBMISSION: "nothing", Status.REJECTED: "rejected"}


def show_intake(report: Report, console: Console, deadlines: Deadlines = NO_DEADLINES) -> None:
    """All of a report. Names of people and files are made harmless."""
    count = len(report.submissions)
    console.print(Text(f"{report.source}: {report.marker}. {count} submission{'s' * (count != 1)}.", style="bold"))
    for status in ORDER[:2]:
        found = [one for one in report.submissions if one.status is status]
        _show_reasons(status, found, console)
    _show_table(report, console, deadlines)
    _show_notes([one for one in report.submissions if one.status is Status.OK], console)
    _show_rest(report, console)


def _show_reasons(status: Status, found: list[Intake], console: Console) -> None:
    """Submissions without a tree: why, and what to do."""
    if found:
        title = "Rejected, and waiting for you" if status is Status.REJECTED else "Nothing to grade"
        console.print(Text(f"\n{title}: {len(found)}", style=STYLES[status]))
    for one in found:
        code = f" [{one.code}]" if one.code else ""
        console.print(Text(f"{one.entry.id}{code} {shown(one.entry.name)}"))
        for sentence in (one.reason, *one.notes):
            _indented(sentence, console)


def _show_table(report: Report, console: Console, deadlines: Deadlines) -> None:
    table = plain_table(console, "id", "who", "when (UTC)", "late", "status")
    table.columns[0].max_width, table.columns[0].overflow = ID_COLUMNS, "fold"
    table.columns[1].max_width = max(LEAST_COLUMNS, console.width - OTHER_COLUMNS)
    for column in table.columns[1:]:
        column.no_wrap = True
    for one in sorted(report.submissions, key=lambda one: ORDER.index(one.status)):
        entry = one.entry
        table.add_row(
            Text(entry.id), Text(_who(entry)), Text(_when(entry)), Text(_late(entry, deadlines)),
            Text(WORDS[one.status], style=STYLES[one.status]),
        )  # fmt: skip
    if report.submissions:
        console.print(table)
    if any(one.entry.submitted_at_source == CLAIMED for one in report.submissions):
        console.print(Text(f"{CLAIM} as the last commit says, whose date its author sets.", style="dim"))


def _show_notes(found: Iterable[Intake], console: Console) -> None:
    """What of a submission that is graded somebody may want to know."""
    for one in found:
        notes = [*one.notes, *(f"{shown(path)}: {shown(why)}" for path, why in one.mistakes.items())]
        if notes:
            console.print(Text(one.entry.id))
        for note in notes:
            _indented(note, console)
    files = sum(len(one.tree.ignored) for one in found if one.tree)
    if files:
        console.print(
            Text(f"Ignored in submissions, since they are no sources: {files} file{'s' * (files != 1)}.", style="dim")
        )


def _show_rest(report: Report, console: Console) -> None:
    """What belongs to no submission, and who has none."""
    for warning in report.warnings:
        console.print(Text(f"Warning: {_line(warning)}.", style="yellow"))
    _listed("Not in the roster", report.strangers, console)
    _listed("Without a submission", [_named(student) for student in report.absent], console)
    for why in dict.fromkeys(report.ignored.values()):
        _listed(f"Ignored, {why}", [shown(name) for name, said in report.ignored.items() if said == why], console)


def _who(entry: Entry) -> str:
    return ", ".join(map(_named, entry.students)) or "?"


def _named(student: Student) -> str:
    """The name, which is for showing, else what a student is known by."""
    return _line(student.name or identity(student).partition(":")[2] or "?")


def _when(entry: Entry) -> str:
    claim = CLAIM if entry.submitted_at_source == CLAIMED else ""
    return f"{entry.submitted_at:%Y-%m-%d %H:%M}{claim}" if entry.submitted_at else "?"


def _late(entry: Entry, deadlines: Deadlines) -> str:
    """Of each of its students, where they differ."""
    found = [deadlines.lateness(entry.submitted_at, entry.late, one) for one in entry.students or (None,)]
    return ", ".join(dict.fromkeys(map(_words, found)))


def _words(lateness: Lateness) -> str:
    if lateness.late is False:
        return "no"
    if not lateness.known:
        return "yes, ?" if lateness.late else "?"
    return f"{lateness.days} d -{lateness.percent.normalize():f} %"


def _listed(title: str, names: list[str] | tuple[str, ...], console: Console) -> None:
    if names:
        more = f" and {len(names) - MOST_IN_A_LINE} more" if len(names) > MOST_IN_A_LINE else ""
        console.print(Text(f"{title}: {'; '.join(map(_line, names[:MOST_IN_A_LINE]))}{more}."))


def _indented(sentence: str, console: Console) -> None:
    console.print(Padding(Text(_line(sentence), style="dim"), (0, 0, 0, 4), expand=False))


def _line(text: str) -> str:
    """Text of a student in one line that does nothing to a terminal."""
    return " ".join(clean(text).split())
