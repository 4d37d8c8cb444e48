"""Batches with results that are made up (`recorded.py`): driver, engines, gradebook, resume, and what follows."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from grader.batch import regrade, reviews, trees, validity
from grader.batch.admission import admit
from grader.batch.engines import MOST_REPLY_BYTES, Engine, EngineError, Job, Slot
from grader.batch.gradebook import Gradebook, GradebookError, State
from grader.batch.grades import graded
from grader.batch.inline import Inline
from grader.batch.intake import Report, Status, take_in
from grader.batch.layouts import Student
from grader.batch.local import Local, slots_of
from grader.batch.lock import Locked, locked
from grader.batch.rejected import Code
from grader.batch.results import result_of
from grader.batch.session import Ended, Session, probes
from grader.doctor import Gpu, Machine
from grader.judge import conclude
from grader.judge.verdict import Verdict
from grader.reports.write import write_reports
from grader.result import Place
from grader.rubric import Rubric

from . import recorded
from .conftest import ROOT, STAFF, is_running
from .reported import a_result

RUBRIC = Rubric.read()
KNOWN = [f"{problem}.py" for problem in RUBRIC.problems]
ALL = tuple(RUBRIC.problems)
FAKE = (sys.executable, str(STAFF / "fake_supervisor.py"))
NO_PAUSES = (0.0, 0.0)


class Recording(Inline):
    """An engine with made-up results, which remembers what it was asked for."""

    def __init__(self, answer: Callable[[Job, Slot], str] = recorded.answer, **options: object) -> None:
        self.asked: list[str] = []
        self.busy: set[str] = set()
        self.two_at_once = False
        self.answer_with = answer
        super().__init__(self.noted, **options)  # type: ignore[arg-type]

    def noted(self, job: Job, slot: Slot) -> str:
        self.two_at_once |= slot.name in self.busy
        self.busy.add(slot.name)
        self.asked.append(job.submission)
        try:
            return self.answer_with(job, slot)
        finally:
            self.busy.discard(slot.name)

    @property
    def theirs(self) -> list[str]:
        """What was asked for, without probes."""
        return [name for name in self.asked if name.startswith("plain-")]


@pytest.fixture
def handed_in(tmp_path) -> Callable[..., Path]:
    """A folder of submissions: `handed_in(ada="fail gelu.sizes", bob="")`."""

    def write(**orders: str) -> Path:
        folder = tmp_path / "handed in"
        for name, lines in orders.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name / "gelu.py").write_text(lines + "\n")
        return folder

    return write


@contextmanager
def session(grades: Path, problems: Sequence[str] = ALL) -> Iterator[Session]:
    grades.mkdir(parents=True, exist_ok=True)
    with locked(grades):
        book = Gradebook.create(grades)
        one = Session(book, grades, RUBRIC, Console(quiet=True), tuple(problems), NO_PAUSES)
        one.open()
        yield one
        book.close()


def batch(folder: Path, grades: Path, engine: Engine, problems: Sequence[str] = ALL) -> Ended:
    """What the command does."""
    with session(grades, problems) as one:
        admit(one.book, grades, take_in(folder, KNOWN))
        kind = engine.slots()[0].kind
        return one.run(one.lacking(one.counting(), kind), engine)


def results(grades: Path) -> dict[str, object]:
    """The stable part of each result, by submission and attempt."""
    book = Gradebook.open(grades)
    found = {}
    for one in graded(book, RUBRIC):
        if one.result:
            checks = [check.model_dump(exclude={"time_s"}) for check in one.result.checks]
            found[one.submission, one.attempt] = (checks, one.result.score, one.result.submission)
    book.close()
    return found


def states(grades: Path, name: str) -> list[str]:
    book = Gradebook.open(grades)
    found = [run.state for row in book.attempts() if row.name == name for run in book.runs(row)]
    book.close()
    return found


# Engines and driver


def test_every_submission_gets_a_result_and_no_slot_has_two_jobs_at_once(handed_in, tmp_path):
    folder = handed_in(**{f"s{number}": "seconds 0.02" for number in range(20)})
    engine = Recording(slots=2)
    ended = batch(folder, tmp_path / "grades", engine)
    assert ended == Ended(False, False, tuple(sorted(ended.runs)))
    assert len(results(tmp_path / "grades")) == 20
    assert len(engine.theirs) == len(set(engine.theirs)) == 20
    assert not engine.two_at_once


def test_the_oldest_submission_goes_first(handed_in, tmp_path):
    folder = handed_in(a="", b="", c="")
    times = {"a": "2026-10-03", "b": "2026-10-01", "c": "2026-10-02"}
    metadata = {
        f"submission_{name}": {":submitters": [], ":created_at": f"{day} 12:00:00 Z"} for name, day in times.items()
    }
    for name in times:
        (folder / name).rename(folder / f"submission_{name}")
    (folder / "submission_metadata.yml").write_text(json.dumps(metadata))
    engine = Recording()
    batch(folder, tmp_path / "grades", engine)
    assert [name for name in engine.asked if name.startswith("gradescope")] == [f"gradescope-{name}" for name in "bca"]


def test_a_second_batch_runs_only_what_changed(handed_in, tmp_path):
    folder = handed_in(ada="", bob="", carl="")
    batch(folder, tmp_path / "grades", Recording())
    handed_in(bob="fail gelu.sizes", dora="")
    again = Recording()
    batch(folder, tmp_path / "grades", again)
    assert {name.split("-")[1] for name in again.theirs} == {"bob", "dora"}
    third = Recording()
    batch(folder, tmp_path / "grades", third)
    assert third.asked == []


def test_problems_can_be_graded_one_after_the_other(handed_in, tmp_path):
    folder = handed_in(ada="")
    seen: list[tuple[str, ...]] = []

    def answer(job: Job, slot: Slot) -> str:
        if job.submission.startswith("plain"):
            seen.append(job.problems)
        return recorded.answer(job, slot)

    batch(folder, tmp_path / "grades", Recording(answer), ["gelu"])
    ((checks, score, _),) = results(tmp_path / "grades").values()
    assert ({check["problem"] for check in checks}, score.complete) == ({"gelu"}, False), (
        "no grade of one problem alone"
    )
    batch(folder, tmp_path / "grades", Recording(answer))
    assert seen == [("gelu",), tuple(problem for problem in ALL if problem != "gelu")]
    (checks, score, _), *_ = results(tmp_path / "grades").values()
    assert {check["problem"] for check in checks} == set(ALL)
    assert (
        score.raw
        == score.max
        == sum(points for name, points in RUBRIC.points.items() if RUBRIC.entry(name).bonus is None)
    )


def test_what_was_skipped_for_want_of_a_gpu_runs_on_one_and_not_again_without(handed_in, tmp_path):
    folder = handed_in(ada="skip gelu.speed_bfloat16")
    batch(folder, tmp_path / "grades", Recording())
    handed_in(ada="skip gelu.speed_bfloat16")
    on_gpu, on_cpu = Recording(kinds=["NVIDIA H200"]), Recording()
    batch(folder, tmp_path / "grades", on_gpu)
    batch(folder, tmp_path / "grades", on_cpu)
    assert (len(on_gpu.theirs), len(on_cpu.theirs)) == (1, 0)


def test_what_fails_by_our_fault_runs_three_times_at_most(handed_in, tmp_path):
    folder = handed_in(ada="grader_error gelu.sizes", bob="")
    engine = Recording()
    batch(folder, tmp_path / "grades", engine)
    assert len([name for name in engine.theirs if "ada" in name]) == 3
    again = Recording()
    batch(folder, tmp_path / "grades", again)
    assert again.theirs == []
    book = Gradebook.open(tmp_path / "grades")
    attention = {one.submission: one.attention for one in graded(book, RUBRIC) if one.attention}
    (said,) = attention.values()
    assert said.startswith("checks ended in errors of the grader's, while others pass on the same slot")


def test_the_first_whole_result_is_kept_after_an_error_of_ours(handed_in, tmp_path):
    folder, tried = handed_in(ada=""), []

    def answer(job: Job, slot: Slot) -> str:
        if job.submission.startswith("plain"):
            tried.append(job)
            if len(tried) == 1:
                raise EngineError("the worker is gone")
            if len(tried) == 2:
                files = {"gelu.py": b"grader_error gelu.sizes"}
                return recorded.answer(
                    Job(job.submission, 1, files, job.tree_sha256, job.checks_sha256, job.problems, 1.0)
                )
        return recorded.answer(job, slot)

    batch(folder, tmp_path / "grades", Recording(answer))
    assert states(tmp_path / "grades", "ada") == ["failed", "done", "done"]
    (_, score, _), *_ = results(tmp_path / "grades").values()
    assert score.complete


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (lambda said: "no json", "what came back is no result"),
        (lambda said: json.dumps(said | {"schema": "grader.result/2"}), "what came back is no result"),
        (lambda said: json.dumps(said | {"submission": said["submission"] | {"id": "other"}}), "is that of other"),
        (lambda said: json.dumps(said | {"submission": said["submission"] | {"tree_sha256": "0"}}), "of other files"),
        (lambda said: json.dumps(said | {"grader": said["grader"] | {"checks_sha256": "0"}}), "of other checks"),
        (lambda said: json.dumps(said | {"run": said["run"] | {"stopped": True}}), "was stopped"),
        (lambda said: json.dumps(said) + " " * (5 << 20), "more than 4 MiB"),
    ],
)
def test_an_answer_that_is_none_is_ours(handed_in, tmp_path, changed, words):
    def answer(job: Job, slot: Slot) -> str:
        text = recorded.answer(job, slot)
        return changed(json.loads(text)) if "ada" in job.submission else text

    batch(handed_in(ada="", bob=""), tmp_path / "grades", Recording(answer))
    assert states(tmp_path / "grades", "ada") == ["failed"] * 3
    assert states(tmp_path / "grades", "bob") == ["done"]
    book = Gradebook.open(tmp_path / "grades")
    (row,) = [row for row in book.attempts() if row.name == "ada"]
    assert words in book.runs(row)[0].error


def test_a_slot_that_cannot_grade_the_solutions_is_set_aside(handed_in, tmp_path):
    def answer(job: Job, slot: Slot) -> str:
        broken = slot.name == "inline/0"
        return recorded.answer(replace(job, files={"gelu.py": b"crash gelu.sizes"}) if broken else job, slot)

    engine = Recording(answer, slots=2)
    ended = batch(handed_in(ada="", bob=""), tmp_path / "grades", engine)
    assert not ended.without_slots
    assert len(results(tmp_path / "grades")) == 2
    book = Gradebook.open(tmp_path / "grades")
    assert any("inline/0 is set aside: solutions got `crash`" in note for note in book.notes())


def test_a_slot_that_gives_points_to_stubs_is_set_aside_and_none_is_left(handed_in, tmp_path):
    def answer(job: Job, slot: Slot) -> str:
        return recorded.answer(replace(job, files={}))

    engine = Recording(answer)
    ended = batch(handed_in(ada=""), tmp_path / "grades", engine)
    assert ended.without_slots
    assert engine.theirs == []


def test_two_faults_in_a_row_have_a_slot_tried_again(handed_in, tmp_path):
    engine = Recording()
    batch(handed_in(ada="grader_error gelu.sizes", bob="grader_error gelu.sizes"), tmp_path / "grades", engine)
    assert engine.asked.count("solutions") >= 2


def test_an_answer_that_comes_twice_is_dropped_with_a_note(handed_in, tmp_path):
    folder, grades = handed_in(ada=""), tmp_path / "grades"
    batch(folder, grades, Recording())
    book = Gradebook.create(grades)
    (row,) = book.attempts()
    (run,) = book.runs(row)
    assert not book.end(run.number, State.DONE, "{}")
    assert f"run {run.number} ended twice" in book.notes()[-1]
    assert result_of(book, row, RUBRIC)


# The local engine


def local(tmp_path: Path, slots: int = 2, **options: object) -> Local:
    cores = sorted(os.sched_getaffinity(0))
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    names = [Slot(f"here/{number}", "cpu", None, (cores[number % len(cores)],)) for number in range(slots)]
    return Local(names, scratch, command=FAKE, **options)  # type: ignore[arg-type]


def test_local_jobs_have_the_cores_of_their_slot_and_no_gpu(handed_in, tmp_path):
    engine = local(tmp_path)
    batch(handed_in(**{f"s{number}": "" for number in range(6)}), tmp_path / "grades", engine)
    book = Gradebook.open(tmp_path / "grades")
    seen = [json.loads(one.result.run.host) for one in graded(book, RUBRIC)]
    assert len(seen) == 6
    allowed = {slot.cpus for slot in engine.slots()}
    assert {tuple(one["cpus"]) for one in seen} <= allowed
    assert {one["gpu"] for one in seen} == {""}


def test_a_supervisor_that_is_killed_costs_its_job_one_run_and_no_other_notices(handed_in, tmp_path):
    flag = tmp_path / "flag"
    folder = handed_in(ada=f"dies once {flag}", bob="", carl="")
    batch(folder, tmp_path / "grades", local(tmp_path))
    assert [states(tmp_path / "grades", name) for name in ("ada", "bob", "carl")] == [
        ["failed", "done"],
        ["done"],
        ["done"],
    ]


@pytest.mark.parametrize("letter", ["x", '"', "\u4e2d", "\U0001f600"])
def test_a_result_is_short_enough_whatever_a_submission_says_in_each_check(letter):
    """Or who prints enough would get an error of ours in the place of no points."""
    flood = {
        "message": letter * 8000, "why": letter * 8000, "detail": letter * 8000, "printed": letter * 96_000,
        "where": Place(file=letter * 1000, line=1),
    }  # fmt: skip
    result = a_result(dict.fromkeys(RUBRIC.problems, Verdict.FAIL))
    checks = conclude.fitted([check.model_copy(update=flood) for check in result.checks])
    said = result.model_copy(update={"checks": tuple(checks)}).model_dump_json(by_alias=True)
    assert len(json.dumps(json.loads(said))) < MOST_REPLY_BYTES
    assert checks[0].message == flood["message"]
    assert letter * 1000 in checks[0].printed


def test_what_fits_into_a_result_stays_as_it_is():
    checks = list(a_result(dict.fromkeys(RUBRIC.problems, Verdict.FAIL)).checks)
    assert conclude.fitted(checks) == checks


@pytest.mark.parametrize(
    ("order", "words"),
    [
        ("dies always", "ended with -9, without a result. It printed last:\nthe end is near"),
        ("says garbage", "the supervisor's words are none"),
        ("says much", "more than 4 MiB in one line"),
        ("says error", "the checks here are others"),
    ],
)
def test_what_a_supervisor_cannot_say_is_ours_and_harms_no_other(handed_in, tmp_path, order, words):
    folder = handed_in(ada=order, bob="")
    batch(folder, tmp_path / "grades", local(tmp_path))
    assert states(tmp_path / "grades", "ada") == ["failed"] * 3
    assert states(tmp_path / "grades", "bob") == ["done"]
    book = Gradebook.open(tmp_path / "grades")
    (row,) = [row for row in book.attempts() if row.name == "ada"]
    assert words in book.runs(row)[0].error


def test_a_silent_supervisor_is_killed(tmp_path):
    engine = local(tmp_path, slots=1)
    (slot,) = engine.slots()
    job = Job("ada", 1, {"gelu.py": b"says nothing"}, "", "", ALL, deadline_s=1.0)
    pids: list[int] = []
    future = engine.submit(job, slot, lambda *_: pids.append(engine._running[slot.name].pid))
    with pytest.raises(EngineError, match="said nothing for 1 s"):
        future.result(timeout=30)
    assert pids
    assert not is_running(pids[0])


def test_closing_with_a_kill_leaves_no_process(tmp_path):
    engine = local(tmp_path, slots=1)
    (slot,) = engine.slots()
    told = threading.Event()
    pids: list[int] = []
    job = Job("ada", 1, {"gelu.py": b"says nothing"}, "", "", ALL, deadline_s=600.0)
    future = engine.submit(job, slot, lambda *_: (pids.append(engine._running[slot.name].pid), told.set()))
    assert told.wait(30)
    engine.close(kill=True)
    assert not is_running(pids[0])
    with pytest.raises(EngineError):
        future.result(timeout=1)


def test_slots_are_groups_of_cores_that_do_not_overlap():
    found = slots_of(Machine.here(), 1)
    assert len(found) == 1
    cores = sorted(os.sched_getaffinity(0))
    groups = [slot.cpus for slot in slots_of(Machine.here(), len(cores)) if slot.kind == "cpu"]
    assert not groups or sorted(core for group in groups for core in group) == cores


def test_a_busy_gpu_is_no_slot(monkeypatch):
    monkeypatch.setattr("grader.batch.local.uses_gpu", lambda machine: True)
    gpus = tuple(Gpu("NVIDIA H200", (9, 0), 227 << 10, 1 << 37, uuid) for uuid in ("GPU-a", "GPU-b"))
    machine = replace(Machine.here(), gpus=gpus)
    found = slots_of(machine, busy=lambda gpu: "3 processes compute on it" if gpu.uuid == "GPU-a" else "")
    assert [(slot.gpu, slot.kind) for slot in found] == [("GPU-b", "NVIDIA H200")]
    assert slots_of(machine, busy=lambda gpu: "busy") == []


# Interruptions

DRIVEN = """
import sys
from pathlib import Path

