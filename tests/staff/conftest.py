"""What the grader's own tests share: one runner's server for the whole session, and a way to grade a folder."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from grader.doctor import Machine, can_run_kernels
from grader.judge.plugin import CaseResult, Judge
from grader.judge.run import Selection, run_checks
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.result import Result
from grader.rubric import Rubric

STAFF = Path(__file__).parent
ROOT = STAFF.parent.parent


class Silent:
    """A listener that does not listen."""

    def planned(self, checks: Sequence[str]) -> None: ...
    def started(self, check: str) -> None: ...
    def finished(self, case: CaseResult) -> None: ...


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """A runner's server, kept for all tests: it never sees a submission, its children do."""
    machine = Machine.here()
    if reason := can_run_kernels(machine):
        pytest.skip(reason)
    shared = Servers.on(machine)
    yield shared
    shared.close()


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
