"""Static looks: what Triton's interpreter cannot show, found by reading a module's source. Advice, worth no points.

`looks_at` reads files and never imports or runs them. A look is a small function from a module to what it found; it
knows constants, and nothing that a program computes: what cannot be told from the text is left unsaid.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.inspect.module import Launch, Module, identifier, last_name
from grader.inspect.outside import refused
from grader.inspect.shapes import Finding, found_in
from grader.inspect.widening import unwidened

LEAST_SIDE = 16  # of a tl.dot on a GPU (triton 3.6 and 3.7 want K >= 16 for half types; older ones every side)
MOST_LOOKS = 20
MOST_BYTES = 1_000_000
MOST_NODES = 20_000  # of a syntax tree: the looks take longer than the tree is large


@dataclass(frozen=True)
class Look:
    """One finding."""

    name: str
    line: int
    what: str
    hint: str
    file: str = ""  # "assignment/matmul.py"


def small_dot(module: Module) -> Iterator[Look]:
    for kernel in module.kernels.values():
        dots = [node for node in ast.walk(kernel) if isinstance(node, ast.Call) and last_name(node.func) == "dot"]
        sides = {name for node in ast.walk(kernel) if (name := _length_of_arange(node))}
        small = [(name, size) for name, size in module.lengths(kernel) if name in sides and size < LEAST_SIDE]
        for name, size in dict.fromkeys(small) if dots else ():
            yield Look(
                "small_dot", dots[0].lineno,
                f"`{name}` is {size}: a side of tl.dot under {LEAST_SIDE} runs here, but may not compile on a GPU (k "
                f"must be {LEAST_SIDE} or more; older versions of Triton want it of all three sides)",
                f"make it {LEAST_SIDE} or more, and mask what does not exist",
            )  # fmt: skip


def half_arithmetic(module: Module) -> Iterator[Look]:
    for kernel in module.kernels.values():
        if found := unwidened(kernel, module.of_the_inputs(kernel)):
            line, name = found
            yield Look(
                "half_arithmetic", line,
                f"`{name}` is calculated with as it was loaded: with bfloat16 the interpreter takes the bit patterns "
                "for numbers (so it is not checked here), and a GPU rounds at every step",
                "widen first: tl.load(...).to(tl.float32)",
            )  # fmt: skip


def block_pointer(module: Module) -> Iterator[Look]:
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "make_block_ptr":
            yield Look(
                "block_pointer", node.lineno, "make_block_ptr is gone from newer versions of Triton",
                "use pointers, strides and masks",
            )  # fmt: skip


def half_type(module: Module) -> Iterator[Look]:
    for kernel in module.kernels.values():
        for node in ast.walk(kernel):
            if isinstance(node, ast.Call) and last_name(node.func) == "to" and "bfloat16" in ast.unparse(node):
                yield Look(
                    "half_type", node.lineno,
                    "the interpreter calculates with the bit patterns of bfloat16, so the numbers are wrong here",
                    "keep the dtype of the input: output_pointer.dtype.element_ty at the store, tl.float32 before it",
                )  # fmt: skip


def many_configurations(module: Module) -> Iterator[Look]:
    for kernel in module.kernels.values():
        for decorator in kernel.decorator_list:
            if not isinstance(decorator, ast.Call) or last_name(decorator.func) != "autotune":
                continue
            trees = module.with_what_it_names(decorator)
            chosen = any("interpret" in ast.unparse(tree) for tree in trees)
            several = len(module.configurations(kernel)) > 1 or _is_built(trees)
            if several and not chosen:
                yield Look(
                    "many_configurations", decorator.lineno,
                    "without a GPU there is nothing to time several configurations on, and the launch fails",
                    "use autotune_or_first from assignment/_autotune.py: without a GPU it keeps the first one",
                )  # fmt: skip


def empty_grid(module: Module) -> Iterator[Look]:
    for launch in module.launches:
        line = launch.call.lineno
        for quotient, left, divisor in _rounded_down(module, launch):
            yield Look(
                "empty_grid", line,
                f"`{quotient}` programs leave out the last block if it is not full, and a size below one block gives "
                "an empty grid: nothing runs",
                f"round up: triton.cdiv({left}, {divisor})",
            )  # fmt: skip
        sides = launch.grid.elts if isinstance(launch.grid, ast.Tuple) else [launch.grid]
        if any(module.constant(side) == 0 for side in sides):
            yield Look("empty_grid", line, "this grid is empty: nothing runs", "launch a program for each tile")


def _rounded_down(module: Module, launch: Launch) -> Iterator[tuple[str, str, str]]:
    """Every `left // divisor` in a grid that counts tiles, in words: quotient, left, divisor."""
    tiles = launch.tiles(module.kernels.get(launch.kernel))
    nodes = list(ast.walk(module.values.get(identifier(launch.grid), launch.grid)))
    operations = [tree for node in nodes if isinstance(tree := module.values.get(identifier(node), node), ast.BinOp)]
    added_to = [tree.left for tree in operations if isinstance(tree.op, ast.Add)]  # n // BLOCK + 1
    for tree in operations:
        if isinstance(tree.op, ast.FloorDiv) and tree not in added_to:
            left, divisor = ast.unparse(tree.left), ast.unparse(tree.right)
            is_tile = (divisor in tiles and _is_fixed(tree.right, module)) or _names_a_tile(divisor)
            if is_tile and divisor not in left:  # (n + BLOCK - 1) // BLOCK rounds up
                yield ast.unparse(tree), left, divisor


def outside_name(module: Module) -> Iterator[Look]:
    for name, is_function in refused(module):
        kind = "function without @triton.jit" if is_function else "Python object of the module"
        yield Look(
            "outside_name", name.lineno,
            f"`{name.id}` is a {kind}: the interpreter takes it, and on a GPU the kernel does not compile",
            f"put @triton.jit above `def {name.id}`" if is_function else
            f"{name.id} = tl.constexpr(...) in the module (an annotation is not enough), or the value in the kernel",
        )  # fmt: skip


def block_as_condition(module: Module) -> Iterator[Look]:
    for found in _shapes(module, "block_as_condition"):
        yield Look(
            "block_as_condition", found.line,
            f"`{found.name}` is a block: the interpreter takes every block of 2 or more lanes for true, and on a GPU "
            "the kernel does not compile",
            "choose in every lane: tl.where(condition, x, y)",
        )  # fmt: skip


def block_in_logic(module: Module) -> Iterator[Look]:
    for found in _shapes(module, "block_in_logic"):
        yield Look(
            "block_in_logic", found.line,
            f"`{found.name}` is a block: for `and`, `or` and `not` the interpreter takes every block of 2 or more "
            "lanes for true, and a GPU goes through the lanes or does not compile it",
            "use &, | and ~, with parentheses around comparisons",
        )  # fmt: skip


def type_changes(module: Module) -> Iterator[Look]:
    for found in _shapes(module, "type_changes"):
        yield Look(
            "type_changes", found.line,
            f"`{found.name}` begins as {found.before} and becomes {found.after} in the loop: on a GPU the kernel does "
            "not compile",
            _begin_with(found),
        )  # fmt: skip


def undefined_lanes(module: Module) -> Iterator[Look]:
    for found in _shapes(module, "undefined_lanes"):
        yield Look(
            "undefined_lanes", found.line,
            f"`{found.name}` takes in the lanes that the mask of tl.load leaves out: zeros in the interpreter, and "
            "undefined on a GPU",
            "tell tl.load what they hold: other=0.0 for a sum, other=-float(\"inf\") for a maximum",
        )  # fmt: skip


def _shapes(module: Module, look: str) -> Iterator[Finding]:
    launched = {launch.kernel for launch in module.launches}
    called = {node.func.id for node in module.nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    for name, kernel in module.kernels.items():
        findings = found_in(kernel, is_launched=name in launched - called)
        yield from (found for found in findings if found.look == look)


def _begin_with(found: Finding) -> str:
    if (found.before.is_block or found.before.is_float) and not found.after.is_block:
        return f"give `{found.name}` in the loop the shape and the type that it begins with"
    block = f"{found.name} = tl.zeros((...), tl.float32)"
    if found.after.is_block:
        return f"begin with a block of the shape that it gets: {block}"
    return f"begin with a float: {found.name} = 0.0" + ("" if found.after.dimensions == 0 else f", or {block}")


def unknown_syntax(module: Module) -> Iterator[Look]:
    for node in (node for kernel in module.kernels.values() for part in kernel.body for node in ast.walk(part)):
        match node:
            case ast.Compare(ops=[_, _, *_]):
                words = f"`{ast.unparse(node)}` compares twice"
                hint = "two comparisons: (0 <= i) & (i < n)"
            case ast.Assign(targets=[_, _, *_]):
                words, hint = f"`{ast.unparse(node)}` assigns twice", "a line for each name"
            case ast.Break() | ast.Continue():
                words, hint = f"`{ast.unparse(node)}` leaves a loop early", "a mask, or a bound that ends the loop"
            case _:
                continue
        yield Look("unknown_syntax", node.lineno, f"{words}: on a GPU the kernel does not compile", hint)


LOOKS: tuple[Callable[[Module], Iterator[Look]], ...] = (
    small_dot, half_arithmetic, half_type, block_pointer, many_configurations, empty_grid,
    outside_name, type_changes, block_as_condition, block_in_logic, undefined_lanes, unknown_syntax,
)  # fmt: skip


def looks_at(folder: Path, modules: Sequence[str]) -> list[Look]:
    """What there is to say about `folder/MODULE.py`. What cannot be read has no looks: loading it will say why."""
    found = [look for module in modules for look in _looks_at_file(folder / f"{module}.py")]
    return found[:MOST_LOOKS]


def _looks_at_file(path: Path) -> list[Look]:
    try:
        if not path.is_file() or path.stat().st_size > MOST_BYTES:
            return []
        module = Module(ast.parse(path.read_bytes()))
        looks = [look for each in LOOKS for look in each(module)] if len(module.nodes) <= MOST_NODES else []
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    first = {(look.name, look.line): look for look in reversed(looks)}  # one of a kind for a line
    return sorted(
        (replace(look, file=f"assignment/{path.name}") for look in first.values()), key=lambda look: look.line
    )


def _is_built(trees: Sequence[ast.AST]) -> bool:
    """Whether a list of configurations is built in a loop."""
    return any(isinstance(node, ast.ListComp) for tree in trees for node in ast.walk(tree))


def _is_fixed(node: ast.expr, module: Module) -> bool:
    """Whether it is a constant, or written like one. (A row's length can be a tile's, and divides without a rest.)"""
    return module.constant(node) is not None or identifier(node).isupper()


def _names_a_tile(words: str) -> bool:
    """`BLOCK_M`, `meta["BLOCK"]`."""
    return re.fullmatch(r".*\b(block|tile)\w*\W*", words, re.IGNORECASE) is not None


def _length_of_arange(node: ast.AST) -> str:
    """`BLOCK` of `tl.arange(0, BLOCK)`."""
    is_arange = isinstance(node, ast.Call) and last_name(node.func) == "arange" and len(node.args) == 2
    return identifier(node.args[1]) if is_arange and isinstance(node, ast.Call) else ""
