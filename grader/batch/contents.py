"""What lies in one submission: a folder, an archive, or a single file, read without running or extracting anything.

Only Python sources are kept; everything else is listed with the reason. What cannot be read safely, or not uniquely, is
rejected in one sentence. Limits are counted while content streams, since archives lie about sizes.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, NoReturn

MOST_IN_BYTES, MOST_OUT_BYTES, MOST_FILE_BYTES = 64 << 20, 256 << 20, 16 << 20
MOST_ENTRIES, MOST_DEPTH, MOST_NAME_BYTES = 10_000, 32, 255
CHUNK_BYTES = 1 << 16
SUFFIX = ".py"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
OTHERS = (  # how files begin that somebody hands in for an archive
    (b"Rar!\x1a\x07", "a RAR archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"%PDF", "a PDF"),
    (b"<!DOCTYPE", "a web page"), (b"<!doctype", "a web page"), (b"<html", "a web page"), (b"<HTML", "a web page"),
    (b"\x89PNG", "a picture"), (b"\xff\xd8\xff", "a picture"),
)  # fmt: skip
SKIPPED_FOLDERS = {"__pycache__", ".venv", "venv", "site-packages", "node_modules", "build", "dist"}
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, EOFError, NotImplementedError,
    ValueError,
)  # fmt: skip
UTF8_FLAG, ENCRYPTED_FLAG = 0x800, 0x1
WINDOWS_DRIVE = re.compile(r"^[A-Za-z]:")


class Code(StrEnum):
    """Why a submission is rejected; stable, for reports and for programs."""

    UNSAFE_PATH = "unsafe_path"
    LINK = "link"
    TOO_BIG = "too_big"
    DUPLICATE = "duplicate"
    BAD_ARCHIVE = "bad_archive"
    AMBIGUOUS = "ambiguous"
    IO = "io"


class Rejected(Exception):
    """A submission that cannot be read safely, or not uniquely: what was found where, and what to do."""

    def __init__(self, code: Code, sentence: str, todo: str) -> None:
        super().__init__(f"{sentence}: {todo}")
        self.code, self.sentence, self.todo = code, sentence, todo


@dataclass
class Contents:
    """The Python sources of a submission by their path in it, and what became of everything else."""

    sources: dict[str, bytes] = field(default_factory=dict)
    links: set[str] = field(default_factory=set)  # paths of links: nothing is read through them
    ignored: dict[str, str] = field(default_factory=dict)  # a path, and why it does not count
    notes: list[str] = field(default_factory=list)


def read(place: Path | Mapping[str, Path]) -> Contents:
    """What lies in a folder, in an archive, or in files by their path in the submission.

    Raises `Rejected`. Changes and runs nothing.
    """
    name = shown(place.name) if isinstance(place, Path) else "a file"
    try:
        if not isinstance(place, Path):
            return _Reader().files(place)
        if place.is_symlink():
            raise Rejected(Code.LINK, f"{name} is a link", "ask for the files themselves")
        if place.is_dir():
            return _Reader().folder(place)
        if place.suffix == SUFFIX:
            return _Reader().files({place.name: place})
        with place.open("rb") as file:
            return _Reader().archive(file, place.name)
    except OSError as error:
        raise Rejected(
            Code.IO, f"{name} cannot be read ({error.strerror})", "it is tried again at the next run"
        ) from None


def shown(name: str) -> str:
    """A name as it can be printed anywhere: what is not printable is escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "replace").decode() for one in name)


