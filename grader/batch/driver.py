"""The driver of a batch: feeds slots, keeps every result, and tries again what failed by our fault.

It alone writes the gradebook. No more jobs are under way than there are slots, the oldest submission first. Before its
first job a slot has to grade a solution and an untouched stub as they deserve, and again when two jobs in a row failed
there by our fault: a slot that cannot is set aside. `stop()` lets what runs end and starts nothing new, `kill()` loses
what runs.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from grader.batch.engines import MOST_REPLY_BYTES, Engine, EngineError, Job, Slot
from grader.batch.gradebook import Gradebook, Row, State
from grader.batch.trees import TreeGone, read_sources
from grader.batch.validity import MOST_RUNS, Validity
from grader.judge.snapshot import tree_sha256
from grader.judge.verdict import Verdict
from grader.result import Result

PAUSES_S = (5.0, 60.0)  # before a second run, and a third one
LOOK_EVERY_S = 0.2
SILENCE_S = 1800.0  # without a word from a supervisor: longer than any check on the slowest machine
MOST_IN_A_ROW = 2  # jobs that fail by our fault on one slot


class Watcher(Protocol):
    """Who wants to know while it goes on."""

    def started(self, slot: Slot, row: Row | None) -> None:
        """A job begins; one of ours, that tries the slot, without a row."""

    def told(self, slot: Slot, done: int, of: int, check: str) -> None:
        """Which check runs. Called from other threads."""

    def ended(self, slot: Slot, row: Row, result: Result | None, error: str) -> None:
        """A run has ended, and is kept."""

    def set_aside(self, slot: Slot, reason: str) -> None:
        """A slot is not used any more."""

    def tick(self) -> None:
        """Some time has passed."""


@dataclass
class Task:
    """An attempt that is to be run."""

    row: Row
    files: Callable[[], Mapping[str, bytes]]
    problems: tuple[str, ...]
    tries: int = 0  # that failed by our fault
    not_before: float = 0.0  # by `time.monotonic()`


@dataclass(frozen=True)
class Probe:
    """A tree of ours, and whether its checks have to pass, or must not."""

    name: str
    folder: Path
    passes: bool

    def mistake(self, result: Result) -> str:
        """What is wrong with its result; empty if nothing is."""
        wrong = [
            check for check in result.checks
            if check.verdict is Verdict.GRADER_ERROR
            or (check.verdict.scored and (check.verdict is Verdict.PASS) != self.passes)
        ]  # fmt: skip
        if not wrong:
            return ""
        said = f": {wrong[0].message or wrong[0].detail}" if self.passes else ""
        return f"{self.name} got `{wrong[0].verdict}` in {wrong[0].id}{said}"


@dataclass
class Lane:
    """A slot, and what it is at."""

    slot: Slot
    probes: list[Probe]
    future: Future[str] | None = None
    at: Task | Probe | None = None
    run: int = 0  # the number of the run
    in_a_row: int = 0  # jobs that failed by our fault
    aside: bool = False  # nothing runs there any more


@dataclass
class Driver:
    """One batch."""

    book: Gradebook
    engine: Engine
    validity: Validity
    watcher: Watcher
    probes: Sequence[Probe]  # of each slot
    probe_problems: tuple[str, ...]
    held: bool = False  # whether results wait until somebody takes them
    pauses_s: Sequence[float] = PAUSES_S  # the last one holds for all further runs
    stopped: bool = False
    killed: bool = False  # what ran then has no result, and that is nobody's fault
    finished: list[int] = field(default_factory=list)  # numbers of runs that have a result

    def stop(self) -> None:
        """Start nothing new."""
        self.stopped = True

    def kill(self) -> None:
        """Start nothing new, and kill what runs: soon, since a signal's handler may not wait for an engine's locks."""
        self.stopped = self.killed = True

    def run(self, tasks: Sequence[Task]) -> bool:
        """Run all of them. False if no slot was left to do so."""
        waiting, lanes = deque(tasks), [Lane(slot, list(self.probes)) for slot in self.engine.slots()]
        while lanes and (waiting or any(lane.future for lane in lanes)):
            if self.stopped and not any(lane.future for lane in lanes):
                break
            if self.killed:
                self.engine.close(kill=True)
            for lane in lanes:
                if lane.future is None and not self.stopped:
                    self._feed(lane, waiting)
            busy = [lane.future for lane in lanes if lane.future]
            if busy:
                wait(busy, timeout=LOOK_EVERY_S, return_when=FIRST_COMPLETED)
            else:
                time.sleep(LOOK_EVERY_S)
            for lane in lanes:
                if lane.future and lane.future.done():
                    self._take(lane, waiting)
            lanes = [lane for lane in lanes if not lane.aside]
            self.watcher.tick()
        return bool(lanes) or not waiting

    def _feed(self, lane: Lane, waiting: deque[Task]) -> None:
        """Give a free slot something to do: a probe, or the first task whose time has come."""
        if not waiting:
            return
        if lane.probes:
            lane.at = lane.probes[0]
            self.watcher.started(lane.slot, None)
            files = read_sources(lane.at.folder)
            problems = self.probe_problems
            job = Job(lane.at.name, 1, files, tree_sha256(files), self.validity.checks_sha256, problems, SILENCE_S)
        else:
            now = time.monotonic()
            task = next((task for task in waiting if task.not_before <= now), None)
            if task is None:
                return
            waiting.remove(task)
            lane.at = task
            self.watcher.started(lane.slot, task.row)
            with self.book.transaction():
                lane.run = self.book.begin(
                    task.row, self.validity.key(task.row), lane.slot.kind, task.problems, lane.slot.name
                )
            try:
                job = self._job(task)
            except (OSError, TreeGone) as error:  # costs this attempt a run, and no other one
                lane.future = _failed(EngineError(str(error)))
                return
        slot = lane.slot
        lane.future = self.engine.submit(job, slot, lambda done, of, check: self.watcher.told(slot, done, of, check))

    def _job(self, task: Task) -> Job:
        row = task.row
        return Job(
            row.submission, row.attempt, task.files(), row.tree_sha256, self.validity.checks_sha256, task.problems,
            SILENCE_S,
        )  # fmt: skip

    def _take(self, lane: Lane, waiting: deque[Task]) -> None:
        """What has come of a job."""
        assert lane.future
        future, at = lane.future, lane.at
        lane.future, lane.at = None, None
        result, error = self._answer(future, at)
        if isinstance(at, Probe):
            self._take_probe(lane, at, result, error)
        elif at:
            self._take_task(lane, at, result, error, waiting)

    def _answer(self, future: Future[str], at: Task | Probe | None) -> tuple[Result | None, str]:
        """A result that is valid and of what was asked, or why there is none."""
        try:
            text = future.result()
        except EngineError as error:
            return None, str(error)
        except Exception as error:  # the boundary to an engine: whatever it is, it is ours
            return None, f"{type(error).__name__}: {error}"
        if len(text) > MOST_REPLY_BYTES:
            return None, f"a result of more than {MOST_REPLY_BYTES >> 20} MiB"
        try:
            result = Result.model_validate_json(text)
        except ValidationError as error:
            return None, f"what came back is no result: {str(error.errors(include_url=False)[0])[:300]}"
        due = at.row.submission if isinstance(at, Task) else at.name if at else ""
        if result.submission.id != due:
            return None, f"the result is that of {result.submission.id[:80]}"
        if isinstance(at, Task) and result.submission.tree_sha256 != at.row.tree_sha256:
            return None, "the result is that of other files"
        if result.grader.checks_sha256 != self.validity.checks_sha256:
            return None, "the result is that of other checks"
        if result.run.stopped:
            return None, "the run was stopped"
        return result, ""

    def _take_probe(self, lane: Lane, probe: Probe, result: Result | None, error: str) -> None:
        if result is None and self.killed:
            return
        mistake = error if result is None else probe.mistake(result)
        if not mistake:
            lane.probes.remove(probe)
            return
        lane.aside = True
        self.watcher.set_aside(lane.slot, mistake)
        with self.book.transaction():
            self.book.note(f"{lane.slot.name} is set aside: {mistake}")

    def _take_task(
        self, lane: Lane, task: Task, result: Result | None, error: str, waiting: deque[Task]
    ) -> None:  # fmt: skip
        """Keep the result; try again later if it is not whole by our fault."""
        if result is None and self.killed:
            with self.book.transaction():
                self.book.end(lane.run, State.LOST)
            return
        state = State.FAILED if result is None else State.HELD if self.held else State.DONE
        text = result.model_dump_json(by_alias=True) if result else None
        with self.book.transaction():
            kept = self.book.end(lane.run, state, text, error or None)
        if kept and result:
            self.finished.append(lane.run)
        ours = result is None or any(check.verdict is Verdict.GRADER_ERROR for check in result.checks)
        self.watcher.ended(lane.slot, task.row, result, error)
        if not ours:
            lane.in_a_row = 0
            return
        lane.in_a_row += 1
        if lane.in_a_row >= MOST_IN_A_ROW and self.probes:
            lane.in_a_row, lane.probes = 0, [probe for probe in self.probes if probe.passes]
        task.tries += 1
        if task.tries < MOST_RUNS:
            task.not_before = time.monotonic() + self.pauses_s[min(task.tries, len(self.pauses_s)) - 1]
            waiting.append(task)


def _failed(error: EngineError) -> Future[str]:
    """The future of a job that could not even be submitted."""
    future = Future[str]()
    future.set_exception(error)
    return future
