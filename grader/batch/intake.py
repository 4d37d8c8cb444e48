"""What came in, before anything runs: every submission with its tree, or the reason why there is none."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from grader.batch.contents import read
from grader.batch.layouts import Entry, Source, read_export
from grader.batch.rejected import Code, Rejected, shown
from grader.batch.tree import Tree, tree_of

LOOK_LIMIT_S, LOOK_MEMORY_BYTES = 20, 1 << 30
NOTHING = "no known module is there"
GAVE_UP = "Python's parser gave up on it"
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
    """Everything that lay in the input."""

    source: Source
    submissions: tuple[Intake, ...]
    ignored: Mapping[str, str]


def take_in(root: Path, known: Collection[str], source: Source | None = None) -> Report:
    """All submissions of a folder, for these modules ("gelu.py"). Changes and runs nothing; none stops the others."""
    export = read_export(root, source)
    return Report(export.source, tuple(one(entry, known) for entry in export.entries), export.ignored)


def one(entry: Entry, known: Collection[str]) -> Intake:
    """One submission."""
    try:
        contents = read(entry.place)
        tree = tree_of(contents, known)
    except Rejected as rejected:
        return Intake(entry, Status.REJECTED, code=rejected.code, reason=str(rejected))
    if tree is None:
        return Intake(entry, Status.NO_SUBMISSION, reason=NOTHING, notes=tuple(contents.notes))
    proposals = [f"there is no {name}: is it {shown(meant)}?" for name, meant in tree.proposals.items()]
    return Intake(entry, Status.OK, tree, notes=(*tree.notes, *proposals), mistakes=mistakes(tree.files))


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
