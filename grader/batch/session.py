"""A batch from its rows to its end: what is lacking, on which slots, and how Ctrl-C stops it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from grader.batch import trees
from grader.batch.attempts import can_count
from grader.batch.driver import PAUSES_S, Driver, Probe, Task
from grader.batch.engines import Engine
from grader.batch.gradebook import Gradebook, Row
from grader.batch.grades import attempt_of
from grader.batch.late import Deadlines
from grader.batch.progress import BatchProgress
from grader.batch.validity import Validity
from grader.rubric import ROOT, Rubric

WORK = "work"  # below the gradebook's folder: temporary files
STOPPING = "Stopping: what runs ends first. Ctrl-C once more kills it; nothing that is done is lost."


@dataclass(frozen=True)
class Ended:
    """How a batch ended."""

    stopped: bool  # by Ctrl-C
    without_slots: bool  # there was none, or none is left
    runs: tuple[int, ...]  # that have a result


@dataclass
class Session:
    """One batch on one gradebook, whose lock is held."""

    book: Gradebook
    grades: Path
    rubric: Rubric
    console: Console
    problems: tuple[str, ...]  # that are asked for
    pauses_s: Sequence[float] = PAUSES_S  # before another run of what failed by our fault

    def __post_init__(self) -> None:
        self.validity = Validity(self.rubric)

    @property
    def scratch(self) -> Path:
        """A folder for temporary files."""
        return self.grades / WORK

    def open(self) -> None:
        """Clear up after a batch that did not end."""
        trees.clear_up(self.grades)
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        with self.book.transaction():
            if lost := self.book.lose_running():
                self.book.note(f"{lost} runs were lost with their batch")

    def counting(self) -> list[Row]:
        """The attempts that can give a grade, the oldest first."""
        rows = self.book.attempts()
        deadlines = Deadlines(self.rubric.public.late, self.book.extensions())
        keys = can_count([attempt_of(row) for row in rows], deadlines)
        return [row for row in rows if row.key in keys]

    def lacking(self, rows: Collection[Row], kind: str) -> list[Task]:
        """What is to be run of these attempts on slots of this kind."""
        tasks = []
        for row in (row for row in rows if row.status == "ok"):
            runs = self.book.runs(row)
            if problems := self.validity.lacking(row, runs, self.problems, kind):
                tasks.append(self._task(row, tuple(problems), self.validity.tries(row, runs, kind)))
        return _oldest_first(tasks)

    def everything(self, rows: Collection[Row]) -> list[Task]:
        """All that is asked for, whatever there is."""
        return _oldest_first([self._task(row, self.problems, 0) for row in rows if row.status == "ok"])

    def _task(self, row: Row, problems: tuple[str, ...], tries: int) -> Task:
        return Task(row, lambda: trees.kept(self.grades, row.tree_sha256), problems, tries)

    def run(self, tasks: Sequence[Task], engine: Engine, held: bool = False) -> Ended:
        """Run them all. Ctrl-C stops it, and once more kills what runs."""
        slots = engine.slots()
        with BatchProgress(self.console, len(tasks), len(slots)) as progress:
            shortest = next(iter(self.rubric.problems))
            driver = Driver(self.book, engine, self.validity, progress, probes(), (shortest,), held, self.pauses_s)
            with interrupts(driver, progress):
                found = driver.run(tasks)
        engine.close()
        return Ended(driver.stopped, not found, tuple(sorted(driver.finished)))


def probes() -> list[Probe]:
    """What a slot has to grade before its first job: the solutions pass, and untouched stubs do not."""
    return [
        Probe("solutions", ROOT / "solutions", passes=True), Probe("untouched stubs", ROOT / "assignment", passes=False)
    ]  # fmt: skip


@contextmanager
def interrupts(driver: Driver, progress: BatchProgress) -> Iterator[None]:
    """The first Ctrl-C lets what runs end, the second kills it. No exception: a result is kept whole."""

    def stop(number: int, frame: FrameType | None) -> None:
        if driver.stopped:
            driver.kill()
            return
        driver.stop()
        progress.words = STOPPING
        if not progress.console.is_terminal:
            progress.console.print(STOPPING)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _oldest_first(tasks: Sequence[Task]) -> list[Task]:
    """So that a batch that is stopped is fair; those without a time come last."""
    return sorted(tasks, key=lambda task: (task.row.submitted_at is None, str(task.row.submitted_at), task.row.key))
