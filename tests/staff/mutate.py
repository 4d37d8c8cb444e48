"""Every small fault that can be put into the solutions: their syntax trees, with one thing changed.

`mutations` finds them all, `drawn` takes some of them, the same ones each time. Left out are functions on which only
speed depends, or that only a GPU runs (`LEFT_OUT`), casts that change nothing (to int64 but in tensors of over 2 GiB,
to what a store casts to anyway: `NO_CAST`), and the wording of errors.
"""

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate, pairwise
from pathlib import Path

LEFT_OUT = re.compile(
    r"choose_\w+(\.\w+)?|use_descriptors|is_aligned|takes_descriptor"  # which tile or kernel: each is right
    r"|\w+_TILES?|INTERPRETED|GROUP_ROWS|PIECE_BYTES|Tile\.options"  # sizes: each is right
    r"|multiprocessors|has_copy_hardware|aligned|empty_aligned"  # what only a GPU runs
)
"""Functions and constants of the solutions, by name."""

FLIPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
OPERATOR = re.compile(r"[<>=!]+|is not|not in|is|in")
ONE_SIDED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)  # operators whose sides are not alike
TWO_SIDED = ("min", "max", "minimum", "maximum")  # functions whose arguments are
COMMENT = re.compile(r"  # .*")
CASTS = ("to", "float", "contiguous")
NO_CAST = re.compile(r"int64|element_ty|descriptor\.dtype")
LEFT_ALONE = ("annotation", "returns", "decorator_list")  # fields of a tree's nodes
WITHOUT_EFFECT = ("strict", "flatten")  # keywords: on a right call, and on anything but speed


@dataclass(frozen=True, order=True)
class Edit:
    """A piece of a source, from one offset to another, and what takes its place."""

    start: int
    end: int
    text: str


def changed(text: str, edits: tuple[Edit, ...], start: int = 0) -> str:
    """A text that begins at an offset, with these edits made."""
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start - start] + edit.text + text[edit.end - start :]
    return text


@dataclass(frozen=True)
class Mutation:
    """One fault in one function of a solution. It is known by its text, so that it outlives changes elsewhere."""

    problem: str
    function: str  # or a constant of the module
    kind: str
    line: str  # what stands there: the lines that change, without indentation and comments
    becomes: str
    edits: tuple[Edit, ...]
    which: int = 1  # of those in the same function that read the same

    @property
    def key(self) -> tuple[str, str, str, int]:
        return f"{self.problem}.{self.function}", self.line, self.becomes, self.which

    @property
    def order(self) -> str:
        """As good as random, and the same in each run."""
        return sha256(repr(self.key).encode()).hexdigest()

    def apply(self, source: str) -> str:
        """A solution with the fault in it."""
        return changed(source, self.edits)

    def __str__(self) -> str:
        return f"{self.problem}-{self.function}-{self.kind}-{self.order[:6]}"


class Source:
    """A solution's text and its tree."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text()
        self.tree = ast.parse(self.text)
        self._lines = self.text.splitlines(keepends=True)
        self._starts = [0, *accumulate(map(len, self._lines))]

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Where a node starts and ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def of(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def becomes(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        """Another text in the place of a node."""
        return Edit(*self.span(node), text)

    def without(self, call: ast.Call, names: tuple[str, ...]) -> tuple[Edit, ...]:
        """A call without the keywords of these names."""
        dropped = [keyword for keyword in call.keywords if keyword.arg in names]
        return tuple(Edit(self.text.rindex(",", 0, self.span(k)[0]), self.span(k)[1], "") for k in dropped)

    def lines_of(self, edits: tuple[Edit, ...]) -> tuple[int, int]:
        """Start and end of the lines that edits change."""
        start = self.text.rfind("\n", 0, min(edits).start) + 1
        return start, self.text.index("\n", max(edit.end for edit in edits))

    def _offset(self, line: int, column: int) -> int:
        """A tree counts bytes of a line, a text characters."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


Edits = Iterator[tuple[Edit, ...]]


def comparisons(source: Source, node: ast.AST) -> Edits:
    """`<` for `<=`, `is not` for `is`."""
    if isinstance(node, ast.Compare):
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            start, end = source.span(left)[1], source.span(right)[0]
            between = source.text[start:end]
            yield (Edit(start, end, OPERATOR.sub(FLIPPED[type(operator)], between)),)


