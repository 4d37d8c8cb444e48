"""What came in, before anything runs: every submission with its tree, or the reason why there is none."""

from __future__ import annotations

import json
import multiprocessing
import resource
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import cast

from grader.batch.commit import committed_at
from grader.batch.contents import NOT_OPENED, Contents, read
from grader.batch.join import NOBODY, Course, joined
from grader.batch.layouts import Entry, Source, Student, read_export
from grader.batch.rejected import Code, Rejected, shown
from grader.batch.tree import Tree, proposals, tree_of
from grader.batch.unpack import opened
from grader.located import Mistake

LIMIT_S = 120.0  # for reading one submission: the largest that are taken need some ten
LOOK_LIMIT_S, LOOK_MEMORY_BYTES = 20, 1 << 30
FORK = multiprocessing.get_context("fork")
NOTHING = "no known module is there: ask for the folder assignment"
TOO_LONG = f"takes more than {LIMIT_S:.0f} s to read: ask for it packed anew"
GAVE_UP = "Python's parser gave up on it"
OURS = ": it is our mistake, and not the student's; it is tried again at the next run"
CLAIMED = "commit (claimed)"  # a committer sets the date of a commit
PARSER = Path(__file__).with_name("parse.py")


class Status(StrEnum):
    """What can be done with a submission."""

    OK = "ok"
    NO_SUBMISSION = "no_submission"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Intake:
    """One submission as it came in."""

    entry: Entry
    status: Status
    tree: Tree | None = None
    code: Code | None = None  # of a rejected one
    reason: str = ""  # what was found, where, and what to do
    notes: tuple[str, ...] = ()  # for staff
    mistakes: Mapping[str, str] = field(default_factory=dict)  # of sources that are no Python, by their path


@dataclass(frozen=True)
class Report:
    """Everything that lay in the input, and whom it lacks."""

    source: Source
    submissions: tuple[Intake, ...]
    ignored: Mapping[str, str]
    marker: str = ""  # by what the source was recognised
    absent: tuple[Student, ...] = ()  # of the roster, without a submission
    strangers: tuple[str, ...] = ()  # ids of submissions without a student of the roster
    warnings: tuple[str, ...] = ()


def take_in(place: Path, known: Collection[str], source: Source | None = None, course: Course = NOBODY) -> Report:
    """All submissions of a folder or an archive, for these modules ("gelu.py").

    Changes and runs nothing of it; no submission stops the others. Raises `Mistake` where there is nothing to read.
    """
    with opened(place) as found:
        try:
            export = read_export(found.folder, source)
        except OSError as error:
            raise Mistake(f"{shown(str(place))} cannot be read ({error.strerror})") from None
        entries = joined([_timed(entry, export.source) for entry in export.entries], export.source, course)
        submissions = tuple(_as_in(_apart(entry, known), found.folder, place) for entry in entries.entries)
    ignored = export.ignored | found.left_out
    return Report(
        export.source, submissions, ignored, export.marker, entries.absent, entries.strangers, entries.warnings
    )


def _apart(entry: Entry, known: Collection[str]) -> Intake:
    """`one` in a process of its own: what describes an archive can be made such that Python reads it for days."""
    receiving, sending = FORK.Pipe(duplex=False)
    process = FORK.Process(target=lambda: sending.send(one(entry, known)), daemon=True)
    process.start()
    sending.close()
    try:
        if receiving.poll(LIMIT_S):
            return cast(Intake, receiving.recv())
        return Intake(entry, Status.REJECTED, code=Code.TOO_BIG, reason=f"{shown(entry.name)} {TOO_LONG}")
    except EOFError:
        return Intake(entry, Status.REJECTED, code=Code.GRADER_ERROR, reason=f"the grader died of it{OURS}")
    finally:
        process.kill()
        process.join()
        receiving.close()


def one(entry: Entry, known: Collection[str]) -> Intake:
    """One submission. Whatever happens, it has a status."""
    try:
        return _read(entry, known)
    except Rejected as rejected:
        return Intake(entry, Status.REJECTED, code=rejected.code, reason=str(rejected))
    except Exception as error:  # the others must not suffer from what we did not think of
        why = shown(f"{type(error).__name__}: {error}")[:200]
        return Intake(
            entry, Status.REJECTED, code=Code.GRADER_ERROR, reason=f"the grader stumbled over it ({why}){OURS}"
        )


def _read(entry: Entry, known: Collection[str]) -> Intake:
    contents = read(entry.place)
    tree = tree_of(contents, known)
    if tree is None:
        return Intake(entry, Status.NO_SUBMISSION, reason=NOTHING, notes=(*contents.notes, *_meant(contents, known)))
    missing = [name for name in known if name not in tree.files]
    proposals = [_proposal(name, tree.proposals.get(name)) for name in missing]
    return Intake(entry, Status.OK, tree, notes=(*tree.notes, *proposals), mistakes=mistakes(tree.files))


def _proposal(name: str, meant: str | None) -> str:
    return f"there is no {name}" + (f": is it {shown(meant)}?" if meant else "")


def _meant(contents: Contents, known: Collection[str]) -> list[str]:
    """What is there instead of the known modules."""
    found = proposals(contents.sources, contents.ignored, known)
    archives = [path for path, why in contents.ignored.items() if why == NOT_OPENED]
    nested = [f"{shown(path)} is an archive in it: ask for one that is packed once" for path in archives]
    links = [f"{shown(path)} is a link: ask for the files themselves" for path in sorted(contents.links)]
    return [*(_proposal(name, meant) for name, meant in found.items()), *nested, *links]


def _timed(entry: Entry, source: Source) -> Entry:
    """With the time that a repository claims, where nobody else tells one."""
    if source is not Source.GITHUB or not isinstance(entry.place, Path):
        return entry
    claimed = committed_at(entry.place)
    return replace(entry, submitted_at=claimed, submitted_at_source=CLAIMED if claimed else None)


def _as_in(found: Intake, folder: Path, place: Path) -> Intake:
    """With places in the input, and not in the folder that it was unpacked to."""

    def moved(path: Path) -> Path:
        return place / path.relative_to(folder)

    where = found.entry.place
    there = moved(where) if isinstance(where, Path) else {name: moved(path) for name, path in where.items()}
    return replace(found, entry=replace(found.entry, place=there))


def mistakes(files: Mapping[str, bytes]) -> dict[str, str]:
    """Of sources that Python cannot read, why: by their path."""
    found = _looked_at(files)
    if found is not None:
        return found
    each = {path: _looked_at({path: content}) for path, content in files.items()}
    return {path: GAVE_UP if one is None else one[path] for path, one in each.items() if one is None or one}


def _looked_at(files: Mapping[str, bytes]) -> dict[str, str] | None:
    """The same, from another process, since sources can exhaust the parser. None where they did."""
    asked = json.dumps({path: content.hex() for path, content in files.items()})
    try:
        run = subprocess.run(
            [sys.executable, "-I", "-B", str(PARSER)], input=asked, capture_output=True, text=True,
            timeout=LOOK_LIMIT_S, check=True, preexec_fn=_limit_memory,
        )  # fmt: skip
        return {str(path): shown(str(why)) for path, why in json.loads(run.stdout).items()}
    except (subprocess.SubprocessError, ValueError):
        return None


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (LOOK_MEMORY_BYTES, LOOK_MEMORY_BYTES))
