"""A campaign: generated mutants of all solutions, each refused by some check, or named in `equivalent.yaml`.

`-m mutants` grades all that are drawn, `-m corpus` a few of them. A mutant is graded as staff grade, with hidden
checks, up to the first that refuses it.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grader.judge.plugin import CaseResult, Judge
from grader.judge.run import run_checks
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.verdict import Verdict
from grader.rubric import Rubric, Visibility

from .conftest import ROOT, STAFF, Silent
from .mutate import Mutation, drawn, mutations

DRAWN, SAMPLE = 200, 16
PATIENCE = 0.5  # of a check's time limit: the solutions take a tenth, and some mutants never end
HARMLESS = (Verdict.PASS, Verdict.SKIPPED)


@dataclass(frozen=True)
class Equivalent:
    """A mutant that no check can refuse, and why."""

    function: str  # problem.function
    line: str
    becomes: str
    reason: str
    which: int = 1
    device: str | None = None  # "cpu" or "cuda", where it is one; on the other it may be refused

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.function, self.line, self.becomes, self.which


ALL = [mutation for path in sorted((ROOT / "solutions").glob("*.py")) for mutation in mutations(path)]
EQUIVALENTS = {
    one.key: one for one in (Equivalent(**fields) for fields in yaml.safe_load((STAFF / "equivalent.yaml").read_text()))
}
CAMPAIGN = drawn(ALL, DRAWN)
FEW = drawn([mutation for mutation in CAMPAIGN if mutation.key not in EQUIVALENTS], SAMPLE)
CASES = [pytest.param(one, id=str(one), marks=[pytest.mark.corpus] if one in FEW else []) for one in CAMPAIGN]


class UntilRefused(Silent):
    """A listener that ends the run, as Ctrl-C does, once a case has not passed."""

    def finished(self, case: CaseResult) -> None:
        if case.verdict not in HARMLESS:
            raise KeyboardInterrupt


def refused_by(mutation: Mutation, servers: Servers, folder: Path) -> str | None:
    """The first check that refuses a mutant. Hidden ones come first, since they ask for more at once."""
    shutil.copytree(ROOT / "solutions", folder, dirs_exist_ok=True)
    module = folder / f"{mutation.problem}.py"
    module.write_text(mutation.apply(module.read_text()))
    rubric = Rubric.read()
    checks = [
        f"{mutation.problem}.{name}"
        for visibility in (Visibility.HIDDEN, Visibility.PUBLIC)
        for name in rubric.checks(mutation.problem, visibility)
    ]
    judge = Judge(Snapshot.of(folder), servers, rubric)
    try:
        result = run_checks(judge, checks, UntilRefused(), str(mutation))
    finally:
        judge.submission.remove()
    refused = [check for check in result.checks if check.verdict not in HARMLESS]
    assert not [check.message for check in refused if check.verdict is Verdict.GRADER_ERROR]
    return f"{refused[0].id}: {refused[0].verdict}" if refused else None


@pytest.mark.mutants
@pytest.mark.usefixtures("short_collections")
@pytest.mark.parametrize("mutation", CASES)
def test_a_generated_mutant_is_refused_unless_it_is_as_right_as_the_solution(mutation, servers, tmp_path, monkeypatch):
    equivalent = EQUIVALENTS.get(mutation.key)
    if equivalent and equivalent.device not in (None, servers.device):
        pytest.skip(f"an equivalent on {equivalent.device} only: {equivalent.reason}")
    servers.ready()
    if equivalent:
        refused = refused_by(mutation, servers, tmp_path)
        assert refused is None, f"no equivalent: {mutation.line} became {mutation.becomes}"
        return
    monkeypatch.setattr(servers, "slack", PATIENCE * servers.slack)
    assert refused_by(mutation, servers, tmp_path), f"survives: {mutation.line} became {mutation.becomes}"


def test_an_equivalent_names_a_mutant_that_exists():
    assert not set(EQUIVALENTS) - {mutation.key for mutation in ALL}
