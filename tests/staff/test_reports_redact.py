"""What students may see of a result: of hidden checks title and hint, of public ones what helps."""

import re
from decimal import Decimal

import pytest

from grader.judge.output import capped
from grader.judge.verdict import Verdict
from grader.reports.feedback import feedback_pages
from grader.reports.gradescope import results_json
from grader.reports.redact import CHECK_BYTES, SUBMISSION_BYTES, for_students
from grader.reports.strict import strict_json
from grader.result import (
    Advice,
    CheckResult,
    IntakeInfo,
    Place,
    Result,
    Review,
    Run,
    Score,
    StudentScore,
    SubmissionInfo,
)  # fmt: skip
from grader.rubric import Visibility
from tests.staff.reported import RUBRIC, a_check, a_result, a_student, graded

HIDDEN = "softmax.half_sums"
HINT = "the sum of a long row must be kept in float32"  # in grader/hidden/rubric.yaml
SECRET = "SECRET"
NUMBERS = {"seed": 918273645, "cases": 718239, "failed_cases": 618239, "runs": 418239, "time_s": 518239.5}

# What a hidden check may hold, every field of it.
MARKED = {
    "id": HIDDEN, "problem": "softmax", "title": "Long sums are right.", "visibility": Visibility.HIDDEN,
    "verdict": Verdict.FAIL, "score": Decimal(0), "max": Decimal("0.47"), "bonus": False, "void": None,
    "review": Review(reason="SECRET reason", evidence="SECRET evidence", decision="reject"),
    "message": "SECRET message", "why": "SECRET why", "hint": "SECRET hint", "detail": "SECRET detail",
    "printed": "SECRET printed", "case": "SECRET case", "cause": "SECRET cause",
    "where": Place(file="SECRET file", line=7), "replay": "SECRET replay", "speed": None, **NUMBERS,
}  # fmt: skip


def to_students(result: Result, *students: StudentScore) -> list[str]:
    """All that a student can get of a result."""
    outputs = [for_students(result, RUBRIC, *students[:1]).model_dump_json(), strict_json(results_json(result, RUBRIC))]
    return outputs + [page for _, page in feedback_pages(graded(result, *students), RUBRIC)]


def secrets_in(text: str) -> list[str]:
    return re.findall(f'{SECRET}[^<"]*|{"|".join(str(number) for number in NUMBERS.values())}', text)


def test_every_field_of_a_check_is_marked():
    assert set(MARKED) == set(CheckResult.model_fields)


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.GRADER_ERROR])
@pytest.mark.parametrize("void", [None, "SECRET void"])
def test_nothing_of_a_hidden_check_is_shown_but_title_hint_and_points(verdict, void):
    score = None if verdict is Verdict.SKIPPED and not void else Decimal(0)
    marked = CheckResult(**MARKED | {"verdict": verdict, "void": void, "score": score})
    outputs = to_students(a_result(checks=[marked]), a_student())
    assert len(outputs) == 3
    for output in outputs:
        assert secrets_in(output) == []
        assert "Long sums are right." in output
        failed = verdict not in (Verdict.PASS, Verdict.SKIPPED)
        assert (HINT in output) == failed


def test_of_an_open_review_of_a_hidden_check_only_the_decision_to_come_is_told():
    review = Review(reason="SECRET reason", evidence="SECRET evidence")
    marked = CheckResult(**MARKED | {"verdict": Verdict.PASS, "review": review, "score": None})
    for output in to_students(a_result(checks=[marked]), a_student(final=None)):
        assert secrets_in(output) == []
        assert "a person has to decide whether it counts" in output


@pytest.mark.parametrize(("decision", "said"), [
    (None, "a person has to decide whether it counts"), ("accept", "it counts"), ("reject", "it does not count"),
])  # fmt: skip
def test_a_student_reads_no_evidence_of_a_review_of_a_public_check(decision, said):
    review = Review(reason="SECRET reason", evidence="SECRET evidence", decision=decision)
    why = {"why": "SECRET why", "hint": "SECRET hint", "cause": "SECRET cause", "detail": "SECRET detail"}
    checks = [a_check("softmax.columns", review=review, **why)]
    for output in to_students(a_result(checks=checks), a_student()):
        assert secrets_in(output) == []
        assert said in output


def test_what_is_staffs_of_a_result_is_not_shown():
    """Notes of the intake, the machine's name and phases, details, paths of ours, who else is in the group."""
    result = a_result(
        checks=[a_check("gelu.sizes", Verdict.FAIL, detail="SECRET detail", replay="x --submission /SECRET --seed 7")],
        students=(a_student(), a_student("SECRET other")),
        info={"intake": IntakeInfo(status="ok", notes=("SECRET note",))},
        run=Run(started_at="", ended_at="", host="SECRET host", wall_s=1, phases={"SECRET phase": 1.0}),
    )  # fmt: skip
    own = a_student(sid="SECRET sid", email="SECRET email", login="SECRET login", platform_id="SECRET id")
    for output in to_students(result, own):
        assert secrets_in(output) == []
        assert "uv run python -m grader check gelu.sizes --seed 551203" in output


