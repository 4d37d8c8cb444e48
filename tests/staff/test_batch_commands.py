"""`batch`, `regrade`, `review` and `report` as staff type them, on submissions that are really graded."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from grader.batch.gradebook import Gradebook
from grader.batch.grades import graded
from grader.judge.verdict import Verdict
from grader.result import Score
from grader.rubric import Rubric
from grader.sandbox.obstacles import why_not_confined

from .conftest import ROOT, STAFF

pytestmark = pytest.mark.skipif(why_not_confined() is not None, reason="submissions cannot be confined here")

CORPUS = STAFF / "submissions"
LIMIT_S, LONG_S = 600, 1800
ROSTER = """sid,email,name
0123,ada@example.edu,"=Example, Ada"
7,no@example.edu,No
8,,Zoë
"""
BORROWED = "import torch\n\n\ndef gelu(x):\n    return torch.nn.functional.gelu(x, approximate='tanh')\n"
ON_CPU = ("--device", "cpu")


def run(*arguments: object, code: int, limit_s: int = LIMIT_S) -> str:
    """A command of the grader's: what it prints, if it ends with this code."""
    found = subprocess.run(
        [sys.executable, "-m", "grader", *map(str, arguments)], cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit_s, env=os.environ | {"COLUMNS": "200"},
    )  # fmt: skip
    assert found.returncode == code, found.stdout
    return found.stdout


def verdicts(grades: Path) -> dict[str, dict[str, Verdict]]:
    """By submission and check."""
    book = Gradebook.open(grades)
    found = {
        one.submission: {check.id: check.verdict for check in one.result.checks}
        for one in graded(book, Rubric.read())
        if one.result
    }
    book.close()
    return found


@pytest.fixture(scope="module")
def handed_in(tmp_path_factory) -> Path:
    """A plain folder: one that is right, a stub, and a link."""
    folder = tmp_path_factory.mktemp("handed in")
    for name, source in (("ada", ROOT / "solutions"), ("No", ROOT / "assignment")):
        (folder / name / "assignment").mkdir(parents=True)
        shutil.copy(source / "gelu.py", folder / name / "assignment")
    (folder / "mal").symlink_to("/etc")
    (folder / "roster.csv").write_text(
        'sid,email,name\n0123,ada@example.edu,"=Example, Ada"\n7,no@example.edu,No\n8,,Zoë\n'
    )
    (folder / "names.csv").write_text("name,sid\nada,0123\nNo,7\n")
    return folder


@pytest.fixture(scope="module")
def grades(handed_in, tmp_path_factory) -> tuple[Path, str]:
    """The gradebook after a batch, and what that printed."""
    place = tmp_path_factory.mktemp("out") / "grades"
    return place, run(*batch(handed_in, place), code=1)


def batch(folder: Path, place: Path, *more: object) -> list[object]:
    people = ("--roster", folder / "roster.csv", "--names", folder / "names.csv")
    return ["batch", folder, "--out", place, "--only", "gelu", *ON_CPU, *people, *more]


def test_a_batch_grades_everybody_and_says_who_needs_a_person(grades):
    place, said = grades
    found = verdicts(place)
    ada, no = (next(found[name] for name in found if who in name) for who in ("ada", "plain-no"))
    assert {verdict for check, verdict in ada.items() if "speed" not in check} <= {Verdict.PASS, Verdict.SKIPPED}
    assert set(no.values()) <= {Verdict.TODO, Verdict.SKIPPED}
    assert "mal is a link" in said
    assert "SKIPPED" in said


def test_a_second_batch_runs_nothing(grades, handed_in):
    said = run(*batch(handed_in, grades[0]), code=1)
    assert "2 of them are graded already, and have not changed." in said


def test_whoever_is_in_two_submissions_is_told(tmp_path):
    """A member of a group can be put into another one by whoever hands in there."""
    for name in ("a", "b"):
        (tmp_path / "class" / name).mkdir(parents=True)
    (tmp_path / "names.csv").write_text("name,sid\na,[red]7\nb,[red]7\n")
    said = run(
        "batch", tmp_path / "class", "--out", tmp_path / "grades", *ON_CPU, "--names", tmp_path / "names.csv", code=0
    )
    assert "Warning: [red]7 is in plain-a-" in said


def test_a_report_has_a_row_for_each_student_of_the_roster(grades, tmp_path):
    run("report", grades[0], "--out", tmp_path / "report", code=1)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "grades.csv").read_text())))
    by_sid = {row["sid"]: row for row in rows}
    assert by_sid["0123"]["name"] == "'=Example, Ada"
    assert by_sid["7"]["name"] == "No"
    assert (by_sid["8"]["status"], by_sid["8"]["final"]) == ("no_submission", "0.00")
    assert float(by_sid["0123"]["gelu"]) > 0 == float(by_sid["7"]["gelu"])
    pages = {path.name for path in (tmp_path / "report" / "feedback").iterdir()}
    assert len(pages) == 4
    json.loads((tmp_path / "report" / "results.json").read_text())


