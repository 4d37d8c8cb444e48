"""When a result still counts: the hash of all that it depends on but the hardware, and what an attempt lacks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from importlib.metadata import PackageNotFoundError, version

from grader.batch.engines import CPU
from grader.batch.gradebook import Row, RunRow, State
from grader.judge.identity import checks_sha256
from grader.rubric import Rubric
from grader.rubric_files import PARTS

MOST_RUNS = 3  # of an attempt that ends in errors of ours
PACKAGES = ("torch", "triton")


class Validity:
    """For the checks, the rubric and the packages as they are now."""

    def __init__(self, rubric: Rubric) -> None:
        self.rubric = rubric
        self.checks_sha256 = checks_sha256()
        self._rest = json.dumps([self.checks_sha256, list(map(_version, PACKAGES)), _limits(rubric)], sort_keys=True)

    def key(self, row: Row) -> str:
        """Of a result of these files: not of points, weights and thresholds, which are applied to what was measured."""
        return hashlib.sha256(f"{row.submission}\0{row.attempt}\0{row.tree_sha256}\0{self._rest}".encode()).hexdigest()

    def lacking(self, row: Row, runs: Sequence[RunRow], problems: Sequence[str], kind: str) -> list[str]:
        """The problems that are to be run on a slot of this kind: those without a result, or with an error of ours.

        A result from a GPU counts on a machine without one, too. After `MOST_RUNS` an error is left to people.
        """
        valid = [run for run in runs if run.key == self.key(row) and kind in (CPU, run.device)]
        return [problem for problem in problems if not _settled([run for run in valid if problem in run.problems])]

    def tries(self, row: Row, runs: Sequence[RunRow], kind: str) -> int:
        """How many runs there have failed by our fault."""
        return len([run for run in runs if run.key == self.key(row) and run.device == kind and _is_ours(run)])


def _settled(runs: Collection[RunRow]) -> bool:
    """Whether one of these runs is as good as a new one, or none would be better."""
    whole = any(run.state is State.DONE and not run.grader_errors for run in runs)
    return whole or len([run for run in runs if _is_ours(run)]) >= MOST_RUNS


def _is_ours(run: RunRow) -> bool:
    """Whether a run has failed by our fault."""
    return run.state is State.FAILED or (run.state in (State.DONE, State.HELD) and run.grader_errors > 0)


def _limits(rubric: Rubric) -> dict[str, object]:
    """Of the rubric, what a run depends on: limits, and what is timed beside what."""
    found: dict[str, object] = {"all": rubric.public.limit_s}
    for problem in rubric.problems:
        for part in PARTS:
            for name, entry in rubric.part(problem, part).items():
                timed = rubric.timed(f"{problem}.{name}")
                found[f"{problem}.{name}"] = [entry.limit_s, *([timed.function, timed.baseline] if timed else [])]
    return found


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
