"""What a kernel takes from its module that Triton's compiler refuses: constants, and functions without `@triton.jit`.

In a kernel, triton 3.6 and 3.7 know `tl.constexpr` objects, None, modules, and what is Triton's own; an annotation
(`SCALE: tl.constexpr = 0.5`) makes no such object.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.inspect.module import Module, identifier

NEVER_REFUSED = {"len", "list", "range", "float", "int", "isinstance", "getattr", "hasattr", "print", "min", "max"}
Bindings = dict[str, list[ast.AST]]  # each name's statements outside of functions: what binds it


def refused(module: Module) -> Iterator[tuple[ast.Name, bool]]:
    """The first use of each such name in each kernel, and whether it is a function."""
    bindings, known = _bindings(module.tree), dict[str, bool]()
    for kernel in module.kernels.values():
        if kernel not in bindings.get(kernel.name, ()):  # within a function, whose names it would see, too
            continue
        names = [node for statement in kernel.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
        own = {one.arg for one in ast.walk(kernel.args) if isinstance(one, ast.arg)} | NEVER_REFUSED
        own |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
        for name in {name.id: name for name in reversed(names) if name.id not in own}.values():
            is_function = all(isinstance(one, ast.FunctionDef) for one in bindings.get(name.id, ()))
            if _is_plain(name, bindings, known):
                yield name, is_function


def _bindings(tree: ast.Module) -> Bindings:
    found: Bindings = {}
    for node in _outside_of_functions(tree):
        names = [identifier(node)] if isinstance(getattr(node, "ctx", None), ast.Store) else []
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                found.setdefault(name, []).append(node)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names = [name]
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                names = [alias.asname or alias.name.partition(".")[0] for alias in aliases]
        for name in names:
            found.setdefault(name, []).append(node)
    for node in ast.walk(tree):
        for name in node.names if isinstance(node, ast.Global) else ():
            found.setdefault(name, []).append(node)  # a function may set it to anything
    return found


def _outside_of_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that is carried out when the module is imported; of an assignment to one name, not that name."""
    waiting: list[ast.AST] = [*tree.body]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Lambda():
                continue
            case ast.Assign(targets=[ast.Name()], value=value):
                waiting.append(value)
            case ast.AnnAssign(target=ast.Name(), value=value):
                waiting += [value] if value else []
            case _:
                waiting += ast.iter_child_nodes(node)


def _is_plain(node: ast.AST | None, bindings: Bindings, known: dict[str, bool]) -> bool:
    """Whether it is, for certain, an object of Python's own: a number, a text, a tuple, an undecorated function."""
    match node:
        case ast.Constant(value=value):
            return value is not None
        case ast.Tuple() | ast.List() | ast.Dict() | ast.Set():
            return True
        case ast.UnaryOp(operand=operand):
            return _is_plain(operand, bindings, known)
        case ast.BinOp(left=left, right=right):
            return _is_plain(left, bindings, known) and _is_plain(right, bindings, known)
        case ast.Assign(value=value) | ast.AnnAssign(value=value):
            return _is_plain(value, bindings, known)
        case ast.Attribute(value=ast.Name(id="math")) | ast.Call(func=ast.Attribute(value=ast.Name(id="math"))):
            return all(isinstance(one, ast.Import) for one in bindings.get("math", [None]))
        case ast.Call(func=ast.Name(id="float" | "int" as name)):
            return name not in bindings
        case ast.ImportFrom(module="math"):
            return True
        case ast.FunctionDef(decorator_list=[]):
            return True
        case ast.Name(id=name) if name in bindings:
            if name not in known:
                known[name] = False  # as long as it is not known; what is set to itself stays that
                known[name] = all(_is_plain(one, bindings, known) for one in bindings[name])
            return known[name]
    return False
