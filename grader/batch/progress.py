"""What staff see of a batch while it goes on: a line for each slot, and how long it takes. On a pipe, plain lines."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from grader.batch.engines import Slot
from grader.batch.gradebook import Row
from grader.batch.rejected import shown
from grader.judge.verdict import Verdict
from grader.result import Result
from grader.terminal import plain_table

EVERY_S = 60.0  # a line on a pipe, where nothing ends


@dataclass
class Going:
    """What a slot is at."""

    name: str
    since: float
    done: int = 0
    of: int = 0
    check: str = ""


@dataclass
class BatchProgress:
    """A watcher of the driver."""

    console: Console
    runs: int  # that are to be done
    slots: int
    graded: int = 0
    failed: int = 0  # runs, by our fault
    going: dict[str, Going] = field(default_factory=dict)
    took_s: list[float] = field(default_factory=list)
    words: str = ""  # about stopping

    def __post_init__(self) -> None:
        self._said = time.monotonic()
        self.live = Live(console=self.console, get_renderable=self.render, refresh_per_second=4, transient=True)

    def __enter__(self) -> BatchProgress:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def started(self, slot: Slot, row: Row | None) -> None:
        name = f"{row.submission}" if row else "trying the slot"
        self.going[slot.name] = Going(name, time.monotonic())

    def told(self, slot: Slot, done: int, of: int, check: str) -> None:
        if one := self.going.get(slot.name):
            one.done, one.of, one.check = done, of, check

    def ended(self, slot: Slot, row: Row, result: Result | None, error: str) -> None:
        one = self.going.pop(slot.name, None)
        took_s = time.monotonic() - one.since if one else 0.0
        ours = error or any(check.verdict is Verdict.GRADER_ERROR for check in (result.checks if result else ()))
        self.failed += bool(ours)
        if not ours:
            self.graded += 1
            self.took_s.append(took_s)
        points = f"{result.score.raw:.2f} of {result.score.max:.2f}" if result and not error else "no result"
        said = f"{row.submission}  {points}  {took_s:.0f} s"
        self.console.print(Text(f"{said}{'  the grader failed' if ours else ''}"), soft_wrap=True)
        for line in error.splitlines()[:3]:
            self.console.print(Text(f"    {shown(line)[:200]}", style="magenta"), soft_wrap=True)

    def set_aside(self, slot: Slot, reason: str) -> None:
        self.going.pop(slot.name, None)
        self.console.print(Text(f"{slot.name} is set aside: {shown(reason)}", style="bold red"), soft_wrap=True)

    def tick(self) -> None:
        if not self.console.is_terminal and time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            self.console.print(self._total(), soft_wrap=True)

    def render(self) -> RenderableType:
        """The slots, and the whole."""
        table = plain_table(self.console, "slot", "submission", "check", "time")
        for slot, one in sorted(self.going.items()):
            check = f"{one.done}/{one.of} {one.check}" if one.of else "starting"
            table.add_row(shown(slot.rpartition("/")[2])[:16], one.name, check, _clock(time.monotonic() - one.since))
        return Group(table, Text(self._total()), Text(self.words, style="yellow"))

    def _total(self) -> str:
        left = self.runs - self.graded
        said = f"{self.graded} of {self.runs} graded, {len(self.going)} running"
        if self.failed:
            said += f", {self.failed} times the grader failed"
        if self.took_s and left > 0:
            mean_s = sum(self.took_s) / len(self.took_s)
            said += f"; {mean_s:.0f} s each, about {_clock(mean_s * left / max(self.slots, 1))} to go"
        return said


def _clock(seconds: float) -> str:
    """12:34 of an hour, 1:02:03 beyond."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
