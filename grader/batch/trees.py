"""The trees of a batch on disk, `GRADES/trees/HASH/`: what was graded, for people to read and for another run."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from grader.judge.snapshot import PACKAGE, tree_sha256

TREES = "trees"


class TreeGone(Exception):
    """A tree that is not what its name says any more, in one sentence."""


def keep(grades: Path, files: Mapping[str, bytes]) -> str:
    """Write a tree whole, unless it is there: its hash. `os.sync()` before the gradebook names it."""
    sha256 = tree_sha256(files)
    place = grades / TREES / sha256
    if place.is_dir():
        return sha256
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=".new-"))
    (scratch / PACKAGE).mkdir()
    for name, content in files.items():
        path = scratch / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    scratch.chmod(0o755)
    os.replace(scratch, place)
    return sha256


def kept(grades: Path, sha256: str) -> dict[str, bytes]:
    """The files of a tree. Raises `TreeGone` where they are not those any more."""
    files = read_sources(grades / TREES / sha256)
    if tree_sha256(files) != sha256:
        raise TreeGone(f"{grades / TREES / sha256} is not what was handed in: hand it to `batch` again")
    return files


def clear_up(grades: Path) -> None:
    """Remove what an interrupted batch has left half-written."""
    for left in (grades / TREES).glob(".new-*"):
        shutil.rmtree(left, ignore_errors=True)


def read_sources(folder: Path) -> dict[str, bytes]:
    """The Python sources of a folder, or of its folder `assignment`, by their paths in it."""
    inner = folder / PACKAGE
    root = inner if inner.is_dir() else folder
    paths = sorted(path for path in root.rglob("*.py") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}
