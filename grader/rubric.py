"""The rubric: points, weights and limits, read from YAML into typed records.

`grader/rubric.yaml` is public; `grader/hidden/rubric.yaml` has the hidden checks and their hints, and is
absent from what students get. Points of a check are exact hundredths and add up to their problem's share.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

RUBRIC = Path(__file__).parent / "rubric.yaml"
HIDDEN_RUBRIC = Path(__file__).parent / "hidden" / "rubric.yaml"
LIMIT_S = 20.0  # for all cases of a check together; at least ten times what the solutions take


class Visibility(StrEnum):
    PUBLIC = "public"
    HIDDEN = "hidden"


class RubricError(Exception):
    """A mistake in a rubric's file, in one sentence."""


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Share(Record):
    """How a kernel problem's points are split, in percent."""

    public: Annotated[int, Field(ge=0)]
    hidden: Annotated[int, Field(ge=0)]
    speed: Annotated[int, Field(ge=0)]


class CheckEntry(Record):
    weight: Annotated[int, Field(ge=0)]
    limit_s: Annotated[float, Field(gt=0)] = LIMIT_S
    hint: str = ""  # for hidden checks: all that a student reads besides the title


class Problem(Record):
    points: Annotated[int, Field(gt=0)]
    handout: str  # the section of handout.md
    checks: dict[str, CheckEntry]


class PublicFile(Record):
    assignment: str
    share: Share
    problems: dict[str, Problem]
    coming: dict[str, int] = {}


class HiddenFile(Record):
    problems: dict[str, dict[str, CheckEntry]]


Parsed = TypeVar("Parsed", bound=Record)


class Rubric:
    """Both files, and what follows from them."""

    def __init__(self, public: PublicFile, hidden: HiddenFile, sha256: str) -> None:
        self.public, self.hidden, self.sha256 = public, hidden, sha256

    @classmethod
    def read(cls, public: Path = RUBRIC, hidden: Path = HIDDEN_RUBRIC) -> Rubric:
        """Read the files; the hidden one may be absent. Raises `RubricError`."""
        digest = hashlib.sha256(public.read_bytes())
        hidden_file = HiddenFile(problems={})
        if hidden.is_file():
            digest.update(hidden.read_bytes())
            hidden_file = _parse(HiddenFile, hidden)
        return cls(_parse(PublicFile, public), hidden_file, digest.hexdigest())

    @property
    def problems(self) -> dict[str, Problem]:
        return self.public.problems

    def checks(self, problem: str, visibility: Visibility) -> dict[str, CheckEntry]:
        """The checks of one problem, by name without the problem's."""
        if visibility is Visibility.PUBLIC:
            return self.problems[problem].checks
        return self.hidden.problems.get(problem, {})

    def entry(self, check: str) -> CheckEntry | None:
        """The entry of `problem.check`, public or hidden."""
        problem, _, name = check.partition(".")
        if problem not in self.problems:
            return None
        return self.problems[problem].checks.get(name) or self.hidden.problems.get(problem, {}).get(name)

    @cached_property
    def points(self) -> dict[str, Decimal]:
        """Points of every check, by its full name."""
        return {
            f"{problem}.{name}": points
            for problem in self.problems
            for visibility in Visibility
            for name, points in self._split(problem, visibility).items()
        }

    def _split(self, problem: str, visibility: Visibility) -> dict[str, Decimal]:
        """Hundredths by weight; what is left over goes to the largest remainders, so that the sum is exact."""
        checks = self.checks(problem, visibility)
        hundredths = self.problems[problem].points * getattr(self.public.share, visibility)
        weights = sum(entry.weight for entry in checks.values())
        if not weights:
            return {name: Decimal(0) for name in checks}
        parts = {name: divmod(hundredths * entry.weight, weights) for name, entry in checks.items()}
        left = hundredths - sum(whole for whole, _ in parts.values())
        lucky = sorted(parts, key=lambda name: -parts[name][1])[:left]
        return {name: Decimal(whole + (name in lucky)) / 100 for name, (whole, _) in parts.items()}


def _parse(kind: type[Parsed], path: Path) -> Parsed:
    try:
        return kind.model_validate(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as error:
        raise RubricError(f"{path.name} is not YAML: {error}") from None
    except ValidationError as error:
        mistakes = (f"{'.'.join(map(str, mistake['loc']))}: {mistake['msg']}" for mistake in error.errors())
        raise RubricError(f"{path.name}: {'; '.join(mistakes)}") from None
