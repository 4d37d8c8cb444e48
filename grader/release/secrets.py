"""What students must not get, read from the staff repository: `Secrets.of(root)`.

- **Bodies**: every run of `RUN` tokens in a body of a function or method of `solutions/`, and of the right and the
  slower submissions in staff's tests. Names that can be changed stand for their order, so renaming them hides nothing;
  numbers, attributes, keywords and builtins count as they are. A run that is hardly more than a list of names says
  nothing. Nothing is excused because a stub has it: stubs have no bodies, and what is given is in a module of its own.
- **Sentences**: titles of hidden checks, the first lines of their docstrings, and the hints of the hidden rubric.
- **Cases**: the entries of hidden tables (lists, and what checks are parametrised with) that have two numbers or more;
  and what a hidden module gives a name, networks for example, if it has six or more: with fewer, public ones are alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from grader.release.plan import Unplanned
from grader.release.tokens import COMMENT, TRIPLE_QUOTED, Tokens

RUN = 40  # tokens
LEAST_FIXED = 8  # of them, neither commas nor names that can be changed: long imports and signatures are alike
CASE_NUMBERS, PART_NUMBERS = 2, 6
HIDDEN = "grader/hidden"
COMPLETE = ("solutions", "tests/staff/submissions/right", "tests/staff/submissions/slower")

Window = tuple[str | int, ...]
Sequences = Mapping[str, str]  # tokens with a blank between them -> what they are from


@dataclass(frozen=True)
class Secrets:
    """Everything that the scan looks for in texts."""

    bodies: Mapping[Window, str]  # -> the function that they are from
    sentences: Sequences
    cases: Sequences

    @cached_property
    def shapes(self) -> set[tuple[str, ...]]:
        """The bodies' runs with one sign for all names that can be changed: quick to look up."""
        return {tuple("" if isinstance(word, int) else word for word in window) for window in self.bodies}

    @classmethod
    def of(cls, root: Path) -> Secrets:
        """Read them. Raises `Unplanned` where there are none, for then a scan says nothing."""
        complete = [path for place in COMPLETE for path in sorted((root / place).rglob("*.py"))]
        hidden = sorted((root / HIDDEN).glob("test_*.py"))
        bodies = {window: source for path in complete for window, source in _runs(root, path)}
        titles = {title: source for path in hidden for title, source in _titles(root, path)}
        cases = {case: source for path in hidden for case, source in _cases(root, path)}
        found = cls(bodies, titles | _hints(root), cases)
        for kind in ("bodies", "sentences", "cases"):
            if not getattr(found, kind):
                raise Unplanned(f"there are no {kind} to look for: are {COMPLETE[0]} and {HIDDEN} here?")
        return found


def joined(tokens: Tokens) -> str:
    """Tokens with a blank around each."""
    return f" {' '.join(tokens.words)} "


def words_of(text: str) -> str:
    """A sentence, or a text, as its words alone: what stands between them and their case say nothing."""
    return joined(sentence_tokens(text))


def sentence_tokens(text: str) -> Tokens:
    """The names and numbers of a text, in lower case."""
    tokens = Tokens.of(text.lower())
    places = [index for index, word in enumerate(tokens.words) if word[0].isalnum() or word[0] == "_"]
    return Tokens(
        [tokens.words[index] for index in places],
        [tokens.begins[index] for index in places],
        [tokens.free[index] for index in places],
    )


def _runs(root: Path, path: Path) -> Iterator[tuple[Window, str]]:
    text = path.read_text(encoding="utf-8-sig")  # as some editors begin a file
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            body = "\n".join(ast.get_source_segment(text, statement) or "" for statement in node.body)
            tokens = Tokens.of(COMMENT.sub("", TRIPLE_QUOTED.sub("", body)))
            for start in range(len(tokens.words) - RUN + 1):
                window = tokens.window(start, RUN)
                if sum(isinstance(word, str) and word != "," for word in window) >= LEAST_FIXED:
                    yield window, f"{_name(root, path)}, {node.name}"


def _titles(root: Path, path: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and (title := ast.get_docstring(node)):
            yield words_of(title.splitlines()[0]), f"the title of {_name(root, path)}, {node.name}"


def _hints(root: Path) -> dict[str, str]:
    path = root / HIDDEN / "rubric.yaml"
    problems = yaml.safe_load(path.read_text())["problems"] if path.is_file() else {}
    return {
        words_of(entry["hint"]): f"the hint of the hidden check {problem}.{name}"
        for problem, entries in problems.items()
        for name, entry in entries.items()
    }


def _cases(root: Path, path: Path) -> Iterator[tuple[str, str]]:
    text = path.read_text()
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            for entry, least in _entries(node.value):
                yield from _case(root, path, text, entry, least)
        for decorator in getattr(node, "decorator_list", []):
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize"):
                for entry, least in _entries(decorator.args[1]):
                    yield from _case(root, path, text, entry, least)


def _entries(table: ast.expr) -> Iterator[tuple[ast.expr, int]]:
    """The entries of a table, with how many numbers make one a secret."""
    if isinstance(table, (ast.List, ast.Tuple)):
        yield from ((entry, CASE_NUMBERS) for entry in table.elts)
    elif isinstance(table, ast.BinOp):
        yield from (*_entries(table.left), *_entries(table.right))
    elif isinstance(table, (ast.ListComp, ast.GeneratorExp)):
        yield from ((generator.iter, CASE_NUMBERS) for generator in table.generators)
    else:
        yield table, PART_NUMBERS


def _case(root: Path, path: Path, text: str, entry: ast.expr, least: int) -> Iterator[tuple[str, str]]:
    numbers = [one for one in ast.walk(entry) if isinstance(one, ast.Constant) and type(one.value) in (int, float)]
    if len(numbers) >= least:
        tokens = Tokens.of(ast.get_source_segment(text, entry) or "")
        yield joined(tokens), f"a case of {_name(root, path)}, line {entry.lineno}"


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()
