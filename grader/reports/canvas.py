"""Grades for Canvas: one column of the course's own gradebook export, filled: `fill`.

Nothing else of the file changes, not by a byte. What its importer would misread, drop without a word or take for a new
assignment is refused. Source: instructure/canvas-lms, lib/gradebook_importer.rb.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from grader.judge.output import clean
from grader.reports.graded import Graded, hundredths
from grader.reports.table_cells import Cell, NotCells, cells_of
from grader.result import StudentScore

BOM = "\ufeff"
TITLE = re.compile(r"(?P<title>.*)\s\((?P<id>\d+)\)")  # of an assignment's column
DROPPED = re.compile(r"(Current|Final) (Score|Points|Grade)|Override (Score|Grade|Status)")  # not taken for assignments
NO_STUDENT = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", re.IGNORECASE)
NOTHING_BUT_DELIMITERS = re.compile(r"[;, ]+")
NUMBER = re.compile(r"-?[0-9.,]+%?")
POINTS_POSSIBLE = "Points Possible"
KEPT = ("EX", "N/A")  # excused, and not assigned
LOOK = "export the gradebook from Canvas again, and change nothing in it"


class ExportRefused(Exception):
    """An export that cannot be filled safely: what was found, where, and what to do, in a sentence."""


@dataclass
class Filled:
    """The export with our grades in it, and what a person should look at."""

    content: bytes = b""
    written: int = 0  # number of cells that are new or another grade now
    unchanged: int = 0  # that had this grade
    changed: list[str] = field(default_factory=list)  # of the written ones, those that had another grade
    without_row: list[str] = field(default_factory=list)  # students with a grade who are not in the export
    without_grade: list[str] = field(default_factory=list)  # rows for whom there is none
    left_alone: list[str] = field(default_factory=list)  # with a grade, and excused or not assigned in Canvas
    unclear: list[str] = field(default_factory=list)  # whom two rows, or two grades, fit


@dataclass(frozen=True)
class Columns:
    """Where in a row things are."""

    grade: int
    id: int
    sis: int | None
    login: int | None


def fill(export: bytes, column: int, graded: Iterable[Graded], maximum: Decimal) -> Filled:
    """The export with the final points of everybody who has some, in the column of the assignment with this id.

    `maximum` is what the assignment must be worth in Canvas. Raises `ExportRefused`.
    """
    bom, text = _decoded(export)
    delimiter = _delimiter(text)
    try:
        rows = cells_of(text, delimiter)
    except NotCells as error:
        raise ExportRefused(f"line {error.line} of the export is no CSV; {LOOK}") from None
    columns = _columns(rows[0], column) if rows else _refuse_header()
    students = _students(rows, columns, maximum)
    filled = Filled()
    grades = _grades(students, columns, graded, filled)
    for row in students:
        _fill(row, columns, grades.get(id(row), []), filled)
    filled.content = (bom + "".join(cell.raw + cell.ending for row in rows for cell in row)).encode()
    return filled


def _decoded(export: bytes) -> tuple[str, str]:
    """The byte order mark, if there is one, and the text."""
    try:
        text = export.decode()
    except UnicodeDecodeError as error:
        line = export.count(b"\n", 0, error.start) + 1
        raise ExportRefused(f"line {line} of the export is no UTF-8: another program has saved it; {LOOK}") from None
    return (BOM, text[1:]) if text.startswith(BOM) else ("", text)


def _delimiter(text: str) -> str:
    """As the importer finds it: a semicolon if it splits the first three lines evenly, into more cells than a comma."""
    first = re.findall(r"[^\n]*\n|[^\n]+", text)[:3]
    widths = {delimiter: _width(first, delimiter) for delimiter in ";,"}
    return ";" if widths[";"] > widths[","] else ","


def _width(lines: Sequence[str], delimiter: str) -> int:
    try:
        widths = {len(row) for line in lines for row in cells_of(line, delimiter)}
    except NotCells:
        return 0
    return widths.pop() if len(widths) == 1 else 0


def _columns(header: Sequence[Cell], column: int) -> Columns:
    """The columns that matter. Refuses a header that is none, or a column that Canvas would not take for ours."""
    names = [cell.value for cell in header]
    place = 2 if names[:2] == ["LastName", "FirstName"] else 1
    if len(names) <= place + 2 or "ID" not in names[place] or not (place == 2 or "Student" in names[0]):
        _refuse_header()
    if "Section" not in names:
        _refuse_header()
    first = names.index("Section") + 1
    titles = {index: match for index, name in enumerate(names) if (match := TITLE.fullmatch(name))}
    places = [index for index, match in titles.items() if int(match["id"]) == column]
    if not places:
        known = ", ".join(f"{match['id']} ({clean(match['title'], 60)})" for match in titles.values())
        raise ExportRefused(
            f"the export has no column of the assignment {column}: there are {known or 'none'}; give one of these ids, "
            "for a new column would make Canvas create another assignment"
        )
    title = clean(names[places[0]], 80)
    if len(places) > 1:
        raise ExportRefused(f"the export has {len(places)} columns of the assignment {column}, `{title}`; {LOOK}")
    if dropped := DROPPED.search(names[places[0]]):
        raise ExportRefused(
            f"Canvas ignores a column whose title has `{dropped[0]}`, such as `{title}`: rename the assignment there, "
            "and export again"
        )
    return Columns(places[0], place, _index(names[:first], "SIS User ID"), _index(names[:first], "SIS Login ID"))


def _refuse_header() -> Columns:
    raise ExportRefused(
        f"the export does not begin with the header of a Canvas gradebook (Student, ID, Section); {LOOK}"
    )


def _index(names: Sequence[str], name: str) -> int | None:
    return names.index(name) if name in names else None


def _students(rows: Sequence[list[Cell]], columns: Columns, maximum: Decimal) -> list[list[Cell]]:
    """The rows of students. Refuses rows that end early, and an assignment that is worth something else."""
    students, line, worth = [], 1, None
    for number, row in enumerate(rows):
        values = [cell.value for cell in row]
        text = "".join(cell.raw + cell.ending for cell in row)
        if number and not NOTHING_BUT_DELIMITERS.fullmatch(text.rstrip("\r\n")) and text.strip():
            if len(row) != len(rows[0]):
                raise ExportRefused(f"line {line} of the export has {len(row)} cells, not {len(rows[0])}; {LOOK}")
            if POINTS_POSSIBLE in values[0]:
                worth = values[columns.grade]
            elif not all(NO_STUDENT.fullmatch(value) for value in values):
                students.append(row)
        line += text.count("\n")
    _refuse_worth(worth, maximum)
    return students


def _refuse_worth(worth: str | None, maximum: Decimal) -> None:
    if worth is None:
        raise ExportRefused(f"the export has no row `{POINTS_POSSIBLE}`; {LOOK}")
    if re.search(r"read\s+only", worth):
        raise ExportRefused("this column is marked as read only in the export: Canvas would change nothing")
    if _number(worth) != maximum:
        raise ExportRefused(
            f"the assignment is worth {clean(worth.strip(), 40) or 'no'} points in Canvas, and "
            f"{hundredths(maximum)} here: make them equal there, and export again"
        )


def _number(text: str) -> Decimal | None:
    """A number as the importer reads it: the last point or comma is the decimal one."""
    if not NUMBER.fullmatch(text.strip()):
        return None
    *whole, last = re.split(r"[.,]", text.strip().rstrip("%"))
    try:
        return Decimal(f"{''.join(whole)}.{last}" if whole else last)
    except InvalidOperation:
        return None


def _grades(
    students: Sequence[list[Cell]], columns: Columns, graded: Iterable[Graded], filled: Filled
) -> dict[int, list[Decimal]]:
    """The grades of each row. Students are matched by id, SIS id or login, never by name."""
    index: dict[tuple[str, str], list[list[Cell]]] = defaultdict(list)
    for row in students:
        for key in _keys_of_row(row, columns):
            index[key].append(row)
    grades: dict[int, list[Decimal]] = defaultdict(list)
    for one in graded:
        for student in one.graded_students:
            found = {id(row) for key in _keys(student, one.submission) for row in index.get(key, [])}
            if len(found) > 1:
                filled.unclear.append(f"{_who(student, one.submission)}: {len(found)} rows fit")
            elif not found and student.final is not None:
                filled.without_row.append(_who(student, one.submission))
            elif found and student.final is not None:
                grades[found.pop()].append(student.final)
    return grades


def _keys_of_row(row: Sequence[Cell], columns: Columns) -> Iterator[tuple[str, str]]:
    places = (("id", columns.id), ("sis", columns.sis), ("login", columns.login))
    for kind, place in places:
        if place is not None and (value := row[place].value.strip()):
            yield kind, value.casefold() if kind == "login" else value


def _keys(student: StudentScore, submission: str) -> Iterator[tuple[str, str]]:
    if student.platform_id and submission.startswith("canvas-"):
        yield "id", student.platform_id.strip()
    if student.sid:
        yield "sis", student.sid.strip()
    of_github = submission.startswith("github-") and student.login == student.platform_id  # not of the campus
    for login in (None if of_github else student.login, student.email):
        if login:
            yield "login", login.strip().casefold()


def _fill(row: list[Cell], columns: Columns, grades: Sequence[Decimal], filled: Filled) -> None:
    """Write one cell, unless it is excused, not assigned, or there is no grade."""
    who = f"{clean(row[0].value, 80)} (ID {row[columns.id].value})"
    finals = {hundredths(grade) for grade in grades}
    cell = row[columns.grade]
    if cell.value.strip().upper() in KEPT:
        if finals:
            filled.left_alone.append(f"{who}: {cell.value.strip()}")
    elif not finals:
        filled.without_grade.append(who)
    elif len(finals) > 1:
        filled.unclear.append(f"{who}: {' and '.join(sorted(finals))} points")
    elif (before := _number(cell.value)) is not None and hundredths(before) in finals:
        filled.unchanged += 1
    else:
        [final] = finals
        if cell.value.strip() not in ("", "-"):
            filled.changed.append(f"{who}: {clean(cell.value.strip(), 40)} -> {final}")
        row[columns.grade] = Cell(final, final, cell.ending)
        filled.written += 1


def _who(student: StudentScore, submission: str) -> str:
    known = [student.name, student.sid, student.email, student.login]
    return f"{submission} ({', '.join(clean(one, 80) for one in known if one) or 'nobody known'})"
