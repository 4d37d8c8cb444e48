"""A submission as it was when grading began: its Python files, copied to a folder of the judge's.

What runs is what was hashed. Links, and whatever else is no regular file, stay behind, so nothing outside the
submission is read; files that are too large, too many or too deep are refused before any of them is.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

PACKAGE = "assignment"
SCHEMA = b"grader.tree/1\0"
MOST_FILES = 200
MOST_FOLDERS = 200
MOST_BYTES = 1 << 20  # a file
MOST_TREE_BYTES = 8 << 20  # all files


class Refused(Exception):
    """A submission that is not taken, in one sentence."""


@dataclass(frozen=True)
class Snapshot:
    """The copy, and what it is a copy of."""

    source: Path
    folder: Path
    sha256: str  # of the relative paths and contents

    @classmethod
    def of(cls, path: Path, into: Path | None = None) -> Snapshot:
        """Copy the modules in `path`, or in its folder `assignment`, to a new folder or to `into`. Raises `Refused`."""
        inner = path / PACKAGE
        source = (inner if inner.is_dir() else path).resolve()
        files = _python_files(source)
        refuse_files({file.as_posix(): (source / file).stat().st_size for file in files})
        contents = {file.as_posix(): (source / file).read_bytes() for file in files}
        folder = (into or Path(tempfile.mkdtemp(prefix="submission-"))).resolve()
        for relative, content in contents.items():
            (folder / relative).parent.mkdir(parents=True, exist_ok=True)
            (folder / relative).write_bytes(content)
        return cls(source, folder, tree_sha256(contents))

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


def is_source(path: str) -> bool:
    """Whether a path is that of a Python file. (`.py` alone is a hidden file without a suffix.)"""
    return PurePosixPath(path).suffix == ".py"


def refuse_files(sizes: Mapping[str, int]) -> None:
    """Raises `Refused` for files, by path and bytes, that are too many or too large, or of which the hash knows one."""
    folders = {folder for path in sizes for folder in PurePosixPath(path).parents}
    if len(sizes) > MOST_FILES or len(folders) > MOST_FOLDERS:
        raise Refused(f"there are more than {MOST_FILES} Python files or {MOST_FOLDERS} folders")
    if large := next((path for path, size in sizes.items() if size > MOST_BYTES), None):
        raise Refused(f"{large} has more than {MOST_BYTES} bytes")
    if sum(sizes.values()) > MOST_TREE_BYTES:
        raise Refused(f"all Python files together have more than {MOST_TREE_BYTES} bytes")
    if len({unicodedata.normalize("NFC", path) for path in sizes}) < len(sizes):
        raise Refused("two paths are one in another spelling of their letters")


def tree_sha256(files: Mapping[str, bytes]) -> str:
    """The hash of relative paths and contents, in the order of the paths; times, modes and owners do not count.

    Of files that `refuse_files` lets pass: of two paths that differ in the spelling of letters it knows one.
    """
    digest = hashlib.sha256(SCHEMA)
    by_path = {unicodedata.normalize("NFC", path).encode("utf-8", "surrogateescape"): path for path in files}
    for encoded in sorted(by_path):
        content = files[by_path[encoded]]
        for part in (encoded, content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _python_files(source: Path) -> list[Path]:
    """The regular files below a folder that end in .py, in a fixed order. Follows no link."""
    found: list[Path] = []
    for folders, (place, below, names) in enumerate(os.walk(source), start=1):
        below[:] = sorted(name for name in below if name != "__pycache__")
        for name in sorted(names):
            path = Path(place, name)
            if is_source(name) and path.is_file() and not path.is_symlink():
                found.append(path.relative_to(source))
        if len(found) > MOST_FILES or folders > MOST_FOLDERS:
            raise Refused(f"{source.name} has more than {MOST_FILES} Python files or {MOST_FOLDERS} folders")
    return found
