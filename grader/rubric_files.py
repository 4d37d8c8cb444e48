"""The rubric's two files as typed records.

`grader/rubric.yaml` is public; the hidden one, in the folder of the hidden checks, has these and their hints, and is
absent from what students get. What does not fit together (an unknown check, points that do not add up) is refused
in one sentence with file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from grader.clock.curve import Threshold
from grader.closest import did_you_mean
from grader.instants import in_utc, instant
from grader.located import Located, Mistake, Place

ROOT = Path(__file__).resolve().parent.parent
RUBRIC = ROOT / "grader" / "rubric.yaml"
HIDDEN_RUBRIC = ROOT / "grader" / "hidden" / "rubric.yaml"
HANDOUT = ROOT / "handout.md"
LIMIT_S = 20.0  # for all cases of a check together; at least ten times what the solutions take
ALL_LIMIT_S = 900.0
SPEED_LIMIT_S = 420.0  # of a timed check: kernels may be compiled and tuned for minutes, and a second one measured


class Visibility(StrEnum):
    PUBLIC = "public"
    HIDDEN = "hidden"


Part = Visibility | Literal["speed"]  # what a problem's points are split over
Percent = Annotated[Decimal, Field(ge=0, le=100)]
PARTS: tuple[Part, ...] = (*Visibility, "speed")


class Baseline(StrEnum):
    """What a speed is compared with, in the same run."""

    DEVICE_COPY = "device_copy"  # a copy on the device of as many bytes as must be read and written
    TORCH = "torch"  # PyTorch's own operation
    CUBLAS = "cublas"  # torch.mm
    SDPA_FLASH = "sdpa_flash"  # scaled_dot_product_attention, flash backend
    CUDNN = "cudnn"  # the same, cuDNN's backend
    SOLUTION = "solution"  # the complete one; staff only


CHECKS = {Visibility.PUBLIC: ROOT / "tests", Visibility.HIDDEN: ROOT / "grader" / "hidden"}  # test_PROBLEM.py


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Share(Record):
    """How a kernel problem's points are split, in percent."""

    public: Annotated[int, Field(ge=0)]
    hidden: Annotated[int, Field(ge=0)]
    speed: Annotated[int, Field(ge=0)]

    @model_validator(mode="after")
    def _is_whole(self) -> Share:
        if (whole := self.public + self.hidden + self.speed) != 100:
            raise ValueError(f"public, hidden and speed add up to {whole} percent, not to 100")
        return self


class CheckEntry(Record):
    """What one check is worth: a weight in its share, or points on top of everything."""

    weight: Annotated[int, Field(ge=0)] | None = None
    bonus: Annotated[Decimal, Field(gt=0, decimal_places=2)] | None = None  # points
    limit_s: Annotated[float, Field(gt=0)] = LIMIT_S
    void: Annotated[str, Field(min_length=1)] | None = None  # why it counts nothing; the others take its points

    @model_validator(mode="after")
    def _is_worth_one_thing(self) -> CheckEntry:
        if (self.weight is None) == (self.bonus is None):
            raise ValueError("a check has either a weight or a bonus")
        return self

    @property
    def counted_weight(self) -> int:
        """The weight, of what is not void."""
        return 0 if self.void else self.weight or 0


class HiddenEntry(CheckEntry):
    hint: Annotated[str, Field(min_length=1)]  # all that a student reads of it, besides the title


class SpeedEntry(CheckEntry):
    """What a timed shape is worth, by the ratio of its baseline's time to the submission's."""

    limit_s: Annotated[float, Field(gt=0)] = SPEED_LIMIT_S

    function: str  # of the problem's module, which is timed
    baseline: Baseline
    threshold: Threshold
    gpus: dict[str, Threshold] = {}  # by a GPU's exact name, where the threshold is another one there
    needs: Annotated[tuple[str, ...], Field(min_length=1)]  # patterns of public checks without which it counts nothing

    def threshold_on(self, gpu: str) -> Threshold:
        """The thresholds on a GPU of this name."""
        return self.gpus.get(gpu, self.threshold)

    def needed(self, checks: Iterable[str]) -> list[str]:
        """Those of a problem's checks that have to pass, in their order."""
        return [name for name in checks if any(fnmatchcase(name, pattern) for pattern in self.needs)]


