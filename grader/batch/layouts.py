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
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from grader.batch.archives import ARCHIVES
from grader.batch.contents import SUFFIX
from grader.batch.rejected import shown
from grader.instants import instant
from grader.located import Mistake

METADATA = "submission_metadata.yml"
CANVAS_ANONYMOUS = re.compile(r"^(?P<late>LATE_)?anon_(?P<anon>[^_]+)_(?P<attachment>\d+)_(?P<file>.+)$")
CANVAS_NAMED = re.compile(r"^(?P<name>.*?)_(?P<late>LATE_)?(?P<user>\d+)_(?P<attachment>\d+)_(?P<file>.+)$")
CANVAS_TEXT = re.compile(r"^(?P<name>.*?)_(?P<late>LATE_)?(?P<user>\d+)_(?P<kind>text|link)\.html$")
CANVAS_NUMBERED = re.compile(r"^(?P<stem>.+)-(?P<number>\d+)(?P<suffix>\.[^.]+)$")
MOODLE = re.compile(r"^(?P<name>.+?)(?:_(?P<id>\d+))?_assignsubmission_(?P<plugin>file|onlinetext)_?(?P<file>.+)?$")
LEFT_BEHIND = ("__MACOSX", ".DS_Store", "Thumbs.db")
SUBMISSIONS = "-submissions"  # how the folder of a GitHub Classroom ends
ID_LENGTH = 64
HASH_LENGTH = 16  # hexadecimal digits in an id: so many that nobody finds a name with the id of another one's
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
    platform: str | None = None  # where `platform_id` is from


@dataclass(frozen=True)
class Entry:
    """One submission, unopened."""

    id: str  # lower case ASCII, the same in each run, safe as a file name
    place: Path | Mapping[str, Path]  # a folder, an archive, or files by their path in it
    students: tuple[Student, ...] = ()
    submitted_at: datetime | None = None  # in UTC
    late: bool | None = None  # as far as the export says it without a time
    name: str = ""  # what it is called in the input
    submitted_at_source: str | None = None  # who says so


@dataclass
class Export:
    """What was found."""

    source: Source
    marker: str = ""  # by what it was recognised
    entries: list[Entry] = field(default_factory=list)
    ignored: dict[str, str] = field(default_factory=dict)  # names in the input, and why


def recognised(root: Path) -> tuple[Source, str]:
    """The source of a folder, and by which marker."""
    names = names_in(root)
    if file := _metadata(root):
        return Source.GRADESCOPE, f"{file.relative_to(root)} is there"
    source = max(NAMED, key=lambda source: _count(names, NAMED[source][0]))
    is_its_name, words = NAMED[source]
    if _most(names, is_its_name):
        return source, f"{_share(names, is_its_name)} names {words}"
    folders = [name for name in names if (root / name).is_dir()]
    if folders and root.name.endswith(SUBMISSIONS):
        return Source.GITHUB, f"the folder's name ends in {SUBMISSIONS}"
    if _most(_submissions(root), lambda name: (root / name / ".git").exists()):
        return Source.GITHUB, f"{_share(folders, lambda name: (root / name / '.git').exists())} folders hold .git"
    return Source.PLAIN, "nothing of another source"


def read_export(root: Path, source: Source | None = None) -> Export:
    """All submissions of a folder, of this source or of the one that is recognised. Raises `Mistake`."""
    export = Export(source, "as asked for") if source else Export(*recognised(root))
    for name in sorted(set(os.listdir(root)) - set(names_in(root))):
        export.ignored[name] = BY_THE_SYSTEM
    READERS[export.source](root, export)
    return export


