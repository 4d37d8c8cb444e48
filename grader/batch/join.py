"""Submissions joined with what staff say of a class: whose they are, when they came in, and who is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from grader.batch.archives import ARCHIVES
from grader.batch.contents import SUFFIX
from grader.batch.layouts import Entry, Source, Student
from grader.batch.people import OWN, Roster, identity, key_of, keys
from grader.batch.rejected import shown
from grader.batch.times import NO_TIMES, Times

COPY = re.compile(r"(?P<stem>.+?) ?\((?P<number>\d+)\)$")  # "ada (2)", as browsers and people number copies


@dataclass(frozen=True)
class Course:
    """What staff say of a class, beside its submissions."""

    roster: Roster | None = None
    names: Mapping[str, tuple[Student, ...]] = field(default_factory=dict)  # whose a file or folder of the input is
    times: Times = NO_TIMES


NOBODY = Course()


@dataclass(frozen=True)
class Joined:
    """Submissions with their students."""

    entries: tuple[Entry, ...]
    absent: tuple[Student, ...] = ()  # of the roster, without a submission
    strangers: tuple[str, ...] = ()  # ids of submissions without a student of the roster
    warnings: tuple[str, ...] = ()


def joined(entries: Sequence[Entry], source: Source, course: Course) -> Joined:
    """Submissions with all that is known of their students, and who is missing on either side."""
    known = tuple(_known(entry, source, course) for entry in entries)
    warnings = [*_unused(entries, course), *(_alike(known) if source is Source.PLAIN else ())]
    if course.roster is None:
        return Joined(known, warnings=tuple(warnings))
    rows = {entry.id: [row for one in entry.students if (row := course.roster.find(keys(one)))] for entry in known}
    present = {identity(row) for found in rows.values() for row in found}
    absent = tuple(student for student in course.roster.students if identity(student) not in present)
    return Joined(known, absent, tuple(id for id, found in rows.items() if not found), tuple(warnings))


def copy_of(name: str) -> tuple[str, int]:
    """What a plain submission is called, without its suffix and without the number of a copy, and that number.

    >>> [copy_of(name) for name in ("ada", "ada.zip", "ada (2).zip")]
    [('ada', 1), ('ada', 1), ('ada', 2)]
    """
    suffixes = sorted((*ARCHIVES, SUFFIX), key=len, reverse=True)
    suffix = next((suffix for suffix in suffixes if name.lower().endswith(suffix)), "")
    stem = name[: len(name) - len(suffix)]
    match = COPY.match(stem)
    return (match["stem"], int(match["number"])) if match else (stem, 1)


def _known(entry: Entry, source: Source, course: Course) -> Entry:
    """An entry with its students; of a plain one, whoever has its name as an id in the roster."""
    students = course.names.get(entry.name, entry.students)
    if not students and source is Source.PLAIN and course.roster:
        name, _ = copy_of(entry.name)
        one = course.roster.find(key_of(kind, name) for kind in (*OWN, "github"))
        students = (one,) if one else ()
    entry = replace(entry, students=tuple(_merged(student, course) for student in students))
    return course.times.applied(entry)


def _merged(student: Student, course: Course) -> Student:
    """A student with what the roster and the platform's own list know."""
    if listed := course.times.students.get(identity(student)):
        student = _filled(listed, student)
    row = course.roster.find(keys(student)) if course.roster else None
    return _filled(row, student) if row else student


def _filled(known: Student, student: Student) -> Student:
    """What is known, else what the export says; the platform's id is the export's."""
    return replace(
        student, sid=known.sid or student.sid, email=known.email or student.email, login=known.login or student.login,
        name=known.name or student.name,
    )  # fmt: skip


def _unused(entries: Iterable[Entry], course: Course) -> list[str]:
    """What staff say of submissions that are not there."""
    names, ids = {entry.name for entry in entries}, {key_of("id", entry.id) for entry in entries}
    times = [key.removeprefix("id:") for key in course.times.at if key.startswith("id:") and key not in ids]
    return [
        *(f"`{shown(name)}` belongs to somebody, and is not there" for name in course.names if name not in names),
        *(f"there is a time of `{shown(id)}`, and no such submission" for id in times),
    ]


def _alike(entries: Iterable[Entry]) -> list[str]:
    """Plain submissions whose names say that they are one student's, and that nobody says are."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(copy_of(entry.name)[0].casefold(), []).append(entry)
    return [
        f"{' and '.join(shown(entry.name) for entry in group)} look like attempts of one student, and count as "
        "several: name whose they are in a roster or with --names"
        for group in groups.values() if len(group) > 1 and not all(entry.students for entry in group)
    ]  # fmt: skip
