"""An export that is an archive, as a folder of ours for the time in which it is read.

Archives of students in it stay archives, and are read as any submission. A member that cannot be written safely is
left out and listed, so that one student's file does not stop a class.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grader.batch.archives import ARCHIVES, Member, Paths, members, refuse_bytes, refuse_entries
from grader.batch.contents import MOST_IN_BYTES, SUFFIX
from grader.batch.layouts import BY_THE_SYSTEM, Source, names_in, recognised
from grader.batch.rejected import Rejected, shown
from grader.judge.snapshot import PACKAGE
from grader.located import Mistake

MOST_OUT_BYTES, MOST_ENTRIES = 16 << 30, 1_000_000  # of a whole class
CHUNK_BYTES = 1 << 20
NOWHERE = "/dev/null/link"  # a link stays one, and leads to nothing
TODO = "unpack it yourself and name the folder, or download the export again"


@dataclass(frozen=True)
class Opened:
    """The folder of an export."""

    folder: Path
    left_out: dict[str, str] = field(default_factory=dict)  # members of the archive, and why


@contextmanager
def opened(place: Path) -> Iterator[Opened]:
    """The folder itself, or an archive's content in a folder that is there for the time. Raises `Mistake`."""
    if place.is_dir():
        yield Opened(place)
        return
    if not place.is_file():
        raise Mistake(f"{shown(str(place))} is neither a folder nor an archive: name the course's export")
    with tempfile.TemporaryDirectory(prefix="export-") as folder:
        root = Path(folder, _stem(place.name))
        root.mkdir()
        left_out = _written(place, root)
        yield Opened(_without_wrapping(root, left_out), left_out)


def _written(place: Path, root: Path) -> dict[str, str]:
    writer = _Writer(root)
    try:
        with place.open("rb") as file, members(file, place.name, MOST_OUT_BYTES, MOST_ENTRIES) as found:
            for member in found:
                writer.write(member)
    except Rejected as rejected:
        raise Mistake(f"{shown(place.name)} cannot be taken, since {rejected.sentence}: {TODO}") from None
    except OSError as error:
        raise Mistake(f"{shown(place.name)} cannot be unpacked ({error.strerror}): {TODO}") from None
    return writer.left_out


@dataclass
class _Writer:
    root: Path
    left_out: dict[str, str] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)
    entries: int = 0
    out_bytes: int = 0

    def write(self, member: Member) -> None:
        """Write a member, if that is safe."""
        self.entries += 1
        refuse_entries(self.entries, MOST_ENTRIES)
        try:
            path = self.paths.checked(member.name, stat.S_ISDIR(member.mode))
        except Rejected as rejected:
            self.left_out[member.name] = rejected.sentence
            return
        if stat.S_ISDIR(member.mode):
            (self.root / path).mkdir(parents=True, exist_ok=True)
        elif os.path.lexists(self.root / path):
            self.left_out[f"{member.name} (again)"] = "it is there twice, and the first one is taken"
        else:
            self._write_file(self.root / path, member)

    def _write_file(self, path: Path, member: Member) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not stat.S_ISREG(member.mode):
            path.symlink_to(NOWHERE)
            return
        with member.opened() as source, path.open("xb") as file:
            left = MOST_IN_BYTES + 1  # what is larger is refused by its size, as any submission
            while left and (chunk := source.read(min(CHUNK_BYTES, left))):
                file.write(chunk)
                left -= len(chunk)
                self.out_bytes += len(chunk)
                refuse_bytes(self.out_bytes, MOST_OUT_BYTES)


def _without_wrapping(root: Path, left_out: dict[str, str]) -> Path:
    """The one folder that whoever packed the export has put around it, if it is not a submission."""
    names = names_in(root)
    if len(names) != 1 or recognised(root)[0] is not Source.PLAIN:
        return root
    inner = root / names[0]
    if not inner.is_dir() or inner.is_symlink() or _is_submission(inner):
        return root
    left_out |= {name: BY_THE_SYSTEM for name in os.listdir(root) if name != inner.name}
    return inner


def _is_submission(folder: Path) -> bool:
    names = names_in(folder)
    is_one = len(names) < 2 or PACKAGE in names or any(name.endswith(SUFFIX) for name in names)
    return is_one and recognised(folder)[0] is Source.PLAIN


def _stem(name: str) -> str:
    suffix = next((suffix for suffix in sorted(ARCHIVES, key=len, reverse=True) if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)] or "export"
