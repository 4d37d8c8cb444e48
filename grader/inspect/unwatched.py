"""Ways around what is watched, found by reading a submission's source, which nothing that it does can change.

The runner sees PyTorch's operators in the thread that it calls, and the kernels that are launched. What these names
lead to it does not see. A kernel needs none of them, so that one of them is worth a person's look; it proves nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from grader.inspect.module import Module

ELSEWHERE = {  # modules in which code runs, or numbers lie, where nobody watches
    "_thread", "asyncio", "concurrent", "multiprocessing", "subprocess", "threading", "pty", "socket", "signal", "mmap",
    "ctypes", "_ctypes", "cffi", "numba", "scipy", "sklearn", "jax", "cupy", "tensorflow", "cython", "pybind11",
    "gc", "importlib", "builtins", "runpy", "code", "codeop", "imp", "pkgutil", "zipimport", "marshal", "pickle",
}  # fmt: skip
INSIDE = {  # of PyTorch and Triton, beside names that begin with an underscore
    "torch.library", "torch.multiprocessing", "torch.utils.cpp_extension", "torch.utils.dlpack", "torch.jit",
    "torch.overrides", "torch.package", "torch.fx", "torch.func", "torch.compiler", "torch.distributed", "torch.hub",
    "triton.runtime.interpreter", "triton.runtime.jit", "triton.runtime.driver.set_active", "triton.backends",
    "triton.compiler",
}  # fmt: skip
RUNNING = {"exec", "eval", "compile", "__import__", "globals", "vars", "locals"}  # text as code, names as text
METHODS = {  # names of others' functions and attributes
    "redispatch", "handle", "tolist", "numpy", "__array__", "fork", "forkpty", "posix_spawn", "posix_spawnp", "system",
    "popen", "modules", "_getframe", "_current_frames", "currentframe", "__torch_dispatch__", "__torch_function__",
    "__globals__", "__builtins__", "__code__", "__subclasses__", "__dict__", "f_globals", "f_back", "getsource",
    "getsourcelines", "get_source", "FunctionType", "CodeType",
}  # fmt: skip
OF_A_TEXT = (  # ways by which a text becomes code
    "exec(", "eval(", "compile(", "__import__(", "import importlib", ".getsource", ".get_source", ".FunctionType",
    "from importlib", "from inspect import get", "from types import",
)  # fmt: skip
LIBRARIES = ("torch", "triton")
TENSORS = {"torch.Tensor", "torch.nn.Parameter"}  # one of another kind computes as it likes, within any operator
SETTINGS = "torch.backends."  # may be set: they reach nobody else


@dataclass(frozen=True)
class Way:
    """One of them."""

    file: str  # "softmax.py", below assignment
    line: int
    what: str  # "import threading"

    @property
    def runs_text(self) -> bool:
        """Whether a text becomes code here, which may be the library's."""
        return self.what.startswith(OF_A_TEXT)


@lru_cache(maxsize=16)
def known_ways(folder: Path, module: str, changed_ns: int) -> tuple[Way, ...]:
    """All of them. `changed_ns`: when the folder was written, so that another of the same name is read anew."""
    return tuple(ways_around(folder, module))


def ways_around(folder: Path, module: str) -> Iterator[Way]:
    """Those of `folder/MODULE.py` and of the submission's own modules that it imports, file by file."""
    waiting, seen = [folder / f"{module}.py"], set[Path]()
    while waiting:
        path = waiting.pop(0)
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        try:
            parsed = Module(ast.parse(path.read_bytes()))
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            yield Way(str(path.relative_to(folder)), 1, "it cannot be read")
            continue
        for node in parsed.nodes:
            waiting += _own_modules(node, path, folder)
        names = _names(parsed)
        for node in sorted(parsed.nodes, key=lambda node: getattr(node, "lineno", 0)):
            if what := _way(node, names):
                yield Way(str(path.relative_to(folder)), getattr(node, "lineno", 1), what)


def _way(node: ast.AST, names: dict[str, str]) -> str:
    """The way around that a node of a tree is, in words; empty for all others. `names` are those of the libraries."""
    match node:
        case ast.Import(names=aliases):
            return next((f"import {alias.name}" for alias in aliases if _is_elsewhere(alias.name)), "")
        case ast.ImportFrom(module=str(origin), names=aliases, level=0):
            found = (one.name for one in aliases if one.name in METHODS or _is_elsewhere(f"{origin}.{one.name}"))
            return next((f"from {origin} import {name}" for name in found), "")
        case ast.ClassDef(name=name, bases=bases) if any(_whole(base, names) in TENSORS for base in bases):
            return f"class {name}, a kind of tensor"
        case ast.Call(func=ast.Name(id=name)) if name in RUNNING:
            return f"{name}(...)"
        case ast.Call(func=ast.Name(id="getattr" | "setattr" as name), args=[_, attribute, *_]):
            text = attribute.value if isinstance(attribute, ast.Constant) else "_"
            return f"{name}(...)" if text in METHODS or str(text).startswith("_") else ""
        case ast.Attribute(attr=name) if name in METHODS:
            return f".{name}"
        case ast.Attribute() if (whole := _whole(node, names)) and _is_elsewhere(whole):
            return whole
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            parts = [one for one in targets if isinstance(one, ast.Attribute)]
            changed = [whole for one in parts if (whole := _whole(one, names)) and not whole.startswith(SETTINGS)]
            return f"{changed[0]} = ..." if changed else ""
    return ""


def _is_elsewhere(name: str) -> bool:
    """Whether a module, or a name in it, is one of those above, or private to PyTorch or Triton."""
    first, *rest = name.split(".")
    if first in LIBRARIES:
        is_private = any(part.startswith("_") for part in rest)
        return is_private or any(f"{name}.".startswith(f"{inside}.") for inside in INSIDE)
    return first in ELSEWHERE


def _names(module: Module) -> dict[str, str]:
    """What each name of the libraries means in this module: `tl` is `triton.language`."""
    found = {}
    for node in module.nodes:
        match node:
            case ast.Import(names=aliases):
                for alias in aliases:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    found[alias.asname or whole] = whole
            case ast.ImportFrom(module=str(origin), names=aliases, level=0):
                found |= {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in aliases}
    return {name: whole for name, whole in found.items() if whole.partition(".")[0] in LIBRARIES}


def _whole(node: ast.AST, names: dict[str, str]) -> str:
    """`triton.language.load` for `tl.load`; empty for what is none of the libraries'."""
    match node:
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.Attribute(value=value, attr=attribute) if whole := _whole(value, names):
            return f"{whole}.{attribute}"
    return ""


def _own_modules(node: ast.AST, path: Path, folder: Path) -> list[Path]:
    """The files that an import may mean in the submission."""
    match node:
        case ast.ImportFrom(module=origin, names=aliases, level=level) if level:
            start = path.parents[level - 1] if level <= len(path.parents) else folder
            inner = origin.split(".") if origin else []
        case ast.ImportFrom(module=str(origin), names=aliases) if origin.partition(".")[0] == "assignment":
            start, inner = folder, origin.split(".")[1:]
        case ast.Import(names=aliases):
            below = [alias.name.split(".")[1:] for alias in aliases if alias.name.startswith("assignment.")]
            return [file for parts in below for file in _files(folder.joinpath(*parts))]
        case _:
            return []
    if not start.is_relative_to(folder):
        return []
    places = [start.joinpath(*inner), *(start.joinpath(*inner, alias.name) for alias in aliases)]
    return [file for place in places for file in _files(place)]


def _files(place: Path) -> list[Path]:
    return [place.with_name(f"{place.name}.py"), place / "__init__.py"]
