"""What a run found, as data: `result.json` and everything that is shown are made from these records.

The schema is versioned (`grader.result/1`): a field may be added, but not renamed, removed or given
another meaning, without raising the number. Readers ignore fields that they do not know.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, model_validator

from grader.clock.curve import Threshold
from grader.files import write_whole
from grader.judge.verdict import Verdict
from grader.rubric import Baseline, Visibility
from grader.sandbox.levels import Level

Schema = Literal["grader.result/1"]

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Ratio = Annotated[float, Field(gt=0, allow_inf_nan=False)]  # baseline's time by the submission's: 2.0 is twice as fast
Points = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]


class Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Place(Record):
    """A line of the submission."""

    file: str
    line: int


class Advice(Record):
    """What reading the source shows and the interpreter does not. Worth no points."""

    name: str
    where: Place
    what: str
    hint: str


class Review(Record):
    """A doubt that a person has to decide on; the score is null meanwhile."""

    reason: str
    evidence: str
    decision: Literal["accept", "reject"] | None = None  # accept: the score stands; reject: it is 0

    @property
    def open(self) -> bool:
        """Whether nobody has decided yet."""
        return self.decision is None


class Clocks(Record):
    """The clock of a GPU's multiprocessors while something was timed."""

    min: float  # MHz
    median: float  # MHz
    max: float  # MHz


class Gpu(Record):
    """The GPU while something was timed."""

    name: str  # as the driver has it
    clocks_mhz: Clocks
    power_w: float  # watts
    temperature_c: float  # degrees Celsius
    throttle: tuple[str, ...] = ()  # why the driver held the clock back, in its words


class Speed(Record):
    """How fast a function was on a timed shape, beside its baseline."""

    function: str  # of the problem's module
    time_s: Seconds  # of a call: median over samples
    iqr_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]  # seconds of a call between the samples' quartiles
    samples: Annotated[int, Field(gt=0)]  # number that counted
    refusals: Annotated[int, Field(ge=0)] = 0  # number of samples that did not
    baseline: Baseline
    baseline_s: Seconds  # of a call of the baseline: median over samples
    ratio: Ratio
    bound_s: Seconds | None  # what this GPU needs at least, by its bandwidth and peak rate; null where not known
    threshold: Threshold  # ratios for no and for full points
    gpu: Gpu


class CheckResult(Record):
    """One check of one submission."""

    id: str  # problem.check
    problem: str
    title: str  # first line of the check's docstring
    visibility: Visibility
    verdict: Verdict
    review: Review | None = None
    score: Points | None  # null while there is none: skipped, grader_error, an open review
    max: Points
    bonus: bool = False  # its points come on top of the problem's
    void: str | None = None  # why it counts nothing, by the rubric
    message: str = ""  # for the student: what is wrong
    why: str = ""  # for the student: the likely cause in words
    hint: str = ""  # for the student: what to try
    detail: str = ""  # staff only
    printed: str = ""  # what the submission wrote to its output during the check; staff only if hidden
    case: str | None = None  # the first case that did not pass
    cases: int = 0  # how many ran
    failed_cases: int = 0
    seed: int | None = None  # null for hidden checks
    cause: str | None = None
    where: Place | None = None
    replay: str | None = None  # the command that runs just this
    runs: int = 1  # more than 1 after a grader_error
    time_s: float = 0.0
    speed: Speed | None = None  # null where nothing was timed

    @model_validator(mode="after")
    def _score_fits_verdict(self) -> CheckResult:
        without = not self.void and (not self.verdict.scored or (self.review is not None and self.review.open))
        if (self.score is None) != without:
            raise ValueError(f"{self.id}: a score of {self.score} does not go with {self.verdict}")
        return self

    @model_validator(mode="after")
    def _score_is_earned(self) -> CheckResult:
        if not self.score:
            return self
        if self.verdict is not Verdict.PASS or not 0 < self.score <= self.max:
            raise ValueError(f"{self.id}: a score of {self.score} of {self.max} does not go with {self.verdict}")
        if self.score < self.max and self.speed is None:
            raise ValueError(f"{self.id}: {self.score} of {self.max} points, and nothing was timed")
        return self


class Score(Record):
    raw: Points
    max: Points  # of the checks that have a score
    bonus: Points = Decimal(0)  # on top of raw
    complete: bool  # false while a check has no score, or has not run


class Target(Record):
    """Where it ran."""

    device: str
    torch: str
    triton: str
    numpy: str
    python: str
    sandbox: Level
    shares_memory: bool | None = None  # whether the judge's device memory can be opened in the runner (CUDA IPC)


class IntakeInfo(Record):
    """What came in: `ok`, nothing that could be graded, or something that cannot be read."""

    status: Literal["ok", "no_submission", "rejected"]
    notes: tuple[str, ...] = ()  # for staff


class SubmissionInfo(Record):
    id: str
    attempt: Annotated[int, Field(gt=0)] = 1
    tree_sha256: str  # of paths and contents of the Python files
    submitted_at: str | None = None  # in UTC; null where nobody knows
    submitted_at_source: str | None = None  # who says so: gradescope, canvas, "commit (claimed)", ...
    intake: IntakeInfo | None = None  # null outside a batch


class StudentScore(Record):
    """One of those who handed it in, and what it is worth for them: members of a group may differ."""

    sid: str | None = None
    email: str | None = None
    login: str | None = None
    name: str | None = None  # for showing, never for matching
    platform_id: str | None = None  # of the user on the platform that it comes from
    late_penalty: Points = Decimal(0)  # points
    final: Points | None  # raw and bonus, less the penalty; null while the score is not complete


class GraderInfo(Record):
    version: str
    checks_sha256: str
    rubric_sha256: str


class Run(Record):
    """Volatile: differs between two runs on the same files."""

    started_at: str
    ended_at: str
    host: str
    wall_s: float
    phases: dict[str, float] = {}  # seconds; "compiling" is the submission's own word
    stopped: bool = False  # by Ctrl-C: checks that had not ended are missing


class Result(Record):
    """One run of checks on one submission."""

    schema_: Schema = Field(default="grader.result/1", alias="schema", serialization_alias="schema")
    assignment: str
    submission: SubmissionInfo
    students: tuple[StudentScore, ...] = ()  # of a batch
    grader: GraderInfo
    target: Target
    score: Score
    checks: tuple[CheckResult, ...]
    advice: tuple[Advice, ...] = ()
    run: Run

    def write(self, path: Path) -> None:
        """Write `result.json` whole or not at all."""
        write_whole(path, (self.model_dump_json(by_alias=True, indent=2) + "\n").encode())
