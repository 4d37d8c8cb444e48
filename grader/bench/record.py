"""What `bench` has measured, as data: the table, the picture and the JSON are made from these records.

The schema is versioned as that of results is (`grader/result.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from grader.files import write_whole
from grader.judge.verdict import Verdict
from grader.result import Gpu, Ratio, Record, Seconds
from grader.rubric import Baseline

FINE_S = 0.25e-3  # the clock's rules are made for calls that take longer (docs/measurements.md)

Schema = Literal["grader.bench/1"]
Unit = Literal["TB/s", "TFLOP/s"]  # 10^12 bytes, or operations, a second
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Shape(Record):
    """One function on arguments of one shape."""

    check: str  # problem.check: what is timed, and compared with what
    function: str  # of the problem's module
    shape: str  # of the arguments: "65536 x 8192"
    dtype: str
    size: int | None = None  # along the axis of the check's ladder; null for the shape that is scored
    moved_bytes: int  # of a call, to and from device memory, at least
    operations: int  # of a call, on tensor cores or in all (`grader/bench/ladders.py`)

    @property
    def name(self) -> str:
        """What people read: "softmax backward"."""
        return self.check.replace(".speed_", " ").replace("_", " ")


class Timed(Shape):
    """How fast it is."""

    verdict: Literal[Verdict.PASS] = Verdict.PASS
    time_s: Seconds  # of a call
    iqr_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # seconds of a call between the samples' quartiles
    rate: Rate
    unit: Unit
    of_limit: Rate | None  # the rate as a part of what this GPU was measured to do; null without such a limit
    baseline: Baseline
    baseline_s: Seconds  # of a call of the baseline, in the same seconds
    ratio: Ratio
    others: dict[Baseline, Seconds] = Field(default_factory=dict)  # calls of other baselines, each by itself
    share: Annotated[float, Field(ge=0, le=1)] | None = None  # of the check's points; null where nothing is scored
    launch_bound: bool  # launching takes as long: it says nothing about the kernel
    estimate: bool  # by the submission's own clock, answers unseen: it never enters a grade
    gpu: Gpu | None = None  # meanwhile; null for an estimate

    @model_validator(mode="after")
    def _only_what_is_scored_has_a_share(self) -> Timed:
        if (self.share is None) != (self.launch_bound or self.size is not None):
            raise ValueError(f"{self.check}: a share of {self.share} does not go with the shape")
        return self


class Untimed(Shape):
    """Why there is no time."""

    verdict: Verdict
    message: str

    @model_validator(mode="after")
    def _something_was_in_the_way(self) -> Untimed:
        if self.verdict is Verdict.PASS:
            raise ValueError(f"{self.check}: it passed, and has no time")
        return self


Row = Timed | Untimed


class Limit(Record):
    """What this GPU can do at most, as measured in the same minutes."""

    work: str  # in words
    rate: Rate
    unit: Unit


class Limits(Record):
    """Of moving and of computing."""

    device_copy: Limit
    matmul: Limit  # bfloat16, by cuBLAS: on tensor cores

    def of(self, rate: float, unit: Unit, dtype: str) -> float | None:
        """A rate as a part of its limit. None for float32 operations, which are not for tensor cores."""
        if unit == "TB/s":
            return rate / self.device_copy.rate
        return None if dtype == "float32" else rate / self.matmul.rate


class Bench(Record):
    """One run of `bench`."""

    schema_: Schema = Field(default="grader.bench/1", alias="schema", serialization_alias="schema")
    gpu: str  # as the driver has it
    versions: dict[str, str]  # of torch, triton and numpy
    limits: Limits | None  # null where the run was stopped before
    rows: tuple[Row, ...]  # the shapes that are scored
    points: tuple[Row, ...] = ()  # of ladders of sizes, for the picture
    stopped: bool = False  # by Ctrl-C: rows and points are missing

    def write(self, path: Path) -> None:
        """Write it as JSON, whole or not at all."""
        write_whole(path, (self.model_dump_json(by_alias=True, indent=2) + "\n").encode())
