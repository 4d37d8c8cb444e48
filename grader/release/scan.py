"""Whether a release holds anything of staff's: `scan(plan, secrets, root)` names every place, or finds none.

Texts are searched for the bodies, sentences and cases of `Secrets`, in any file: code, comments, docstrings, Markdown,
YAML. A **staff path** is

- a file in the release at a place that is staff's (`STAFF` in `plan.py`) or of a file that students do not get;
- the path of such a folder or file, written with slashes, in any text;
- an import of a module there;
- the path of the repository on this machine.

Code that finds the hidden folder by joining its parts is none of these: it has to work with and without it. A public
rubric whose speeds are compared with a solution is found, too. A file that is no text cannot be searched, and is found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.release.plan import STAFF, Plan
from grader.release.secrets import RUN, Secrets, Sequences, joined, sentence_tokens
from grader.release.tokens import COMMENT, Tokens, readings
from grader.rubric_files import Baseline

RUBRIC = "grader/rubric.yaml"
MARKUP = re.compile(r"<[^>]*>|&#?\w+;")  # of a picture, around each of its words


@dataclass(frozen=True)
class Finding:
    """One thing of staff's in a released file."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}: {self.what}"


def scan(plan: Plan, secrets: Secrets, root: Path) -> list[Finding]:
    """Everything of staff's in a release, file by file."""
    return [found for file, content in plan.files.items() for found in _in_file(file, content, plan, secrets, root)]


def _in_file(file: str, content: bytes, plan: Plan, secrets: Secrets, root: Path) -> Iterator[Finding]:
    if file in plan.kept or any(file.startswith(f"{folder}/") for folder in STAFF):
        yield Finding(file, 1, "a staff path")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        yield Finding(file, 1, "no text: it cannot be searched")
        return
    found: dict[str, int] = {}  # -> the first line

    def note(what: str, offset: int) -> None:
        found.setdefault(what, text.count("\n", 0, offset) + 1)

    if file.endswith(".svg"):
        text = MARKUP.sub(lambda match: re.sub(r"\S", " ", match.group()), text)
    for reading in readings(text):
        _note_bodies(Tokens.of(reading), secrets, note)
    _note_sequences(sentence_tokens(text), secrets.sentences, note)
    _note_sequences(Tokens.of(text), secrets.cases, note)
    _note_paths(text, plan, root, note)
    if file.endswith(".py"):
        _note_imports(text, note)
    if file == RUBRIC:
        _note_baselines(text, note)
    yield from (Finding(file, line, what) for what, line in found.items())


Note = Callable[[str, int], None]  # what was found, and at which offset


def _note_bodies(tokens: Tokens, secrets: Secrets, note: Note) -> None:
    shape = tokens.shape()
    for start in range(len(shape) - RUN + 1):
        if tuple(shape[start : start + RUN]) in secrets.shapes and (
            source := secrets.bodies.get(tokens.window(start, RUN))
        ):
            note(f"{RUN} tokens of {source}", tokens.begins[start])


def _note_sequences(tokens: Tokens, sequences: Sequences, note: Note) -> None:
    text = joined(tokens)
    for sequence, source in sequences.items():
        if (place := text.find(sequence)) >= 0:
            note(source, tokens.begins[text.count(" ", 0, place)])


def _note_paths(text: str, plan: Plan, root: Path, note: Note) -> None:
    for match in re.finditer("|".join(_path_patterns(plan)), text):
        note(f"the staff path {match.group()}", match.start())
    for match in re.finditer(rf"{re.escape(str(root))}(?![\w-])", text):
        note("the repository's path on this machine", match.start())


def _path_patterns(plan: Plan) -> Iterator[str]:
    """Of folders, and of single files elsewhere."""
    for folder in STAFF:
        yield rf"(?<![\w-]){re.escape(folder)}" + (r"\b" if "/" in folder else "/")
    for file in sorted(plan.kept):
        if "/" in file and not any(file.startswith(f"{folder}/") for folder in STAFF):
            yield rf"(?<![\w-]){re.escape(file)}\b"


def _note_imports(text: str, note: Note) -> None:
    staff = [folder.replace("/", ".") for folder in STAFF]
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    begins = [0, *(match.end() for match in re.finditer("\n", text))]
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{name}" for name in names]
        for name in names:
            if any(f"{name}.".startswith(f"{package}.") for package in staff):
                note(f"an import of {name}", begins[getattr(node, "lineno", 1) - 1])


def _note_baselines(text: str, note: Note) -> None:
    bare = COMMENT.sub(lambda match: " " * len(match.group()), text)
    for match in re.finditer(rf"\bbaseline:\s*['\"]?{Baseline.SOLUTION}\b", bare):
        note("a speed compared with a solution, which students do not have", match.start())
