"""Gradescope's results.json, read with a model of its format (gradescope/autograder_samples, docs/specs.md)."""

import json
from decimal import Decimal
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, model_validator

from grader.judge.verdict import Verdict
from grader.reports.gradescope import NoGrade, results_json
from grader.reports.strict import strict_json
from grader.result import IntakeInfo, Result, Review, Run
from grader.rubric import Rubric, Visibility
from tests.staff.reported import OPEN, RUBRIC, a_check, a_result, a_speed, a_student
from tests.staff.test_rubric import PUBLIC, read

Shown = Literal["hidden", "after_due_date", "after_published", "visible"]
Format = Literal["text", "html", "simple_format", "md", "ansi"]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Page(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Test(Page):
    __test__ = False  # no test of pytest's

    score: Number | None = None
    max_score: Number
    status: Literal["passed", "failed"] | None = None
    name: str
    name_format: Format
    number: Annotated[str, Field(pattern=r"^\d+\.\d+$")]
    output: str
    output_format: Format
    tags: list[str] = []
    visibility: Shown
    extra_data: dict[str, object] = {}


class Results(Page):
    score: Number | None = None
    execution_time: Number
    output: str
    output_format: Format
    test_output_format: Format
    test_name_format: Format
    visibility: Shown = "visible"
    stdout_visibility: Shown
    extra_data: dict[str, object]
    tests: list[Test]

    @model_validator(mode="after")
    def _has_a_score(self) -> "Results":
        assert self.score is not None or all(test.score is not None for test in self.tests)
        return self


def written(result: Result, rubric: Rubric = RUBRIC) -> Results:
    """What Gradescope reads."""
    return Results.model_validate_json(strict_json(results_json(result, rubric)))


def the_test(results: Results, number: str) -> Test:
    [found] = [test for test in results.tests if test.number == number]
    return found


# softmax is the second problem of grader/rubric.yaml, after 16 checks of gelu, and columns is its first.


@pytest.mark.parametrize(("verdict", "status", "score"), [
    (Verdict.PASS, "passed", 0.27), (Verdict.FAIL, "failed", 0.0), (Verdict.TODO, "failed", 0.0),
    (Verdict.TIMEOUT, "failed", 0.0), (Verdict.CRASH, "failed", 0.0), (Verdict.OUT_OF_MEMORY, "failed", 0.0),
    (Verdict.SKIPPED, None, None),
])  # fmt: skip
def test_a_verdict_has_its_status_and_points(verdict, status, score):
    test = the_test(written(a_result({"softmax.columns": verdict})), "2.1")
    assert (test.status, test.score, test.max_score) == (status, score, 0.27)
    assert test.name == "softmax: Columns are right."
    sent = json.loads(strict_json(results_json(a_result({"softmax.columns": verdict}), RUBRIC)))
    assert ("score" in sent["tests"][16], "status" in sent["tests"][16]) == (score is not None, status is not None)


@pytest.mark.parametrize("problem", ["gelu.sizes", "softmax.half_sums"])
def test_for_an_error_of_the_grader_nothing_is_written(problem):
    with pytest.raises(NoGrade, match=rf"gradescope-123456: the grader itself failed in {problem}; grade it again"):
        results_json(a_result({problem: Verdict.GRADER_ERROR}), RUBRIC)


def test_for_a_run_that_was_stopped_nothing_is_written():
    with pytest.raises(NoGrade, match="was stopped before all checks had ended"):
        results_json(a_result(run=Run(started_at="", ended_at="", host="", wall_s=1, stopped=True)), RUBRIC)


def test_the_score_is_raw_and_what_comes_on_top_and_the_tests_add_up_to_what_there_is():
    results = written(a_result())
    assert (results.score, round(sum(test.score for test in results.tests), 2)) == (86.0, 86.0)  # two bonuses of 0.50
    assert round(sum(test.max_score for test in results.tests), 2) == 85.0
    assert results.output.startswith("85.00 of 85.00 points + 1.00 on NVIDIA H200.")
    assert (
        "The checks here add up to 85.00 points, not to 100; roofline (10), profiling (5) will come later"
        in results.output
    )
    assert results.execution_time == 0.0
    assert results.extra_data == {"complete": True, "schema": "grader.result/1"}


def test_the_time_is_that_of_public_checks():
    checks = [a_check("softmax.columns", time_s=1.25), a_check("gelu.sizes", time_s=0.5)]
    hidden = a_check("softmax.half_sums", time_s=20.0)
    assert written(a_result(checks=[*checks, hidden])).execution_time == 1.75


def test_a_bonus_is_on_top_of_its_problem():
    test = next(test for test in written(a_result()).tests if "bonus" in test.name)
    assert (test.max_score, test.score, test.status) == (0.0, 0.5, "passed")


def test_where_the_checks_are_worth_the_assignments_points_nothing_is_said_of_it(tmp_path):
    public = PUBLIC.replace("points: 8", "points: 5").replace("coming:\n  softmax: 3\n", "")
    rubric = read(tmp_path, public.replace("hidden: 30, speed: 30", "hidden: 60, speed: 0"))
    checks = [
        a_check("gelu.sizes").model_copy(
            update={"id": f"gelu.{name}", "max": rubric.points[f"gelu.{name}"], "score": 0}
        )
        for name in "abcde"
    ]
    result = a_result().model_copy(update={"checks": tuple(checks)})
    assert "add up" not in written(result, rubric).output


def test_a_speed_that_earns_a_part_has_passed():
    check = a_check("softmax.speed_forward", speed=a_speed("softmax.speed_forward", 0.6))
    test = the_test(written(a_result(checks=[check])), "2.25")
    # 1.50 points from 0.44 to 0.88: log(0.6 / 0.44) / log(2) of them
    assert (test.score, test.max_score, test.status, test.tags) == (0.67, 1.5, "passed", ["speed"])
    assert test.visibility == "after_published"
    assert test.output == "speed: 2.00 ms, 0.60 of the speed of device_copy; full points take 0.88 (1.36 ms)"


def test_only_timed_tests_wait_until_grades_are_published():
    tests = written(a_result({"gelu.speed_bfloat16": Verdict.SKIPPED})).tests
    waiting = {test.number for test in tests if test.visibility == "after_published"}
    assert waiting == {"1.16", "2.25", "2.26", "3.24", "3.25", "4.55", "4.56"}
    assert all(test.visibility == "visible" for test in tests if test.number not in waiting)


def test_an_open_review_counts_0_and_says_so():
    results = written(a_result(checks=[a_check("softmax.columns", review=OPEN)]))
    test = the_test(results, "2.1")
    assert (test.status, test.score) == (None, 0.0)
    assert test.output.endswith("a person has to decide whether it counts\nIt counts 0 until then.")
    assert results.score == 86.0 - 0.27
    assert "A person has to decide on 1 check, 0.27 points: they count 0 until then." in results.output
    assert results.extra_data["complete"] is False


@pytest.mark.parametrize(("decision", "status", "score"), [("accept", "passed", 0.27), ("reject", "failed", 0.0)])
def test_a_decided_review_is_passed_or_failed(decision, status, score):
    review = Review(reason="", evidence="", decision=decision)
    test = the_test(written(a_result(checks=[a_check("softmax.columns", review=review)])), "2.1")
    assert (test.status, test.score) == (status, score)


def test_what_was_skipped_is_said_with_its_points_and_the_reason():
    results = written(a_result({"softmax.columns": Verdict.SKIPPED}))
    assert (
        "Not run, no points either way: 1 check, 0.27 points. Needs a GPU: speed is measured there." in results.output
    )
    assert results.extra_data["complete"] is False


@pytest.mark.parametrize(("late", "said"), [
    (("0", "0"), ""), (("1.5",), "Late: a penalty of 1.50 points is not taken off here."),
    (("2", "0"), "Late: a penalty, not the same for all of the group, is not taken off here."),
])  # fmt: skip
def test_lateness_is_said_and_not_taken_off(late, said):
    results = written(a_result(students=tuple(a_student(late=penalty) for penalty in late)))
    assert results.score == 86.0
    assert ("Late" in results.output) == bool(said)
    assert said in results.output


def test_a_rejected_submission_says_that_staff_have_to_be_asked():
    everything = dict.fromkeys(RUBRIC.problems, Verdict.TODO)
    results = written(a_result(everything, info={"intake": IntakeInfo(status="rejected", notes=("a RAR archive",))}))
    assert results.score == 0
    assert "could not be read, so nothing of it was graded: please ask the course's staff" in results.output
    assert "RAR" not in results.output


def test_tests_are_in_the_rubrics_order_with_its_numbers_whatever_is_missing():
    result = a_result()
    fewer = result.model_copy(update={"checks": tuple(reversed(result.checks[3:]))})
    numbers = [tuple(map(int, test.number.split("."))) for test in written(fewer).tests]
    assert numbers == sorted(numbers)
    assert numbers[0] == (1, 4)
    assert "Not run: 3 checks of the rubric" in written(fewer).output


def test_a_check_that_the_rubric_does_not_know_any_more_comes_last_and_counts_nothing():
    gone = a_check("gelu.sizes", Verdict.FAIL).model_copy(
        update={"id": "gelu.gone", "void": "GONE", "max": Decimal(0), "score": Decimal(0)}
    )
    result = a_result()
    sent = results_json(result.model_copy(update={"checks": (gone, *result.checks)}), RUBRIC)
    assert "number" not in sent["tests"][-1]
    assert "void: counts nothing: GONE" in sent["tests"][-1]["output"]


def test_hidden_tests_show_title_and_hint_only():
    names = list(RUBRIC.checks("softmax", Visibility.HIDDEN))
    number = 1 + len(RUBRIC.problems["softmax"].checks) + names.index("half_sums")
    test = the_test(written(a_result({"softmax.half_sums": Verdict.FAIL})), f"2.{number}")
    assert (test.name, test.output) == (
        "softmax: Half sums are right.",
        "try: the sum of a long row must be kept in float32",
    )
    assert test.visibility == "visible"


def test_everything_is_plain_text():
    check = a_check("softmax.columns", Verdict.FAIL, message="<script>alert(1)</script>")
    results = written(a_result(checks=[check]))
    formats = {results.output_format, results.test_output_format, results.test_name_format}
    formats |= {kind for test in results.tests for kind in (test.output_format, test.name_format)}
    assert formats == {"text"}
    assert "<script>alert(1)</script>" in the_test(results, "2.1").output
    assert results.stdout_visibility == "hidden"


def test_json_has_no_number_that_is_none():
    value = {"a": float("nan"), "b": [float("inf"), Decimal("1.50")]}
    assert json.loads(strict_json(value)) == {"a": None, "b": [None, 1.5]}
