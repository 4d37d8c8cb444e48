"""The commands as people meet them: exit codes, words, pipes, plain terminals, JSON, replay, `--here`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.doctor import Machine, can_run_kernels
from grader.result import Result
from tests.staff.conftest import ROOT, STAFF

pytestmark = pytest.mark.skipif(bool(can_run_kernels(Machine.here())), reason=str(can_run_kernels(Machine.here())))

OVERFLOW = STAFF / "submissions" / "wrong" / "gelu_overflow"


def run(*arguments: object, cwd: Path = ROOT, encoding: str = "utf-8", typed: str = "", **environment: str):
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        encoding=encoding,
        timeout=300,
        input=typed,
        env={name: value for name, value in os.environ.items() if name != "TERM"} | environment,
    )


def grader(*arguments: object, **environment: str):
    return run("-m", "grader", *arguments, **environment)


def test_untouched_stubs_are_to_do_without_a_stack_trace_and_end_with_1():
    done = grader()
    assert done.returncode == 1
    assert "0 of 111 public checks passed: 0.00 of" in done.stdout
    assert "todo  gelu: not written yet" in done.stdout
    assert "todo  softmax: not written yet" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert "fail" not in done.stdout.replace("failed", "")


def test_the_solutions_pass_and_the_result_is_written(tmp_path):
    done = grader("check", "gelu", "--submission", "solutions", "--json", tmp_path / "result.json")
    assert done.returncode == 0, done.stdout + done.stderr
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["schema"] == "grader.result/1"
    result = Result.model_validate(written)
    assert {check.verdict for check in result.checks} <= {"pass", "skipped"}
    assert all((check.seed is None) == (check.verdict == "skipped") for check in result.checks)
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]  # nothing half-written beside it


def test_a_failure_reads_well_on_a_plain_terminal_and_replays_with_its_command():
    done = grader("check", "gelu.large_values", "--submission", OVERFLOW, encoding="ascii",
                  PYTHONIOENCODING="ascii", NO_COLOR="1", COLUMNS="80")  # fmt: skip
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    [again] = [line for line in done.stdout.splitlines() if "again:" in line]
    other = [line for line in done.stdout.splitlines() if "again:" not in line]
    assert max(map(len, other)) <= 80
    assert "case: 2000 elements float32, values up to +-20" in done.stdout
    replayed = run(*again.partition("python ")[2].split())
    first, second = (
        [line for line in text.splitlines() if "wrong, the first" in line] for text in (done.stdout, replayed.stdout)
    )
    assert first == second != []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["check", "softmaks"], "There is no problem or check `softmaks`; did you mean `softmax`?"),
        (["check", "gelu.size"], "There is no problem or check `gelu.size`; did you mean `gelu.sizes`?"),
        (["check", "softmax.fast"], "There is no check `softmax.fast`; there are softmax.columns, softmax.long_rows"),
        (["check", "roofline"], "`roofline` is not built yet"),
        (["check", "softmax."], "There is no problem or check `softmax.`; did you mean `softmax`?"),
        (["check", "softmax.speed_foward"], "did you mean `softmax.speed_forward`?"),
        (["check", "--submission", "nowhere"], "There is no folder nowhere."),
        (["check", "gelu", "--json", "nowhere/result.json"], "There is no folder nowhere to write result.json to."),
        (["check", "--seed", "-1"], "seed"),
        (["grade", "solutions", "--here"], "--here"),
    ],
)
def test_a_wrong_command_is_one_sentence_and_ends_with_2(arguments, said):
    done = grader(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_grade_adds_hidden_checks_and_shows_a_student_no_more_than_title_and_hint(tmp_path):
    done = grader("grade", OVERFLOW, "--json", tmp_path / "result.json")
    assert done.returncode == 1
    assert "UNCONFINED" not in done.stderr
    result = Result.model_validate_json((tmp_path / "result.json").read_text())
    assert result.target.sandbox == "bwrap"
    hidden = [check for check in result.checks if check.visibility == "hidden" and check.verdict == "fail"]
    assert hidden
    for check in hidden:
        assert check.hint
        assert check.detail
        shown = (
            check.message,
            check.why,
            check.case,
            check.seed,
            check.cause,
            check.where,
            check.replay,
            check.printed,
        )
        assert not any(shown)


def test_grading_without_a_sandbox_has_to_be_asked_for_and_is_recorded(tmp_path):
    done = grader("grade", "--unsafe-no-sandbox", STAFF / "submissions" / "right" / "joined_stream", "--json",
                  tmp_path / "result.json")  # fmt: skip
    assert "UNCONFINED" in done.stderr
    assert "unconfined" in done.stdout
    result = Result.model_validate_json((tmp_path / "result.json").read_text())
    assert result.target.sandbox == "none"


@pytest.mark.parametrize("options", [["--sandbox"], ["--device", "cpu"]])
def test_a_student_can_ask_for_the_sandbox_and_the_device(tmp_path, options):
    done = grader("check", "gelu.large_values", "--submission", OVERFLOW, *options, "--json", tmp_path / "result.json")
    assert done.returncode == 1
    result = Result.model_validate_json((tmp_path / "result.json").read_text())
    assert result.target.sandbox == ("bwrap" if "--sandbox" in options else "none")
    assert result.target.device.startswith("cpu")
    assert " ".join(options) in result.checks[0].replay


def test_pytest_works_directly_and_says_which_package_it_checks():
    done = run("-m", "pytest", "tests/test_gelu.py", "-k", "test_sizes", "-o", f"submission={OVERFLOW}", "--seed", "1")
    assert done.returncode == 0
    assert f"submission: {OVERFLOW}" in done.stdout
    done = run("-m", "pytest", "tests/test_gelu.py", "-k", "test_large_values", "-o", f"submission={OVERFLOW}")
    assert done.returncode == 1
    assert "likely" not in done.stdout
    assert "got nan" in done.stdout
    assert "test_large_values" in done.stdout
    assert "def test_large_values" not in done.stdout  # words, not the checks' source


def test_here_runs_in_pytests_own_process_and_gives_no_verdict(tmp_path):
    shutil.copy(ROOT / "solutions" / "gelu.py", tmp_path / "gelu.py")
    with (tmp_path / "gelu.py").open("a") as file:
        file.write("\nimport os\n\n\ndef gelu(x):\n    print('in process', os.getpid())\n    raise KeyError('mine')\n")
    done = run(
        "-m", "pytest", "tests/test_gelu.py", "-k", "test_sizes and 127", "--here", "-o", f"submission={tmp_path}"
    )
    assert "Nothing below is a verdict" in done.stdout
    assert "in process" in done.stdout
    assert "KeyError: 'mine'" in done.stdout  # the student's own traceback
    assert "test_sizes" in done.stdout


def test_a_breakpoint_under_here_has_a_keyboard(tmp_path):
    (tmp_path / "gelu.py").write_text("def gelu(x):\n    breakpoint()\n    return x\n")
    arguments = ("tests/test_gelu.py", "-k", "test_sizes and 127", "--here", "-o", f"submission={tmp_path}")
    done = run("-m", "pytest", *arguments, typed="p 'typed', 6 * 7\nc\n")
    assert "('typed', 42)" in done.stdout
    assert "BdbQuit" not in done.stdout


def test_doctor_says_what_runs_here():
    done = grader("doctor", COLUMNS="80")
    assert done.returncode == 0, done.stdout
    assert "torch" in done.stdout


def test_a_refused_submission_is_one_sentence(tmp_path):
    with (tmp_path / "gelu.py").open("wb") as file:
        file.truncate(1 << 40)
    done = grader("check", "gelu", "--submission", tmp_path)
    assert (done.returncode, done.stderr) == (1, "The submission is refused: gelu.py has more than 1048576 bytes.\n")
    done = run("-m", "pytest", "tests/test_gelu.py", "-o", f"submission={tmp_path}")
    assert done.returncode == 4  # pytest's own code for usage
    assert "the submission is refused: gelu.py has more than 1048576 bytes" in done.stderr
    assert "Traceback" not in done.stderr
