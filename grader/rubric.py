"""The rubric: what each check is worth. Points are exact hundredths and add up to their problem's share."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from grader.located import Mistake as RubricError
from grader.rubric_files import (
    CHECKS,
    HANDOUT,
    HIDDEN_RUBRIC,
    LIMIT_S,
    PARTS,
    ROOT,
    RUBRIC,
    Attempts,
    Baseline,
    CheckEntry,
    HiddenFile,
    LatePolicy,
    Part,
    Problem,
    PublicFile,
    SpeedEntry,
    Visibility,
    read_files,
)

__all__ = [
    "CHECKS", "LIMIT_S", "ROOT", "Attempts", "Baseline", "LatePolicy", "Part", "Rubric", "RubricError", "Visibility",
]  # fmt: skip


class Rubric:
    """Both files, and what follows from them."""

    def __init__(self, public: PublicFile, hidden: HiddenFile, sha256: str) -> None:
        self.public, self.hidden, self.sha256 = public, hidden, sha256

    @classmethod
    def read(
        cls,
        public: Path = RUBRIC,
        hidden: Path = HIDDEN_RUBRIC,
        folders: Mapping[Visibility, Path] = CHECKS,
        handout: Path = HANDOUT,
    ) -> Rubric:
        """Read the files; the hidden one may be absent.

        Raises `RubricError` with file and line, also where they do not go with the checks in `folders` (those of a
        folder that is not given are not looked at) or with the handout's sections.
        """
        found = read_files(public, hidden, folders, handout)
        contents = [path.read_bytes() for path in (public, hidden) if path.is_file()]
        return cls(*found, hashlib.sha256(b"".join(contents)).hexdigest())

    @property
    def problems(self) -> dict[str, Problem]:
        return self.public.problems

    def checks(self, problem: str, visibility: Visibility) -> Mapping[str, CheckEntry]:
        """The checks of one problem, by name without the problem's."""
        if visibility is Visibility.PUBLIC:
            return self.problems[problem].checks
        return self.hidden.problems.get(problem, {})

    def part(self, problem: str, part: Part) -> Mapping[str, CheckEntry]:
        """The checks of one part of a problem's points: public, hidden, or timed."""
        return self.problems[problem].speed if part == "speed" else self.checks(problem, part)

    def entry(self, check: str) -> CheckEntry | None:
        """The entry of `problem.check`, public, hidden or timed."""
        problem, _, name = check.partition(".")
        if problem not in self.problems:
            return None
        parts = [self.part(problem, part) for part in PARTS]
        return next((part[name] for part in parts if name in part), None)

    def timed(self, check: str) -> SpeedEntry | None:
        """The entry of `problem.check` where it is timed."""
        entry = self.entry(check)
        return entry if isinstance(entry, SpeedEntry) else None

    def hint(self, check: str) -> str:
        """What a student reads of a hidden check, besides its title."""
        problem, _, name = check.partition(".")
        return self.hidden.problems[problem][name].hint

    @cached_property
    def points(self) -> dict[str, Decimal]:
        """Points of every check, by its full name."""
        return {
            f"{problem}.{name}": points
            for problem in self.problems
            for part in PARTS
            for name, points in self._split(problem, part).items()
        }

    def _split(self, problem: str, part: Part) -> dict[str, Decimal]:
        """Hundredths by weight; what is left over goes to the largest remainders, so that the sum is exact."""
        checks = self.part(problem, part)
        hundredths = int(self.public.share_of(problem, part) * 100)
        weights = sum(entry.counted_weight for entry in checks.values()) or 1
        parts = {name: divmod(hundredths * entry.counted_weight, weights) for name, entry in checks.items()}
        left = hundredths - sum(whole for whole, _ in parts.values())
        lucky = sorted(parts, key=lambda name: -parts[name][1])[:left]
        points = {name: Decimal(whole + (name in lucky)) / 100 for name, (whole, _) in parts.items()}
        return points | {name: entry.bonus for name, entry in checks.items() if entry.bonus and not entry.void}
