"""Looks at what the interpreter runs and a GPU does not: each fires where Triton's compiler refuses, and only there."""

import json
import os
import subprocess
import sys

import pytest

from grader.inspect.looks import looks_at
from tests.staff.conftest import ROOT

MODULE = """\
import math
import triton
import triton.language as tl
from math import pi
{module}

@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
{body}
    tl.store(y_ptr + i, y, mask=i < n)


def gelu(x, y):
    kernel[(1,)](x, y, x.numel(), BLOCK=128)
"""
LOOP = "for j in range(0, n, BLOCK):"


def source(*body: str, module: str = "") -> str:
    return MODULE.format(module=module, body="\n".join(f"    {line}" for line in body))


# What is refused: the look, and the source. It is told in the line of the body that ends with "#".
REFUSED = {
    "a number": ("outside_name", source("y = x * SCALE  #", module="SCALE = 0.797")),
    "an annotated number": ("outside_name", source("y = x * SCALE  #", module="SCALE: tl.constexpr = 0.797")),
    "a product": ("outside_name", source("y = x * SCALE  #", module="HALF = -0.5\nSCALE = 2 * HALF")),
    "a root": ("outside_name", source("y = x * SCALE  #", module="SCALE = math.sqrt(2.0) / math.pi")),
    "infinity": ("outside_name", source("y = x + LOWEST  #", module='LOWEST = -float("inf")')),
    "a text": ("outside_name", source("y = x * (2 if NAME == 'gelu' else 3)  #", module='NAME = "gelu"')),
    "a tuple": ("outside_name", source("y = x * SCALES[0]  #", module="SCALES = (1, 2)")),
    "pi": ("outside_name", source("y = x * pi  #")),
    "a function": ("outside_name", source("y = double(x)  #", module="def double(x):\n    return x * 2")),
    "an integer and a sum": ("type_changes", source("t = 0", LOOP, "    t += tl.sum(x)  #", "y = x + t")),
    "an integer and a sum of powers": (
        "type_changes", source("t = 0", LOOP, "    t = t * n + tl.sum(tl.exp(x), axis=0)  #", "y = x + t"),
    ),
    "an integer and a number": ("type_changes", source("t = 0", LOOP, "    t = t + 1.5  #", "y = x + t")),
    "an integer and a quotient": ("type_changes", source("t = 1", LOOP, "    t = t / 2  #", "y = x + t")),
    "a pair": ("type_changes", source("t, u = 0, 0", LOOP, "    t += tl.max(x, axis=0)  #", "y = x + t + u")),
    "while": (
        "type_changes", source("t, j = 0, 0", "while j < n:", "    t += tl.sum(x)  #", "    j += 1", "y = x + t"),
    ),
    "a float and a block": ("type_changes", source("y = 0.0", LOOP, "    y += tl.load(x_ptr + j + i)  #")),
    "infinity and a block": (
        "type_changes", source('y = -float("inf")', LOOP, "    y = tl.maximum(y, x)  #"),
    ),
    "a block and its maximum": (
        "type_changes", source("y = tl.zeros((BLOCK,), tl.float32)", LOOP, "    y = tl.max(x, axis=0)  #"),
    ),
    "if": ("block_as_condition", source("y = x", "if x > 0:  #", "    y = x * 2")),
    "if with a name": ("block_as_condition", source("y = x", "inside = i < n", "if inside:  #", "    y = x * 2")),
    "a ternary": ("block_as_condition", source("y = x if x > 0 else 2 * x  #")),
    "a loop as long as": ("block_as_condition", source("j = 0", "while i + j < n:  #", "    j += 1", "y = x + j")),
    "not of numbers": ("block_in_logic", source("y = tl.where(not x, 1.0, x)  #")),
    "and of numbers": ("block_in_logic", source("y = tl.where(x and n > 0, 1.0, x)  #")),
    "two comparisons": ("unknown_syntax", source("y = tl.where(0 <= i < n, x, 0.0)  #")),
    "two names": ("unknown_syntax", source("y = z = x  #", "y += z")),
    "break": ("unknown_syntax", source("y = x", LOOP, "    y += x", "    break  #")),
    "continue": ("unknown_syntax", source("y = x", LOOP, "    y += x", "    continue  #")),
    "a sum of undefined lanes": (
        "undefined_lanes", source("z = tl.load(x_ptr + i, mask=i < n)", "y = x + tl.sum(z)  #"),
    ),
    "undefined lanes widened": (
        "undefined_lanes", source("z = tl.load(x_ptr + i, i < n)", "z = z.to(tl.float32)", "y = x + z.max(axis=0)  #"),
    ),
}  # fmt: skip
COMPILES_ALL_THE_SAME = {"undefined_lanes"}

