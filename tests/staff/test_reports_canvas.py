"""One column of a Canvas export, filled, and read back by the rules of its importer.

`Import` follows instructure/canvas-lms, lib/gradebook_importer.rb: delimiter, converters, header, columns, rows.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from decimal import Decimal

import pytest

from grader.reports.canvas import ExportRefused, Filled, fill
from grader.result import StudentScore
from tests.staff.reported import graded

OURS = 98765
EXPORT = """\
Student,ID,SIS User ID,SIS Login ID,Section,Reading (11),GPU kernels (98765),Final Score
    Points Possible,,,,,5.00,10.00,(read only)
"Example, Ada",1001,3031,ada,LEC 1,4.00,7.50,80.0
"Gauß, Carl",1002,3032,carl,LEC 1 and LAB 2,1.00,EX,
"Noether, Emmy",1003,3033,emmy,LEC 1,,,
"Turing, Alan",1004,3034,alan,LEC 1,,N/A,
"Student, Test",1099,,f3b1c7,LEC 1,,,
"""


@dataclass
class Import:
    """What Canvas would take from a file."""

    grades: dict[int, str] = field(default_factory=dict)  # of our assignment, by the student's id
    worth: str | None = None
    created: list[str] = field(default_factory=list)  # assignments that it would offer to create

    @classmethod
    def of(cls, content: bytes, known: tuple[int, ...] = (11, OURS)) -> Import:
        """Read a file as the importer does, for a course with these assignments."""
        text = content.decode()
        delimiter = cls.delimiter(text)
        lines = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
        rows = [[cls.normalised(cell) for cell in line] for line in lines if line]
        found, header = cls(), rows[0]
        assert "Student" in header[0]
        assert "ID" in header[1]
        assert len(header) > 3
        first = header.index("Section") + 1
        places = {}
        for title in header[first:]:
            if re.search("(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)", title):
                continue
            match = re.match(r"^(.*)\s\((\d+)\)$", title)
            if match and int(match[2]) in known:
                places[int(match[2])] = header.index(title)  # the first of that title
            else:
                found.created.append(title)
        for row in rows[1:]:
            if OURS not in places:
                continue  # the column was dropped without a word
            if "Points Possible" in row[0]:
                found.worth = row[places[OURS]]
            elif not all(re.match(r"^\s*(Muted|Manual Posting.*)?\s*$", cell, re.IGNORECASE) for cell in row if cell):
                found.grades[int(row[1])] = row[places[OURS]].strip()
        return found

    @staticmethod
    def delimiter(text: str) -> str:
        """A semicolon if it splits the first three lines evenly, and into more cells than a comma."""
        widths = {}
        for delimiter in ";,":
            try:
                rows = [next(csv.reader([line], delimiter=delimiter, strict=True)) for line in text.split("\n")[:3]]
            except csv.Error:
                rows = []
            sizes = {len(row) for row in rows}
            widths[delimiter] = sizes.pop() if len(sizes) == 1 else 0
        return ";" if widths[";"] > widths[","] else ","

    @staticmethod
    def normalised(cell: str) -> str:
        """A number, whose last point or comma is the decimal one."""
        if not re.match(r"^-?[0-9.,]+%?$", cell):
            return cell
        *whole, last = re.split("[,.]", cell)
        return f"{''.join(whole)}.{last}" if whole else last


def student(final: str | None = "8.25", **fields: str | None) -> StudentScore:
    return StudentScore(final=None if final is None else Decimal(final), **fields)


def filled(*students: StudentScore, export: str = EXPORT, submission: str = "gradescope-1", **fields: int) -> Filled:
    rows = [graded(None, *students, submission=submission)]
    return fill(export.encode(), fields.get("column", OURS), rows, Decimal(fields.get("maximum", 10)))


def refusal(export: str | bytes = EXPORT, column: int = OURS, maximum: str = "10") -> str:
    content = export if isinstance(export, bytes) else export.encode()
    with pytest.raises(ExportRefused) as refused:
        fill(content, column, [], Decimal(maximum))
    assert "\n" not in str(refused.value)
    return str(refused.value)


# What is written


def test_the_grades_are_what_the_importer_reads_back():
    found = filled(student("8.25", sid="3031"), student("9", login="emmy"), student("0", sid="3099", email="x@y.z"))
    read = Import.of(found.content)
    assert read.grades == {1001: "8.25", 1002: "EX", 1003: "9.00", 1004: "N/A", 1099: ""}
    assert (read.worth, read.created) == ("10.00", [])
    assert (found.written, found.unchanged) == (2, 0)


def test_nothing_else_changes_by_a_byte():
    others = [EXPORT.replace("\n", "\r\n"), "\ufeff" + EXPORT, EXPORT.rstrip("\n"), EXPORT.replace(",", ";")]
    for export in (EXPORT, *others):
        assert filled(export=export).content == export.encode()
    found = filled(student(sid="3033"))
    assert found.content.decode() == EXPORT.replace("emmy,LEC 1,,,", "emmy,LEC 1,,8.25,")


NAMES = (
    '"O\'Brien, ""Al"""', '"=""=1+1"""', "=1+1", '"Doe, Jane, Jr."', '"a;b;c;d;e;f;g;h;i"', "😀 Émile",
    "\u202eevil\u202c", "אבג דהו", "No", '"two\nlines"', "' '", "Muted Sam", "00123",
)  # fmt: skip


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_names_stay_as_they_are_and_everybody_gets_a_grade(delimiter, mark):
    rows = "".join(f"{name}|{2000 + place}|12.34.5{place}|l{place}|LEC 1||\n" for place, name in enumerate(NAMES))
    export = f"{mark}Student|ID|SIS User ID|SIS Login ID|Section|Reading (11)|GPU kernels (98765)\n"
    export += f"    Points Possible|||||5.00|10.00\n{rows}"
    export = export.replace("|", delimiter)
    if delimiter == ";":
        export = export.replace("a;b", "a,b")
    everybody = [student(f"{place}.5", sid=f"12.34.5{place}") for place in range(len(NAMES))]
    found = filled(*everybody, export=export)
    assert found.written == len(NAMES)
    read = Import.of(found.content.removeprefix(mark.encode()))
    assert read.grades == {2000 + place: f"{place}.50" for place in range(len(NAMES))}
    for name in NAMES:
        assert name.replace("a;b", "a,b" if delimiter == ";" else "a;b") in found.content.decode()


