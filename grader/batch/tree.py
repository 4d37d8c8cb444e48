"""From what lies in a submission to the tree that is graded: the package with the known modules, and its hash."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from grader.batch.contents import Contents, folded
from grader.batch.rejected import Code, Rejected, shown
from grader.closest import closest
from grader.judge.snapshot import PACKAGE, Refused, refuse_files, tree_sha256

OUTSIDE = "outside the folder with the known modules"


@dataclass(frozen=True)
class Tree:
    """Python sources by their path below the package."""

    folder: str  # of the package in the submission; empty for the submission itself
    files: Mapping[str, bytes]
    ignored: Mapping[str, str]  # by the path in the submission: why it does not count
    proposals: Mapping[str, str]  # for known modules that are missing, names that somebody may have meant
    notes: tuple[str, ...]

    @property
    def sha256(self) -> str:
        return tree_sha256(self.files)


def tree_of(contents: Contents, known: Collection[str]) -> Tree | None:
    """The package with the known modules ("gelu.py"), or None. Raises `Rejected` where more than one could be meant."""
    folder = _package(contents, known)
    if folder is None:
        _refuse_link(path for path in contents.links if PurePosixPath(path).name in known)
        return None
    inside = PurePosixPath(folder)
    files, ignored = dict[str, bytes](), dict(contents.ignored)
    for path, content in contents.sources.items():
        if PurePosixPath(path).is_relative_to(inside):
            files[str(PurePosixPath(path).relative_to(inside))] = content
        else:
            ignored[path] = OUTSIDE
    _refuse_link(path for path in contents.links if path in {str(inside / name) for name in known})
    notes = [*contents.notes, *_clashes(files, known)]
    _refuse_files(files)
    return Tree("" if folder == "." else folder, files, ignored, proposals(files, ignored, known), tuple(notes))


def _refuse_link(modules: Iterable[str]) -> None:
    """Raises `Rejected` if there is one: nothing is read through it."""
    if path := min(modules, default=None):
        raise Rejected(Code.LINK, f"{shown(path)} is a link, or no regular file", "ask for the file itself")


def _refuse_files(files: Mapping[str, bytes]) -> None:
    """Raises `Rejected` for what a judge would refuse: that would be an error of ours, again and again."""
    try:
        refuse_files({path: len(content) for path, content in files.items()})
    except Refused as refused:
        raise Rejected(Code.TOO_BIG, shown(str(refused)), "ask for the assignment only") from None


def _package(contents: Contents, known: Collection[str]) -> str | None:
    """The shallowest folder `assignment` with a known module in it, else the shallowest folder with one."""
    holding = {str(path.parent) for path in map(PurePosixPath, contents.sources) if path.name in known}
    named = {folder for folder in holding if PurePosixPath(folder).name == PACKAGE}
    candidates = sorted(named or holding, key=lambda folder: (_depth(folder), folder))
    equal = [folder for folder in candidates if _depth(folder) == _depth(candidates[0])]
    if len(equal) > 1:
        both = " and ".join(shown(folder) for folder in equal[:2])
        raise Rejected(Code.AMBIGUOUS, f"the modules are in {both}", "ask which one counts")
    return equal[0] if equal else None


def _depth(folder: str) -> int:
    return len(PurePosixPath(folder).parts)


def _clashes(files: Mapping[str, bytes], known: Collection[str]) -> list[str]:
    """Names that are one on some disks. Raises `Rejected` for known modules, and for any name that is spelt twice."""
    seen: dict[str, str] = {}
    notes = []
    for path in files:
        other = seen.setdefault(folded(path), path)
        if other != path and (folded(path) in map(folded, known) or _spelt(other) == _spelt(path)):
            raise Rejected(Code.DUPLICATE, f"there are {shown(other)} and {shown(path)}", "ask which one counts")
        notes += [f"{shown(other)} and {shown(path)} are one name on some disks"] if other != path else []
    return notes


def _spelt(path: str) -> str:
    """A path with one spelling of each letter."""
    return unicodedata.normalize("NFC", path)


def proposals(files: Collection[str], ignored: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """What a missing module may be called here: proposed, and never applied."""
    names = {PurePosixPath(path).name: path for path in (*ignored, *files) if PurePosixPath(path).name not in known}
    found = {name: closest(name, names) for name in known if name not in files}
    return {name: names[close] for name, close in found.items() if close}