def constants(source: Source, node: ast.AST) -> Edits:
    """One more and one less, twice as much, the other truth."""
    if not isinstance(node, ast.Constant):
        return
    if isinstance(node.value, bool):
        yield (source.becomes(node, str(not node.value)),)
    elif isinstance(node.value, int):
        yield (source.becomes(node, str(node.value + 1)),)
        yield (source.becomes(node, str(node.value - 1)),)
    elif isinstance(node.value, float):
        yield (source.becomes(node, str(2 * node.value or 1.0)),)


def swaps(source: Source, node: ast.AST) -> Edits:
    """Two neighbours among the arguments of a call, or the sides of an operator, each in the other's place."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ONE_SIDED):
        pairs = [(node.left, node.right)]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] not in TWO_SIDED:
        pairs = list(pairwise(node.args))
    else:
        return
    for one, other in pairs:
        first, second = (f"({source.of(x)})" if isinstance(node, ast.BinOp) else source.of(x) for x in (one, other))
        if first != second:
            yield source.becomes(one, second), source.becomes(other, first)


def masks(source: Source, node: ast.AST) -> Edits:
    """A load or a store of all lanes."""
    if isinstance(node, ast.Call) and (edits := source.without(node, ("mask", "other"))):
        yield edits


def casts(source: Source, node: ast.AST) -> Edits:
    """A value as it comes: in its dtype, with its strides."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    if node.func.attr in CASTS and not NO_CAST.search(source.of(node)):
        yield (source.becomes(node, source.of(node.func.value)),)


def conditions(source: Source, node: ast.AST) -> Edits:
    """One condition of several that must all hold, or of which one is enough, left out."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        operands = [node.left, node.right]
    elif isinstance(node, ast.BoolOp):
        operands = node.values
    else:
        return
    for left_out in operands:
        kept = [source.of(one) for one in operands if one is not left_out]
        word = " or " if isinstance(node.op, ast.Or) else " and "
        yield (source.becomes(node, word.join(kept)),)


def statements(source: Source, node: ast.AST) -> Edits:
    """A line that adds to something, or that is there for what it does, left out."""
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield (source.becomes(node, "pass"),)


KINDS: dict[str, Callable[[Source, ast.AST], Edits]] = {
    "comparison": comparisons, "constant": constants, "swap": swaps, "mask": masks, "cast": casts,
    "condition": conditions, "statement": statements,
}  # fmt: skip


def parts(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, methods and constants, each with its name."""

    def inside(body: list[ast.stmt], outer: str) -> Iterator[tuple[str, ast.stmt]]:
        for statement in body:
            if isinstance(statement, ast.ClassDef):
                yield from inside(statement.body, f"{statement.name}.")
            elif isinstance(statement, ast.FunctionDef):
                yield f"{outer}{statement.name}", statement
            elif isinstance(statement, ast.Assign) and not outer:
                yield ast.unparse(statement.targets[0]), statement

    yield from inside(tree.body, "")


def changeable(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it. `tl.arange` is as it is: Triton refuses what is no power of two from 0."""
    if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg in WITHOUT_EFFECT):
        return
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.arange":
        return
    yield node
    for name, value in ast.iter_fields(node):
        if name not in LEFT_ALONE:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from changeable(child)


def mutations(path: Path) -> list[Mutation]:
    """All of one solution."""
    source = Source(path)
    found: list[Mutation] = []
    seen: Counter[tuple[str, str, str, int]] = Counter()
    for function, part in parts(source.tree):
        if LEFT_OUT.fullmatch(function):
            continue
        for node in changeable(part):
            for kind, changes in KINDS.items():
                for edits in changes(source, node):
                    start, end = source.lines_of(edits)
                    line = source.text[start:end]
                    one = Mutation(path.stem, function, kind, shown(line), shown(changed(line, edits, start)), edits)
                    seen[one.key] += 1
                    found.append(replace(one, which=seen[one.key]))
    return found


def shown(lines: str) -> str:
    """Lines as one, without comments."""
    return " ".join(COMMENT.sub("", lines).split())


def drawn(found: list[Mutation], count: int) -> list[Mutation]:
    """One of each kind in each function, then another one, and so on."""
    alike: dict[tuple[str, str, str], list[Mutation]] = {}
    for mutation in sorted(found, key=lambda one: one.order):
        alike.setdefault((mutation.problem, mutation.function, mutation.kind), []).append(mutation)
    ranked = [(place, one.order, one) for ones in alike.values() for place, one in enumerate(ones)]
    return [one for _, _, one in sorted(ranked, key=lambda entry: entry[:2])[:count]]
