"""Which checks ran: the hash of all that a verdict depends on, and of nothing else. Imports no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from grader.rubric import ROOT

JUDGE, PUBLIC_CHECKS = ROOT / "grader", ROOT / "tests"
# What asks for a run, scores it, or shows it. A result stays valid when these change, and the rubric, too: points are
# computed anew.
BESIDE = {
    "batch", "bench", "pack", "release", "reports", "staff", "cli.py", "command.py", "summary.py", "terminal.py",
    "scoring.py", "rubric.py", "rubric_files.py", "located.py", "closest.py", "result.py", "instants.py",
}  # fmt: skip


def checks_sha256() -> str:
    """The hash of checks, references, judge and runner: relative paths and contents of their Python files."""
    digest = hashlib.sha256()
    for name, path in sorted(_sources()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    return digest.hexdigest()


def _sources() -> Iterator[tuple[str, Path]]:
    for folder, without in ((JUDGE, BESIDE), (PUBLIC_CHECKS, {"staff"})):
        for path in folder.rglob("*.py"):
            relative = path.relative_to(folder)
            if relative.parts[0] not in without:
                yield f"{folder.name}/{relative.as_posix()}", path
