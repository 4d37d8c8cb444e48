"""What a person sees while a run goes: a live table. Works in a pipe, without colour and without Unicode."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from grader.judge.plugin import CaseResult
from grader.judge.verdict import Verdict
from grader.rubric import Rubric

STYLES = {
    Verdict.PASS: "green", Verdict.FAIL: "red", Verdict.CRASH: "red", Verdict.TIMEOUT: "red",
    Verdict.OUT_OF_MEMORY: "red", Verdict.TODO: "yellow", Verdict.SKIPPED: "dim", Verdict.GRADER_ERROR: "magenta",
}  # fmt: skip

# For terminals that cannot show them.
PLAIN = {
    "×": "x", "·": "*", "−": "-", "–": "-", "—": "-", "∞": "inf", "…": "...", "√": "sqrt", "≤": "<=", "≥": ">=",
    "µ": "u",
}  # fmt: skip


class PlainStream:
    """A text stream whose encoding lacks a character gets a plain one instead, never an exception."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        try:
            text.encode(self.encoding)
        except UnicodeEncodeError:
            text = "".join(PLAIN.get(character, character) for character in text)
            text = text.encode(self.encoding, "replace").decode(self.encoding)
        return self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def make_console(stream: IO[str] | None = None) -> Console:
    """A console for standard output, for which no text is markup, since students write some of it.

    Without a terminal it is 80 columns wide unless COLUMNS says otherwise.
    """
    return Console(
        file=PlainStream(stream or sys.stdout),  # type: ignore[arg-type]
        markup=False, highlight=False, soft_wrap=False, emoji=False,
    )  # fmt: skip


class Progress:
    """A table of problems that fills while checks run; on a pipe it is printed once at the end."""

    def __init__(self, console: Console, rubric: Rubric) -> None:
        self.console, self.rubric = console, rubric
        self.order: list[str] = []
        self.cases: dict[str, list[Verdict]] = {}
        self.running: str | None = None
        self.live = Live(
            console=console, get_renderable=self.render, refresh_per_second=8, transient=True, auto_refresh=True
        )

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def planned(self, checks: Sequence[str]) -> None:
        self.order += [check for check in checks if check not in self.order]

    def started(self, check: str) -> None:
        if check != self.running:
            self.cases[check] = []
        self.running = check

    def finished(self, case: CaseResult) -> None:
        self.cases.setdefault(case.check, []).append(case.verdict)

    def render(self) -> RenderableType:
        done = {check: Verdict.worst(cases) for check, cases in self.cases.items() if cases and check != self.running}
        rows = [(check.partition(".")[0], done.get(check)) for check in self.order]
        running = Text(f"  {self.running or 'starting the runner: importing torch and triton'} ...", style="dim")
        return Group(problem_table(rows, None, self.console), running)


def plain_table(console: Console, *columns: str) -> Table:
    """An empty table with these columns, aligned to the left, that any terminal can show."""
    table = Table(box=box.SIMPLE_HEAD if console.encoding.startswith("utf") else box.ASCII2, pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table


def problem_table(rows: Sequence[tuple[str, Verdict | None]], points: dict[str, str] | None, console: Console) -> Table:
    """One row a problem: checks by verdict, and points where they are known."""
    table = plain_table(console, "problem")
    for name in ("passed", "failed", "to do", "skipped"):
        table.add_column(name, justify="right")
    table.add_column("points" if points else "", justify="right")
    for problem in dict.fromkeys(problem for problem, _ in rows):
        verdicts = [verdict for name, verdict in rows if name == problem]
        passed, todo = verdicts.count(Verdict.PASS), verdicts.count(Verdict.TODO)
        skipped = sum(verdict is not None and not verdict.scored for verdict in verdicts)
        failed = sum(verdict is not None for verdict in verdicts) - passed - todo - skipped
        last = points[problem] if points else f"{sum(v is not None for v in verdicts)} of {len(verdicts)}"
        table.add_row(
            problem, _number(passed, "green"), _number(failed, "red"), _number(todo, "yellow"), _number(skipped, "dim"),
            last,
        )  # fmt: skip
    return table


def _number(count: int, style: str) -> Text:
    return Text(str(count), style=style if count else "dim")