ALLOWED = {
    "a constexpr": source("y = x * SCALE", module="SCALE = tl.constexpr(0.797)"),
    "a product of a constexpr": source("y = x * SCALE", module="HALF = tl.constexpr(0.5)\nSCALE = HALF * 2"),
    "nothing": source("y = x if NONE is None else x * 2", module="NONE = None"),
    "a module's number": source("y = x * math.pi"),
    "a type": source("y = x.to(FLOAT)", module="FLOAT = tl.float32"),
    "a function of Triton": source("y = double(x)", module="@triton.jit\ndef double(x):\n    return x * 2"),
    "a name of the kernel": source("SCALE = 2.0", "y = x * SCALE", module="SCALE = 0.797"),
    "a name that is set elsewhere": source(
        "y = x * SCALE", module="SCALE = 1\nfor SCALE in map(tl.constexpr, [1, 2]):\n    pass"
    ),
    "functions of Python": source("y = x", "for j in range(min(n, 4)):", "    y = max(y, x)"),
    "a float and a sum": source("t = 0.0", LOOP, "    t = t * 2 + tl.sum(tl.exp(x), axis=0)", "y = x + t"),
    "infinity and a maximum": source(
        't = -float("inf")', LOOP, "    t = tl.maximum(t, tl.max(x, axis=0))", "y = x + t"
    ),
    "a count": source("t = 0", LOOP, "    t += tl.sum((x > 0).to(tl.int32))", "y = x + t"),
    "a number of rounds": source("t = 0", LOOP, "    t += 1", "y = x + t"),
    "unrolled": source("t = 0", "for j in tl.static_range(4):", "    t += tl.sum(x)", "y = x + t"),
    "no loop": source("t = 0", "t = tl.sum(x)", "y = x + t"),
    "set anew in every round": source("y = x", LOOP, "    t = 0", "    t = tl.sum(x)", "    y += t"),
    "a block from the start": source("y = tl.zeros((BLOCK,), tl.float32)", LOOP, "    y += x"),
    "rows of a block": source("y = x", LOOP, "    y += tl.sum(x[:, None] * x[None, :], axis=1)"),
    "if with a maximum": source("y = x", "if tl.max(x, axis=0) > 0:", "    y = x * 2"),
    "if with a sum along None": source("y = x", "if tl.sum(x, axis=None) > 0:", "    y = x * 2"),
    "if with a number": source("y = x", "if tl.program_id(0) > 0 and n > 3:", "    y = x * 2"),
    "a ternary of a constant": source("y = x if BLOCK > 64 else 2 * x"),
    "in every lane": source("y = tl.where((x > 0) & ~(i >= n), x, 0.0)"),
    "lanes that are told": source("y = x + tl.sum(x)"),
    "lanes that are chosen later": source(
        "z = tl.load(x_ptr + i, mask=i < n)", "z = tl.where(i < n, z, 0.0)", "y = x + tl.sum(z)"
    ),
    "no mask": source("y = x + tl.sum(tl.load(x_ptr + i))"),
    "rows that are not stored": source(
        "k = tl.arange(0, 16)", "z = tl.load(x_ptr + i[:, None] + k[None, :], mask=(i < n)[:, None])",
        "y = x + tl.sum(z, axis=1)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_look_says_what_a_gpu_refuses_and_where(name, tmp_path):
    look, text = REFUSED[name]
    (tmp_path / "gelu.py").write_text(text)
    [line] = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("#")]
    assert [(found.name, found.line) for found in looks_at(tmp_path, ["gelu"])] == [(look, line)]


@pytest.mark.parametrize("name", ALLOWED)
def test_a_look_is_silent_on_what_a_gpu_takes(name, tmp_path):
    (tmp_path / "gelu.py").write_text(ALLOWED[name])
    assert looks_at(tmp_path, ["gelu"]) == []


@pytest.mark.parametrize("submission", ["matmul_accumulator_is_a_number", "softmax_type_changes_in_loop"])
def test_a_submission_that_only_a_gpu_refuses_has_a_look(submission):
    folder = ROOT / "tests" / "staff" / "submissions" / "wrong" / submission
    assert [look.name for look in looks_at(folder, [submission.partition("_")[0]])] == ["type_changes"]


def test_constants_that_name_each_other_take_no_time(tmp_path):
    chain = "\n".join(f"A{i} = A{i + 1} + A{i + 1}" for i in range(200)) + "\nA200 = A0"
    (tmp_path / "gelu.py").write_text(source("y = x * A0", module=chain))
    assert looks_at(tmp_path, ["gelu"]) == []


def test_what_the_looks_know_of_the_compiler_is_what_it_does(tmp_path):
    refused = {name: text for name, (look, text) in REFUSED.items() if look not in COMPILES_ALL_THE_SAME}
    names = dict(enumerate([*refused, *ALLOWED]))
    for number, name in names.items():
        (tmp_path / f"kernel_{number}.py").write_text((refused | ALLOWED)[name])
    command = [sys.executable, "-m", "tests.staff.compile_each", str(tmp_path)]
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = json.loads(done.stdout.splitlines()[-1])
    failed = {name for number, name in names.items() if errors[f"kernel_{number}"]}
    assert failed == refused.keys(), {names[int(stem.split("_")[1])]: why[-300:] for stem, why in errors.items() if why}
