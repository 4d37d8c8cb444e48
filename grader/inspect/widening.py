"""Where a kernel calculates with a tile as it was loaded, in the tensor's dtype, without widening it to float32."""

from __future__ import annotations

import ast
import re
from collections.abc import Set

# Functions that calculate in the dtype of a tile. Division and tl.max widen to float32 by themselves, tl.exp and its
# like refuse half types with an error, and all others (dot, where, trans, store, ...) take a tile as it is.
CALCULATE = {"sum", "cumsum", "fma"}
PASS_ON = {"where", "trans", "reshape", "broadcast_to", "expand_dims", "permute", "view"}
WIDE = {
    "zeros",
    "full",
    "dot",
    "exp",
    "exp2",
    "log",
    "sqrt",
    "sigmoid",
    "max",
}  # float32, unless they are told otherwise
FLOAT32 = re.compile("lse|log_sum|delta")  # in a tensor's name: attention keeps these in float32 for every dtype
Names = dict[str, str]  # a name is "loaded" or "wide"; all else is neither: numbers, indices, pointers


def unwidened(kernel: ast.FunctionDef, inputs: Set[str]) -> tuple[int, str] | None:
    """The first line where a loaded tile is calculated with, and what it is called there. None if there is none.

    `inputs` are the parameters of the kernel that may have a half type: tensors as they came from the caller.
    """
    reading = _Reading(kernel, inputs)
    try:
        for statement in kernel.body:
            reading.visit(statement)
    except _Found as found:
        return found.line, found.name
    return None


class _Found(Exception):
    def __init__(self, node: ast.expr) -> None:
        self.line, self.name = node.lineno, ast.unparse(node)


class _Reading(ast.NodeVisitor):
    """Goes through a kernel in order of its text, and knows of each name what was last assigned to it."""

    def __init__(self, kernel: ast.FunctionDef, inputs: Set[str]) -> None:
        self.inputs = inputs
        # A number that is passed at run time is float32, and widens what it is multiplied with.
        self.names: Names = {argument.arg: "wide" for argument in kernel.args.args if argument.annotation is None}
        self.addresses = _in_addresses(kernel)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        kind = "" if names & self.addresses else self.kind(node.value)
        self.names |= dict.fromkeys(names, kind)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        kind = self.calculated(node.target, node.value)
        if isinstance(node.target, ast.Name):
            self.names[node.target.id] = kind

    def visit_Expr(self, node: ast.Expr) -> None:
        self.kind(node.value)

    def kind(self, node: ast.AST) -> str:
        """What an expression is: "loaded", "wide" or "". Raises `_Found` where it calculates with what is loaded."""
        match node:
            case ast.Name():
                return self.names.get(node.id, "")
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                return self.calculated(node.left, node.right)
            case ast.BinOp(op=ast.Div()):
                self.kind(node.left)
                return "wide"
            case ast.UnaryOp(op=ast.USub()):
                return self.kind(node.operand)
            case ast.Subscript() | ast.Attribute(attr="T"):
                return self.kind(node.value)
            case ast.Call():
                return self.called(node)
        return ""

    def calculated(self, *operands: ast.expr) -> str:
        """The kind of a result. Beside a float32 tile a loaded one is widened by Triton itself."""
        kinds = [self.kind(operand) for operand in operands]
        if "wide" in kinds:
            return "wide"
        for operand, kind in zip(operands, kinds, strict=True):
            if kind == "loaded":
                raise _Found(operand)
        return ""

    def called(self, node: ast.Call) -> str:
        function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if function == "load":  # what its address is made of is no arithmetic of tiles
            names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
            if node.args and FLOAT32.search(ast.unparse(node.args[0])):
                return "wide"
            return "loaded" if names & self.inputs or not names & self.names.keys() else "wide"
        if function == "to" and isinstance(node.func, ast.Attribute):
            self.kind(node.func.value)
            return "wide"
        tiles = list(node.args)
        if isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in ("tl", "triton.language"):
            tiles.insert(0, node.func.value)  # x.sum() is tl.sum(x)
        if function in CALCULATE:
            return self.calculated(*tiles)
        if function == "store":
            tiles = tiles[1:2]
        kinds = [self.kind(tile) for tile in tiles]
        if function in PASS_ON:
            return next((kind for kind in ("wide", "loaded") if kind in kinds), "")
        return "wide" if function in WIDE and not _says_half(node) else ""


def _in_addresses(kernel: ast.FunctionDef) -> set[str]:
    """The names in the addresses and masks of loads and stores: integers, if they were loaded."""
    found: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("load", "store", "atomic_add"):
            trees = [*node.args[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "mask")]
            found |= {one.id for tree in trees for one in ast.walk(tree) if isinstance(one, ast.Name)}
    return found


def _says_half(node: ast.Call) -> bool:
    """Whether a call names a dtype that is not float32."""
    words = [ast.unparse(one) for one in [*node.args, *(keyword.value for keyword in node.keywords)]]
    return any("dtype" in word or "float16" in word for word in words)
