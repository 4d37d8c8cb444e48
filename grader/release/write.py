"""A release on the disk, whole or not at all: it is made beside its place, and renamed at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from grader.files import write_whole, zipped
from grader.release.git import commit_all
from grader.release.plan import Plan


def occupied(dest: Path, as_zip: bool) -> str:
    """Why nothing can be written to `dest`, in a sentence; or nothing."""
    parent = dest.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        return f"there is no folder {dest.parent} to write {dest.name} to"
    if as_zip:
        if dest.suffix != ".zip":
            return f"with --zip a file is written, and {dest.name} does not end in .zip"
        return f"{dest} is there already" if os.path.lexists(dest) else ""
    if dest.is_symlink() or (dest.exists() and not dest.is_dir()):
        return f"{dest} is there already, and is no folder"
    return f"{dest} is not empty" if dest.is_dir() and any(dest.iterdir()) else ""


def write_zip(dest: Path, plan: Plan, name: str) -> None:
    """One archive, with everything in a folder of this name."""
    write_whole(dest, zipped({f"{name}/{file}": content for file, content in plan.files.items()}))


def write_folder(dest: Path, plan: Plan, date: str, told: Callable[[str], None]) -> None:
    """A folder, a git repository of one commit of that date; without git no repository, which is told."""
    dest = dest.absolute()
    made = Path(tempfile.mkdtemp(dir=dest.parent, prefix=f".{dest.name}-"))
    try:
        made.chmod(0o755)
        for name, content in plan.files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o644)
        if shutil.which("git"):
            commit_all(made, date)
        else:
            told("There is no git here: the folder is no repository yet.")
        made.rename(dest)  # in the place of an empty folder, too
    finally:
        shutil.rmtree(made, ignore_errors=True)
