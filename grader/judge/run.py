"""One run of checks on one submission, from selection to result: a pytest run with the judge as plugin.

`run_checks` is what `check` and `grade` call. Public checks run first, hidden ones after them. A check that ends
in `grader_error` runs once more.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch

import grader
from grader import result
from grader.inspect.looks import looks_at
from grader.judge.conclude import conclude, fitted, verdict_of
from grader.judge.identity import checks_sha256
from grader.judge.output import clean
from grader.judge.plugin import JUDGE, CaseResult, Judge, check_of, title_of, visibility_of
from grader.judge.verdict import Verdict
from grader.rubric import CHECKS, ROOT, Part, Rubric, Visibility
from grader.scoring import settled, total


class JudgeFailed(Exception):
    """Checks could not be collected or run: a mistake of ours, with pytest's words."""


class Listener(Protocol):
    """Who wants to know while it runs."""

    def planned(self, checks: Sequence[str]) -> None:
        """All checks, in order, before the first of them starts."""

    def started(self, check: str) -> None:
        """A check's first case starts."""

    def finished(self, case: CaseResult) -> None:
        """A case has ended."""


@dataclass
class Recorder:
    """Collects case results of one pytest run, and passes them on."""

    judge: Judge
    listener: Listener
    cases: list[CaseResult] = field(default_factory=list)
    titles: dict[str, tuple[str, Visibility]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    stopped: bool = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.stash[JUDGE] = self.judge

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(str(report.longrepr))

    def pytest_keyboard_interrupt(self) -> None:
        self.stopped = True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if check := check_of(item):
                self.titles.setdefault(check, (title_of(item), visibility_of(item)))
        self.listener.planned(list(self.titles))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        path, _, rest = nodeid.partition("::")
        problem = Path(path).stem.removeprefix("test_")
        self.listener.started(f"{problem}.{rest.partition('[')[0].removeprefix('test_')}")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if case := getattr(report, "grader_case", None):
            self.cases.append(case)
            self.listener.finished(case)


@dataclass(frozen=True)
class Selection:
    """Which checks to run: whole problems, or single checks as `problem.check`; timed ones where they are asked for."""

    names: tuple[str, ...]
    hidden: bool

    def checks(self, rubric: Rubric) -> list[str]:
        """Their full names: public ones first, then timed ones, whose answers were checked by then.

        With a timed check come those that it needs.
        """
        needed = {
            f"{problem}.{name}"
            for problem, entry in rubric.problems.items()
            for timed, speed in entry.speed.items()
            if f"{problem}.{timed}" in self.names
            for name in speed.needed(entry.checks)
        }
        parts: list[Part] = [Visibility.PUBLIC, "speed", *([Visibility.HIDDEN] if self.hidden else [])]
        return [
            f"{problem}.{name}"
            for part in parts
            for problem in rubric.problems
            for name in rubric.part(problem, part)
            if not self.names or problem in self.names or f"{problem}.{name}" in {*self.names, *needed}
        ]


def run_checks(judge: Judge, checks: Sequence[str], listener: Listener, submission_id: str) -> result.Result:
    """Run checks on a submission. Ctrl-C ends the run early; what was finished is in the result.

    Raises `JudgeFailed` or `RunnerBroken` where no check can be run at all.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    if not judge.cannot_run.all:
        judge.servers.ready()  # if not even a kernel of our own runs, no check is to blame
    start_s, compiled_s = time.monotonic() - clock, judge.servers.compiled_s
    recorder = _run_pytest(judge, checks, listener)
    by_check = _by_check(recorder.cases)
    runs = dict.fromkeys(by_check, 1)
    again = [check for check in by_check if verdict_of(by_check[check]) is Verdict.GRADER_ERROR]
    if again and not recorder.stopped:
        second = _by_check(_run_pytest(judge, again, listener).cases)
        by_check |= second
        runs |= dict.fromkeys(second, 2)
    concluded = [conclude(judge, check, by_check[check], runs[check]) for check in recorder.titles if check in by_check]
    results = settled(fitted(concluded), judge.rubric)
    device = ", ".join(gpu.name for gpu in judge.servers.gpus) or "cpu (Triton's interpreter)"
    versions = {"torch": torch.__version__, "triton": "none", "numpy": "none"}
    return result.Result(
        assignment=judge.rubric.public.assignment,
        submission=result.SubmissionInfo(id=submission_id, tree_sha256=judge.submission.sha256),
        grader=result.GraderInfo(
            version=grader.__version__,
            checks_sha256=checks_sha256(),
            rubric_sha256=judge.rubric.sha256,
        ),
        target=result.Target(
            device=device, python=platform.python_version(), sandbox=judge.servers.sandbox.level,
            shares_memory=judge.servers.shares_memory,
            **(versions if judge.cannot_run.all else judge.servers.versions),
        ),
        score=total(results, stopped=recorder.stopped),
        checks=results,
        advice=_advice(judge, checks),
        run=result.Run(
            started_at=started.isoformat(timespec="seconds"),
            ended_at=datetime.now(UTC).isoformat(timespec="seconds"),
            host=platform.node(),
            wall_s=round(time.monotonic() - clock, 3),
            phases={
                "start": round(start_s, 3), "submission": round(judge.waited_s, 3),
                "compiling": round(min(judge.servers.compiled_s - compiled_s, time.monotonic() - clock), 3),
            },
            stopped=recorder.stopped,
        ),
    )  # fmt: skip


def _advice(judge: Judge, checks: Sequence[str]) -> tuple[result.Advice, ...]:
    """Static looks at the modules of the problems that were checked."""
    problems = list(dict.fromkeys(check.partition(".")[0] for check in checks))
    return tuple(
        result.Advice(
            name=look.name, where=result.Place(file=look.file, line=look.line), what=clean(look.what, 400),
            hint=clean(look.hint, 400),
        )
        for look in looks_at(judge.submission.folder, problems)
    )  # fmt: skip


def _run_pytest(judge: Judge, checks: Sequence[str], listener: Listener) -> Recorder:
    recorder = Recorder(judge, listener)
    arguments = [
        f"--rootdir={ROOT}", f"--config-file={ROOT / 'pyproject.toml'}", "--override-ini=addopts=",
        "--import-mode=importlib", "--strict-markers", "--capture=no",
        "-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-p", "pytest_timeout",
    ]  # fmt: skip
    with _clean_environment():
        code = pytest.main([*arguments, *_nodes(judge.rubric, checks)], plugins=[recorder])
    if recorder.errors or code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR):
        raise JudgeFailed("the checks could not be collected:\n" + "\n".join(recorder.errors))
    return recorder


def _nodes(rubric: Rubric, checks: Sequence[str]) -> list[str]:
    """What pytest is to run: one node per check."""
    nodes = []
    for check in checks:
        problem, _, name = check.partition(".")
        hidden = name in rubric.checks(problem, Visibility.HIDDEN)
        folder = CHECKS[Visibility.HIDDEN if hidden else Visibility.PUBLIC]
        nodes.append(f"{folder / f'test_{problem}.py'}::test_{name}")
    return nodes


@contextmanager
def _clean_environment() -> Iterator[None]:
    """No option of pytest comes from the environment, and no plugin from an installed package."""
    kept = dict(os.environ)
    path, modules = list(sys.path), set(sys.modules)
    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.pop("PYTEST_PLUGINS", None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(kept)
        sys.path[:] = path
        for name in set(sys.modules) - modules:
            if getattr(sys.modules[name], "__file__", None) and name.startswith(("tests.", "grader.hidden.")):
                del sys.modules[name]


def _by_check(cases: Sequence[CaseResult]) -> dict[str, list[CaseResult]]:
    grouped: dict[str, list[CaseResult]] = {}
    for case in cases:
        grouped.setdefault(case.check, []).append(case)
    return grouped
