"""Which submissions a course's export holds: recognised by what Gradescope, Canvas, Moodle and GitHub Classroom write.

Nothing of a submission is opened here. Every entry of the input comes out once: in a submission, or ignored with the
reason. Sources: gradescope/autograder_samples; instructure/canvas-lms, lib/content_zipper.rb; moodle/moodle,
mod/assign/classes/downloader.php.
"""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from grader.batch.archives import ARCHIVES
from grader.batch.contents import SUFFIX
from grader.batch.rejected import shown

METADATA = "submission_metadata.yml"
CANVAS_ANONYMOUS = re.compile(r"^(?P<late>LATE_)?anon_(?P<anon>[^_]+)_(?P<attachment>\d+)_(?P<file>.+)$")
CANVAS_NAMED = re.compile(r"^(?P<name>.*?)_(?P<late>LATE_)?(?P<user>\d+)_(?P<attachment>\d+)_(?P<file>.+)$")
CANVAS_TEXT = re.compile(r"^(?P<name>.*?)_(?P<late>LATE_)?(?P<user>\d+)_(?P<kind>text|link)\.html$")
CANVAS_NUMBERED = re.compile(r"^(?P<stem>.+)-(?P<number>\d+)(?P<suffix>\.[^.]+)$")
MOODLE = re.compile(r"^(?P<name>.+?)(?:_(?P<id>\d+))?_assignsubmission_(?P<plugin>file|onlinetext)_?(?P<file>.+)?$")
LEFT_BEHIND = ("__MACOSX", ".DS_Store", "Thumbs.db")
ID_LENGTH = 64
BY_THE_SYSTEM = "left by the operating system"


class Source(StrEnum):
    """Where a course's submissions come from."""

    GRADESCOPE = "gradescope"
    MOODLE = "moodle"
    CANVAS = "canvas"
    GITHUB = "github"
    PLAIN = "plain"


@dataclass(frozen=True)
class Student:
    """Who handed in, as far as the export says. Names are for showing, never for matching."""

    sid: str | None = None
    email: str | None = None
    login: str | None = None
    name: str | None = None
    platform_id: str | None = None  # of the user there


@dataclass(frozen=True)
class Entry:
    """One submission, unopened."""

    id: str  # lower case ASCII, the same in each run, safe as a file name
    place: Path | Mapping[str, Path]  # a folder, an archive, or files by their path in it
    students: tuple[Student, ...] = ()
    submitted_at: datetime | None = None  # in UTC, by the platform
    late: bool | None = None  # as far as the export says it without a time


@dataclass
class Export:
    """What was found."""

    source: Source
    entries: list[Entry] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)  # names in the input, and why


def recognised(root: Path) -> Source:
    """The source of a folder, by its markers."""
    names = _names(root)
    if _metadata(root):
        return Source.GRADESCOPE
    if any(MOODLE.match(name) for name in names):
        return Source.MOODLE
    matching = [name for name in names if _canvas(name)]
    if len(matching) > len(names) / 2:
        return Source.CANVAS
    folders = [name for name in names if (root / name).is_dir()]
    with_history = [name for name in folders if (root / name / ".git").exists()]
    if folders and (root.name.endswith("-submissions") or len(with_history) > len(folders) / 2):
        return Source.GITHUB
    return Source.PLAIN


def read_export(root: Path, source: Source | None = None) -> Export:
    """All submissions of a folder, of this source or of the one that is recognised."""
    source = source or recognised(root)
    export = Export(source)
    for name in sorted(set(os.listdir(root)) - set(_names(root))):
        export.ignored[name] = BY_THE_SYSTEM
    READERS[source](root, export)
    return export