def test_a_regrade_counts_only_once_it_is_taken(grades):
    place, _ = grades
    name = next(name for name in verdicts(place) if "ada" in name)
    said = run("regrade", place, name, "--only", "gelu", *ON_CPU, code=0)
    assert "0 of 1 submissions change" in said
    assert "The old results count." in said
    assert "new results count" in run("regrade", place, name, "--take", code=0)
    assert "no results of a regrade to take" in run("regrade", place, name, "--take", code=2)


def test_a_review_is_shown_with_its_evidence_and_decided(tmp_path):
    folder = tmp_path / "handed in"
    (folder / "eve").mkdir(parents=True)
    (folder / "eve" / "gelu.py").write_text(BORROWED)
    place = tmp_path / "grades"
    run("batch", folder, "--out", place, "--only", "gelu", *ON_CPU, code=0)
    (name,) = verdicts(place)
    said = run("review", place, code=0)
    assert "gelu" in said.partition(name)[2]
    assert str(place / "trees") in said
    assert "takes a --reason" in run("review", place, name, "gelu", "reject", code=2)
    assert f"There is no submission `{name}x`; did you mean `{name}`?" in run("review", place, f"{name}x", code=2)
    assert "reject: gelu.sizes" in run("review", place, name, "gelu", "reject", "--reason", "calls torch", code=0)
    assert "Nothing waits" in run("review", place, code=0)
    run("report", place, code=0)
    (row,) = csv.DictReader(io.StringIO((place / "report" / "grades.csv").read_text()))
    assert row["gelu"] == "0.00"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["batch", "nowhere"], "nowhere"),
        (["batch", ".", "--only", "gelo"], "there is no problem `gelo`; did you mean `gelu`?"),
        (["batch", ".", "--roster", "LICENSE"], "LICENSE"),
        (["batch", ".", "--zone", "Mars/Olympus", "--times", "LICENSE"], "there is no zone `Mars/Olympus`"),
        (["report", "nowhere"], "there is no gradebook.sqlite in nowhere"),
        (["report", "nowhere", "--column", "7"], "Canvas takes both"),
        (["regrade", "nowhere"], "there is no gradebook.sqlite in nowhere"),
        (["review", "nowhere"], "there is no gradebook.sqlite in nowhere"),
        (["review", "nowhere", "id", "gelu"], "a decision takes the submission, the check, and"),
    ],
)
def test_what_is_wrong_with_a_command_is_one_sentence_and_writes_nothing(arguments, words, tmp_path):
    said = run(*arguments, code=2)
    assert words.lower() in said.lower()
    assert len(said.strip().splitlines()) == 1
    assert not (ROOT / "grades").exists()


def test_a_dry_run_writes_nothing(handed_in, tmp_path):
    said = run(*batch(handed_in, tmp_path / "grades", "--dry-run"), code=1)
    assert "mal is a link" in said
    assert list(tmp_path.iterdir()) == []


# Thirty of the corpus, in every layout


@dataclass(frozen=True)
class Expected:
    """A submission, and a check with its verdict; without one all checks pass that can run here."""

    folder: Path
    check: str = ""
    verdict: Verdict = Verdict.PASS

    def holds(self, found: dict[str, Verdict]) -> bool:
        if self.check:
            return found[self.check] is self.verdict
        return set(found.values()) == {Verdict.PASS, Verdict.SKIPPED}


def known() -> list[Expected]:
    """Submissions of the corpus that have a gelu: wrong ones that show on a CPU, and right ones."""
    wrong = [
        (folder, yaml.safe_load((folder / "expect.yaml").read_text()))
        for folder in sorted((CORPUS / "wrong").glob("gelu_*"))
    ]
    right = [folder for folder in sorted((CORPUS / "right").iterdir()) if (folder / "gelu.py").is_file()]
    found = [
        Expected(folder, said["check"], Verdict(said["verdict"]))
        for folder, said in wrong
        if said.get("device", "cpu") == "cpu"
    ]
    return [*[Expected(folder) for folder in right], *found][:25]


CRASHING = [
    ("leaves", "import os\n\nos._exit(3)\n", Verdict.CRASH), ("no_python", "def gelu(x:\n", Verdict.FAIL),
    ("empty", "", Verdict.TODO), ("raises", "def gelu(x):\n    raise KeyError('no')\n", Verdict.FAIL),
    ("returns_none", "def gelu(x):\n    return None\n", Verdict.FAIL),
]  # fmt: skip