def test_a_semicolon_export_keeps_its_decimal_commas_and_is_read_with_them():
    export = EXPORT.replace('"Example, Ada"', "Ada").replace(",", ";").replace("10.00", "10,00").replace("7.50", "7,50")
    found = filled(student("7.5", sid="3031"), student("1234.5", sid="3033"), export=export)
    assert found.unchanged == 1
    assert Import.of(found.content).grades[1001] == "7.50"
    assert Import.of(found.content).grades[1003] == "1234.50"


def test_two_decimals_are_compared_and_written_half_up():
    found = filled(student("7.504", sid="3031"), student("8.125", sid="3033"))
    assert (found.unchanged, found.written, found.changed) == (1, 1, [])
    assert Import.of(found.content).grades[1003] == "8.13"


def test_another_score_is_replaced_and_told():
    found = filled(student("8", sid="3031"))
    assert found.changed == ["Example, Ada (ID 1001): 7.50 -> 8.00"]


def test_a_dash_is_no_score():
    found = filled(student("8", sid="3033"), export=EXPORT.replace("emmy,LEC 1,,,", "emmy,LEC 1,,-,"))
    assert (Import.of(found.content).grades[1003], found.changed) == ("8.00", [])


@pytest.mark.parametrize(("cell", "kept"), [("EX", "EX"), ("ex", "ex"), ("N/A", "N/A"), ("n/a", "n/a")])
def test_excused_and_not_assigned_stay_and_are_told(cell, kept):
    found = filled(student("9", sid="3032"), export=EXPORT.replace(",EX,", f",{cell},"))
    assert Import.of(found.content).grades[1002] == kept
    assert found.left_alone == [f"Gauß, Carl (ID 1002): {kept}"]
    assert found.written == 0


