"""The two autograders for Gradescope, run as it runs them: in a folder that has the place of /autograder."""

import io
import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from grader.doctor import Machine, can_run_kernels
from grader.release.plan import Plan, Unplanned
from grader.release.scan import scan
from grader.release.secrets import Secrets
from grader.reports import gradescope_zips
from grader.reports.gradescope import results_json
from grader.reports.gradescope_zips import preview_zip, publish_zip
from grader.reports.strict import strict_json
from grader.rubric import ROOT
from tests.staff.reported import RUBRIC, a_result
from tests.staff.test_reports_gradescope import Results

GRADED = strict_json(results_json(a_result(), RUBRIC)).encode()
runs_kernels = pytest.mark.skipif(bool(can_run_kernels(Machine.here())), reason=str(can_run_kernels(Machine.here())))


def unpacked(content: bytes, root: Path) -> Path:
    """A fake /autograder: the zip's files in source/, run_autograder beside it, as Gradescope's image has them."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(root / "source")
    shutil.copy(root / "source" / "run_autograder", root / "run_autograder")
    (root / "submission").mkdir()
    (root / "results").mkdir()
    return root


def run(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-I", root / "run_autograder", *arguments], cwd=root, capture_output=True, text=True,
        timeout=300, env=inherited | {"AUTOGRADER_ROOT": str(root), "GRADER_PYTHON": sys.executable} | environment,
    )  # fmt: skip


def result_of(root: Path) -> Results:
    return Results.model_validate_json((root / "results" / "results.json").read_text())


@pytest.mark.parametrize("kind", ["preview", "publish"])
def test_gradescope_finds_its_two_programs_at_the_top(kind):
    content = preview_zip(ROOT, RUBRIC) if kind == "preview" else publish_zip({})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name, first in (("setup.sh", b"#!/usr/bin/env bash\n"), ("run_autograder", b"#!/usr/bin/env python3\n")):
            assert archive.read(name).startswith(first)
            assert stat.S_IMODE(archive.getinfo(name).external_attr >> 16) == 0o755
    subprocess.run(["bash", "-n", ROOT / "grader" / "reports" / "templates" / kind / "setup.sh"], check=True)


# Publish


@pytest.fixture
def publishing(tmp_path) -> Path:
    return unpacked(publish_zip({"123456": GRADED, "7": b"{}"}), tmp_path)


def test_a_submission_gets_what_the_batch_found(publishing):
    (publishing / "submission_metadata.json").write_text(
        json.dumps({"id": 123456, "assignment": {"title": "GPU kernels"}, "users": [{"name": "Ada", "sid": None}]})
    )
    (publishing / "submission" / "gelu.py").write_text("raise SystemExit(9)")
    done = run(publishing)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (publishing / "results" / "results.json").read_bytes() == GRADED
    assert result_of(publishing).score == 86.0
    assert os.listdir(publishing / "results") == ["results.json"]


def test_a_submission_that_the_batch_does_not_know_gets_no_points_and_no_zero(publishing):
    (publishing / "submission_metadata.json").write_text('{"id": 99}')
    done = run(publishing)
    assert done.returncode == 3
    assert done.stdout.startswith("Submission 99 has no grade yet: the batch did not have it, or could not finish it.")
    assert os.listdir(publishing / "results") == []


@pytest.mark.parametrize("metadata", [
    None, "", "{", "[]", "{}", '{"id": null}', '{"id": true}', '{"id": "../7"}', '{"id": 7.5}', '{"id": [7]}', "\udcff",
    '{"id": -7}', '{"id": "²"}',
])  # fmt: skip
def test_metadata_that_cannot_be_read_ends_with_3_and_a_sentence(publishing, metadata):
    if metadata is not None:
        (publishing / "submission_metadata.json").write_bytes(metadata.encode(errors="surrogateescape"))
    done = run(publishing)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.endswith(": run it again.\n")
    assert len(done.stdout.splitlines()) == 1
    assert os.listdir(publishing / "results") == []


def test_the_publishing_program_uses_the_standard_library_alone():
    program = (ROOT / "grader" / "reports" / "templates" / "publish" / "run_autograder").read_text()
    modules = {line.split()[1] for line in program.splitlines() if line.startswith(("import ", "from "))}
    assert modules <= set(sys.stdlib_module_names)
    assert "subprocess" not in modules


# Preview


@pytest.fixture(scope="module")
def preview() -> bytes:
    return preview_zip(ROOT, RUBRIC)


@pytest.fixture
def previewing(preview, tmp_path) -> Path:
    return unpacked(preview, tmp_path)


def test_the_preview_holds_what_students_get_and_nothing_else(preview):
    plan = Plan.of(ROOT)
    with zipfile.ZipFile(io.BytesIO(preview)) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    released = {name.removeprefix("release/"): contents[name] for name in contents if name.startswith("release/")}
    assert released == plan.files
    assert set(contents) - {f"release/{name}" for name in released} == {"setup.sh", "run_autograder", "problems.json"}
    assert scan(replace(plan, files=contents), Secrets.of(ROOT), ROOT) == []


def test_nothing_is_zipped_where_the_scan_finds_something(monkeypatch):
    plan = Plan.of(ROOT)
    planted = {**plan.files, "handout.md": plan.files["handout.md"] + b"\nsee solutions/gelu.py, or tests/staff\n"}
    monkeypatch.setattr(gradescope_zips.Plan, "of", lambda root: replace(plan, files=planted))
    with pytest.raises(
        Unplanned, match=r"of staff's would be in it: handout\.md, line \d+: the staff path sol.* 1 more"
    ):
        preview_zip(ROOT, RUBRIC)


@runs_kernels
def test_a_right_kernel_gets_its_public_points_as_feedback(previewing):
    (previewing / "submission" / "assignment").mkdir()
    shutil.copy(ROOT / "solutions" / "gelu.py", previewing / "submission" / "assignment")
    done = run(previewing, "gelu")
    assert done.returncode == 0, done.stdout + done.stderr
    result = result_of(previewing)
    # 2 of 5 points are for public values; bfloat16 (2 of 17) and current_stream (1 of 17) need a GPU
    assert result.score == 1.65
    assert result.output.startswith(
        "Feedback only, not your grade: this is the public self-check, without a GPU. Hidden checks and speed are "
        "graded later, all submissions together.\n1.65 of 1.65 points of the public checks that can run here."
    )
    assert {test.status for test in result.tests} == {"passed", None}
    [stream] = [test for test in result.tests if "stream" in test.name]
    assert (stream.score, stream.output) == (None, "needs a GPU: a CPU has no streams")
    assert [test.number for test in result.tests] == [f"1.{number}" for number in range(1, 13)]


@runs_kernels
def test_a_wrong_kernel_is_told_what_is_wrong_and_what_is_refused_is_told_too(previewing):
    (previewing / "submission" / "gelu.py").write_text("def gelu(x):\n    print('here')\n    return x\n")
    assert run(previewing, "gelu").returncode == 0
    test = next(test for test in result_of(previewing).tests if test.status == "failed")
    assert "case: " in test.output
    assert "expected" in test.output
    assert "again: " in test.output
    assert "here" in test.output


class FakeGrader:
    """A program in the place of the self-check, which takes its file and its problem."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "grader"

    def does(self, program: str) -> dict[str, str]:
        """The environment in which this runs instead. It knows `problem`, `file` and `check(verdict)`."""
        self.path.write_text(
            f"#!{sys.executable}\nimport json, os, sys, time\n"
            "problem, file = sys.argv[4], sys.argv[-1]\n"
            "def check(verdict, **fields):\n"
            "    score = None if verdict in ('skipped', 'grader_error') else float(verdict == 'pass')\n"
            "    one = dict(id=problem + '.a', problem=problem, title='A.', verdict=verdict, score=score, max=1.0,\n"
            "               bonus=False, message='') | fields\n"
            "    json.dump({'checks': [one]}, open(file, 'w'))\n" + program
        )
        self.path.chmod(0o755)
        return {"GRADER_PYTHON": str(self.path)}


