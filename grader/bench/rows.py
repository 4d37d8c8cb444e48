"""What `bench` measures: this GPU's limits, each timed shape once, and for the picture a ladder of sizes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from grader.bench.ladders import LADDERS, operations
from grader.bench.meters import Meter
from grader.bench.record import FINE_S, Bench, Limit, Limits, Row, Shape, Timed, Unit, Untimed
from grader.clock import works
from grader.clock.curve import share
from grader.clock.timer import ours
from grader.clock.works import Work
from grader.judge.output import clean
from grader.judge.server import RunnerBroken
from grader.judge.verdict import Outcome, Verdict
from grader.rubric import Baseline, Rubric
from grader.rubric_files import SpeedEntry

COPIES = tuple(works.gelu(1 << exponent) for exponent in range(29, 24, -1))  # of 1 GiB of bfloat16, or less
PRODUCTS = tuple(works.matmul(size, size, size) for size in (8192, 4096, 2048))
MEMORY_FACTOR = 20  # times what a call moves: the clock has 12 sets of arguments twice, and answers
LAUNCHING_S = 100e-6  # a call costs the host 40 to 150 µs (docs/measurements.md)
TIMES_TINY = 1.5
TIMES_LAUNCHING = 2  # a call that takes longer is no matter of launching
MESSAGE_LENGTH = 2000
CLIMBABLE = (Verdict.PASS, Verdict.SKIPPED, Verdict.OUT_OF_MEMORY)  # there may be room for smaller ones


@dataclass(frozen=True)
class Session:
    """One run of `bench`."""

    rubric: Rubric
    meter: Meter
    memory_bytes: int  # of the GPU
    gpu: str  # its name
    started: Callable[[str], None]  # is told what is measured next

    def limits(self) -> Limits:
        """What this GPU can do at most: a large copy and a large matmul of the judge's own. Raises `RunnerBroken`."""
        copied, multiplied = (self._largest(sizes) for sizes in (COPIES, PRODUCTS))
        copy_s = self._alone_s("a large copy", copied, "gelu.speed_bfloat16", "device_copy")
        product_s = self._alone_s("a large matmul", multiplied, "matmul.speed_bfloat16", "cublas")
        gib, length = copied.inputs[0].nbytes / 2**30, multiplied.inputs[0].shape[0]
        return Limits(
            device_copy=Limit(work=f"a copy of {gib:g} GiB", rate=copied.moved_bytes / copy_s / 1e12, unit="TB/s"),
            matmul=Limit(
                work=f"cuBLAS with {length} x {length} x {length} bfloat16",
                rate=multiplied.operations / product_s / 1e12, unit="TFLOP/s",
            ),
        )  # fmt: skip

    def scored(self, problems: Sequence[str], limits: Limits) -> Iterator[Row]:
        """The timed shapes of these problems, as each is measured. Raises `RunnerBroken`."""
        for problem in problems:
            for name in self.rubric.problems[problem].speed:
                check = f"{problem}.{name}"
                self.started(f"{check} ...")
                yield self._row(check, work_of(problem, name), limits)

    def climbed(self, rows: Sequence[Row], limits: Limits) -> Iterator[Row]:
        """The ladders of those functions that could be timed, or had no room, size by size. Raises `RunnerBroken`."""
        for check in [row.check for row in rows if row.check in LADDERS and row.verdict in CLIMBABLE]:
            ladder = LADDERS[check]
            self.started(f"{check}, launching ...")
            tiny = self._row(check, ladder.tiny, limits, size=0)
            if isinstance(tiny, Untimed):
                yield tiny
            for number, size in enumerate(ladder.sizes, 1):
                self.started(f"{check}, size {number} of {len(ladder.sizes)} ...")
                yield self._row(check, ladder.work(size), limits, size, launching_s(tiny))

    def _row(
        self, check: str, work: Work, limits: Limits, size: int | None = None, least_s: float = LAUNCHING_S
    ) -> Row:
        """Measure one shape: a scored one, or one of a ladder, which takes fewer samples."""
        entry, shape = self._entry(check), shape_of(check, work, size)
        try:
            times = self.meter.beside(work, entry, fine_from_s(size, least_s))
            others = {
                Baseline(name): self.meter.alone_s(work, entry, name)
                for name in work.libraries if name != entry.baseline
            }  # fmt: skip
        except Outcome as outcome:
            return Untimed(**vars(shape), verdict=outcome.verdict, message=clean(str(outcome), MESSAGE_LENGTH))
        rate, unit = rate_of(work, times.time_s)
        ratio, launch_bound = times.baseline_s / times.time_s, times.time_s < least_s
        earned = share(ratio, entry.threshold_on(self.gpu))
        return Timed(
            **vars(shape), time_s=times.time_s, iqr_s=times.iqr_s, rate=rate, unit=unit,
            of_limit=limits.of(rate, unit, shape.dtype), baseline=entry.baseline, baseline_s=times.baseline_s,
            ratio=ratio, others=others, share=None if launch_bound or size is not None else earned,
            launch_bound=launch_bound, estimate=self.meter.estimates, gpu=times.gpu,
        )  # fmt: skip

    def _alone_s(self, what: str, work: Work, check: str, baseline: str) -> float:
        self.started(f"{what}, for comparison ...")
        with ours():
            return self.meter.alone_s(work, self._entry(check), baseline)

    def _largest(self, sizes: Sequence[Work]) -> Work:
        """The first of these works that this GPU has room for, or the last."""
        return next((work for work in sizes if MEMORY_FACTOR * work.moved_bytes < self.memory_bytes), sizes[-1])

    def _entry(self, check: str) -> SpeedEntry:
        problem, _, name = check.partition(".")
        return self.rubric.problems[problem].speed[name]


