"""What git knows of our repository, and the one commit of a release."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

AUTHOR, EMAIL, MESSAGE = "Course staff", "staff@localhost", "The assignment"
UNDATED = "2000-01-01T00:00:00+00:00"  # where our own repository has no commit
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")  # set in hooks, and name another repository


class GitFailed(Exception):
    """What git says about it, in one line."""


def tracked(root: Path) -> set[str] | None:
    """The files that git tracks in the repository at `root`; None where it is none. Raises `GitFailed`."""
    if not (root / ".git").exists():
        return None
    return set(_git(root, "ls-files", "-z").split("\0")) - {""}


def changed(root: Path) -> set[str]:
    """Tracked files that are not as the last commit has them; none where there is no commit."""
    return set(_git(root, "diff", "--name-only", "-z", "HEAD", "--").split("\0")) - {""} if date_of(root) else set()


def date_of(root: Path) -> str:
    """When the last commit was made; "" where there is none."""
    try:
        return _git(root, "log", "-1", "--format=%cI").strip() if (root / ".git").exists() else ""
    except GitFailed:
        return ""


def commit_all(folder: Path, date: str) -> None:
    """Make a repository of one commit, by nobody: the same commit for the same files and date, on every machine."""
    person = {f"GIT_{role}_{part}": value for role in ("AUTHOR", "COMMITTER")
              for part, value in (("NAME", AUTHOR), ("EMAIL", EMAIL), ("DATE", date or UNDATED))}  # fmt: skip
    plain = {
        **person,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }  # no signing, no hooks, no rewriting
    _git(folder, "init", "--quiet", "--initial-branch=main", "--template=", **plain)
    _git(folder, "add", "--all", "--force", **plain)
    _git(folder, "commit", "--quiet", f"--message={MESSAGE}", **plain)


def _git(folder: Path, *arguments: str, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    command = ["git", *arguments]
    try:
        ended = subprocess.run(command, cwd=folder, env=inherited | environment, capture_output=True, text=True)
    except OSError as error:
        raise GitFailed(f"git does not run: {error.strerror}") from None
    if ended.returncode:
        said = ended.stderr.strip().partition("\n")[0]
        raise GitFailed(f"`git {arguments[0]}` failed: {said}")
    return ended.stdout
