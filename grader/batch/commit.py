"""When the last commit of a student's repository says that it was made. Nothing of the repository runs.

Git is asked in a repository of ours, which gets the student's objects and references as files, and neither their
configuration (which names programs to run and servers to ask), nor hooks, nor links, nor paths to other places.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

MOST_BYTES, MOST_FILES = 64 << 20, 10_000  # of a repository
MOST_COMMIT_BYTES = 1 << 20
MOST_DEPTH = 32  # of its folders
LIMIT_S, MEMORY_BYTES = 10, 1 << 30
TOP = ("HEAD", "packed-refs")
BELOW = re.compile(r"refs/.+|objects/[0-9a-f]{2}/[0-9a-f]{38}|objects/pack/pack-[0-9a-f]{40}\.(pack|idx)")
CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
COMMITTER = re.compile(rb"^committer [^\n]*> (\d{1,11}) [+-]\d{4}$", re.MULTILINE)
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C",
}  # fmt: skip


def committed_at(work_tree: Path) -> datetime | None:
    """The committer date of HEAD in UTC, which is whatever the student set; None where there is none to be read."""
    history = work_tree / ".git"
    try:
        if not stat.S_ISDIR(history.lstat().st_mode):
            return None
        with tempfile.TemporaryDirectory(prefix="history-") as folder:
            copied = _copied(history, Path(folder, "repository"))
            return _committer_date(copied) if copied else None
    except (OSError, subprocess.SubprocessError):
        return None


def _copied(history: Path, repository: Path) -> Path | None:
    """Objects and references in a repository of ours; None where they are too many."""
    for folder in ("objects", "refs"):
        (repository / folder).mkdir(parents=True)
    (repository / "config").write_text(CONFIG)
    left = MOST_BYTES
    for count, name in enumerate(_wanted(history)):
        source = os.open(history / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(source, "rb") as file:
            left -= os.fstat(source).st_size
            if left < 0 or count == MOST_FILES:
                return None
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            with (repository / name).open("xb") as copy:
                shutil.copyfileobj(file, copy)
    return repository


def _wanted(history: Path) -> Iterator[str]:
    """Regular files that git needs to find a commit. Follows no link."""
    for place, below, names in os.walk(history):
        if len(Path(place).relative_to(history).parts) == MOST_DEPTH:
            below.clear()
        for name in names:
            path = Path(place, name)
            inside = path.relative_to(history).as_posix()
            if (inside in TOP or BELOW.fullmatch(inside)) and stat.S_ISREG(path.lstat().st_mode):
                yield inside


def _committer_date(repository: Path) -> datetime | None:
    """Parsed by us: git would format it as its configuration says."""
    head = _git(repository, "rev-parse", "--verify", "--end-of-options", "HEAD").decode("ascii", "replace").strip()
    commit = _git(repository, "cat-file", "commit", head) if head else b""
    match = COMMITTER.search(commit)  # the first one, and so the header's
    return datetime.fromtimestamp(int(match[1]), UTC) if match else None


def _git(repository: Path, *arguments: str) -> bytes:
    """What git says, up to a limit; empty where it fails."""
    with tempfile.TemporaryFile(dir=repository.parent) as said:
        subprocess.run(
            ["git", f"--git-dir={repository}", *arguments], stdin=subprocess.DEVNULL, stdout=said,
            stderr=subprocess.DEVNULL, timeout=LIMIT_S, check=True, preexec_fn=_limit, cwd=repository,
            env={"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT},
        )  # fmt: skip
        said.seek(0)
        return said.read(MOST_COMMIT_BYTES)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_COMMIT_BYTES, MOST_COMMIT_BYTES))