def slug(text: str) -> str:
    """Letters and digits of a name in lower case ASCII, for an id."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")


def _gradescope(root: Path, export: Export) -> None:
    """A folder for each submission, unpacked, and who and when in one YAML file."""
    file = _metadata(root)
    if file is None:
        export.ignored |= dict.fromkeys(names_in(root), f"there is no {METADATA}")
        return
    home, known = file.parent, _known(file)
    if home != root:
        export.ignored |= dict.fromkeys(set(names_in(root)) - {home.name}, "beside the export")
    for name in names_in(home):
        if name in known and (home / name).is_dir():
            said = known[name] if isinstance(known[name], dict) else {}
            students = tuple(map(_submitter, _list(said.get(":submitters"))))
            at = _time(said)
            export.entries.append(
                Entry(_id("gradescope", name.removeprefix("submission_")), home / name, students, at, name=name,
                      submitted_at_source=export.source if at else None)
            )  # fmt: skip
        elif name != METADATA:
            export.ignored[name] = f"{METADATA} does not name it as a folder"
    for name in sorted(set(known) - set(names_in(home))):
        export.ignored[str(name)] = f"{METADATA} names it, and it is not there"


def _known(file: Path) -> dict[str, Any]:
    """What Gradescope says of each folder: everything is a string, and so nobody is called False."""
    try:
        known = yaml.load(file.read_bytes(), Loader=yaml.CBaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise Mistake(f"{METADATA}{line} cannot be read: download the export again") from None
    return known if isinstance(known, dict) else {}


def _submitter(said: Any) -> Student:
    found = {key: said.get(f":{key}") or None for key in ("sid", "email", "name")} if isinstance(said, dict) else {}
    return Student(**{key: str(value) for key, value in found.items() if value})


def _time(said: Mapping[str, Any]) -> datetime | None:
    """2026-10-02 21:58:03.365935000 Z: nanoseconds are cut off."""
    try:
        return instant(str(said.get(":created_at", "")))
    except ValueError:
        return None


def _moodle(root: Path, export: Export) -> None:
    """A folder, or a prefix of file names, for each student or group."""
    found: dict[str, Entry] = {}
    for name in names_in(root):
        match = MOODLE.match(name)
        if not match or match["plugin"] == "onlinetext":
            export.ignored[name] = "text that was typed in" if match else "not named as Moodle names submissions"
            continue
        id = _id("moodle", match["id"] or match["name"])
        student = Student(name=match["name"].replace("_", " "), platform_id=match["id"], platform=export.source)
        called = f"{match['name']}_{match['id']}" if match["id"] else match["name"]
        entry = found.setdefault(id, Entry(id, {}, (student,), name=called))
        path = root / name
        inside = "" if path.is_dir() and not path.is_symlink() else match["file"] or name
        _files(entry)[inside if inside not in _files(entry) else name] = path
    export.entries += found.values()


def _canvas_files(root: Path, export: Export) -> None:
    """Flat: name, whether it is late, user, attachment and file name in one."""
    found: dict[str, Entry] = {}
    matches: list[re.Match[str]] = []
    for name in names_in(root):
        match = _canvas(name)
        if match is None or match.re is CANVAS_TEXT:
            export.ignored[name] = "text that was typed in" if match else "not named as Canvas names submissions"
        else:
            matches.append(match)
    for match in sorted(matches, key=lambda match: -int(match["attachment"])):  # what was handed in last has the name
        entry = found.setdefault(_canvas_id(match), _canvas_entry(match))
        inside = match["file"] if match["file"] not in _files(entry) else match.string
        _files(entry)[inside] = root / match.string
        found[entry.id] = replace(entry, late=entry.late or bool(match["late"]))
    export.entries += [replace(found[id], place=_unnumbered(_files(found[id]))) for id in sorted(found)]


def _canvas_id(match: re.Match[str]) -> str:
    said = match.groupdict()
    return _id("canvas-anon", said["anon"]) if "anon" in said else _id("canvas", said["user"])


def _canvas_entry(match: re.Match[str]) -> Entry:
    """Who it is, and nothing of it yet."""
    said = match.groupdict()
    user, platform = said.get("user") or said["anon"], "canvas" if "user" in said else "canvas-anon"
    student = Student(name=said.get("name"), platform_id=user, platform=platform)
    return Entry(_canvas_id(match), {}, (student,), late=False, name=f"{said.get('name', 'anon')}_{user}")


def _files(entry: Entry) -> dict[str, Path]:
    """The files of an entry that is being put together."""
    assert isinstance(entry.place, dict)
    return entry.place


def _unnumbered(files: Mapping[str, Path]) -> dict[str, Path]:
    """Without the number that Canvas gives a name which was handed in before, where the plain name is not there."""
    found: dict[str, Path] = {}
    for name, path in sorted(files.items(), key=lambda item: (_number(item[0]), item[0])):
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
    folders = [name for name in names_in(root) if (root / name).is_dir()]
    shared = root.name.removesuffix(SUBMISSIONS) if root.name.endswith(SUBMISSIONS) else _shared(folders)
    for name in names_in(root):
        if name not in folders:
            export.ignored[name] = "not a repository"
            continue
        login = name.removeprefix(shared).removeprefix("-") or name
        student = Student(login=login, platform_id=login, platform=export.source)
        export.entries.append(Entry(_id("github", login.lower()), root / name, (student,), name=name))


def _shared(names: Iterable[str]) -> str:
    """What all names begin with, up to a hyphen: logins may hold hyphens, too."""
    whole = sorted(f"{name}-" for name in names) or [""]
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(whole[0], whole[-1], strict=False))
    return "".join(letter for letter, _ in alike).rpartition("-")[0]


def _plain(root: Path, export: Export) -> None:
    """Each folder, archive or Python file is a submission."""
    for name in names_in(root):
        path = root / name
        if _is_one(path):
            id = f"{slug(path.stem) or 'unnamed'}-{_short_hash(name)}"
            export.entries.append(Entry(_id("plain", id), path, name=name))
        else:
            export.ignored[name] = "no folder, archive or Python file"


def _submissions(root: Path) -> list[str]:
    """The names of all that can be a submission."""
    return [name for name in names_in(root) if _is_one(root / name)]


def _is_one(path: Path) -> bool:
    """Whether it can be a submission."""
    return path.is_dir() or path.name.lower().endswith(ARCHIVES) or path.suffix == SUFFIX


READERS: Mapping[Source, Callable[[Path, Export], None]] = {
    Source.GRADESCOPE: _gradescope, Source.MOODLE: _moodle, Source.CANVAS: _canvas_files, Source.GITHUB: _github,
    Source.PLAIN: _plain,
}  # fmt: skip


# How a source names all that it writes. What students name can look like another source's, but not as often.
NAMED: Mapping[Source, tuple[Callable[[str], object], str]] = {
    Source.MOODLE: (MOODLE.match, "hold _assignsubmission_"), Source.CANVAS: (_canvas, "are as Canvas writes them"),
}  # fmt: skip


def names_in(root: Path) -> list[str]:
    """The entries of a folder that people have put there."""
    names = (name for name in os.listdir(root) if name not in LEFT_BEHIND and not name.startswith("."))
    return sorted(names, key=lambda name: (slug(shown(name)), name))


def _metadata(root: Path) -> Path | None:
    """Gradescope's file, in the folder or in the only one in it: that in one submission of several is a student's."""
    submissions = _submissions(root)
    below = [root / name / METADATA for name in submissions] if len(submissions) == 1 else []
    return next((path for path in (root / METADATA, *below) if path.is_file()), None)


def _id(source: str, name: str) -> str:
    """Letters that an id lacks are told by a hash, so that two names are two ids."""
    plain = slug(name)
    whole = f"{source}-{plain}" if plain == name else f"{source}-{plain or 'unnamed'}-{_short_hash(name)}"
    return whole if len(whole) <= ID_LENGTH else f"{whole[: ID_LENGTH - HASH_LENGTH - 1]}-{_short_hash(whole)}"


def _short_hash(name: str) -> str:
    return hashlib.sha256(os.fsencode(name)).hexdigest()[:HASH_LENGTH]


def _most(names: Collection[str], is_one: Callable[[str], object]) -> bool:
    return _count(names, is_one) > len(names) / 2


def _share(names: Collection[str], is_one: Callable[[str], object]) -> str:
    return f"{_count(names, is_one)} of {len(names)}"


def _count(names: Iterable[str], is_one: Callable[[str], object]) -> int:
    return sum(map(bool, map(is_one, names)))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
