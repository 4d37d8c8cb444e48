"""The page that a student reads: whole in itself, nobody else's, and nothing in it that runs."""

import re
from decimal import Decimal
from html.parser import HTMLParser

import pytest

from grader.judge.verdict import Verdict
from grader.reports.feedback import feedback_html, feedback_pages
from grader.result import Advice, IntakeInfo, Place
from tests.staff.reported import OPEN, RUBRIC, TREE, a_check, a_result, a_speed, a_student, graded

VOID = {"meta", "br", "line", "rect"}  # elements without an end here


class Elements(HTMLParser):
    """Which elements and attributes a page has; fails where they are not nested."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def words(page: str) -> str:
    """What is read of a page, without its style."""
    return " ".join(" ".join(Elements(re.sub("<style>.*?</style>", "", page, flags=re.DOTALL)).text).split())


def test_a_page_needs_nothing_from_elsewhere_and_runs_nothing():
    bad = '<script>alert(1)</script><img src="https://example.com/x.png" onerror="x()">'
    check = a_check("gelu.sizes", Verdict.FAIL, message=bad, printed=bad, why=bad, hint=bad, case=bad)
    advice = (Advice(name="x", where=Place(file=bad, line=1), what=bad, hint=bad),)
    page = feedback_html(a_result(checks=[check], advice=advice), RUBRIC, a_student(bad))
    found = Elements(page)
    assert not {"script", "img", "link", "iframe", "object", "form", "base"} & set(found.tags)
    names = {name for name, _ in found.attributes}
    assert not {name for name in names if name.startswith("on") or name in ("src", "srcset", "action")}
    assert all(value and value.startswith("#") for name, value in found.attributes if name == "href")
    assert not re.search(r"url\(|@import|https?:", page.replace("https://example.com", ""))
    assert "default-src 'none'" in page
    assert bad in words(page)


def test_a_failure_is_shown_as_the_self_check_shows_it():
    said = words(feedback_html(a_result({"softmax.layouts": Verdict.FAIL}), RUBRIC))
    for part in (
        "fail   Layouts are right.", "case 127 x 511 float16, rows strided by 640 (2 of 4 cases failed)",
        "first wrong value at [0, 7]: got 0.0021, expected 0.0019", "likely the last lanes are not masked",
        "try mask the load", "handout Softmax", "again uv run python -m grader check softmax.layouts --seed 551203",
    ):  # fmt: skip
        assert " ".join(part.split()) in said


def test_checks_that_fail_for_one_reason_are_told_once():
    said = words(feedback_html(a_result({"softmax.layouts": Verdict.FAIL, "softmax.columns": Verdict.FAIL}), RUBRIC))
    assert said.count("likely the last lanes are not masked") == 1
    assert "the same: 1 more Layouts are right." in said


def test_a_module_that_is_not_written_is_told_in_one_block():
    todo = [a_check(name, Verdict.TODO, message="not written yet", case=None, why="", hint="write it")
            for name in RUBRIC.points if name.startswith("gelu.")]  # fmt: skip
    said = words(feedback_html(a_result(checks=todo), RUBRIC))
    assert said.count("not written yet") == 1
    assert said.count("Tanh form are right.") == 1  # in the table
    assert "0.00 of 5.00 points, 0 of 16 passed; handout: GeLU" in said


def test_points_are_shown_for_each_problem_and_check_and_in_all():
    result = a_result({"ddp.overlap": Verdict.SKIPPED, "gelu.sizes": Verdict.FAIL})
    said = words(feedback_html(result, RUBRIC, a_student(final=None)))
    assert "83.30 of 85.00 points, and 1.00 on top" in said  # without 1.46 and 0.24
    assert "gelu 15 of 16 4.76 of 5.00" in said
    assert "flash_attention 56 of 56 30.00 of 30.00 + 1.00" in said
    assert "ddp 23 of 23 13.54 of 13.54" in said
    assert "skipped Overlap are right. no score" in said
    assert "Not complete. Some checks have no score yet" in said
    assert f"have the hash {TREE}" in said


@pytest.mark.parametrize(("ratio", "width"), [(0.44, 20.0), (0.88, 80.0), (0.6223, 50.0), (0.01, 1.0), (50.0, 100.0)])
def test_a_speed_is_a_bar_between_the_marks_of_no_and_full_points(ratio, width):
    check = a_check("softmax.speed_forward", speed=a_speed("softmax.speed_forward", ratio))
    page = feedback_html(a_result(checks=[check]), RUBRIC)
    bars = [float(match) for match in re.findall(r'class="bar" x="0" y="1" width="([\d.]+)"', page)]
    assert bars[1] == pytest.approx(width, abs=0.01)
    assert re.findall(r'class="mark" x1="([\d.]+)"', page)[:2] == ["20.0", "80.0"]
    assert f"{ratio:.2f} of the speed of device_copy; full points take 0.88" in page


def test_a_penalty_and_what_is_left_are_shown():
    said = words(feedback_html(a_result(), RUBRIC, a_student(final="83.5", late="2.5")))
    assert "2.50 points off for lateness: 83.50 points ." in said


def test_who_waits_for_a_person_reads_that():
    said = words(feedback_html(a_result(checks=[a_check("gelu.sizes", review=OPEN)]), RUBRIC))
    assert "review a person has to decide whether it counts" in said
    assert "pass Sizes are right. undecided" in said


def test_an_error_of_the_grader_is_said_to_be_ours():
    said = words(feedback_html(a_result({"gelu.sizes": Verdict.GRADER_ERROR}), RUBRIC))
    assert "The grader itself failed in 1 check, which is not your fault: staff will grade again." in said


def test_a_rejected_submission_says_whom_to_ask():
    todo = dict.fromkeys(RUBRIC.problems, Verdict.TODO)
    said = words(feedback_html(a_result(todo, info={"intake": IntakeInfo(status="rejected")}), RUBRIC))
    assert "could not be read, so nothing of it was graded: please ask the course's staff." in said


def test_a_void_check_counts_nothing_and_says_why():
    check = a_check("gelu.sizes", Verdict.FAIL).model_copy(update={"void": "it was unfair", "max": Decimal(0)})
    said = words(feedback_html(a_result(checks=[check]), RUBRIC))
    assert "void counts nothing: it was unfair" in said
    assert "fail Sizes are right. void" in said


# Whose page


def test_one_student_has_a_page_with_the_name():
    [(end, page)] = feedback_pages(graded(a_result(), a_student("Ada Example")), RUBRIC)
    assert end == ""
    assert "Ada Example" in page


def test_a_group_with_the_same_points_shares_a_page_without_names():
    [(end, page)] = feedback_pages(graded(a_result(), a_student("Ada"), a_student("Bob")), RUBRIC)
    assert end == ""
    assert not re.search("Ada|Bob", page)


def test_members_of_a_group_with_other_points_have_pages_of_their_own():
    pages = dict(
        feedback_pages(graded(a_result(), a_student("Ada", "86"), a_student("Bob", "81", late="5")), RUBRIC)
    )  # fmt: skip
    assert list(pages) == ["_1", "_2"]
    assert ("Ada" in pages["_1"], "Bob" in pages["_1"], "lateness" in pages["_1"]) == (True, False, False)
    assert ("Ada" in pages["_2"], "Bob" in pages["_2"], "lateness" in pages["_2"]) == (False, True, True)


def test_whom_another_attempt_gives_the_grade_has_no_page_here():
    attempt = graded(a_result(), a_student("Ada", "86"), a_student("Bob", "81"), elsewhere=frozenset({1}))
    [(_, page)] = feedback_pages(attempt, RUBRIC)
    assert ("Ada" in page, "Bob" in page) == (True, False)
    assert list(feedback_pages(graded(a_result(), a_student(), counts=False), RUBRIC)) == []
    assert list(feedback_pages(graded(None, a_student(), submission="x"), RUBRIC)) == []
    [(_, page)] = feedback_pages(graded(a_result()), RUBRIC)
    assert "gradescope-123456" in page
