"""Mutants: a solution with one fault each is caught by the check that is named for it, and by what it says."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grader.judge.verdict import Verdict
from grader.rubric import Rubric, Visibility

from .conftest import ROOT, STAFF

pytestmark = [pytest.mark.corpus, pytest.mark.usefixtures("short_collections")]

REFUSED = {Verdict.FAIL, Verdict.CRASH, Verdict.OUT_OF_MEMORY, Verdict.TIMEOUT}


@dataclass(frozen=True)
class Mutant:
    """One fault: pieces of the solution's text, each of which occurs once, and what they become."""

    name: str
    trap: str
    check: str
    changes: list[dict[str, str]]
    cause: str | None = None
    device: str | None = None  # "cpu" or "cuda", where it shows on one of them only
    equivalent: str | None = None  # why no check can catch it

    @property
    def problem(self) -> str:
        return self.check.partition(".")[0]

    def source(self) -> str:
        text = (ROOT / "solutions" / f"{self.problem}.py").read_text()
        for change in self.changes:
            assert text.count(change["text"]) == 1, f"occurs {text.count(change['text'])} times: {change['text']}"
            text = text.replace(change["text"], change["becomes"])
        return text

    def __str__(self) -> str:
        return f"{self.problem}-{self.name}"


FILES = sorted((STAFF / "mutants").glob("*.yaml"))
MUTANTS = [Mutant(**fields) for file in FILES for fields in yaml.safe_load(file.read_text())]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_caught_by_the_check_that_is_named_for_it(mutant, grade, servers, tmp_path: Path):
    source = mutant.source()
    if mutant.equivalent or mutant.device not in (None, servers.device):
        pytest.skip(mutant.equivalent or f"shows on {mutant.device} only")
    shutil.copytree(ROOT / "solutions", tmp_path, dirs_exist_ok=True)
    (tmp_path / f"{mutant.problem}.py").write_text(source)
    [found] = grade(tmp_path, mutant.check, hidden=True).checks
    assert found.verdict in REFUSED, found
    assert mutant.cause in (None, found.cause), found.message


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_names_a_public_check(mutant):
    rubric = Rubric.read()
    assert mutant.check.partition(".")[2] in rubric.checks(mutant.problem, Visibility.PUBLIC)


def test_every_check_of_flash_attention_kills_a_mutant():
    """But those that only a GPU runs, and those that are there for TF32, which the interpreter does not have."""
    on_a_gpu = {
        "forward_bfloat16",
        "backward_bfloat16",
        "forward_current_stream",
        "forward_float32",
        "backward_float32",
    }
    killed = {mutant.check.partition(".")[2] for mutant in MUTANTS if not mutant.equivalent}
    assert set(Rubric.read().checks("flash_attention", Visibility.PUBLIC)) - killed == on_a_gpu
