"""What `bench` measures: each timed shape once, whatever the other checks say."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace

from grader.clock.curve import share
from grader.clock.timer import Clock
from grader.clock.works import Work
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.submission import CheckProcess
from grader.judge.verdict import Outcome
from grader.result import Speed
from grader.rubric import Rubric


@dataclass(frozen=True)
class Row:
    """One function on one shape."""

    check: str  # problem.check
    work: Work
    speed: Speed | None = None
    outcome: Outcome | None = None  # why there is no speed

    @property
    def rate(self) -> tuple[float, str]:
        """Operations a second on tensor cores, or bytes a second moved, at least; and the unit."""
        assert self.speed
        if self.work.operations:
            return self.work.operations / self.speed.time_s / 1e12, "TFLOP/s"
        return self.work.moved_bytes / self.speed.time_s / 1e12, "TB/s"

    @property
    def share(self) -> float:
        """The part of the points that this speed would earn."""
        assert self.speed
        return share(self.speed.ratio, self.speed.threshold)


def measured(
    rubric: Rubric, names: Sequence[str], snapshot: Snapshot, servers: Servers, started: Callable[[str], None]
) -> Iterator[Row]:
    """One row after the other, as each is measured: of these problems, or of all. Tells which check has `started`."""
    for problem, entry in rubric.problems.items():
        if names and problem not in names:
            continue
        for name, timed in entry.speed.items():
            started(f"{problem}.{name}")
            work = work_of(problem, name)
            process = CheckProcess(servers, snapshot.folder, problem, timed.limit_s)
            clock = Clock(process, servers, timed)
            try:
                clock.time(work)
                yield Row(f"{problem}.{name}", work, clock.speed)
            except Outcome as outcome:
                yield Row(f"{problem}.{name}", work, outcome=outcome)
            finally:
                process.close()


def work_of(problem: str, name: str) -> Work:
    """What a timed check measures: it is called with a clock that only looks."""
    seen: list[Work] = []
    getattr(importlib.import_module(f"tests.test_{problem}"), f"test_{name}")(SimpleNamespace(time=seen.append))
    [work] = seen
    return work
