"""Generated mutants: what is changed, what is left alone, and which are drawn."""

import ast

import pytest

from .conftest import ROOT
from .mutate import Mutation, drawn, mutations

SOLUTIONS = sorted((ROOT / "solutions").glob("*.py"))
CHANGES = {  # a line, and all that it can become, by kind
    "return x < y": {("comparison", "return x <= y")},
    "return x is not y": {("comparison", "return x is y")},
    "return x[2]": {("constant", "return x[3]"), ("constant", "return x[1]")},
    "return 0.5 + x": {("constant", "return 1.0 + x")},
    "return x - y": {("swap", "return (y) - (x)")},
    "return f(x, y, z)": {("swap", "return f(y, x, z)"), ("swap", "return f(x, z, y)")},
    "return tl.maximum(x, y)": set(),
    "return load(x, mask=y, other=z)": {("mask", "return load(x)")},
    "return x.to(y)": {("cast", "return x")},
    "return x.to(tl.int64)": set(),
    "return x & (y)": {("condition", "return x"), ("condition", "return y")},
    "return x and y": {("condition", "return x"), ("condition", "return y")},
    "x += y": {("statement", "pass")},
    "raise ValueError(2)": set(),
    "return 'é', x < y": {("comparison", "return 'é', x <= y")},
}


def of_text(path, text: str) -> list[Mutation]:
    path.write_text(text)
    return mutations(path)


@pytest.mark.parametrize("line", CHANGES)
def test_a_line_becomes(line, tmp_path):
    found = of_text(tmp_path / "some.py", f"def f(x, y, z):\n    {line}\n")
    assert {(mutation.kind, mutation.becomes) for mutation in found} == CHANGES[line]


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_mutant_is_another_module(path):
    source = path.read_text()
    solution = ast.dump(ast.parse(source))
    for mutation in drawn(mutations(path), 40):
        assert ast.dump(ast.parse(mutation.apply(source))) != solution, mutation


def test_a_mutant_outlives_a_change_elsewhere(tmp_path):
    solution = (ROOT / "solutions" / "gelu.py").read_text()
    before, after = (of_text(tmp_path / "gelu.py", text) for text in (solution, f"{solution}\n\nOTHER = 3\n"))
    assert {one.key for one in after} > {one.key for one in before}


def test_mutants_of_one_text_are_told_apart(tmp_path):
    found = of_text(tmp_path / "some.py", "def f(x):\n    x += 1.0\n    x += 1.0\n")
    assert len({mutation.key for mutation in found}) == len(found) == 4


def test_every_function_is_drawn_from_before_any_is_twice():
    found = [mutation for path in SOLUTIONS for mutation in mutations(path)]
    strata = {(one.problem, one.function, one.kind) for one in found}
    assert {(one.problem, one.function, one.kind) for one in drawn(found, len(strata))} == strata