def test_who_has_no_grade_keeps_what_is_there():
    found = filled(student(None, sid="3031"), student(None, sid="3032"))
    assert found.content.decode() == EXPORT
    assert found.without_grade == [
        "Example, Ada (ID 1001)", "Noether, Emmy (ID 1003)", "Student, Test (ID 1099)",
    ]  # fmt: skip


def test_names_are_told_as_they_are_read():
    found = filled(export=EXPORT.replace('"Turing, Alan"', '"O\'Brien, ""Al"""').replace("N/A", ""))
    assert 'O\'Brien, "Al" (ID 1004)' in found.without_grade


def test_an_attempt_that_does_not_count_gives_no_grade():
    old = graded(None, student("3", sid="3031"), submission="a", counts=False)
    assert fill(EXPORT.encode(), OURS, [old], Decimal(10)).content == EXPORT.encode()


def test_a_member_of_a_group_whom_another_attempt_gives_the_grade_has_none_of_this_one():
    both = graded(None, student("4", sid="3033"), student("5", sid="3031"), submission="b", elsewhere=frozenset({1}))
    found = fill(EXPORT.encode(), OURS, [both], Decimal(10))
    assert Import.of(found.content).grades == {1001: "7.50", 1002: "EX", 1003: "4.00", 1004: "N/A", 1099: ""}


# Who is who


@pytest.mark.parametrize("who", [
    {"sid": "3033"}, {"login": "emmy"}, {"email": "EMMY"}, {"login": "Emmy "}, {"sid": "9999", "login": "emmy"},
])  # fmt: skip
def test_a_student_is_found_by_sis_id_or_login(who):
    assert Import.of(filled(student(**who)).content).grades[1003] == "8.25"
    shouted = EXPORT.replace(",emmy,", ",EMMY,")
    assert Import.of(filled(student(**who), export=shouted).content).grades[1003] == "8.25"


def test_a_canvas_id_is_one_only_in_a_submission_from_canvas():
    one = student(platform_id="1003")
    assert Import.of(filled(one, submission="canvas-1003").content).grades[1003] == "8.25"
    found = filled(one, submission="gradescope-1003")
    assert (found.written, len(found.without_row)) == (0, 1)


def test_a_login_at_github_is_none_of_the_campus():
    """Whoever takes a fellow student's login as a name there gets no grade into their row."""
    theirs = student(login="emmy", platform_id="emmy")
    found = filled(theirs, submission="github-emmy")
    assert (found.written, len(found.without_row)) == (0, 1)
    listed = student(login="emmy", platform_id="noether-e")  # of the roster, which knows both
    assert Import.of(filled(listed, submission="github-noether-e").content).grades[1003] == "8.25"


def test_a_name_alone_never_matches_and_who_is_missing_is_told():
    found = filled(student(name="Noether, Emmy"), student(name="Emmy", sid="03033"))
    assert found.content.decode() == EXPORT
    assert found.without_row == ["gradescope-1 (Noether, Emmy)", "gradescope-1 (Emmy, 03033)"]


def test_whom_two_rows_fit_gets_nothing_and_is_told():
    found = filled(student(sid="3033", login="ada"))
    assert (found.written, found.unclear) == (0, ["gradescope-1 (3033, ada): 2 rows fit"])


def test_two_grades_for_one_student_are_told_and_none_is_written():
    rows = [graded(None, student(final, sid="3033"), submission=f"plain-{final}") for final in ("5", "6", "6")]
    found = fill(EXPORT.encode(), OURS, rows, Decimal(10))
    assert found.unclear == ["Noether, Emmy (ID 1003): 5.00 and 6.00 points"]
    assert found.content.decode() == EXPORT
    assert fill(EXPORT.encode(), OURS, rows[1:], Decimal(10)).written == 1