def test_fields_that_a_result_may_get_are_not_shown_before_somebody_says_so():
    """The copy is made field by field: these are all that there are now."""
    known = {
        CheckResult: set(MARKED),
        Result: {"schema_", "assignment", "submission", "students", "grader", "target", "score", "checks", "advice",
                 "run"},
        SubmissionInfo: {"id", "attempt", "tree_sha256", "submitted_at", "submitted_at_source", "intake"},
        IntakeInfo: {"status", "notes"},
        StudentScore: {"sid", "email", "login", "name", "platform_id", "late_penalty", "final"},
        Run: {"started_at", "ended_at", "host", "wall_s", "phases", "stopped"},
        Score: {"raw", "max", "bonus", "complete"},
        Review: {"reason", "evidence", "decision"},
        Advice: {"name", "where", "what", "hint"},
    }  # fmt: skip
    for model, fields in known.items():
        assert set(model.model_fields) == fields, f"decide in grader/reports/redact.py what students see of {model}"


def test_a_failing_public_check_keeps_what_helps():
    for output in to_students(a_result({"softmax.layouts": Verdict.FAIL}), a_student()):
        for said in ("127 x 511 float16, rows strided by 640",
                     "first wrong value at [0, 7]: got 0.0021, expected 0.0019", "the last lanes are not masked",
                     "mask the load"):  # fmt: skip
            assert said in output
        assert "a traceback" not in output


def test_text_of_a_second_run_which_came_after_hidden_inputs_is_not_shown():
    text = {"message": "SECRET message", "why": "SECRET why", "printed": "SECRET printed"}
    for output in to_students(a_result(checks=[a_check("gelu.sizes", Verdict.FAIL, runs=2, **text)]), a_student()):
        assert secrets_in(output) == []
        assert "this check ran twice" in output


def after_hidden_inputs(seconds: float) -> Result:
    """A run whose hidden checks, and what ran again after them, took so long."""
    late, minute = {"time_s": seconds}, int(seconds // 60)
    at = f"2026-10-03T09:{minute:02}:17+00:00"
    hidden = CheckResult(**MARKED | late)
    again = a_check(
        "gelu.sizes", Verdict.FAIL, runs=2, **late, failed_cases=minute, case=f"{minute}", cause=f"{minute}"
    )
    run = Run(started_at=at, ended_at=at, host="", wall_s=seconds + 10)
    return a_result(checks=[hidden, again, a_check("softmax.columns", time_s=2.5)], run=run)


def test_no_time_tells_how_long_hidden_checks_took():
    """Or code that sleeps by a property of a hidden input tells it: also by when the next run began."""
    shown = for_students(after_hidden_inputs(61.0), RUBRIC).run
    assert (shown.started_at, shown.ended_at, shown.wall_s) == ("2026-10-03", "", 2.5)  # of public checks
    assert to_students(after_hidden_inputs(61.0), a_student()) == to_students(after_hidden_inputs(3456.7), a_student())


def test_no_control_character_reaches_a_student():
    bad = "\x1b[31mred\x1b]0;title\x07 \x9b31m \x00\x08 \u202eabc\u2066 \ud800 tail"
    check = a_check("gelu.sizes", Verdict.FAIL, message=bad, printed=bad, case=bad, why=bad, hint=bad)
    result = a_result(checks=[check], advice=(Advice(name="x", where=Place(file=bad, line=1), what=bad, hint=bad),))
    for output in to_students(result, a_student(name=f"Ada {bad}\nExample")):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", output)
        assert "tail" in output


def test_a_checks_text_is_capped_in_bytes_with_head_tail_and_the_gap():
    text = "HEAD" + "é" * 10_000 + "TAIL"  # 20 008 bytes
    shown, taken = capped(text, CHECK_BYTES)
    assert shown.startswith("HEAD")
    assert shown.endswith("TAIL")
    gap = int(re.search(r"\[(\d+) bytes left out\]", shown)[1])
    assert taken <= CHECK_BYTES == 8192
    assert gap == 20_008 - taken
    assert capped("short", CHECK_BYTES) == ("short", 5)


def test_all_texts_of_a_check_share_its_room_and_all_checks_share_the_submissions():
    long = "x" * 50_000
    checks = [a_check(check, Verdict.FAIL, message=long, why=long, printed=long) for check in RUBRIC.points
              if RUBRIC.entry(check) in RUBRIC.problems["flash_attention"].checks.values()]  # fmt: skip
    assert len(checks) > 8
    shown = for_students(a_result(checks=checks), RUBRIC)
    sizes = [sum(text.count("x") for text in (check.message, check.why, check.printed)) for check in shown.checks]
    assert max(sizes) <= CHECK_BYTES
    assert SUBMISSION_BYTES - CHECK_BYTES < sum(sizes) <= SUBMISSION_BYTES
    assert all(check.message for check in shown.checks if check.verdict is Verdict.FAIL)