@pytest.fixture
def fake(tmp_path) -> FakeGrader:
    return FakeGrader(tmp_path)


def test_after_each_problem_the_file_is_whole_with_what_is_known(previewing, fake):
    program = (
        "results = os.path.join(os.environ['AUTOGRADER_ROOT'], 'results', 'results.json')\n"
        "os.link(results, results + '.' + problem)\ncheck('pass')\n"
    )
    assert run(previewing, "gelu", "softmax", "ddp", **fake.does(program)).returncode == 0
    seen = [
        Results.model_validate_json((previewing / "results" / f"results.json.{problem}").read_text())
        for problem in ("gelu", "softmax", "ddp")
    ]
    assert [len(result.tests) for result in seen] == [0, 1, 2]
    assert [result.output.splitlines()[-1] for result in seen] == [
        "Not checked: gelu, softmax, ddp.", "Not checked: softmax, ddp.", "Not checked: ddp.",
    ]  # fmt: skip
    last = result_of(previewing)
    assert (last.score, [test.number for test in last.tests]) == (3.0, ["1.1", "2.1", "3.1"])
    assert "Not checked" not in last.output


def test_without_names_all_problems_are_checked(previewing, fake):
    assert run(previewing, **fake.does("check('pass')\n")).returncode == 0
    assert [test.name for test in result_of(previewing).tests] == [f"{problem}: A." for problem in RUBRIC.problems]