def test_rows_of_posting_policies_and_empty_ones_are_no_students():
    lines = EXPORT.splitlines(keepends=True)
    export = "".join([lines[0], ",,,,,Muted,Manual Posting,\n", *lines[1:], ",,,,,,,\n"])
    found = filled(student(sid="3033"), export=export)
    assert (found.written, len(found.without_grade)) == (1, 2)
    assert ",,,,,Muted,Manual Posting,\n" in found.content.decode()


def test_first_and_last_names_in_columns_of_their_own_are_read_too():
    export = EXPORT.replace("Student,ID", "LastName,FirstName,ID").replace(
        "    Points Possible,", "    Points Possible,,"
    )
    export = re.sub(r'^"(\w+), (\w+)"', r"\1,\2", export, flags=re.MULTILINE).replace('"Gauß, Carl"', "Gauß,Carl")
    for mark in ("", "\ufeff"):
        found = filled(student(sid="3033"), export=mark + export)
        assert b"Noether,Emmy,1003,3033,emmy,LEC 1,,8.25," in found.content


# What is refused


def test_a_column_that_is_not_there_is_refused_and_the_others_are_named():
    assert refusal(column=5) == (
        "the export has no column of the assignment 5: there are 11 (Reading), 98765 (GPU kernels); give one of these "
        "ids, for a new column would make Canvas create another assignment"
    )


@pytest.mark.parametrize("phrase", [
    "Current Score", "Final Points", "Final Grade", "Current Grade", "Override Score", "Override Grade",
    "Override Status",
])  # fmt: skip
def test_a_title_that_canvas_drops_is_refused(phrase):
    title = f"My {phrase} of GPU"
    export = EXPORT.replace("GPU kernels", title)
    assert not Import.of(export.encode()).grades
    assert f"ignores a column whose title has `{phrase}`, such as `{title} (98765)`: rename" in refusal(export)


@pytest.mark.parametrize("title", ["Currents", "Final exam", "Score", "Final (Score)"])
def test_other_titles_are_fine(title):
    assert filled(student(sid="3033"), export=EXPORT.replace("GPU kernels", title)).written == 1


@pytest.mark.parametrize(("worth", "said"), [
    ("12.00", "is worth 12.00 points in Canvas, and 10.00 here: make them equal there, and export again"),
    ("", "is worth no points in Canvas"), ("100,0", "is worth 100,0"),
])  # fmt: skip
def test_another_maximum_is_refused(worth, said):
    cell = f'"{worth}"' if "," in worth else worth
    assert said in refusal(EXPORT.replace("10.00", cell))


@pytest.mark.parametrize(("change", "said"), [
    (lambda text: text.replace("10.00", "(read only)"), "marked as read only"),
    (lambda text: re.sub("    Points.*\n", "", text), "no row `Points Possible`"),
    (lambda text: text.replace("Reading (11)", "GPU kernels (98765)"), "has 2 columns of the assignment 98765"),
    (lambda text: text.replace("carl,LEC 1", "carl"), "line 4 of the export has 7 cells, not 8"),
    (lambda text: text.replace('"Noether', 'x"Noether'), "line 5 of the export is no CSV"),
    (lambda text: text.replace("Student,ID", "Name,Number"), "does not begin with the header of a Canvas gradebook"),
    (lambda text: text.replace("Section", "Group"), "does not begin with the header of a Canvas gradebook"),
    (lambda text: "", "does not begin with the header of a Canvas gradebook"),
])  # fmt: skip
def test_what_is_no_export_of_this_course_is_refused_with_the_line(change, said):
    assert said in refusal(change(EXPORT))


def test_another_encoding_is_refused_with_the_line():
    assert "line 4 of the export is no UTF-8: another program has saved it" in refusal(EXPORT.encode("latin-1"))