class Problem(Record):
    points: Annotated[int, Field(gt=0)]
    handout: str  # the section of handout.md
    functions: Annotated[tuple[str, ...], Field(min_length=1)]  # functions and classes of its module that are graded
    checks: dict[str, CheckEntry]
    speed: dict[str, SpeedEntry] = {}  # without any, the share of speed counts nothing yet
    share: Share | None = None  # where it is not the common one


class Attempts(StrEnum):
    """Which of a student's attempts gives the grade."""

    LATEST = "latest"  # the newest
    LATEST_ON_TIME = "latest-on-time"  # the newest that is on time, else the oldest
    BEST = "best"  # the one with the most points after lateness; of equal ones the newest
    FIRST = "first"  # the oldest


class LatePolicy(Record):
    """What lateness costs, and which attempt counts."""

    due: datetime | None = None  # in UTC
    grace_minutes: Annotated[int, Field(ge=0)] = 0  # after `due`, in which nothing is late
    per_day: Percent = Decimal(0)  # of the raw score, for each begun day after `due`
    cap: Percent = Decimal(100)  # of the raw score, at most
    slip_days: Annotated[int, Field(ge=0)] = 0  # days that cost a student nothing
    attempts: Attempts = Attempts.LATEST

    @field_validator("due", mode="before")
    @classmethod
    def _has_a_zone(cls, found: object) -> datetime | None:
        if isinstance(found, datetime):
            return in_utc(found, found.isoformat(" "))
        return None if found is None else instant(str(found))

    @model_validator(mode="after")
    def _is_due(self) -> LatePolicy:
        if self.due is None and (self.per_day or self.grace_minutes or self.slip_days):
            raise ValueError("`due` is missing: when is a submission late?")
        return self


class PublicFile(Record):
    assignment: str
    points: Annotated[int, Field(gt=0)]  # of all problems, those that are coming, too
    share: Share
    limit_s: Annotated[float, Field(gt=0)] = ALL_LIMIT_S  # for all checks of a submission together
    problems: dict[str, Problem]
    coming: dict[str, Annotated[int, Field(gt=0)]] = {}
    late: LatePolicy = LatePolicy()  # without it nothing is late, and the newest attempt counts

    def share_of(self, problem: str, part: Part) -> Decimal:
        """Points that the public, or the hidden, or the timed checks of a problem have together."""
        share = self.problems[problem].share or self.share
        return Decimal(self.problems[problem].points * int(getattr(share, part))) / 100


class HiddenFile(Record):
    problems: dict[str, dict[str, HiddenEntry]]


def read_files(
    public: Path, hidden: Path, folders: Mapping[Visibility, Path], handout: Path
) -> tuple[PublicFile, HiddenFile]:
    """Read both; the hidden one may be absent. Raises `Mistake`."""
    located = Located(public, PublicFile)
    _refuse_total(located)
    _refuse_sections(located, handout)
    _refuse_shares(located, located, Visibility.PUBLIC)
    _refuse_shares(located, located, "speed")
    _refuse_speed(located)
    _refuse_checks(located, located, Visibility.PUBLIC, folders)
    if not hidden.is_file():
        return located.content, HiddenFile(problems={})
    located_hidden = Located(hidden, HiddenFile)
    _refuse_hidden_names(located.content, located_hidden)
    _refuse_shares(located, located_hidden, Visibility.HIDDEN)
    _refuse_checks(located, located_hidden, Visibility.HIDDEN, folders)
    return located.content, located_hidden.content


def _refuse_total(public: Located[PublicFile]) -> None:
    """All problems' points add up to the assignment's."""
    file = public.content
    whole = sum(problem.points for problem in file.problems.values()) + sum(file.coming.values())
    if whole != file.points:
        public.refuse(("points",), f"the problems' points, with those coming, add up to {whole}, not to {file.points}")