def test_where_the_time_runs_out_the_rest_is_named(previewing, fake):
    program = "check('pass') if problem == 'gelu' else time.sleep(60)\n"
    done = run(previewing, "gelu", "softmax", "ddp", PREVIEW_LIMIT_S="2", **fake.does(program))
    assert done.returncode == 0
    result = result_of(previewing)
    assert [test.name for test in result.tests] == ["gelu: A."]
    assert result.output.splitlines()[-2:] == [
        "The time ran out: run the self-check on your own machine for the rest.", "Not checked: softmax, ddp.",
    ]  # fmt: skip


@pytest.mark.parametrize(("program", "said"), [
    ("check('pass') if problem == 'gelu' else check('grader_error')\n", "The grader itself failed in softmax.a."),
    ("check('pass') if problem == 'gelu' else sys.exit(3)\n", "ended with 3 and without a result."),
    ("check('pass') if problem == 'gelu' else open(file, 'w').write('{')\n", "cannot be read (JSONDecodeError)."),
    ("check('pass') if problem == 'gelu' else open(file, 'w').write('{}')\n", "cannot be read (KeyError)."),
])  # fmt: skip
def test_for_our_own_faults_no_result_is_left(previewing, fake, program, said):
    done = run(previewing, "gelu", "softmax", **fake.does(program))
    assert (done.returncode, done.stderr) == (3, "")
    assert said in done.stdout
    assert os.listdir(previewing / "results") == []


def test_a_submission_that_is_refused_is_told_why(previewing, fake):
    program = "print('The submission is refused: it has no modules.', file=sys.stderr)\nsys.exit(1)\n"
    assert run(previewing, "gelu", "softmax", **fake.does(program)).returncode == 0
    result = result_of(previewing)
    assert (result.score, result.tests) == (0.0, [])
    assert result.output.splitlines()[2:] == ["The submission is refused: it has no modules."]


def test_a_skipped_check_has_no_status_and_no_score_and_a_bonus_is_on_top(previewing, fake):
    program = "check('skipped', message='Needs a GPU') if problem == 'gelu' else check('pass', bonus=True)\n"
    run(previewing, "gelu", "ddp", **fake.does(program))
    skipped, bonus = json.loads((previewing / "results" / "results.json").read_text())["tests"]
    assert not {"score", "status"} & set(skipped)
    assert (bonus["score"], bonus["max_score"], bonus["status"]) == (1.0, 0.0, "passed")


def test_text_is_capped(previewing, fake):
    run(
        previewing,
        *RUBRIC.problems,
        *RUBRIC.problems,
        **fake.does("check('fail', message='HEAD' + 20000 * 'é' + 'TAIL')\n"),
    )
    outputs = [test.output for test in result_of(previewing).tests]
    assert outputs[0].startswith("HEAD")
    assert outputs[0].endswith("TAIL")
    assert "[31816 bytes left out]" in outputs[0]  # of 40 008, less 8192
    assert all(output.count("é") * 2 <= 8192 for output in outputs)
    assert sum(output.count("é") * 2 for output in outputs) <= 65536
