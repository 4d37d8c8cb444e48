"""The corpora: wrong submissions are caught by the check that they name, in words that help; right and slow ones pass.

Each folder below `submissions/` has the modules it is about and an `expect.yaml`. `coverage.yaml` lists every trap
with the submissions that show it, or a reason why none does; cheating ones are graded in `test_cheating.py`.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grader.judge.verdict import Verdict
from grader.rubric import Rubric, Visibility

STAFF = Path(__file__).parent
WRONG = sorted((STAFF / "submissions" / "wrong").iterdir())
RIGHT = sorted((STAFF / "submissions" / "right").iterdir())
SLOWER = sorted((STAFF / "submissions" / "slower").iterdir())  # right ones that thresholds are calibrated with
CHEATING = sorted((STAFF / "submissions" / "cheating").iterdir())  # graded in test_cheating.py
COVERAGE = yaml.safe_load((STAFF / "coverage.yaml").read_text())
MUTANTS = {
    f"{mutant['check'].partition('.')[0]}-{mutant['name']}": mutant["check"]
    for file in sorted((STAFF / "mutants").glob("*.yaml"))
    for mutant in yaml.safe_load(file.read_text())
    if "equivalent" not in mutant
}
FULL_SPEED = {folder: yaml.safe_load((folder / "expect.yaml").read_text()).get("full_speed", []) for folder in RIGHT}
QUICK, OFTEN, SOMETIMES = {"gelu", "softmax"}, 10, 3  # how often right ones are graded where that is asked for
ROWS = [row for rows in COVERAGE.values() for row in rows]

pytestmark = [pytest.mark.corpus, pytest.mark.usefixtures("short_collections")]


@dataclass(frozen=True)
class Expectation:
    """What a wrong submission's `expect.yaml` says. Texts are parts of what a student must see."""

    trap: str  # the fault, in a line
    check: str  # problem.check, which must catch it
    verdict: Verdict
    cause: str | None = None
    message: str = ""  # in what is wrong, or in why
    hint: str = ""
    device: str | None = None  # "cpu" or "cuda", where it shows on one of them only

    @classmethod
    def read(cls, folder: Path, device: str = "cpu") -> "Expectation":
        """What is expected on a device: `on_gpu` has what differs there, where nobody watches each load."""
        fields = yaml.safe_load((folder / "expect.yaml").read_text())
        on_gpu = fields.pop("on_gpu", {})
        return cls(**(fields | on_gpu if device == "cuda" else fields))


@pytest.mark.parametrize("folder", WRONG, ids=lambda folder: folder.name)
def test_a_wrong_submission_is_caught_and_told_why(folder, grade, servers):
    expected = Expectation.read(folder, servers.device)
    if expected.device not in (None, servers.device):
        needs = "a GPU" if expected.device == "cuda" else "Triton's interpreter"
        pytest.skip(f"needs {needs}: {expected.trap}")
    [found] = grade(folder, expected.check, hidden=True).checks
    assert found.verdict == expected.verdict, found.detail
    assert found.cause == expected.cause
    assert expected.message in f"{found.message}\n{found.why}"
    assert expected.hint in found.hint


@pytest.mark.parametrize("folder", [*RIGHT, *SLOWER], ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_a_right_submission_passes_every_check(folder, grade, thorough):
    problems = yaml.safe_load((folder / "expect.yaml").read_text())["problems"]
    for _ in range((OFTEN if QUICK.issuperset(problems) else SOMETIMES) if thorough else 1):
        assert_full_marks(grade(folder, *problems, hidden=True, staff=True))


def assert_full_marks(result):
    others = [check for check in result.checks if check.verdict is not Verdict.PASS]
    refused = [check for check in others if check.verdict is not Verdict.SKIPPED]
    assert not [f"{check.id}: {check.message} {check.detail}" for check in refused]
    assert all(check.message.startswith("needs a GPU") for check in others)
    assert all(check.score == check.max for check in result.checks if check.verdict is Verdict.PASS and not check.speed)
    assert not [check.review for check in result.checks if check.review]
    assert not result.advice


@pytest.mark.gpu
@pytest.mark.parametrize("folder", [folder for folder in RIGHT if FULL_SPEED[folder]], ids=lambda folder: folder.name)
def test_an_unusual_right_submission_keeps_full_marks_for_speed(folder, confined, grade_as_staff):
    if confined.device != "cuda":
        pytest.skip("needs a GPU: speed is measured there")
    result = grade_as_staff(folder, *FULL_SPEED[folder])
    assert {check.id for check in result.checks if check.speed} == set(FULL_SPEED[folder])
    for check in result.checks:
        assert check.score == check.max, f"{check.id}: {check.message} {check.detail} {check.speed} {check.review}"


@pytest.mark.parametrize("folder", SLOWER, ids=lambda folder: folder.name)
def test_a_slower_submission_says_of_each_problem_what_makes_it_slower(folder):
    expected = yaml.safe_load((folder / "expect.yaml").read_text())
    assert list(expected["slower"]) == expected["problems"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["trap"])
def test_a_trap_is_shown_by_a_submission_or_has_a_reason(row):
    assert set(row) <= {"trap", "public", "shown_by", "reason"}
    assert row.get("shown_by") or row.get("reason")
    submissions = {folder.name for folder in [*WRONG, *CHEATING, *RIGHT, *SLOWER]}
    assert set(row.get("shown_by", [])) <= submissions | set(MUTANTS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.get("public")], ids=lambda row: row["trap"])
def test_a_public_trap_is_caught_by_a_public_check(row):
    rubric = Rubric.read()
    checks = [
        (MUTANTS.get(name) or Expectation.read(STAFF / "submissions" / "wrong" / name).check).split(".")
        for name in row["shown_by"]
    ]
    assert any(name in rubric.checks(problem, Visibility.PUBLIC) for problem, name in checks)


def test_every_wrong_and_every_cheating_submission_shows_a_trap():
    shown = {name for row in ROWS for name in row.get("shown_by", [])}
    assert {folder.name for folder in [*WRONG, *CHEATING]} <= shown


def test_every_right_submission_is_one_that_others_refuse_or_has_an_ordinary_style():
    refused = {name for row in COVERAGE["right kernels that other graders refuse"] for name in row.get("shown_by", [])}
    assert {folder.name for folder in RIGHT} - refused == {"online_rows"}


def test_traps_are_listed_once():
    names = [row["trap"] for row in ROWS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("folder", WRONG, ids=lambda folder: folder.name)
def test_an_expectation_names_a_check_that_exists(folder):
    assert Expectation.read(folder).check in Rubric.read().points