def gradescope(folders: Sequence[Path], export: Path) -> list[str]:
    known = {}
    for number, folder in enumerate(folders):
        name = f"submission_{1000 + number}"
        shutil.copytree(folder, export / "assignment_7_export" / name)
        known[name] = {
            ":submitters": [{":name": "No", ":sid": f"0{number}"}],
            ":created_at": "2026-10-02 21:58:03.365 Z",
        }
    (export / "assignment_7_export" / "submission_metadata.yml").write_text(yaml.safe_dump(known))
    return [f"gradescope-{1000 + number}" for number in range(len(folders))]


def moodle(folders: Sequence[Path], export: Path) -> list[str]:
    for number, folder in enumerate(folders):
        shutil.copytree(folder, export / f"Ada Müller_{20 + number}_assignsubmission_file")
    return [f"moodle-{20 + number}" for number in range(len(folders))]


def canvas(folders: Sequence[Path], export: Path) -> list[str]:
    export.mkdir()
    for number, folder in enumerate(folders):
        (source,) = folder.rglob("gelu.py")
        shutil.copy(source, export / f"exampleada_LATE_{300 + number}_{9000 + number}_gelu.py")
    return [f"canvas-{300 + number}" for number in range(len(folders))]


def github(folders: Sequence[Path], export: Path) -> list[str]:
    names = [f"user-{number}" for number in range(len(folders))]
    for name, folder in zip(names, folders, strict=True):
        shutil.copytree(folder, export / "kernels-submissions" / f"kernels-{name}")
    return [f"github-{name}" for name in names]


def plain(folders: Sequence[Path], export: Path) -> list[str]:
    export.mkdir()
    for number, folder in enumerate(folders):
        with zipfile.ZipFile(export / f"s{number}.zip", "w") as archive:
            for path in folder.rglob("*.py"):
                archive.write(path, f"my work/{path.relative_to(folder)}")
    return [f"s{number}" for number in range(len(folders))]


LAYOUTS = [gradescope, moodle, canvas, github, plain]


@pytest.mark.corpus
@pytest.mark.parametrize("layout", LAYOUTS)
def test_thirty_submissions_get_in_any_layout_what_they_deserve(layout, tmp_path):
    number = LAYOUTS.index(layout)
    name, source, verdict = CRASHING[number]
    (tmp_path / name).mkdir()
    (tmp_path / name / "gelu.py").write_text(source)
    expected = [*known()[number :: len(LAYOUTS)], Expected(tmp_path / name, "gelu.sizes", verdict)]
    assert len(expected) == 6
    ids = layout([one.folder for one in expected], tmp_path / "export")
    place = tmp_path / "export" / ("kernels-submissions" if layout is github else "")
    run("batch", place, "--out", tmp_path / "grades", "--only", "gelu", *ON_CPU, code=0)
    found = verdicts(tmp_path / "grades")
    assert len(found) == 6
    for id, one in zip(ids, expected, strict=True):
        (theirs,) = [checks for name, checks in found.items() if name == id or name.startswith(f"plain-{id}-")]
        assert one.holds(theirs), (one, theirs)


# Harmful ones between honest ones

HONEST = ROOT / "solutions" / "gelu.py"
HARMFUL = ("illegal_access", "hang_and_kill", "survivor", "flood")
VARIES = {"time_s", "seed", "replay"}  # of a check


@pytest.mark.corpus
@pytest.mark.timeout(LONG_S)
def test_who_comes_after_a_harmful_submission_has_the_result_of_who_came_before_it(tmp_path, thorough):
    harmful = HARMFUL if thorough else HARMFUL[:1]
    for number, name in enumerate(harmful):
        shutil.copytree(CORPUS / "cheating" / name / "assignment", tmp_path / "class" / f"{2 * number + 1} {name}")
    for number in range(len(harmful) + 1):
        (tmp_path / "class" / f"{2 * number} honest").mkdir()
        shutil.copy(HONEST, tmp_path / "class" / f"{2 * number} honest")
    options = ("--out", tmp_path / "grades", "--only", "gelu", "--slots", 1, *ON_CPU)
    run("batch", tmp_path / "class", *options, code=0, limit_s=LONG_S)
    results = in_order(tmp_path / "grades")
    assert len(results) == 2 * len(harmful) + 1
    first, crashed = results[:2]
    assert {check["verdict"] for check in first[1]} == {Verdict.PASS, Verdict.SKIPPED}
    assert {check["verdict"] for check in crashed[1]} == {Verdict.CRASH, Verdict.SKIPPED}
    assert results[2::2] == [first] * len(harmful)


def in_order(grades: Path) -> list[tuple[Score, list[dict[str, object]]]]:
    """The results of submissions as they ran, one after the other, but for what is another one each time."""
    book = Gradebook.open(grades)
    found = sorted(
        (one.result for one in graded(book, Rubric.read()) if one.result), key=lambda one: one.run.started_at
    )
    book.close()
    return [(one.score, [check.model_dump(exclude=VARIES) for check in one.checks]) for one in found]
