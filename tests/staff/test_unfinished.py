"""Half-finished submissions, as students leave them in the evening: each gets its verdicts, and words that help.

Each folder below `submissions/unfinished/` has the modules that it is about and an `expect.yaml`. What is told comes
through the terminal as a student reads it: at 80 columns, with no traceback.
"""

import io
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grader.rubric import LIMIT_S, Rubric
from grader.summary import show_result
from grader.terminal import make_console

STAFF = Path(__file__).parent
UNFINISHED = sorted(path.parent for path in (STAFF / "submissions" / "unfinished").glob("*/expect.yaml"))
WIDTH = 80

pytestmark = pytest.mark.corpus


@dataclass(frozen=True)
class Expectation:
    """What the `expect.yaml` of an unfinished submission says."""

    state: str  # what the student has, in a line
    checks: dict[str, dict[str, int]]  # how many public checks of each problem get each verdict, on a CPU
    says: list[str]  # parts of sentences that a student must see; how they are broken into lines is nobody's business
    problems: list[str] | None = None  # what to grade, whole problems or single checks; all of `checks` by default
    limit_s: float = LIMIT_S  # the time for a check: less where one never ends

    @classmethod
    def read(cls, folder: Path) -> "Expectation":
        return cls(**yaml.safe_load((folder / "expect.yaml").read_text()))


@pytest.mark.parametrize("folder", UNFINISHED, ids=lambda folder: folder.name)
def test_an_unfinished_submission_gets_its_verdicts_and_words_that_help(folder, grade, servers, monkeypatch):
    if servers.device == "cuda":
        pytest.skip("needs Triton's interpreter: a GPU runs what it refuses, and nobody watches each access there")
    expected = Expectation.read(folder)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    if expected.limit_s != LIMIT_S:
        monkeypatch.setattr(servers, "slack", expected.limit_s / LIMIT_S)
    result = grade(folder, *(expected.problems or expected.checks))
    found = {problem: Counter() for problem in expected.checks}
    for check in result.checks:
        found[check.problem][check.verdict.value] += 1
    assert found == expected.checks, [f"{check.id}: {check.verdict} {check.message}" for check in result.checks]

    stream = io.StringIO()
    show_result(result, Rubric.read(), make_console(stream), staff=False)
    text = stream.getvalue()
    sentences = " ".join(text.split())
    assert not [part for part in expected.says if part not in sentences], text
    assert "Traceback" not in text
    too_wide = [line for line in text.splitlines() if len(line) > WIDTH and not line.startswith("      again: ")]
    assert not too_wide
