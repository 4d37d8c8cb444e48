"""What lies in one submission: a folder, an archive, or a single file, read without running or extracting anything.

Only Python sources are kept; everything else is listed with the reason. What cannot be read safely, or not uniquely, is
rejected in one sentence. Limits are counted while content streams.
"""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from grader.batch.archives import ARCHIVES, Paths, members, refuse_bytes, refuse_entries, too_much
from grader.batch.rejected import Code, Rejected, shown
from grader.judge.snapshot import is_source

MOST_IN_BYTES, MOST_OUT_BYTES, MOST_FILE_BYTES, MOST_ENTRIES = 64 << 20, 256 << 20, 16 << 20, 10_000
CHUNK_BYTES = 1 << 16
SUFFIX = ".py"
SKIPPED_FOLDERS = {"__pycache__", ".venv", "venv", "site-packages", "node_modules", "build", "dist"}
NOT_OPENED = "an archive in it is not opened"
BACKSLASHES = "folders are separated by backslashes, as some packers for Windows do"


@dataclass
class Contents:
    """The Python sources of a submission by their path in it, and what became of everything else."""

    sources: dict[str, bytes] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)  # paths of links: nothing is read through them
    ignored: dict[str, str] = field(default_factory=dict)  # a path, and why it does not count
    notes: list[str] = field(default_factory=list)


def read(place: Path | Mapping[str, Path]) -> Contents:
    """What lies in a folder, in an archive, or in files and folders by their path in the submission.

    Raises `Rejected`. Changes and runs nothing.
    """
    name = place.name if isinstance(place, Path) else "a file"
    try:
        if not isinstance(place, Path):
            return _Reader().files(place)
        if place.is_symlink():
            raise Rejected(Code.LINK, f"{shown(name)} is a link", "ask for the files themselves")
        if place.is_dir():
            return _Reader().files({"": place})
        if place.suffix == SUFFIX:
            return _Reader().files({place.name: place})
        return _Reader().archive(place)
    except (MemoryError, RecursionError):
        raise too_much(name) from None
    except OSError as error:
        raise _unreadable(name, error) from None


def folded(path: str) -> str:
    """A path as disks see it that know no case, and one spelling of each letter."""
    return unicodedata.normalize("NFC", path).casefold()


@dataclass
class _Reader:
    contents: Contents = field(default_factory=Contents)
    paths: Paths = field(default_factory=Paths)
    entries: int = 0
    out_bytes: int = 0

    def files(self, places: Mapping[str, Path]) -> Contents:
        """Files by their path in the submission; an archive is opened where there is no Python source beside it.

        Follows no link.
        """
        files = dict(_below(places))
        archives = [name for name, path in files.items() if name.lower().endswith(ARCHIVES) and not path.is_symlink()]
        if archives and not any(map(is_source, files)):
            if len(archives) > 1:
                both = " and ".join(map(shown, archives[:2]))
                raise Rejected(Code.AMBIGUOUS, f"there are {both}, and no Python source", "ask which one counts")
            self.contents.ignored |= {shown(name): "beside the archive" for name in files if name not in archives}
            return self.archive(files[archives[0]])
        for name, path in files.items():
            self._take(name, path.lstat().st_mode, lambda path=path: _opened(path))  # type: ignore[misc]
        return self.contents

    def archive(self, path: Path) -> Contents:
        """One level of archive."""
        with _opened(path) as file:
            self._refuse_size(file, path.name)
            with members(file, path.name, MOST_OUT_BYTES, MOST_ENTRIES) as found:
                for member in found:
                    self._take(member.name, member.mode, member.opened)
        return self.contents

    def _take(self, name: str, mode: int, opened: Callable[[], IO[bytes]]) -> None:
        """Keep one entry if it is a Python source, or note why not."""
        self.entries += 1
        refuse_entries(self.entries, MOST_ENTRIES)
        if "\\" in name and BACKSLASHES not in self.contents.notes:
            self.contents.notes.append(BACKSLASHES)
        path = self.paths.checked(name, stat.S_ISDIR(mode))
        if stat.S_ISDIR(mode) or not path:
            return
        if not stat.S_ISREG(mode):
            self.contents.links.add(path)
            self.contents.ignored[path] = "a link, or no regular file"
        elif reason := _reason(path):
            self.contents.ignored[path] = reason
        else:
            self._keep(path, opened)

    def _keep(self, path: str, opened: Callable[[], IO[bytes]]) -> None:
        with opened() as file:
            content = self._stream(file, path)
        if (known := self.contents.sources.get(path)) is not None:
            if known != content:
                raise Rejected(
                    Code.DUPLICATE, f"{shown(path)} is there twice, with different contents", "ask which one counts"
                )
            self.contents.notes.append(f"{shown(path)} is there twice, both alike")
        self.contents.sources[path] = content

    def _stream(self, file: IO[bytes], path: str) -> bytes:
        kept = bytearray()
        while chunk := file.read(CHUNK_BYTES):
            kept += chunk
            self.out_bytes += len(chunk)
            refuse_bytes(self.out_bytes, MOST_OUT_BYTES)
            if len(kept) > MOST_FILE_BYTES:
                raise Rejected(
                    Code.TOO_BIG, f"{shown(path)} has more than {MOST_FILE_BYTES >> 20} MiB", "ask for source code only"
                )
        return bytes(kept)

    def _refuse_size(self, file: IO[bytes], name: str) -> None:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size > MOST_IN_BYTES:
            raise Rejected(
                Code.TOO_BIG, f"{shown(name)} has more than {MOST_IN_BYTES >> 20} MiB", "ask for source code only"
            )


def _below(places: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """Files by their path in the submission: those that are given, and all in folders that are."""
    for name, place in places.items():
        if place.is_dir() and not place.is_symlink():
            yield from _walk(name, place)
        else:
            yield name, place


def _walk(name: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """All but folders below a folder, in a fixed order; a linked folder is a link. Raises `OSError`, `Rejected`.

    In a loop, since folders can be deeper than Python recurses.
    """
    waiting, paths = [(name, folder)], Paths()
    while waiting:
        name, folder = waiting.pop()
        paths.checked(name, is_folder=True)
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        below = [(f"{name}/{entry.name}" if name else entry.name, entry) for entry in found]
        yield from ((path, Path(entry)) for path, entry in below if not entry.is_dir(follow_symlinks=False))
        waiting += [(path, Path(entry)) for path, entry in below[::-1] if entry.is_dir(follow_symlinks=False)]


def _unreadable(name: str, error: OSError) -> Rejected:
    if error.errno == errno.ENAMETOOLONG:
        return too_much(name)
    todo = "it is tried again at the next run"
    if isinstance(error, PermissionError):
        todo += ", once whoever grades may read it (`chmod -R u+rX`)"
    return Rejected(Code.IO, f"{shown(name)} cannot be read ({error.strerror})", todo)


def _opened(path: Path) -> IO[bytes]:
    """A file that is no link, and that nobody waits for: it was a regular one when it was looked at."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def _reason(path: str) -> str:
    """Why a regular file does not count; empty for a source."""
    *folders, name = path.split("/")
    if "__MACOSX" in folders or name.startswith("._") or name in (".DS_Store", "Thumbs.db"):
        return "left by the operating system"
    if any(folder.startswith(".") or folder in SKIPPED_FOLDERS for folder in folders):
        return "in a folder that is not searched"
    if name.lower().endswith(ARCHIVES):
        return NOT_OPENED
    return "" if is_source(path) else "not a Python source"
