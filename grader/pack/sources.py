"""The modules of a submission, read and never imported: what each defines, and what each imports of the others.

Modules have the names that they have below `assignment`: `gelu`, `kernels.tiles`; the package itself is "". What only
running would tell (a name that is set by a loop, an import under `try`) is taken to be right.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import PurePosixPath

from grader.closest import did_you_mean
from grader.judge.snapshot import PACKAGE

LIBRARIES = {*sys.stdlib_module_names, "torch", "triton", "numpy"}  # a module of the same name shadows none of them
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class State(StrEnum):
    """How far a function or a class is written."""

    READY = "ready"
    PARTLY = "partly done"  # some methods of a class are, and others still to do
    TODO = "still to do"  # its body, or that of each method, is empty or only raises NotImplementedError
    MISSING = "missing"


@dataclass(frozen=True)
class Found:
    """A name that somebody looks for in a module."""

    state: State
    methods: tuple[str, ...] = ()  # of a class, those that are still to do


@dataclass(frozen=True)
class Need:
    """Something of the submission's own that a module imports."""

    module: str
    line: int
    remedy: str = ""  # what is wrong with the way it is imported


class Source:
    """One module."""

    def __init__(self, name: str, file: PurePosixPath, content: bytes) -> None:
        self.name, self.file = name, file
        self.fault = ""  # why it is no Python, with the line
        self.tree = ast.Module([], [])
        try:
            with warnings.catch_warnings(action="ignore"):
                self.tree = ast.parse(content)
        except SyntaxError as error:
            self.fault = f"{file}, line {error.lineno or 1}: not Python: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            self.fault = f"{file}: not Python: {error}"

    @property
    def package(self) -> str:
        """What a single dot stands for in its imports."""
        return self.name if self.file.name == "__init__.py" else self.name.rpartition(".")[0]

    @cached_property
    def statements(self) -> list[ast.stmt]:
        """What runs when it is imported, under `if`, `try` and `with`, too."""
        return list(_flat(self.tree.body))

    @cached_property
    def names(self) -> dict[str, ast.stmt]:
        """What it defines or imports, by name, with the last statement that does."""
        return {name: node for node in self.statements for name in _bound(node)}

    def imports(self) -> Iterator[ast.Import | ast.ImportFrom]:
        """All of them, in functions too, but for those that may fail (under `try`) or never run (TYPE_CHECKING)."""
        waiting: list[ast.AST] = [self.tree]
        while waiting:
            node = waiting.pop(0)
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                yield node
            elif not isinstance(node, ast.Try) and not (isinstance(node, ast.If) and "TYPE_CHECKING" in _said(node)):
                waiting += ast.iter_child_nodes(node)