@dataclass
class _Reader:
    contents: Contents = field(default_factory=Contents)
    entries: int = 0
    out_bytes: int = 0
    kinds: dict[str, str] = field(default_factory=dict)  # folded names of files and folders, and how they are written

    def folder(self, root: Path) -> Contents:
        """A folder's regular files. Follows no link."""
        found = [Path(place, name) for place, _, names in self._walk(root) for name in names]
        return self.files({path.relative_to(root).as_posix(): path for path in found})

    def files(self, files: Mapping[str, Path]) -> Contents:
        """Files by their path in the submission; one archive is opened where there is no Python source beside it."""
        archives = [path for name, path in files.items() if name.lower().endswith(ARCHIVES) and not path.is_symlink()]
        if len(archives) == 1 and not any(name.endswith(SUFFIX) for name in files):
            with archives[0].open("rb") as file:
                return self.archive(file, archives[0].name)
        for name, path in files.items():
            self._take(name, path.lstat().st_mode, lambda path=path: _opened(path))  # type: ignore[misc]
        return self.contents

    def _walk(self, root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
        def failed(error: OSError) -> NoReturn:
            raise error

        for place, below, names in os.walk(root, onerror=failed):
            linked = [name for name in below if Path(place, name).is_symlink()]
            below[:] = sorted(name for name in below if name not in linked)
            yield place, below, sorted([*names, *linked])

    def archive(self, file: IO[bytes], name: str) -> Contents:
        """An archive of a kind that its first bytes tell, not its name."""
        self._refuse_size(file, name)
        start = file.read(512)
        file.seek(0)
        if not start:
            raise Rejected(Code.BAD_ARCHIVE, f"{shown(name)} is empty", "ask for it again")
        for magic, what in OTHERS:
            if start.lstrip().startswith(magic):
                raise Rejected(Code.BAD_ARCHIVE, f"{shown(name)} is {what}", "ask for a zip")
        try:
            if zipfile.is_zipfile(file):
                return self._zip(file)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r|*") as archive:
                return self._tar(archive)
        except BROKEN as error:
            raise Rejected(
                Code.BAD_ARCHIVE, f"{shown(name)} is no whole archive ({shown(str(error))[:80]})", "ask for a zip"
            ) from None

    def _zip(self, file: IO[bytes]) -> Contents:
        with zipfile.ZipFile(file) as archive:
            for info in archive.infolist():
                name = _zip_name(info)
                if info.flag_bits & ENCRYPTED_FLAG:
                    raise Rejected(Code.BAD_ARCHIVE, "the zip is encrypted", "ask for one without a password")
                if info.compress_type not in METHODS:
                    raise Rejected(
                        Code.BAD_ARCHIVE, f"{shown(name)} is compressed in a way that few programs read",
                        "ask for a zip made by the system's own packer",
                    )  # fmt: skip
                mode = info.external_attr >> 16
                kind = stat.S_IFMT(mode) or (stat.S_IFDIR if name.endswith(("/", "\\")) else stat.S_IFREG)
                self._take(name, kind, lambda info=info: archive.open(info))  # type: ignore[misc]
        return self.contents

    def _tar(self, archive: tarfile.TarFile) -> Contents:
        for member in archive:
            kind = stat.S_IFREG if member.isreg() else stat.S_IFDIR if member.isdir() else stat.S_IFLNK
            content = archive.extractfile(member) if member.isreg() else None
            self._count(member.size)
            self._take(member.name, kind, lambda content=content: content or io.BytesIO())  # type: ignore[misc]
        return self.contents

    def _take(self, name: str, mode: int, opened: Callable[[], IO[bytes]]) -> None:
        """Keep one entry if it is a Python source, or note why not."""
        self.entries += 1
        if self.entries > MOST_ENTRIES:
            raise Rejected(Code.TOO_BIG, f"there are more than {MOST_ENTRIES:,} files", "ask for the assignment only")
        path = self._checked(name, stat.S_ISDIR(mode))
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
            self._count(len(chunk))
            if len(kept) > MOST_FILE_BYTES:
                raise Rejected(
                    Code.TOO_BIG, f"{shown(path)} has more than {MOST_FILE_BYTES >> 20} MiB", "ask for source code only"
                )
        return bytes(kept)

    def _count(self, size: int) -> None:
        self.out_bytes += size
        if self.out_bytes > MOST_OUT_BYTES:
            raise Rejected(
                Code.TOO_BIG, f"unpacked, it has more than {MOST_OUT_BYTES >> 20} MiB", "ask for source code only"
            )

    def _refuse_size(self, file: IO[bytes], name: str) -> None:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        if size > MOST_IN_BYTES:
            raise Rejected(
                Code.TOO_BIG, f"{shown(name)} has {size >> 20} MiB, and {MOST_IN_BYTES >> 20} are taken",
                "ask for source code only",
            )  # fmt: skip

    def _checked(self, name: str, is_folder: bool) -> str:
        """A path inside the submission, with `/` only. Raises `Rejected` where it leads out, or is a folder, too."""
        if "\\" in name:
            note = "folders are separated by backslashes, as some packers for Windows do"
            self.contents.notes += [note] if note not in self.contents.notes else []
        path = name.replace("\\", "/")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts or WINDOWS_DRIVE.match(path) or "\0" in path:
            raise Rejected(Code.UNSAFE_PATH, f"`{shown(name)}` leads out of the submission", "ask for it packed anew")
        if len(parts) > MOST_DEPTH or any(len(os.fsencode(part)) > MOST_NAME_BYTES for part in parts):
            raise Rejected(Code.TOO_BIG, f"`{shown(name)[:80]}` is too long or too deep", "ask for it packed anew")
        for depth in range(1, len(parts) + 1):
            self._refuse_clash("/".join(parts[:depth]), "folder" if depth < len(parts) or is_folder else "file")
        return "/".join(parts)

    def _refuse_clash(self, path: str, kind: str) -> None:
        """A name is a file's or a folder's, not both."""
        if self.kinds.setdefault(path, kind) != kind:
            raise Rejected(Code.UNSAFE_PATH, f"`{shown(path)}` is a file and a folder", "ask for it packed anew")


def _opened(path: Path) -> IO[bytes]:
    """A file that is no link, and that nobody waits for: it was a regular one when it was looked at."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb")


def folded(path: str) -> str:
    """A path as disks see it that know no case, and one spelling of each letter."""
    return unicodedata.normalize("NFC", path).casefold()


def _reason(path: str) -> str:
    """Why a regular file does not count; empty for a source."""
    *folders, name = path.split("/")
    if "__MACOSX" in folders or name.startswith("._") or name in (".DS_Store", "Thumbs.db"):
        return "left by the operating system"
    if any(folder.startswith(".") or folder in SKIPPED_FOLDERS for folder in folders):
        return "in a folder that is not searched"
    return "" if name.endswith(SUFFIX) else "not a Python source"


def _zip_name(info: zipfile.ZipInfo) -> str:
    """The name in a zip: some packers write UTF-8 and do not say so, which Python then reads as cp437."""
    if info.flag_bits & UTF8_FLAG:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.orig_filename
