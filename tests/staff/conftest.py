"""What the grader's own tests share: one runner's server for the whole session, and a way to grade a folder."""

import gc
import json
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.doctor import Machine, can_run_kernels
from grader.judge.cases import Input
from grader.judge.plugin import CaseResult, Judge
from grader.judge.replies import Raised
from grader.judge.run import Selection, run_checks
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.submission import CheckProcess, Submission
from grader.result import Result
from grader.rubric import Rubric
from grader.sandbox.bubblewrap import Bubblewrap
from grader.sandbox.obstacles import why_not_confined

STAFF = Path(__file__).parent
ROOT = STAFF.parent.parent
collect_ignore = ["submissions"]  # some of them have tests and a conftest.py of their own, to be found by pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest -m corpus tests/staff --thorough` does what takes an hour, and what only many runs can show."""
    parser.addoption(
        "--thorough", action="store_true", help="right submissions many times, all harmful ones in a batch"
    )


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--thorough", default=False))


class Silent:
    """A listener that does not listen."""

    def planned(self, checks: Sequence[str]) -> None: ...
    def started(self, check: str) -> None: ...
    def finished(self, case: CaseResult) -> None: ...


@pytest.fixture(scope="module")
def short_collections() -> Iterator[None]:
    """Each grading ends with full collections of garbage, a quarter of a second each: what is here already is none."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A runner's server, kept for all tests: it never sees a submission, its children do."""
    machine = Machine.here()
    if reason := can_run_kernels(machine):
        pytest.skip(reason)
    shared = Servers.on(machine)
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A confined server, kept for all tests: what lies in its sandbox's tree is the submission."""
    machine = Machine.here()
    if reason := can_run_kernels(machine):
        pytest.skip(reason)
    if obstacle := why_not_confined():
        pytest.skip(obstacle.sentence)
    shared = Servers.on(machine, Bubblewrap(tmp_path_factory.mktemp("confined").resolve()))
    yield shared
    shared.close()


@contextmanager
def submitted(servers: Servers, folder: Path) -> Iterator[Snapshot]:
    """A snapshot of a folder, at the place where these servers look for it."""
    if not isinstance(servers.sandbox, Bubblewrap):
        snapshot = Snapshot.of(folder)
        yield snapshot
        snapshot.remove()
        return
    tree = servers.sandbox.tree
    empty(tree)
    yield Snapshot.of(folder, into=tree)
    empty(tree)


def empty(folder: Path) -> None:
    """Remove what is in a folder, but not the folder, which is mounted."""
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@pytest.fixture
def grade(servers: Servers) -> Callable[..., Result]:
    """Run checks on a folder as the commands do: `grade(folder, "softmax.columns", hidden=True, seed=1)`."""

    def run(folder: Path, *names: str, hidden: bool = False, seed: int | None = None, staff: bool = False) -> Result:
        rubric = Rubric.read()
        judge = Judge(Snapshot.of(folder), servers, rubric, seed, staff=staff)
        try:
            return run_checks(judge, Selection(names, hidden).checks(rubric), Silent(), folder.name)
        finally:
            judge.submission.remove()

    return run


@pytest.fixture(scope="session")
def grade_as_staff(confined: Servers) -> Callable[..., Result]:
    """Run checks, hidden ones too, as staff grade, confined: `grade_as_staff(folder, "gelu.speed_bfloat16")`."""

    def run(folder: Path, *names: str, limit_s: float | None = None) -> Result:
        rubric = Rubric.read() if limit_s is None else limited("gelu", limit_s)
        with submitted(confined, folder) as snapshot:
            judge = Judge(snapshot, confined, rubric, staff=True)
            return run_checks(judge, Selection(names, hidden=True).checks(rubric), Silent(), folder.name)

    return run


def limited(problem: str, limit_s: float) -> Rubric:
    """The rubric with this limit for each check of a problem."""
    rubric = Rubric.read()
    entry = rubric.problems[problem]
    checks = {name: check.model_copy(update={"limit_s": limit_s}) for name, check in entry.checks.items()}
    problems = rubric.problems | {problem: entry.model_copy(update={"checks": checks})}
    rubric.public = rubric.public.model_copy(update={"problems": problems})
    return rubric


def seen_inside(servers: Servers, folder: Path, expression: str) -> Any:
    """What an expression gives in a submission's function, with `x` its argument."""
    lines = textwrap.indent(textwrap.dedent(expression).strip(), "    ")
    (folder / "gelu.py").write_text(
        f"import json, os, sys\n\n\ndef look(x):\n{lines}\n\n\n"
        "def gelu(x):\n    raise RuntimeError(json.dumps(look(x)))\n"
    )
    process = CheckProcess(servers, folder, "gelu", 20.0)
    try:
        reply = Submission(process).gelu.exception(Input((3,)).draw(torch.Generator()))
    finally:
        process.close()
    assert isinstance(reply, Raised)
    assert reply.type == "RuntimeError", reply
    return json.loads(reply.message)


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