class Sources:
    """All modules of a submission."""

    def __init__(self, contents: Mapping[PurePosixPath, bytes]) -> None:
        self.modules = {(name := _module_name(file)): Source(name, file, contents[file]) for file in contents}
        self.packages = {  # folders, with or without __init__.py
            ".".join(file.parts[:depth]) for file in contents for depth in range(len(file.parts))
        }

    def find(self, module: str, name: str, seen: frozenset[str] = frozenset()) -> Found:
        """How far `name` in a module is written, also where it is imported from another one of the submission."""
        source = self.modules.get(module)
        if source is None or module in seen:
            return Found(State.MISSING)
        seen |= {module}
        if (node := source.names.get(name)) is None:
            return self._starred(source, name, seen)
        if isinstance(node, ast.ImportFrom):
            target = self._from(source, node)
            original = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
            is_own = target is not None and target in self.modules
            return self.find(target or "", original, seen) if is_own else Found(State.READY)
        if isinstance(node, ast.ClassDef):
            methods = [one for one in node.body if isinstance(one, FUNCTIONS)]
            left = tuple(one.name for one in methods if _only_raises(one))
            if left or not _written(node):
                return Found(State.PARTLY if len(left) < len(methods) else State.TODO, left)
            return Found(State.READY)
        is_todo = isinstance(node, FUNCTIONS) and (_only_raises(node) or not _written(node))
        return Found(State.TODO if is_todo else State.READY)

    def faults(self, module: str) -> list[str]:
        """What keeps a module from being imported, in it or in what it imports of the submission, in sentences."""
        found: list[str] = []
        waiting, seen = ["", module], set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in seen:
                continue
            seen.add(name)
            if "." in name:
                waiting.append(name.rpartition(".")[0])  # its __init__.py runs first
            if (source := self.modules.get(name)) is None:
                continue
            found += [source.fault] if source.fault else []
            for need in self._needs(source):
                if problem := need.remedy or self._lacking(need.module):
                    found.append(f"{source.file}, line {need.line}: {problem}")
                waiting.append(need.module)
        return found

    def _starred(self, source: Source, name: str, seen: frozenset[str]) -> Found:
        """A name that may come with `from ... import *`."""
        for node in source.statements:
            if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
                target = self._from(source, node)
                if target is None:
                    return Found(State.READY)  # from a library: nobody knows without running it
                if (found := self.find(target, name, seen)).state is not State.MISSING:
                    return found
        return Found(State.MISSING)

    def _from(self, source: Source, node: ast.ImportFrom) -> str | None:
        """Which module of the submission `from ... import` names; None: a library's, or outside of the folder."""
        if node.level == 0:
            package, _, below = (node.module or "").partition(".")
            return below if package == PACKAGE else None
        above = source.package.split(".") if source.package else []
        if node.level - 1 > len(above):
            return None
        return ".".join([*above[: len(above) - node.level + 1], *([node.module] if node.module else [])])

    def _needs(self, source: Source) -> Iterator[Need]:
        """The submission's own modules that a module imports."""
        for node in source.imports():
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first, _, below = alias.name.partition(".")
                    if first == PACKAGE and below:
                        yield Need(below, node.lineno)
                    elif self._is_own(first):
                        yield Need(first, node.lineno, _relatively(f"import {alias.name}", first))
            elif (target := self._from(source, node)) is not None:
                yield from (self._need_from(target, alias.name, node.lineno) for alias in node.names)
            elif node.level:
                yield Need("", node.lineno, "there are more dots than folders: it leads out of what is graded")
            elif self._is_own(first := (node.module or "").partition(".")[0]):
                yield Need(first, node.lineno, _relatively(f"from {node.module} import", first))

    def _need_from(self, target: str, name: str, line: int) -> Need:
        """`from target import name`: a module below it, or a name in it."""
        below = f"{target}.{name}".lstrip(".")
        if name == "*" or self.find(target, name).state is not State.MISSING:
            return Need(target, line)
        if below in self.modules or below in self.packages or target in self.packages:
            return Need(below, line)
        if target in self.modules and not self.modules[target].fault:
            source = self.modules[target]
            return Need(target, line, f"{source.file} has no `{name}`{did_you_mean(name, source.names)}")
        return Need(target, line)

    def _is_own(self, name: str) -> bool:
        return name not in LIBRARIES and (name in self.modules or name in self.packages)

    def _lacking(self, module: str) -> str:
        """A sentence on a module that is not there; nothing on one that is."""
        if module in self.modules or module in self.packages:
            return ""
        return f"there is no module `{module}` beside it{did_you_mean(module, [name for name in self.modules if name])}"


def _relatively(words: str, module: str) -> str:
    """What to write in place of an import that only works where the folder is on the search path."""
    better = f"from . import {module}" if words.startswith("import") else words.replace("from ", "from .", 1)
    return f"`{words}` does not find it when graded: write `{better}`"


def _module_name(file: PurePosixPath) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            for field in ("body", "handlers", "orelse", "finalbody", "cases"):
                for inner in getattr(node, field, []):
                    yield from _flat([inner] if isinstance(inner, ast.stmt) else inner.body)


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement sets."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return []
    targets = getattr(node, "targets", [getattr(node, "target", None)])
    names = [inner for target in targets if target for inner in ast.walk(target)]
    return [name.id for name in names if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)]


def _written(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[ast.stmt]:
    """What is in it besides words, `pass` and `...`."""
    words = (one for one in node.body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
    left = [*words, *(one for one in node.body if isinstance(one, ast.Pass))]
    return [one for one in node.body if one not in left]


def _only_raises(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether all that it does is to raise NotImplementedError."""
    match _written(node):
        case [ast.Raise() as only]:
            return "NotImplementedError" in _said(only)
    return False


def _said(node: ast.If | ast.Raise) -> str:
    part = node.test if isinstance(node, ast.If) else node.exc
    return ast.unparse(part) if part else ""
