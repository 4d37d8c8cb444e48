"""When submissions came in and when they were due, where staff say so: `--times` and `--extensions`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeVar

from grader.batch.layouts import Entry, Source, Student
from grader.batch.people import key_of, keys
from grader.batch.rejected import shown
from grader.batch.tables import Row, need_one_of, read_table
from grader.instants import instant

MOODLE_TIME = "last modified (submission)"
MOODLE_FORMATS = ("%A, %d %B %Y, %I:%M %p", "%A, %d %B %Y, %H:%M")  # in English: Friday, 2 October 2026, 9:58 PM
TIMED, EXTENDED = ("id", "sid", "email"), ("sid", "email")
TIMES_FILE, WORKSHEET = "times file", "moodle worksheet"
PARTICIPANT = "Participant "
Value = TypeVar("Value")


@dataclass(frozen=True)
class Times:
    """When submissions came in, by staff's word."""

    source: str = TIMES_FILE
    at: Mapping[str, datetime] = field(default_factory=dict)  # in UTC, by `id:` of a submission or key of a student
    students: Mapping[str, Student] = field(default_factory=dict)  # by key, where the file says who they are

    def applied(self, entry: Entry) -> Entry:
        """An entry with its time, if there is one: by its id, else by its first student who has one."""
        found = [key_of("id", entry.id), *(key for student in entry.students for key in keys(student))]
        at = next((self.at[key] for key in found if key in self.at), None)
        return replace(entry, submitted_at=at, submitted_at_source=self.source) if at else entry


NO_TIMES = Times()


@dataclass(frozen=True)
class Extension:
    """More time for one student: another date, or hours on top."""

    due: datetime | None = None  # in UTC
    extra: timedelta = timedelta()


def read_times(path: Path, zone: tzinfo | None = None) -> Times:
    """A CSV with `submitted_at` and one of `id` (of a submission), `sid`, `email`; or Moodle's grading worksheet.

    `zone` holds for times that have none. Without it they are refused. Raises `Mistake`.
    """
    columns, rows = read_table(path)
    if "identifier" in columns:
        return _read_worksheet(path, columns, rows, zone)
    need_one_of(path, columns, ("submitted_at",))
    need_one_of(path, columns, TIMED)
    at: dict[str, datetime] = {}
    for row in rows:
        if text := row.get("submitted_at"):
            _enter(row, at, _keys(row, TIMED), _instant(row, text, zone))
    return Times(TIMES_FILE, at)


def read_extensions(path: Path) -> dict[str, Extension]:
    """Extensions by the student's key: a CSV with `sid` or `email`, and `due` or `extra_hours`. Raises `Mistake`."""
    columns, rows = read_table(path)
    need_one_of(path, columns, EXTENDED)
    need_one_of(path, columns, ("due", "extra_hours"))
    found: dict[str, Extension] = {}
    for row in rows:
        due, hours = row.get("due"), row.get("extra_hours")
        if (due is None) == (hours is None):
            row.refuse("there must be either `due` or `extra_hours`")
        extension = Extension(_instant(row, due, None)) if due else Extension(extra=_hours(row, hours or ""))
        _enter(row, found, _keys(row, EXTENDED), extension)
    return found


def _read_worksheet(path: Path, columns: list[str], rows: list[Row], zone: tzinfo | None) -> Times:
    """`Identifier` is `Participant <id>`, which the names of folders have, too."""
    need_one_of(path, columns, (MOODLE_TIME,))
    at: dict[str, datetime] = {}
    students: dict[str, Student] = {}
    for row in rows:
        number = (row.get("identifier") or "").removeprefix(PARTICIPANT)
        if not number.isdecimal():
            row.refuse(f"`Identifier` is `{shown(row.get('identifier') or '')}`, and must be `{PARTICIPANT}<number>`")
        key = key_of(Source.MOODLE, number)
        student = Student(row.get("id number"), row.get("email address"), name=row.get("full name"))
        _enter(row, students, [key], student)
        if (text := row.get(MOODLE_TIME)) and text != "-":
            at[key] = _instant(row, text, zone)
    return Times(WORKSHEET, at, students)


def _enter(row: Row, entries: dict[str, Value], found: list[str], value: Value) -> None:
    """Enter a value by each of these keys. Raises `Mistake` where one has another already."""
    for key in found:
        if key in entries:
            row.refuse(f"`{shown(key.partition(':')[2])}` stands there twice")
        entries[key] = value


def _keys(row: Row, columns: tuple[str, ...]) -> list[str]:
    found = [key_of(column, row.get(column)) for column in columns if row.get(column)]
    return found or row.refuse(f"there is none of {', '.join(columns)}")


def _instant(row: Row, text: str, zone: tzinfo | None) -> datetime:
    for form in MOODLE_FORMATS:
        with suppress(ValueError):
            text = datetime.strptime(text, form).isoformat(" ")
    try:
        return instant(text, zone)
    except ValueError as error:
        row.refuse(shown(str(error)))


def _hours(row: Row, text: str) -> timedelta:
    try:
        microseconds = Decimal(text) * 3_600_000_000
        extra = timedelta(microseconds=int(microseconds))
        return extra if microseconds > 0 else row.refuse("`extra_hours` must be more than 0")
    except (InvalidOperation, OverflowError, ValueError):
        row.refuse(f"`extra_hours` is `{shown(text)}`, and must be a number of hours")