sys.path.insert(0, {root!r})
from tests.staff.test_batch import Recording, batch, recorded

log = open({log!r}, "a", buffering=1)

def answer(job, slot):
    if job.submission.startswith("plain"):
        log.write(f"{{job.submission}}\\n")
    return recorded.answer(job, slot)

ended = batch(Path({folder!r}), Path({grades!r}), Recording(answer, slots=2))
sys.exit(130 if ended.stopped else 0)
"""


@pytest.fixture
def driven(tmp_path) -> Callable[[Path, Path], subprocess.Popen[bytes]]:
    """A batch in a process of its own, which writes what it runs to a log."""

    def start(folder: Path, grades: Path) -> subprocess.Popen[bytes]:
        source = DRIVEN.format(root=str(ROOT), log=str(tmp_path / "log"), folder=str(folder), grades=str(grades))
        return subprocess.Popen([sys.executable, "-c", source], cwd=ROOT, start_new_session=True)

    return start


def test_a_killed_driver_loses_nothing_and_repeats_nothing_that_was_finished(handed_in, driven, tmp_path):
    folder = handed_in(
        **{f"s{number}": f"seconds 0.3\nfail {check[0]}" for number, check in enumerate(recorded.checks()[:24])}
    )
    grades, finished = tmp_path / "grades", 0
    for _ in range(10):
        process = driven(folder, grades)
        time.sleep(random.uniform(1.5, 3.0))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if (grades / "gradebook.sqlite").is_file():
            book = Gradebook.open(grades)
            done = sum(run.state is State.DONE for row in book.attempts() for run in book.runs(row))
            book.close()
            assert done >= finished
            finished = done
    assert driven(folder, grades).wait() == 0
    batch(folder, tmp_path / "undisturbed", Recording(slots=2))
    assert results(grades) == results(tmp_path / "undisturbed")
    book = Gradebook.open(grades)
    for row in book.attempts():
        assert [run.state for run in book.runs(row)].count(State.DONE) == 1
    runs = (tmp_path / "log").read_text().split()
    lost = sum(run.state is State.LOST for row in book.attempts() for run in book.runs(row))
    assert len(runs) <= 24 + lost


def test_ctrl_c_lets_what_runs_end_and_the_next_batch_goes_on(handed_in, driven, tmp_path):
    folder = handed_in(**{f"s{number}": "seconds 0.5" for number in range(12)})
    process = driven(folder, tmp_path / "grades")
    while not (tmp_path / "log").exists() or not (tmp_path / "log").read_text():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=20) == 130
    began = len((tmp_path / "log").read_text().split())
    assert 0 < began < 12
    assert len(results(tmp_path / "grades")) == began
    assert driven(folder, tmp_path / "grades").wait() == 0
    assert len((tmp_path / "log").read_text().split()) == 12


class KilledAt(Recording):
    """While a job whose name begins so runs, Ctrl-C is pressed twice; two signals, since equal ones may become one."""

    def __init__(self, beginning: str) -> None:
        self.killed = threading.Event()

        def answer(job: Job, slot: Slot) -> str:
            if not job.submission.startswith(beginning):
                return recorded.answer(job, slot)
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            assert self.killed.wait(20)
            raise EngineError("the supervisor ended with -9")

        super().__init__(answer)

    def close(self, kill: bool = False) -> None:
        if kill:
            self.killed.set()
        super().close(kill)


@pytest.mark.parametrize(("beginning", "lost"), [("plain-", validity.MOST_RUNS), ("solutions", 0)])
def test_ctrl_c_twice_is_no_fault_of_a_slot_or_a_job_however_often(handed_in, tmp_path, beginning, lost):
    folder, grades = handed_in(ada=""), tmp_path / "grades"
    for _ in range(validity.MOST_RUNS):
        ended = batch(folder, grades, KilledAt(beginning))
        assert ended.stopped
        assert not ended.without_slots
    batch(folder, grades, Recording())
    assert states(grades, "ada") == ["lost"] * lost + ["done"]


def test_a_second_batch_on_the_same_folder_stops_with_the_holder(tmp_path):
    with locked(tmp_path), pytest.raises(Locked, match=f"process {os.getpid()} on "), locked(tmp_path):
        pass


# What follows from a gradebook


def test_decisions_count_for_the_same_files_and_reason_and_survive_a_regrade(handed_in, tmp_path):
    folder, grades = handed_in(ada="review gelu.sizes", bob="review gelu.sizes"), tmp_path / "grades"
    batch(folder, grades, Recording())
    book = Gradebook.open(grades)
    ada, bob = (row for row in book.attempts())
    assert ada.tree_sha256 == bob.tree_sha256
    assert not result_of(book, ada, RUBRIC).score.complete
    assert reviews.decide(book, RUBRIC, ada.submission, "gelu", "reject", "calls torch") == ["gelu.sizes"]
    for row in (ada, bob):
        found = {check.id: check for check in result_of(book, row, RUBRIC).checks}
        assert (found["gelu.sizes"].score, found["gelu.sizes"].review.decision) == (0, "reject")
        assert found["gelu.speed_bfloat16"].score == 0, "speed counts where its checks stand"
    with session(grades) as one:
        one.run(one.everything([ada]), Recording(), held=True)
        one.book.take(one.book.held([ada]))
        assert result_of(one.book, ada, RUBRIC).score.complete


def test_another_reason_needs_another_decision(handed_in, tmp_path):
    grades = tmp_path / "grades"
    batch(handed_in(ada="review gelu.sizes"), grades, Recording())
    book = Gradebook.open(grades)
    (row,) = book.attempts()
    book.decide(row.tree_sha256, "gelu.sizes", "faster than this GPU can be", "accept", "seen")
    assert not result_of(book, row, RUBRIC).score.complete


def test_a_regrade_counts_once_somebody_takes_it_and_shows_drops_first(handed_in, tmp_path):
    grades = tmp_path / "grades"
    batch(handed_in(ada="", bob="fail gelu.sizes"), grades, Recording())
    turned = {"ada": {"gelu.py": b"fail softmax.columns"}, "bob": {"gelu.py": b""}}

    def other(job: Job, slot: Slot) -> str:
        files = next((files for name, files in turned.items() if name in job.submission), job.files)
        return recorded.answer(replace(job, files=files))

    with session(grades) as one:
        rows = one.counting()
        before = {row.submission: result_of(one.book, row, RUBRIC).score for row in rows}
        one.run(one.everything(rows), Recording(other), held=True)
        assert {row.submission: result_of(one.book, row, RUBRIC).score for row in rows} == before
        found = regrade.changes(one.book, rows, RUBRIC)
        gains = [change.gain for change in found]
        assert gains == sorted(gains)
        assert gains[0] < 0 < gains[-1]
        one.book.take(one.book.held(rows))
        assert {row.submission: result_of(one.book, row, RUBRIC).score for row in rows} != before


def test_points_follow_the_rubric_without_a_run(handed_in, tmp_path):
    grades = tmp_path / "grades"
    batch(handed_in(ada="fail gelu.sizes"), grades, Recording())
    public = RUBRIC.public.model_copy(deep=True)
    void = public.problems["gelu"].checks["sizes"].model_copy(update={"void": "its hint was wrong"})
    checks = {**public.problems["gelu"].checks, "sizes": void}
    problem = public.problems["gelu"].model_copy(update={"checks": checks})
    other = Rubric(public.model_copy(update={"problems": {**public.problems, "gelu": problem}}), RUBRIC.hidden, "other")
    book = Gradebook.open(grades)
    (row,) = book.attempts()
    before, after = (result_of(book, row, rubric).score for rubric in (RUBRIC, other))
    assert before.raw < after.raw == after.max
    assert validity.Validity(RUBRIC).lacking(row, book.runs(row), ALL, "cpu") == []
    assert validity.Validity(other).lacking(row, book.runs(row), ALL, "cpu") == []


def test_a_student_who_is_in_a_group_twice_takes_no_other_members_place(tmp_path, handed_in):
    """Two accounts of one student, who both are their row of the roster."""
    ada, bob, grades = Student(sid="1"), Student(sid="2"), tmp_path / "grades"
    came_in = take_in(handed_in(group="", bob="fail gelu.sizes"), KNOWN)
    of = {"group": (ada, ada, bob), "bob": (bob,)}
    times = {"group": datetime(2026, 10, 1, tzinfo=UTC), "bob": datetime(2026, 10, 2, tzinfo=UTC)}
    entries = [
        replace(one.entry, students=of[one.entry.name], submitted_at=times[one.entry.name])
        for one in came_in.submissions
    ]
    submissions = tuple(replace(one, entry=entry) for one, entry in zip(came_in.submissions, entries, strict=True))
    with session(grades) as one:
        admit(one.book, grades, replace(came_in, submissions=submissions))
        found = {found.submission: {who.sid for who in found.graded_students} for found in graded(one.book, RUBRIC)}
        assert sorted(map(sorted, found.values())) == [["1"], ["2"]]


def test_a_changed_limit_makes_a_result_stale(handed_in, tmp_path):
    grades = tmp_path / "grades"
    batch(handed_in(ada=""), grades, Recording())
    book = Gradebook.open(grades)
    (row,) = book.attempts()
    other = Rubric(RUBRIC.public.model_copy(update={"limit_s": 1234.0}), RUBRIC.hidden, RUBRIC.sha256)
    assert validity.Validity(other).lacking(row, book.runs(row), ALL, "cpu") == list(ALL)


def test_the_time_of_an_attempt_is_written_once(handed_in, tmp_path):
    grades = tmp_path / "grades"
    folder = handed_in(submission_1="")

    def metadata(time: str) -> None:
        said = {"submission_1": {":submitters": [{":sid": "7"}], ":created_at": time}}
        (folder / "submission_metadata.yml").write_text(json.dumps(said))

    metadata("2026-10-01 12:00:00 Z")
    batch(folder, grades, Recording())
    metadata("2026-10-09 12:00:00 Z")
    batch(folder, grades, Recording())
    book = Gradebook.open(grades)
    assert [(row.attempt, row.submitted_at.day) for row in book.attempts()] == [(1, 1), (2, 9)]


@pytest.mark.parametrize("code", [Code.IO, Code.GRADER_ERROR])
def test_what_could_not_be_read_gives_its_time_to_no_other_attempt(handed_in, tmp_path, code):
    """Or something unreadable, handed in on time, would lend its time to what comes when it is too late."""
    came_in = take_in(handed_in(eve=""), KNOWN)
    (eve,) = came_in.submissions
    on_time, late = (datetime(2026, 10, day, tzinfo=UTC) for day in (1, 9))

    def handed_in_at(time: datetime, **fields: object) -> Report:
        return replace(came_in, submissions=(replace(eve, entry=replace(eve.entry, submitted_at=time), **fields),))

    unreadable = handed_in_at(on_time, status=Status.REJECTED, code=code, tree=None)
    with session(tmp_path / "grades") as one:
        for report in (unreadable, unreadable, handed_in_at(on_time), handed_in_at(late)):
            admit(one.book, one.grades, report)
        assert [(row.attempt, row.submitted_at, row.status) for row in one.book.attempts()] == [
            (1, on_time, "ok"), (2, late, "ok"),
        ]  # fmt: skip
    with session(tmp_path / "other grades") as one:
        for report in (unreadable, handed_in_at(late)):
            admit(one.book, one.grades, report)
        assert [(row.attempt, row.submitted_at) for row in one.book.attempts()] == [(1, on_time), (2, late)]


def test_a_missing_student_has_a_row_until_they_hand_in(tmp_path, handed_in):
    grades, folder = tmp_path / "grades", handed_in(ada="")
    came_in = take_in(folder, KNOWN)
    with session(grades) as one:
        admit(one.book, grades, replace(came_in, absent=(Student(sid="7", name="No"),)))
        (row,) = [row for row in one.book.attempts() if row.source == "roster"]
        result = result_of(one.book, row, RUBRIC)
        assert (result.score.raw, result.score.complete, result.submission.intake.status) == (0, True, "no_submission")
        assert {check.verdict for check in result.checks} == {Verdict.TODO}
        assert len(result.checks) == len(RUBRIC.points)
        admit(one.book, grades, came_in)
        assert all(row.source != "roster" for row in one.book.attempts())


def test_a_module_by_another_name_has_somebody_look_and_its_student_reads_the_hint(tmp_path):
    folder = tmp_path / "handed in" / "ada"
    folder.mkdir(parents=True)
    (folder / "Gelu.py").write_text("def gelu(x): ...\n")
    batch(folder.parent, tmp_path / "grades", Recording())
    (one,) = graded(Gradebook.open(tmp_path / "grades"), RUBRIC)
    assert "is it Gelu.py?" in one.attention
    said = {check.id: check.message for check in one.result.checks}
    assert said["gelu.sizes"] == "no known module is there. there is no gelu.py: is it Gelu.py?"
    assert "Gelu" not in said["softmax.columns"]
    assert "ask for" not in "".join(said.values())


def test_an_attempt_that_gives_nobody_a_grade_needs_no_person(tmp_path, handed_in):
    folder, grades = tmp_path / "handed in", tmp_path / "grades"
    folder.mkdir()
    (folder / "ada.zip").write_bytes(b"Rar!\x1a\x07\x00")
    batch(folder, grades, Recording())
    assert [bool(one.attention) for one in graded(Gradebook.open(grades), RUBRIC)] == [True]
    with zipfile.ZipFile(folder / "ada.zip", "w") as archive:
        archive.writestr("gelu.py", "")
    batch(folder, grades, Recording())
    found = list(graded(Gradebook.open(grades), RUBRIC))
    assert [(one.counts, bool(one.attention)) for one in found] == [(False, False), (True, False)]


def test_a_tree_that_somebody_has_changed_is_not_graded_and_all_others_are(handed_in, tmp_path):
    grades, engine = tmp_path / "grades", Recording()
    with session(grades) as one:
        admit(one.book, grades, take_in(handed_in(ada="", bob="seconds 0", carl="seconds 0.0"), KNOWN))
        ada, bob, _ = one.book.attempts()
        (grades / "trees" / ada.tree_sha256 / "assignment" / "gelu.py").write_text("changed\n")
        shutil.rmtree(grades / "trees" / bob.tree_sha256)
        one.run(one.lacking(one.counting(), "cpu"), engine)
        assert "is not what was handed in" in one.book.runs(ada)[0].error
    assert states(grades, "ada") == states(grades, "bob") == ["failed"] * 3
    assert states(grades, "carl") == ["done"]
    assert not {ada.submission, bob.submission} & set(engine.asked)


@pytest.mark.parametrize(("kind", "mode"), [("nfs4", "delete"), ("ext4", "wal"), ("fuse.sshfs", "delete")])
def test_a_gradebook_on_another_machines_disk_shares_no_memory(tmp_path, monkeypatch, kind, mode):
    mounts = f"overlay / overlay rw 0 0\nserver:/home {tmp_path} {kind} rw 0 0\n"
    read = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **options: mounts if path.name == "mounts" else read(path, **options)
    )
    (tmp_path / "grades").mkdir()
    book = Gradebook.create(tmp_path / "grades")
    assert book.connection.execute("PRAGMA journal_mode").fetchone()[0] == mode


def test_a_gradebook_of_another_schema_is_refused(tmp_path):
    book = Gradebook.create(tmp_path)
    book.connection.execute("PRAGMA user_version = 99")
    book.close()
    with pytest.raises(GradebookError, match="has schema 99, and this grader knows 1"):
        Gradebook.open(tmp_path)
    with pytest.raises(GradebookError, match=r"there is no gradebook\.sqlite"):
        Gradebook.open(tmp_path / "elsewhere")


def test_three_hundred_submissions_take_no_more_memory_than_thirty(tmp_path, handed_in):
    grown = []
    folder = handed_in(**{f"s{number:03}": "" for number in range(30)})
    for number in (30, 300):
        handed_in(**{f"s{one:03}": "" for one in range(number)})
        batch(folder, tmp_path / "grades", Recording(slots=2))
        book = Gradebook.open(tmp_path / "grades")
        write_reports(graded(book, RUBRIC), RUBRIC, tmp_path / "report")
        book.close()
        assert len(list((tmp_path / "report" / "feedback").iterdir())) == number
        grown.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)  # KiB
    assert grown[1] - grown[0] < 40 << 10  # 270 results kept as objects take more: their JSON alone is 19 MiB
    assert len(results(tmp_path / "grades")) == 300


def test_probes_are_the_solutions_and_the_stubs():
    assert [(probe.name, probe.passes) for probe in probes()] == [("solutions", True), ("untouched stubs", False)]
    assert all(trees.read_sources(probe.folder) for probe in probes())
