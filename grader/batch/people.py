"""Who students are: what they are known by, and what a course's lists say of them.

Entry points: `keys`, `identity`, `read_roster`, `read_names`. Students are found by ids, never by their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.batch.layouts import Source, Student
from grader.batch.rejected import shown
from grader.batch.tables import Row, need_one_of, read_table

IDS = ("sid", "email", "login", "github", "canvas_id", "moodle_id")  # columns of a roster
OWN = ("sid", "email", "login")  # those of a student anywhere


@dataclass(frozen=True)
class Roster:
    """The students of a course, each by all keys that it is known by."""

    students: tuple[Student, ...]
    by_key: Mapping[str, Student]

    def find(self, found: Iterable[str]) -> Student | None:
        """The student of the first of these keys that one has."""
        return next((self.by_key[key] for key in found if key in self.by_key), None)


def keys(student: Student) -> list[str]:
    """What a student is known by, the most certain first: `sid:0123`, `email:ada@example.edu`, `canvas:1001`."""
    of_github = student.platform == Source.GITHUB  # whose logins are not those of the campus
    kinds = [kind for kind in OWN if not (kind == "login" and of_github and student.login == student.platform_id)]
    found = [key_of(kind, getattr(student, kind)) for kind in kinds]
    return [key for key in (*found, key_of(student.platform or "platform", student.platform_id)) if key]


def key_of(kind: str, value: str | None) -> str:
    """A key; empty without a value. Only student ids and those of Canvas know upper and lower case."""
    return f"{kind}:{value.lower() if kind in ('email', 'login', 'github') else value}" if value else ""


def identity(student: Student) -> str:
    """The first of student id, e-mail address, login and platform's id; empty if only a name is known."""
    return next(iter(keys(student)), "")


def read_roster(path: Path) -> Roster:
    """A roster: a CSV with at least one of the columns in `IDS`, and `name`. Raises `Mistake`."""
    columns, rows = read_table(path)
    need_one_of(path, columns, IDS)
    lines: dict[str, int] = {}
    students: list[Student] = []
    by_key: dict[str, Student] = {}
    for row in rows:
        found = {column: key_of(column.removesuffix("_id"), row.get(column)) for column in IDS if row.get(column)}
        if not found:
            row.refuse(f"there is none of {', '.join(IDS)}: a student is never found by name")
        for column, key in found.items():
            if lines.setdefault(key, row.line) != row.line:
                row.refuse(f"{column} `{shown(row.values[column])}` is in line {lines[key]}, too")
        students.append(_listed(row))
        by_key |= dict.fromkeys(found.values(), students[-1])
    return Roster(tuple(students), by_key)


def read_names(path: Path) -> dict[str, tuple[Student, ...]]:
    """Whose each file or folder of the input is: a CSV with `name`, and `sid`, `email` or `login`. Raises `Mistake`.

    Several rows with one name are a group, several names of one student are attempts.
    """
    columns, rows = read_table(path)
    need_one_of(path, columns, ("name",))
    need_one_of(path, columns, OWN)
    found: dict[str, tuple[Student, ...]] = {}
    for row in rows:
        name, student = row.get("name"), Student(*map(row.get, OWN))
        if name is None:
            row.refuse("`name` is empty: which file or folder is it?")
        if not identity(student):
            row.refuse(f"`{shown(name)}` is nobody's: there is none of {', '.join(OWN)}")
        found[name.rstrip("/")] = (*found.get(name.rstrip("/"), ()), student)
    return found


def _listed(row: Row) -> Student:
    """A row of a roster; the platform's id is that of the first column that has one."""
    column = next((column for column in IDS if column not in OWN and row.get(column)), "")
    return Student(
        row.get("sid"), row.get("email"), row.get("login"), row.get("name"), row.get(column),
        column.removesuffix("_id") or None,
    )  # fmt: skip
