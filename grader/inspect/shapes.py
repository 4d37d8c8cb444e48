"""What a kernel's names hold, as far as its text says for certain: a scalar or a block, floats or integers.

`found_in` goes through a kernel in order of its text and gives what it finds: a block where Python asks for true or
false, a name that changes its type in a loop, and a sum over lanes that a mask left undefined. It never follows a loop
round: what is assigned in one is unknown when it begins.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace

from grader.inspect.module import last_name

SOME = 99  # dimensions of a block of which nobody knows how many it has
NAMESPACES = ("tl", "tl.math", "triton.language")
ALWAYS_FLOAT = {"exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "sigmoid"}
SAME_SHAPE = {"abs", "floor", "ceil", "zeros_like"}
COMBINE = {"maximum", "minimum", "fma", "where"}
REDUCE = {"sum", "max", "min"}


@dataclass(frozen=True)
class Kind:
    """What is known of a value; None is unknown."""

    dimensions: int | None = None
    """0 is a scalar, more is a block."""
    is_float: bool | None = None
    is_undefined_outside: bool = False
    """Whether it comes from a load with a mask and without `other`."""

    @property
    def is_block(self) -> bool:
        return bool(self.dimensions)

    def __str__(self) -> str:
        number = {True: "float", False: "integer", None: "number"}[self.is_float]
        if self.dimensions is None:
            return number
        return f"a block of {number}s" if self.is_block else f"{'an' if number[0] == 'i' else 'a'} {number}"


UNKNOWN = Kind()
SCALAR_INT, SCALAR_FLOAT = Kind(0, False), Kind(0, True)
Names = dict[str, Kind]


@dataclass(frozen=True)
class Finding:
    look: str
    """`block_as_condition`, `block_in_logic`, `type_changes` or `undefined_lanes`."""
    line: int
    name: str
    before: Kind = UNKNOWN
    after: Kind = UNKNOWN


def found_in(kernel: ast.FunctionDef, *, is_launched: bool) -> list[Finding]:
    """What is passed to a kernel when it is launched has no dimensions; to one that a kernel calls, anything may be."""
    reading = _Reading()
    if is_launched:
        reading.names = {one.arg: Kind(0) for one in kernel.args.args}
    reading.carry_out(kernel.body)
    return reading.found


class _Reading:
    def __init__(self) -> None:
        self.names: Names = {}
        self.found: list[Finding] = []

    # Statements

    def carry_out(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self.assign(target, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                combined = ast.BinOp(ast.Name(name, ast.Load()), op, value)
                self.assign(node.target, ast.copy_location(combined, node))
            case ast.Expr(value=value):
                self.kind(value)
            case ast.If(test=test):
                self.condition(test)
                before = dict(self.names)
                self.carry_out(node.body)
                after_body, self.names = self.names, before
                self.carry_out(node.orelse)
                self.names = _joined(after_body, self.names, _assigned(node))
            case ast.For(iter=iterable):
                self.kind(iterable)
                self.loop(node, is_compiled_once=ast.unparse(node.iter).startswith(("range(", "tl.range(")))
            case ast.While():
                self.loop(node, is_compiled_once=True)
            case _:
                self.names |= dict.fromkeys(_assigned(node), UNKNOWN)

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self.names[name] = self.kind(value)
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                kinds = [self.kind(one) for one in values]
                self.names |= {
                    one.id: kind for one, kind in zip(targets, kinds, strict=True) if isinstance(one, ast.Name)
                }
            case _:
                self.kind(value)
                self.names |= dict.fromkeys(_assigned(target), UNKNOWN)

    def loop(self, node: ast.For | ast.While, *, is_compiled_once: bool) -> None:
        before = dict(self.names)
        assigned = _assigned(node)
        changed = set(assigned)
        self.names |= dict.fromkeys(assigned, UNKNOWN)
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            self.names[node.target.id] = SCALAR_INT
            assigned.pop(node.target.id, None)
        if isinstance(node, ast.While):
            self.condition(node.test)
        self.carry_out(node.body)
        for name in assigned if is_compiled_once else ():
            if name in before and _differ(before[name], self.names[name]):
                self.found.append(Finding("type_changes", assigned[name], name, before[name], self.names[name]))
        self.names = _joined(before, self.names, changed)

    def condition(self, test: ast.expr) -> None:
        if self.kind(test).is_block:
            self.found.append(Finding("block_as_condition", test.lineno, ast.unparse(test)))

    def logic(self, *operands: ast.expr) -> None:
        blocks = [one for one in operands if self.kind(one).is_block]
        self.found += [Finding("block_in_logic", one.lineno, ast.unparse(one)) for one in blocks]

    # Expressions

    def kind(self, node: ast.expr) -> Kind:
        match node:
            case ast.Constant(value=bool() | int()):
                return SCALAR_INT
            case ast.Constant(value=float()):
                return SCALAR_FLOAT
            case ast.Name(id=name):
                return self.names.get(name, UNKNOWN)
            case ast.BinOp(left=left, op=op, right=right):
                result = _combined(self.kind(left), self.kind(right))
                if isinstance(op, ast.Div):
                    return replace(result, is_float=True)
                return UNKNOWN if isinstance(op, ast.Pow | ast.MatMult) else result
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                kinds = self.kind(left), self.kind(right)
                is_identity = isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn)
                return SCALAR_INT if is_identity else Kind(_combined(*kinds).dimensions, False)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
                return self.kind(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.logic(operand)
            case ast.BoolOp(values=values):
                self.logic(*values)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.condition(test)
                return _join(self.kind(body), self.kind(orelse))
            case ast.Subscript(value=value):
                kind = self.kind(value)
                return replace(kind, dimensions=SOME) if kind.is_block else UNKNOWN
            case ast.Attribute(value=value, attr="T"):
                return self.kind(value)
            case ast.Call():
                return self.called(node)
        return UNKNOWN

    def called(self, node: ast.Call) -> Kind:
        function = last_name(node.func)
        if not isinstance(node.func, ast.Attribute):
            is_infinity = function == "float" and len(node.args) == 1 and isinstance(node.args[0], ast.Constant)
            return SCALAR_FLOAT if is_infinity else UNKNOWN
        is_method = ast.unparse(node.func.value) not in NAMESPACES
        arguments = [node.func.value, *node.args] if is_method else node.args
        kinds = [self.kind(one) for one in arguments]
        named = {keyword.arg: self.kind(keyword.value) for keyword in node.keywords}
        first = kinds[0] if kinds else UNKNOWN
        if function in REDUCE:
            return self.reduced(node, arguments[1:], first)
        if function in COMBINE and not named and not is_method:
            return self.chosen(function, kinds)
        if function in SAME_SHAPE:
            return replace(first, is_undefined_outside=False)
        if function in ALWAYS_FLOAT:
            return Kind(first.dimensions, True)
        if function == "to":
            return replace(first, is_float=_is_float(node.args))
        if function == "load":
            is_open = (len(arguments) == 2 or "mask" in named) and len(arguments) < 3 and "other" not in named
            return Kind(first.dimensions or None, None, is_open and None not in named)
        return self.made(function, node, is_method)

    def made(self, function: str, node: ast.Call, is_method: bool) -> Kind:
        if is_method:
            return UNKNOWN
        match function, node.args:
            case "arange", [_, end]:
                return UNKNOWN if isinstance(end, ast.Constant) and end.value == 1 else Kind(1, False)
            case (("zeros" | "full"), [(ast.Tuple(elts=[first, *more]) | ast.List(elts=[first, *more])), *rest]):
                if all(isinstance(side, ast.Constant) and side.value == 1 for side in [first, *more]):
                    return UNKNOWN  # a single lane is as good as a scalar in some places
                types = [*rest, *(keyword.value for keyword in node.keywords if keyword.arg == "dtype")]
                return Kind(1 + len(more), _is_float(types[-1:]))
            case "dot", [_, _, *_]:
                return Kind(SOME, None)
            case "program_id" | "num_programs", _:
                return SCALAR_INT
        return UNKNOWN

    def chosen(self, function: str, kinds: list[Kind]) -> Kind:
        """Of tl.where the condition has a shape and no type."""
        typed = kinds[1:] if function == "where" else kinds
        if not typed:
            return UNKNOWN
        result = typed[0]
        for kind in typed[1:]:
            result = _combined(result, kind)
        dimensions = _combined(result, kinds[0]).dimensions
        return Kind(dimensions, result.is_float)

    def reduced(self, node: ast.Call, axes: list[ast.expr], tile: Kind) -> Kind:
        named = [keyword.value for keyword in node.keywords if keyword.arg == "axis"]
        if len(named) < len(node.keywords) or len(axes) > 1:
            return UNKNOWN
        if tile.is_undefined_outside and tile.dimensions == 1:
            self.found.append(Finding("undefined_lanes", node.lineno, ast.unparse(node)))
        match [*axes, *named]:
            case [] | [ast.Constant(value=None)]:
                return Kind(0, tile.is_float)
            case [ast.Constant() | ast.UnaryOp(op=ast.USub(), operand=ast.Constant())]:
                is_counted = tile.dimensions and tile.dimensions != SOME
                return Kind(tile.dimensions - 1 if tile.dimensions and is_counted else None, tile.is_float)
        return Kind(None, tile.is_float)


def _is_float(types: list[ast.expr]) -> bool | None:
    words = ast.unparse(types[0]).rpartition(".")[2] if types else ""
    if words in ("float16", "bfloat16", "float32", "float64"):
        return True
    return False if words in ("int1", "int8", "int16", "int32", "int64", "uint32") else None


def _combined(one: Kind, other: Kind) -> Kind:
    """Of `one + other`: the shape is the larger one, a float makes floats of integers."""
    dimensions = {one.dimensions, other.dimensions}
    if None in dimensions:
        size = SOME if any(dimensions) else None
    else:
        size = max(one.dimensions or 0, other.dimensions or 0)
    floats = {one.is_float, other.is_float}
    is_float = True if True in floats else None if None in floats else False
    return Kind(size, is_float)


def _join(one: Kind, other: Kind) -> Kind:
    """What is known of a value that is one of two."""
    size = one.dimensions if one.dimensions == other.dimensions else SOME if one.is_block and other.is_block else None
    is_float = one.is_float if one.is_float == other.is_float else None
    return Kind(size, is_float, one.is_undefined_outside and other.is_undefined_outside)


def _joined(one: Names, other: Names, changed: Iterable[str]) -> Names:
    return one | {name: _join(one.get(name, UNKNOWN), other.get(name, UNKNOWN)) for name in changed}


def _differ(before: Kind, after: Kind) -> bool:
    is_other_type = None not in (before.is_float, after.is_float) and before.is_float != after.is_float
    is_other_shape = None not in (before.dimensions, after.dimensions) and before.is_block != after.is_block
    return is_other_type or is_other_shape


def _assigned(node: ast.AST) -> dict[str, int]:
    """Every name that is assigned to somewhere in a statement, and the last such line."""
    stores = [one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    return {one.id: one.lineno for one in sorted(stores, key=lambda one: one.lineno)}
