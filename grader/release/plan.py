"""Which files students get, and with which content: `Plan.of(root)`.

Files are those that git tracks, as they lie in the working tree, so nothing that lies about slips in. Where the
repository is not under git, they are all below the released folders. `templates/` holds what only students have: each
file there goes to the same place in the release, in the place of ours.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.judge.snapshot import PACKAGE
from grader.release.git import GitFailed, tracked

STAFF = (
    "solutions", "grader/batch", "grader/hidden", "grader/release", "grader/reports", "grader/staff", "tests/staff",
    ".ci",
)  # fmt: skip
FOLDERS = (PACKAGE, "grader", "tests")
FILES = (".gitignore", ".python-version", "LICENSE", "conftest.py", "docs/measurements.md", "handout.md")
PROJECT = "pyproject.toml"
TEMPLATES = Path(__file__).parent / "templates"
LINK = re.compile(r"\]\(([^):#]+)\)")  # in Markdown, to a file


class Unplanned(Exception):
    """A repository that cannot be released, in one sentence."""


@dataclass(frozen=True)
class Plan:
    """The release, file by file."""

    files: Mapping[str, bytes]  # by their paths in the release
    kept: frozenset[str]  # files of this repository that students do not get
    tracked: bool  # whether git said which files there are

    @classmethod
    def of(cls, root: Path) -> Plan:
        """Read what is released of the repository at `root`. Raises `Unplanned`."""
        try:
            listed = tracked(root)
        except GitFailed as error:
            raise Unplanned(str(error)) from None
        known = _walked(root) if listed is None else listed
        for name in (*FILES, PROJECT):
            if name not in known:
                raise Unplanned(f"there is no {name} among the repository's files")
        files = templates()
        names = {name for name in known if name in FILES or (_is_in(name, FOLDERS) and not _is_in(name, STAFF))}
        texts = [files["README.md"].decode(), (root / "handout.md").read_text()]
        names |= {link for text in texts for link in LINK.findall(text) if link in known}
        files |= {name: _content(root, name) for name in sorted(names - set(files))}
        files[PROJECT] = student_project((root / PROJECT).read_text()).encode()
        return cls(dict(sorted(files.items())), frozenset(known - set(files)), listed is not None)


def templates() -> dict[str, bytes]:
    """The files that only students have, by their paths in the release."""
    return {path.relative_to(TEMPLATES).as_posix(): path.read_bytes() for path in _files_below(TEMPLATES)}


def student_project(text: str) -> str:
    """Our pyproject.toml for students: their package is checked, and staff's tools and tests are gone."""
    project = tomllib.loads(text)
    project.pop("dependency-groups", None)
    project["tool"] = {name: project["tool"][name] for name in ("uv", "pytest")}
    options = project["tool"]["pytest"]["ini_options"]
    options.pop("markers", None)  # of staff's tests
    options |= {"submission": PACKAGE, "testpaths": ["tests"]}
    return "\n".join(_toml(project)).lstrip() + "\n"


def _toml(table: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """A table's lines. JSON's strings, numbers, lists and truths are TOML's, too."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if values and place:
        yield f"\n[{place}]"
    for key, value in values.items():
        if isinstance(value, list) and len(value) > 1:
            yield from (f"{key} = [", *(f"    {json.dumps(one, ensure_ascii=False)}," for one in value), "]")
        else:
            yield f"{key} = {json.dumps(value, ensure_ascii=False)}"
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _toml(value, f"{place}.{key}" if place else key)


def _walked(root: Path) -> set[str]:
    """All files that could be released, and staff's, where git cannot say which there are."""
    places = [root / name for name in (*FOLDERS, *STAFF, "docs")]
    below = {path.relative_to(root).as_posix() for place in places for path in _files_below(place)}
    return below | {name for name in (*FILES, PROJECT) if (root / name).is_file()}


def _files_below(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _is_in(name: str, folders: tuple[str, ...]) -> bool:
    return any(name.startswith(f"{folder}/") for folder in folders)


def _content(root: Path, name: str) -> bytes:
    path = root / name
    if path.is_symlink() or not path.is_file():
        raise Unplanned(f"{name} is a link" if path.is_symlink() else f"{name} is tracked by git, and is not there")
    return path.read_bytes()