def _refuse_shares(public: Located[PublicFile], file: Located[Any], part: Part) -> None:
    """Every share has a check that carries it."""
    for problem, place, entries in _entries(public, file, part):
        points = public.content.share_of(problem, part)
        if points and not any(entry.counted_weight for entry in entries.values()):
            file.refuse(
                place, f"no {part} check of {problem} carries its {points} points: each is void, a bonus, or of "
                "weight 0",
            )  # fmt: skip


def _refuse_speed(public: Located[PublicFile]) -> None:
    """Timed checks have names of their own, and name functions that are graded and public checks that exist."""
    for problem, entry in public.content.problems.items():
        for name, timed in entry.speed.items():
            place = ("problems", problem, "speed", name)
            if name in entry.checks:
                public.refuse(place, f"a public check is called {problem}.{name}, too")
            if timed.function not in entry.functions:
                close = did_you_mean(timed.function, entry.functions)
                public.refuse((*place, "function"), f"{problem} has no function `{timed.function}`{close}")
            for index, pattern in enumerate(timed.needs):
                if not any(fnmatchcase(check, pattern) for check in entry.checks):
                    close = did_you_mean(pattern, entry.checks)
                    public.refuse((*place, "needs", index), f"{problem} has no public check like `{pattern}`{close}")


def _refuse_sections(public: Located[PublicFile], handout: Path) -> None:
    """The handout has every section that is named."""
    if not handout.is_file():
        return
    sections = re.findall(r"^## (.+)$", handout.read_text(), re.MULTILINE)
    for problem, entry in public.content.problems.items():
        if entry.handout not in sections:
            place = ("problems", problem, "handout")
            public.refuse(
                place, f"{handout.name} has no section `{entry.handout}`{did_you_mean(entry.handout, sections)}"
            )


def _refuse_hidden_names(public: PublicFile, hidden: Located[HiddenFile]) -> None:
    """Hidden checks belong to problems that exist, and have names of their own."""
    for problem, entries in hidden.content.problems.items():
        if problem not in public.problems:
            hidden.refuse(
                ("problems", problem), f"there is no problem `{problem}`{did_you_mean(problem, public.problems)}"
            )
        for name in entries:
            for kind, others in (
                ("public", public.problems[problem].checks),
                ("timed", public.problems[problem].speed),
            ):
                if name in others:
                    hidden.refuse(("problems", problem, name), f"a {kind} check is called {problem}.{name}, too")


def _refuse_checks(
    public: Located[PublicFile], file: Located[Any], visibility: Visibility, folders: Mapping[Visibility, Path]
) -> None:
    """Every entry is a check."""
    if visibility not in folders:
        return
    parts: tuple[Part, ...] = (visibility, "speed") if visibility is Visibility.PUBLIC else (visibility,)
    for problem, place, entries in (found for part in parts for found in _entries(public, file, part)):
        path = folders[visibility] / f"test_{problem}.py"
        functions = list(titles(path))
        for name in entries:
            if name not in functions:
                file.refuse((*place, name), f"{path.name} has no check `{name}`{did_you_mean(name, functions)}")


def _entries(
    public: Located[PublicFile], file: Located[Any], part: Part
) -> Iterator[tuple[str, Place, Mapping[str, CheckEntry]]]:
    """For each problem: where its checks stand in the file, and they themselves; timed ones where there are any."""
    for problem, entry in public.content.problems.items():
        if part == Visibility.PUBLIC:
            yield problem, ("problems", problem, "checks"), entry.checks
        elif part == "speed":
            if entry.speed:
                yield problem, ("problems", problem, "speed"), entry.speed
        else:
            yield problem, ("problems", problem), file.content.problems.get(problem, {})


def titles(path: Path) -> dict[str, str]:
    """The checks in a file of checks, with their docstrings' first lines. Read, not imported: that would take seconds.

    Raises `Mistake` where it is no Python.
    """
    try:
        nodes = ast.parse(path.read_text()).body if path.is_file() else []
    except SyntaxError as error:
        raise Mistake(f"{path.name}, line {error.lineno}: {error.msg}") from None
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    first = {node.name: (ast.get_docstring(node) or "").partition("\n")[0] for node in functions}
    return {name.removeprefix("test_"): title for name, title in first.items()}
