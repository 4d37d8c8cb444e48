"""What is in an archive, one member after the other as it streams. Nothing is extracted.

Entry points: `members`, and `Paths`, which checks their names. An archive is what its first bytes say, not its name.
Limits are counted while content streams, since archives lie about sizes.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

from grader.batch.rejected import Code, Rejected, shown

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_DEPTH, MOST_NAME_BYTES = 32, 255
MOST_PATH_BYTES = 3000  # of 4096 that Linux takes, with the folder that it is in
OTHERS = (  # how files begin that somebody hands in for an archive
    (b"Rar!\x1a\x07", "a RAR archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"), (b"%PDF", "a PDF"),
    (b"<!DOCTYPE", "a web page"), (b"<!doctype", "a web page"), (b"<html", "a web page"), (b"<HTML", "a web page"),
    (b"\x89PNG", "a picture"), (b"\xff\xd8\xff", "a picture"),
)  # fmt: skip
COMPRESSIONS: Mapping[bytes, Callable[[Any], Any]] = {  # of tars, by how they begin
    b"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file), b"BZh": bz2.open, b"\xfd7zXZ\0": lzma.open,
}  # fmt: skip
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA}
BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, ValueError,
)  # fmt: skip
UTF8_FLAG, ENCRYPTED_FLAG = 0x800, 0x1
CENTRAL_RECORD = b"PK\x01\x02"  # of which a zip has one for each member
WINDOWS_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True)
class Member:
    """A file, a folder, or something else, in an archive. To be read before the next one is asked for."""

    name: str  # as it stands there
    mode: int  # of which kind it is, as in `stat`: neither file nor folder means a link, a device, a pipe
    opened: Callable[[], IO[bytes]]


@contextmanager
def members(file: IO[bytes], name: str, most_bytes: int, most_entries: int) -> Iterator[Iterator[Member]]:
    """The members of an archive; what goes wrong while they are read is told, too.

    Raises `Rejected` also where a tar is larger than `most_bytes`, unpacked, or a zip has more than `most_entries`.
    """
    start = file.read(512)
    file.seek(0)
    if not start:
        raise Rejected(Code.BAD_ARCHIVE, f"{shown(name)} is empty", "ask for it again")
    for magic, what in OTHERS:
        if start.lstrip().startswith(magic):
            raise Rejected(Code.BAD_ARCHIVE, f"{shown(name)} is {what}", "ask for a zip")
    try:
        if zipfile.is_zipfile(file):
            refuse_entries(_records(file), most_entries)
            with zipfile.ZipFile(file) as zipped:
                yield _of_zip(zipped)
        else:
            file.seek(0)
            with tarfile.open(fileobj=_Counted(_unpacked(file, start), most_bytes), mode="r|") as tar:
                yield _of_tar(tar)
    except (MemoryError, RecursionError):
        raise too_much(name) from None
    except (*BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # as for a place before the start
            raise  # the disk's, and not the archive's
        why = shown(str(error))[:80]
        raise Rejected(Code.BAD_ARCHIVE, f"{shown(name)} is no whole archive ({why})", "ask for a zip") from None


@dataclass
class Paths:
    """Names of one submission, checked: none leads out, and none is a file and a folder."""

    kinds: dict[str, str] = field(default_factory=dict)  # of each path, a file or a folder

    def checked(self, name: str, is_folder: bool) -> str:
        """A path inside the submission, with `/` only; empty for the submission itself. Raises `Rejected`."""
        path = name.replace("\\", "/")
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if path.startswith("/") or ".." in parts or WINDOWS_DRIVE.match(path) or "\0" in path:
            raise Rejected(Code.UNSAFE_PATH, f"`{shown(name)}` leads out of the submission", "ask for it packed anew")
        long = len(os.fsencode(path)) > MOST_PATH_BYTES or any(len(os.fsencode(one)) > MOST_NAME_BYTES for one in parts)
        if long or len(parts) > MOST_DEPTH:
            raise Rejected(Code.TOO_BIG, f"`{shown(name)[:80]}` is too long or too deep", "ask for it packed anew")
        for depth in range(1, len(parts) + 1):
            self._refuse_clash("/".join(parts[:depth]), "folder" if depth < len(parts) or is_folder else "file")
        return "/".join(parts)

    def _refuse_clash(self, path: str, kind: str) -> None:
        """A name is a file's or a folder's, not both."""
        if self.kinds.setdefault(path, kind) != kind:
            raise Rejected(Code.UNSAFE_PATH, f"`{shown(path)}` is a file and a folder", "ask for it packed anew")


def too_much(name: str) -> Rejected:
    """Of what Python gives up on while it reads."""
    return Rejected(
        Code.TOO_BIG, f"{shown(name)} needs too much memory or is nested too deep", "ask for it packed anew"
    )


def refuse_entries(entries: int, most: int) -> None:
    """Raises `Rejected` if there are more."""
    if entries > most:
        raise Rejected(Code.TOO_BIG, f"there are more than {most:,} files", "ask for the assignment only")


def refuse_bytes(unpacked: int, most: int) -> None:
    """Raises `Rejected` if there are more."""
    if unpacked > most:
        raise Rejected(Code.TOO_BIG, f"unpacked, it has more than {most >> 20} MiB", "ask for source code only")


def _of_zip(archive: zipfile.ZipFile) -> Iterator[Member]:
    for info in archive.infolist():
        name = _zip_name(info)
        if info.flag_bits & ENCRYPTED_FLAG:
            raise Rejected(Code.BAD_ARCHIVE, "the zip is encrypted", "ask for one without a password")
        if info.compress_type not in METHODS:
            raise Rejected(
                Code.BAD_ARCHIVE, f"{shown(name)} is compressed in a way that few programs read",
                "ask for a zip made by the system's own packer",
            )  # fmt: skip
        kind = stat.S_IFDIR if name.endswith(("/", "\\")) else stat.S_IFREG
        yield Member(name, stat.S_IFMT(info.external_attr >> 16) or kind, lambda info=info: archive.open(info))  # type: ignore[misc]


def _of_tar(archive: tarfile.TarFile) -> Iterator[Member]:
    for member in archive:
        kind = stat.S_IFREG if member.isreg() else stat.S_IFDIR if member.isdir() else stat.S_IFLNK
        yield Member(member.name, kind, lambda member=member: archive.extractfile(member) or io.BytesIO())  # type: ignore[misc]


def _zip_name(info: zipfile.ZipInfo) -> str:
    """The name in a zip: some packers write UTF-8 and do not say so, which Python then reads as cp437."""
    if info.flag_bits & UTF8_FLAG:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode("utf-8")
    except UnicodeError:
        return info.orig_filename


def _records(file: IO[bytes]) -> int:
    """How many members a zip has at most: counted before Python makes an object of each."""
    file.seek(0)
    found, rest = 0, b""
    while chunk := file.read(1 << 20):
        found += (rest + chunk).count(CENTRAL_RECORD)
        rest = chunk[-len(CENTRAL_RECORD) + 1 :]
    return found


def _unpacked(file: IO[bytes], start: bytes) -> IO[bytes]:
    return next((opened(file) for magic, opened in COMPRESSIONS.items() if start.startswith(magic)), file)


class _Counted(io.RawIOBase):
    """A stream that ends in `Rejected` after so many bytes: also what is skipped, and what describes a member."""

    def __init__(self, file: IO[bytes], most_bytes: int) -> None:
        self.file, self.most_bytes, self.count = file, most_bytes, 0

    def read(self, size: int = -1) -> bytes:
        chunk = self.file.read(size)
        self.count += len(chunk)
        refuse_bytes(self.count, self.most_bytes)
        return chunk
