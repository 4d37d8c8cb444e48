"""Tables for staff: a row for each student, cells that no spreadsheet carries out, and every result as strict JSON."""

import csv
import io
import json
from decimal import Decimal

import pytest

from grader.judge.verdict import Verdict
from grader.reports import tables
from grader.reports.graded import Graded
from grader.result import IntakeInfo, Result
from tests.staff.reported import OPEN, RUBRIC, a_check, a_result, a_student, graded


def table(*attempts: Graded) -> list[dict[str, str]]:
    """The CSV file as a spreadsheet reads it."""
    text = b"".join([tables.header(RUBRIC), *(tables.rows(one, RUBRIC) for one in attempts)]).decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_a_row_says_who_which_points_and_those_of_each_problem():
    ada = a_student(final="83.50", late="2.5", sid="3031", email="ada@example.edu", login="ada")
    assert table(graded(a_result(), ada)) == [{
        "sid": "3031", "email": "ada@example.edu", "login": "ada", "name": "Ada Example",
        "submission": "gradescope-123456", "attempt": "1", "raw": "85.00", "bonus": "1.00", "late_penalty": "2.50",
        "final": "83.50", "complete": "true", "status": "ok", "attention": "", "gelu": "5.00", "softmax": "10.00",
        "matmul": "15.00", "flash_attention": "31.00", "ddp": "15.00", "sharded_optimizer": "10.00",
    }]  # fmt: skip


def test_each_member_of_a_group_has_a_row_and_only_of_the_attempt_that_counts():
    pair = a_student("Ada", "85"), a_student("Bob", "80", late="5")
    rows = table(
        graded(a_result(), *pair),
        graded(a_result(submission="old"), *pair, counts=False),
        graded(a_result(submission="other"), *pair, elsewhere=frozenset({0})),
    )
    assert [(row["name"], row["final"], row["submission"]) for row in rows] == [
        ("Ada", "85.00", "gradescope-123456"), ("Bob", "80.00", "gradescope-123456"), ("Bob", "80.00", "other"),
    ]  # fmt: skip


def test_a_missing_number_is_an_empty_cell_and_never_a_zero():
    undecided = a_result({"ddp": Verdict.SKIPPED}, checks=[a_check("softmax.columns", review=OPEN)])
    [open_, waiting] = table(
        graded(undecided, a_student(final=None)),
        graded(None, a_student(final=None), submission="plain-x", attention="stopped"),
    )
    assert (open_["final"], open_["complete"], open_["ddp"], open_["softmax"]) == ("", "false", "", "9.73")
    assert (waiting["raw"], waiting["bonus"], waiting["final"], waiting["gelu"]) == ("", "", "", "")
    assert (waiting["complete"], waiting["status"], waiting["attention"]) == ("false", "not graded", "stopped")


def test_a_rejected_submission_has_a_row_with_its_reason():
    result = a_result(dict.fromkeys(RUBRIC.problems, Verdict.TODO), info={"intake": IntakeInfo(status="rejected")})
    [row] = table(graded(result, a_student(final="0"), attention="a RAR archive; ask for a zip"))
    assert (row["status"], row["attention"], row["final"]) == ("rejected", "a RAR archive; ask for a zip", "0.00")


def test_a_submission_of_nobody_known_has_a_row():
    [row] = table(graded(a_result(submission="plain-x")))
    assert (row["submission"], row["name"], row["final"], row["raw"]) == ("plain-x", "", "", "85.00")


@pytest.mark.parametrize(("text", "cell"), [
    ("=1+1", "'=1+1"), ("+cmd", "'+cmd"), ("-2+3", "'-2+3"), ("@SUM(A1)", "'@SUM(A1)"), ("\t=1", "'\t'=1"),
    ("-3.5", "-3.5"), ("\r=1", "' =1"), (" =1", "' =1"), ("\rx", "' x"),
    ("-", "'-"), ("+5", "'+5"), ("0123", "0123"), ("12.34.56", "12.34.56"), ("No", "No"),
    ("O'Brien", "O'Brien"), ("a\x1b[31m\u202eb\nc", "ab c"), ("=\n1", "'= 1"), ("-1\n", "'-1 "), ("", ""),
    ("Ada;=1+1", "Ada;'=1+1"), ("a\t@x", "a\t'@x"), ('x;"=1', "x;'\"=1"), ("\uff1d1", "'\uff1d1"), ("a, -b", "a,' -b"),
    ("a-b; c", "a-b; c"),
])  # fmt: skip
def test_no_cell_is_carried_out_by_a_spreadsheet(text, cell):
    assert tables.cell(text) == cell


@pytest.mark.parametrize("name", ['O\'Brien, "Al"', "a;b", "😀 Émile", "אבג", "No", "\ud800x"])
def test_names_are_read_back_as_they_are(name):
    [row] = table(graded(a_result(), a_student(name), submission="x"))
    assert row["name"] == name.replace("\ud800", "")


def test_the_json_file_is_a_list_of_all_results_that_count():
    one, other = a_result(submission="a", students=(a_student("\ud800 Ada"),)), a_result(submission="b")
    attempts = [graded(one), graded(None, submission="c"), graded(other, counts=False), graded(other)]
    text = b"".join(tables.json_pieces(attempts)).decode()
    found = json.loads(text, parse_constant=pytest.fail)
    assert [result["submission"]["id"] for result in found] == ["a", "b"]
    assert Result.model_validate(found[1]) == other
    assert found[0]["students"][0]["name"] == " Ada"
    assert found[0]["checks"][0]["score"] == float(Decimal("0.24"))
    assert text.endswith("]\n")
    assert json.loads(b"".join(tables.json_pieces([]))) == []


def test_attempts_are_taken_one_by_one():
    taken = []
    attempts = (taken.append(place) or graded(a_result(submission=f"s{place}")) for place in range(3))
    pieces = tables.json_pieces(attempts)
    next(pieces)
    assert taken == [0]