@dataclass
class Measurements:
    """What has been measured so far: it is there also after Ctrl-C, and after a failure of ours."""

    limits: Limits | None = None
    rows: list[Row] = field(default_factory=list)
    points: list[Row] = field(default_factory=list)
    stopped: bool = False
    broken: RunnerBroken | None = None

    def by(self, session: Session, problems: Sequence[str], ladders: bool, told: Callable[[Row], None]) -> None:
        """Measure, with ladders of sizes or without; each scored row is `told` when it is there."""
        try:
            self.limits = session.limits()
            for row in session.scored(problems, self.limits):
                self.rows.append(row)
                told(row)
            if ladders:
                for point in session.climbed(self.rows, self.limits):
                    self.points.append(point)
        except KeyboardInterrupt:
            self.stopped = True
        except RunnerBroken as error:
            self.broken = error

    def record(self, gpu: str, versions: dict[str, str]) -> Bench:
        """The same as data."""
        return Bench(
            gpu=gpu, versions=versions, limits=self.limits, rows=tuple(self.rows), points=tuple(self.points),
            stopped=self.stopped,
        )  # fmt: skip


def shape_of(check: str, work: Work, size: int | None) -> Shape:
    """What is told of a work, whether it can be timed or not."""
    shape, _, dtype = str(work).rpartition(" ")
    return Shape(
        check=check, function=work.function, shape=shape, dtype=dtype, size=size, moved_bytes=work.moved_bytes,
        operations=operations(work),
    )  # fmt: skip


def rate_of(work: Work, time_s: float) -> tuple[float, Unit]:
    """Operations a second of a product of matrices, or bytes a second moved, at least; and the unit."""
    if work.operations:
        return work.operations / time_s / 1e12, "TFLOP/s"
    return work.moved_bytes / time_s / 1e12, "TB/s"


def launching_s(tiny: Row) -> float:
    """Seconds below which a call's time is that of launching it, by that of a tiny shape where there is one."""
    return TIMES_TINY * tiny.time_s if isinstance(tiny, Timed) else LAUNCHING_S


def fine_from_s(size: int | None, least_s: float) -> float | None:
    """Seconds from which a call's time has to settle: always for a scored shape, never for the tiny one of size 0."""
    if size is None:
        return None
    return max(FINE_S, TIMES_LAUNCHING * least_s) if size else math.inf


def work_of(problem: str, name: str) -> Work:
    """What a timed check measures: it is called with a clock that only looks."""
    seen: list[Work] = []
    getattr(importlib.import_module(f"tests.test_{problem}"), f"test_{name}")(SimpleNamespace(time=seen.append))
    [work] = seen
    return work
