"""A module's source as the looks see it: its kernels, where they are launched, and the constants that it names."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Launch:
    """`kernel[grid](...)` somewhere in a module."""

    kernel: str
    grid: ast.expr
    call: ast.Call

    def given(self, kernel: ast.FunctionDef) -> dict[str, ast.expr]:
        """What each parameter of the kernel gets."""
        names = [argument.arg for argument in kernel.args.args]
        known = itertools.takewhile(lambda one: not isinstance(one, ast.Starred), self.call.args)  # then nobody counts
        by_place = dict(zip(names, known, strict=False))
        return by_place | {keyword.arg: keyword.value for keyword in self.call.keywords if keyword.arg}

    def tiles(self, kernel: ast.FunctionDef | None) -> set[str]:
        """The values, as they are written, of parameters that are known when the kernel is compiled."""
        if kernel is None:
            return set()
        annotated = {one.arg: one.annotation for one in kernel.args.args if one.annotation}
        names = {name for name, annotation in annotated.items() if last_name(annotation) == "constexpr"}
        return {ast.unparse(value) for name, value in self.given(kernel).items() if name in names}


class Module:
    """A parsed module, and what the looks ask of it."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes = list(ast.walk(tree))

    @cached_property
    def kernels(self) -> dict[str, ast.FunctionDef]:
        """Functions under `@triton.jit`."""
        functions = [node for node in self.nodes if isinstance(node, ast.FunctionDef)]
        return {node.name: node for node in functions if any(last_name(one) == "jit" for one in node.decorator_list)}

    @cached_property
    def launches(self) -> list[Launch]:
        calls = [node for node in self.nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)]
        return [
            Launch(node.func.value.id, node.func.slice, node)
            for node in calls
            if isinstance(node.func, ast.Subscript) and isinstance(node.func.value, ast.Name)
        ]

    @cached_property
    def values(self) -> dict[str, ast.expr]:
        """What each name is set to, where it is set once in the module."""
        found: dict[str, list[ast.expr]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                found.setdefault(node.targets[0].id, []).append(node.value)
        return {name: values[0] for name, values in found.items() if len(values) == 1}

    def constant(self, node: ast.expr | None) -> int | None:
        """The integer that an expression is, as far as the text says."""
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name) and node.id in self.values and not isinstance(self.values[node.id], ast.Name):
            return self.constant(self.values[node.id])
        if isinstance(node, ast.Call) and last_name(node.func) == "constexpr" and node.args:
            return self.constant(node.args[0])
        return None

    def configurations(self, kernel: ast.FunctionDef) -> list[ast.Call]:
        """The `triton.Config(...)` in the kernel's decorators, or in the list that they name."""
        trees = [tree for decorator in kernel.decorator_list for tree in self.with_what_it_names(decorator)]
        calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
        return [call for call in calls if last_name(call.func) == "Config"]

    def with_what_it_names(self, tree: ast.expr) -> list[ast.expr]:
        """An expression, and the values of the names in it."""
        names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        return [tree, *(self.values[name] for name in names if name in self.values)]

    def of_the_inputs(self, kernel: ast.FunctionDef) -> set[str]:
        """The parameters of the kernel that get a function's own argument, or a tensor made like one.

        A tensor made for float32, or one that comes from elsewhere (a dictionary, say), is none of these.
        """
        given = [pair for one in self.launches if one.kernel == kernel.name for pair in one.given(kernel).items()]
        others = {name for name, value in given if not isinstance(value, ast.Name) or value.id in self.made_float32}
        return {argument.arg for argument in kernel.args.args} - others

    @cached_property
    def made_float32(self) -> set[str]:
        """Names that are somewhere set to an expression that says float32."""
        assignments = [node for node in self.nodes if isinstance(node, ast.Assign)]
        targets = [target for node in assignments if "float32" in ast.unparse(node.value) for target in node.targets]
        return {identifier(target) for target in targets} - {""}

    def lengths(self, kernel: ast.FunctionDef) -> Iterator[tuple[str, int]]:
        """Every constant that a parameter of the kernel gets: by default, at a launch, or from a configuration."""
        arguments = kernel.args.args
        defaults = zip(arguments[len(arguments) - len(kernel.args.defaults) :], kernel.args.defaults, strict=True)
        given: list[tuple[str, ast.expr]] = [(argument.arg, value) for argument, value in defaults]
        for launch in self.launches:
            if launch.kernel == kernel.name:
                given += launch.given(kernel).items()
        for call in self.configurations(kernel):
            if call.args and isinstance(call.args[0], ast.Dict):
                keys = [key.value for key in call.args[0].keys if isinstance(key, ast.Constant)]
                given += zip(map(str, keys), call.args[0].values, strict=False)
        for name, value in given:
            if (constant := self.constant(value)) is not None:
                yield name, constant


def last_name(node: ast.expr) -> str:
    """`dot` of `tl.dot`, `dot` of `dot`; the name of a decorator with or without arguments."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else identifier(node)


def identifier(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""