def slug(text: str) -> str:
    """Letters and digits of a name in lower case ASCII, for an id."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _gradescope(root: Path, export: Export) -> None:
    """A folder for each submission, unpacked, and who and when in one YAML file."""
    file = _metadata(root)
    if file is None:
        export.ignored |= dict.fromkeys(_names(root), f"there is no {METADATA}")
        return
    known = yaml.load(file.read_bytes(), Loader=yaml.CBaseLoader)  # everything a string: no one is called False
    if not isinstance(known, dict):
        known = {}
    home = file.parent
    for name in _names(home):
        if name in known and (home / name).is_dir():
            said = known[name] if isinstance(known[name], dict) else {}
            students = tuple(map(_submitter, _list(said.get(":submitters"))))
            export.entries.append(
                Entry(_id("gradescope", name.removeprefix("submission_")), home / name, students, _time(said))
            )
        elif name != METADATA:
            export.ignored[name] = f"{METADATA} does not name it"
    for name in sorted(set(known) - set(_names(home))):
        export.ignored[str(name)] = f"{METADATA} names it, and it is not there"


def _submitter(said: Any) -> Student:
    found = {key: said.get(f":{key}") or None for key in ("sid", "email", "name")} if isinstance(said, dict) else {}
    return Student(**{key: str(value) for key, value in found.items() if value})


def _time(said: Mapping[str, Any]) -> datetime | None:
    """2026-10-02 21:58:03.365935000 Z: nanoseconds are cut off."""
    text = str(said.get(":created_at", "")).strip()
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,6})?\d*\s*(Z|UTC|[+-]\d\d:?\d\d)", text)
    if not match:
        return None
    day, clock, fraction, zone = match.groups()
    zone = "+00:00" if zone in ("Z", "UTC") else zone
    return datetime.fromisoformat(f"{day}T{clock}{(fraction or '.0').ljust(7, '0')}{zone}").astimezone(UTC)


def _moodle(root: Path, export: Export) -> None:
    """A folder, or a prefix of file names, for each student or group."""
    places: dict[str, dict[str, Path]] = {}
    students: dict[str, Student] = {}
    for name in _names(root):
        match = MOODLE.match(name)
        if not match or match["plugin"] == "onlinetext":
            export.ignored[name] = "text that was typed in" if match else "not named as Moodle names submissions"
            continue
        identity = _id("moodle", match["id"] or slug(match["name"]))
        students[identity] = Student(name=match["name"].replace("_", " "), platform_id=match["id"])
        files = places.setdefault(identity, {})
        if (root / name).is_dir():
            files |= {path.relative_to(root / name).as_posix(): path for path in sorted((root / name).rglob("*"))
                      if not path.is_dir() or path.is_symlink()}  # fmt: skip
        else:
            files[match["file"] or name] = root / name
    export.entries += [Entry(identity, files, (students[identity],)) for identity, files in places.items()]


def _canvas_files(root: Path, export: Export) -> None:
    """Flat: name, whether it is late, user, attachment and file name in one."""
    files: dict[str, dict[str, Path]] = {}
    students: dict[str, Student] = {}
    late: dict[str, bool] = {}
    for name in _names(root):
        match = _canvas(name)
        if match is None or match.re is CANVAS_TEXT:
            export.ignored[name] = "text that was typed in" if match else "not named as Canvas names submissions"
            continue
        said = match.groupdict()
        identity = _id("canvas-anon", said["anon"]) if "anon" in said else _id("canvas", said["user"])
        students[identity] = Student(name=said.get("name"), platform_id=said.get("user"))
        late[identity] = late.get(identity, False) or bool(said["late"])
        files.setdefault(identity, {})[said["file"]] = root / name
    export.entries += [
        Entry(identity, _unnumbered(theirs), (students[identity],), late=late[identity])
        for identity, theirs in files.items()
    ]


def _unnumbered(files: Mapping[str, Path]) -> dict[str, Path]:
    """Without the number that Canvas gives a name which was handed in before, where the plain name is not there."""
    found: dict[str, Path] = {}
    for name, path in sorted(files.items(), key=lambda item: _number(item[0])):
        match = CANVAS_NUMBERED.match(name)
        plain = match["stem"] + match["suffix"] if match else name
        found[plain if plain not in files and plain not in found else name] = path
    return found


def _number(name: str) -> int:
    match = CANVAS_NUMBERED.match(name)
    return -int(match["number"]) if match else 0  # of several numbers the last was handed in last


def _canvas(name: str) -> re.Match[str] | None:
    return CANVAS_ANONYMOUS.match(name) or CANVAS_TEXT.match(name) or CANVAS_NAMED.match(name)


def _github(root: Path, export: Export) -> None:
    """A repository for each user or team, named by a slug that they share and their login."""
    folders = [name for name in _names(root) if (root / name).is_dir()]
    shared = root.name.removesuffix("-submissions") if root.name.endswith("-submissions") else _shared(folders)
    for name in _names(root):
        if name not in folders:
            export.ignored[name] = "not a repository"
            continue
        login = name.removeprefix(shared).removeprefix("-") or name
        export.entries.append(Entry(_id("github", login), root / name, (Student(login=login),)))


def _shared(names: Iterable[str]) -> str:
    """What all names begin with, up to a hyphen: logins may hold hyphens, too."""
    whole = sorted(f"{name}-" for name in names) or [""]
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(whole[0], whole[-1], strict=False))
    return "".join(letter for letter, _ in alike).rpartition("-")[0]


def _plain(root: Path, export: Export) -> None:
    """Each folder, archive or Python file is a submission."""
    for name in _names(root):
        path = root / name
        if path.is_dir() or name.lower().endswith(ARCHIVES) or path.suffix == SUFFIX:
            whole = hashlib.sha256(os.fsencode(name)).hexdigest()[:4]
            export.entries.append(Entry(_id("plain", f"{slug(path.stem) or 'unnamed'}-{whole}"), path))
        else:
            export.ignored[name] = "no folder, archive or Python file"


READERS: Mapping[Source, Callable[[Path, Export], None]] = {
    Source.GRADESCOPE: _gradescope, Source.MOODLE: _moodle, Source.CANVAS: _canvas_files, Source.GITHUB: _github,
    Source.PLAIN: _plain,
}  # fmt: skip


def _names(root: Path) -> list[str]:
    """The entries of a folder that people have put there."""
    names = (name for name in os.listdir(root) if name not in LEFT_BEHIND and not name.startswith("."))
    return sorted(names, key=lambda name: (slug(shown(name)), name))


def _metadata(root: Path) -> Path | None:
    """Gradescope's file, in the folder or one below."""
    below = [root / name / METADATA for name in _names(root)]
    return next((path for path in (root / METADATA, *below) if path.is_file()), None)


def _id(source: str, name: str) -> str:
    whole = f"{source}-{slug(name) or hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"
    return (
        whole
        if len(whole) <= ID_LENGTH
        else f"{whole[: ID_LENGTH - 9]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"
    )


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
