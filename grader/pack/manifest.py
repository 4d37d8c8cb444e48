"""What of a submission will be graded, problem by problem, and what comes along or stays behind.

Nothing is imported. A submission is a `Snapshot`, so what is told here is what was hashed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from grader.closest import closest
from grader.judge.snapshot import Snapshot
from grader.pack.sources import Found, Sources, State
from grader.rubric_files import Problem


@dataclass(frozen=True)
class Function:
    """One function, or class, that is graded."""

    name: str
    state: State
    words: str  # the state, and what is behind it


@dataclass(frozen=True)
class Row:
    """One problem."""

    problem: str
    file: str  # its module, or one with a name like it; "" if there is none
    faults: tuple[str, ...]  # why its module cannot be imported, in sentences
    functions: tuple[Function, ...]

    @property
    def earns_nothing(self) -> list[str]:
        """What cannot be graded."""
        if self.faults:
            return [self.problem]
        lost = [one.name for one in self.functions if one.state in (State.TODO, State.MISSING)]
        return [self.problem] if len(lost) == len(self.functions) else [f"{self.problem}.{name}" for name in lost]

    @property
    def incomplete(self) -> list[str]:
        """What can be graded in part."""
        partly = [one.name for one in self.functions if one.state is State.PARTLY]
        return [] if self.faults else [f"{self.problem}.{name}" for name in partly]


@dataclass(frozen=True)
class Manifest:
    """All problems, and the files that belong to none."""

    rows: tuple[Row, ...]
    along: tuple[str, ...]  # modules of a student's own
    behind: tuple[str, ...]  # files and folders that are not graded, with the reason

    @classmethod
    def of(cls, snapshot: Snapshot, contents: Mapping[str, bytes], problems: Mapping[str, Problem]) -> Manifest:
        """Of the files of a snapshot."""
        sources = Sources({PurePosixPath(name): content for name, content in contents.items()})
        modules = {f"{problem}.py" for problem in problems}
        own = [name for name in contents if name not in modules and PurePosixPath(name).name != "__init__.py"]
        rows = [_row(problem, entry, sources, own) for problem, entry in problems.items()]
        return cls(tuple(rows), tuple(own), tuple(_left_behind(snapshot.source, set(contents))))


def _row(problem: str, entry: Problem, sources: Sources, own: list[str]) -> Row:
    file = f"{problem}.py"
    if problem not in sources.modules and problem not in sources.packages:
        beside = {PurePosixPath(name).stem: name for name in own if "/" not in name}
        close = beside.get(closest(problem, beside) or "", "")
        words = f"there is no {file}" + (f"; `{close}`: did you mean `{file}`?" if close else "")
        return Row(problem, close, (), tuple(Function(name, State.MISSING, words) for name in entry.functions))
    known = sources.modules[problem].names if problem in sources.modules else {}
    found = {name: sources.find(problem, name) for name in entry.functions}
    others = [name for name in known if name not in entry.functions]
    functions = [Function(name, one.state, _words(name, one, others)) for name, one in found.items()]
    return Row(problem, file, tuple(sources.faults(problem)), tuple(functions))


def _words(name: str, found: Found, others: list[str]) -> str:
    if found.state is State.MISSING:
        close = closest(name, others)
        return State.MISSING + (f"; `{close}`: did you mean `{name}`?" if close else "")
    left = "still to do: " if found.state is State.PARTLY else ""
    return found.state + (f": {left}{', '.join(found.methods)}" if found.methods else "")


def _left_behind(source: Path, packed: set[str]) -> Iterator[str]:
    """What is in a submission's folder and not graded; a folder of which nothing is, in one line."""
    for place, folders, files in os.walk(source):
        here = Path(place).relative_to(source)
        for name in sorted(folders):
            path = (here / name).as_posix()
            if not any(file.startswith(f"{path}/") for file in packed):
                folders.remove(name)
                yield f"{path} (a link)" if Path(place, name).is_symlink() else f"{path}/"
        folders.sort()
        for name in sorted(files):
            path = (here / name).as_posix()
            if path not in packed:
                yield f"{path} ({_reason(Path(place, name))})"


def _reason(path: Path) -> str:
    if path.is_symlink():
        return "a link"
    return "not Python" if path.suffix != ".py" else "no regular file"
