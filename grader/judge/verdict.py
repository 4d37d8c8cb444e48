"""What can become of a case or a check, and the exception that carries it out of a check's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """The outcomes, worst first: a check has the first of these that any of its cases has."""

    GRADER_ERROR = "grader_error"  # ours: retried, then reported, never scored
    TIMEOUT = "timeout"  # no answer within the limit
    CRASH = "crash"  # the process went away, or its reply was none
    OUT_OF_MEMORY = "out_of_memory"  # torch's exception of that kind
    TODO = "todo"  # NotImplementedError, a missing module or function
    FAIL = "fail"  # a wrong answer, or any other exception
    SKIPPED = "skipped"  # this machine lacks what it needs; no points either way
    PASS = "pass"

    @property
    def scored(self) -> bool:
        """Whether the verdict earns or loses points."""
        return self not in (Verdict.GRADER_ERROR, Verdict.SKIPPED)

    @staticmethod
    def worst(verdicts: list[Verdict]) -> Verdict:
        """The verdict of a check with these cases. No cases at all is our fault."""
        return min(verdicts, key=list(Verdict).index, default=Verdict.GRADER_ERROR)


@dataclass(frozen=True)
class Where:
    """A place in a submission."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass
class Outcome(Exception):
    """The end of a case that did not pass: what is wrong, why, and what to do about it."""

    verdict: Verdict
    message: str  # one sentence: what is wrong with the numbers, or what happened
    why: str = ""  # the likely reason, where it can be told
    hint: str = ""  # the next thing to try
    cause: str | None = None  # a name for `why`, from `grader.judge.causes`
    where: Where | None = None
    detail: str = ""  # traceback, or whatever else helps on request
    printed: str = field(default="", repr=False)  # what the submission wrote to its output

    def __str__(self) -> str:
        return "\n".join(line for line in (self.message, self.why, self.hint) if line)
