"""The hash of the checks: what makes an old result stale, and what does not."""

import pytest

from grader.judge import identity

from .conftest import ROOT


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """A grader with a module that counts, one that does not, a rubric, and checks."""
    files = ("grader/judge/compare.py", "grader/batch/drive.py", "grader/scoring.py", "grader/rubric.yaml",
             "grader/hidden/rubric.yaml", "tests/test_gelu.py", "tests/staff/test_own.py")  # fmt: skip
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(identity, "JUDGE", tmp_path / "grader")
    monkeypatch.setattr(identity, "PUBLIC_CHECKS", tmp_path / "tests")
    return tmp_path


@pytest.mark.parametrize("name", ["grader/judge/compare.py", "grader/hidden/test_gelu.py", "tests/test_gelu.py"])
def test_a_change_of_what_runs_is_another_hash(sources, name):
    before = identity.checks_sha256()
    (sources / name).write_text("changed = True\n")
    assert identity.checks_sha256() != before


@pytest.mark.parametrize(
    "name",
    ["grader/batch/drive.py", "grader/scoring.py", "grader/rubric.yaml", "grader/hidden/rubric.yaml",
     "tests/staff/test_own.py", "grader/judge/notes.md"],
)  # fmt: skip
def test_points_reports_and_our_own_tests_leave_it_as_it_is(sources, name):
    before = identity.checks_sha256()
    (sources / name).write_text("changed: true\n")
    assert identity.checks_sha256() == before


def test_what_does_not_count_is_really_there():
    missing = {name for name in identity.BESIDE if not (ROOT / "grader" / name).exists()}
    assert missing <= {"reports"}
