"""The handout: what it names exists, its pictures are what the script draws, and every graded input has a promise."""

import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, fields
from html import unescape
from typing import Any

import pytest
import torch
import typer

from grader.cli import app
from grader.doctor import Machine, can_run_kernels
from grader.judge.cases import Heads, Input, Layout, Matrices, Values
from grader.judge.optimization import Optimization
from grader.judge.training import Plan, Training
from grader.rubric import Rubric, Visibility
from tests.staff.conftest import ROOT

TEXT = (ROOT / "handout.md").read_text()
WITHOUT_CODE = re.sub(r"^```.*?^```|\$`[^`\n]+`\$|`[^`\n]+`", "", TEXT, flags=re.M | re.S)
PICTURES = ROOT / "docs" / "handout"
RUBRIC = Rubric.read()
PROBLEMS = list(RUBRIC.problems)
CHECKS = [f"{problem}.{name}" for problem in PROBLEMS for name in RUBRIC.checks(problem, Visibility.PUBLIC)]
HIDDEN = [f"{problem}.{name}" for problem in PROBLEMS for name in RUBRIC.checks(problem, Visibility.HIDDEN)]
LETTER = 0.52  # of a font's size: how wide letters are on average, in a wide font


def section(title: str) -> str:
    """What stands below a heading, up to the next one of its rank or a higher one."""
    marks, heading = ("###", title.removeprefix("### ")) if title.startswith("### ") else ("##", title)
    found = re.search(rf"^{marks} {re.escape(heading)}\n(.*?)(?=^##{{1,{len(marks) - 1}}} |\Z)", TEXT, re.M | re.S)
    assert found, f"there is no section {title}"
    return found[1]


def of_problem(problem: str) -> str:
    return section(RUBRIC.problems[problem].handout)


def rows(table: str) -> Iterator[list[str]]:
    """Cells of all rows of all tables in a text, without those of dashes."""
    for line in re.findall(r"^\| (.*) \|$", table, re.M):
        cells = [cell.strip() for cell in line.split(" | ")]
        if not set("".join(cells)) <= set("- "):
            yield cells


def words_of(text: str) -> str:
    return " ".join(text.split())


# What it names


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("part", ["The idea", "The algorithm", "Ladder", "Pitfalls", "Questions"])
def test_every_problem_has_a_section_with_all_its_parts(problem, part):
    assert f"\n### {part}\n" in of_problem(problem)


def test_the_points_are_those_of_the_rubric():
    told = {cells[0].strip("[`").partition("`")[0]: cells[1] for cells in rows(TEXT[: TEXT.index("## Set-up")])}
    assert {problem: int(told[problem]) for problem in PROBLEMS} == {
        problem: entry.points for problem, entry in RUBRIC.problems.items()
    }
    for problem, points in RUBRIC.public.coming.items():
        assert re.search(rf"`{problem}` \({points}( points)?\)", TEXT), problem


def commands() -> list[list[str]]:
    """What stands behind `python -m grader` in code, and what begins with `check` or `bench` there, word by word."""
    code = re.findall(r"`([^`\n]+)`", TEXT) + re.findall(r"^ *(?:\$|again:) (.+)$", TEXT, re.M)
    lines = [line.partition("#")[0] for line in code]
    whole = [line.partition("-m grader")[2] for line in lines if "-m grader" in line]
    short = [line for line in lines if re.match(r"(check|bench) \S", line)]
    return [shlex.split(line) for line in [*whole, *short]]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_is_one_and_all_that_it_names_exists(words):
    name, *arguments = words or ["check"]
    of_students = typer.main.get_command(app).commands  # staff's come when a command runs
    assert name in of_students
    parameters = of_students[name].params
    options = {option: parameter for parameter in parameters for option in parameter.opts}
    known = {*PROBLEMS, *CHECKS} if name == "check" else {p for p in PROBLEMS if RUBRIC.problems[p].speed}
    while arguments:
        word = arguments.pop(0)
        if word.startswith("-"):
            assert word in options
            if not getattr(options[word], "is_flag", False) and arguments:
                arguments.pop(0)
        else:
            assert word in known


def test_every_check_in_code_exists_and_so_does_every_test_file():
    named = re.findall(rf"\b((?:{'|'.join(PROBLEMS)})\.(?!py\b|svg\b)[a-z_0-9]+)\b", TEXT)
    assert set(named) <= set(CHECKS)
    for path, name in re.findall(r"pytest (tests/\S+\.py) -k (\w+)", TEXT):
        assert f"def test_{name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_step_of_a_ladder_has_its_command(problem):
    header, *steps = rows(of_problem(problem).partition("### Ladder")[2].partition("###")[0])
    assert header == ["step", "`uv run python -m grader` …"]
    assert len(steps) >= 5
    assert all(f"`check {problem}" in command for _, command in steps)


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", WITHOUT_CODE)
    headings = re.findall(r"^#+ (.+)$", TEXT, re.M)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for link in links:
        if link.startswith("#"):
            assert link[1:] in anchors, link
        elif not link.startswith("https://"):
            assert (ROOT / link).is_file(), link


@pytest.mark.parametrize("place", [0, 1], ids=["the page on Triton", "ranks at home"])
def test_its_programs_run(place, tmp_path):
    if place == 0 and (reason := can_run_kernels(Machine.here())):
        pytest.skip(reason)
    programs = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)
    path = tmp_path / "program.py"
    path.write_text(programs[place].replace("assignment.ddp", "solutions.ddp"))
    environment = os.environ | {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    assert len(programs) == 2
    printed, times = [("6000.0", 1), ("[[0.5000, 0.5000, 0.5000]]", 2)][place]  # by two ranks, maybe into one line
    assert run.stdout.count(printed) == times, run.stdout


def test_formulas_are_written_so_that_no_underscore_in_them_is_taken_for_emphasis():
    """In blocks, or as $`...`$; and their braces match."""
    assert "$" not in WITHOUT_CODE
    formulas = re.findall(r"^```math\n(.*?)^```", TEXT, re.M | re.S) + re.findall(r"\$`([^`\n]+)`\$", TEXT)
    assert len(formulas) > 10
    for formula in formulas:
        assert formula.count("{") == formula.count("}"), formula


# What it draws


def test_the_pictures_are_what_the_script_draws(tmp_path):
    subprocess.run([sys.executable, ROOT / "docs" / "draw_handout.py", tmp_path], check=True)
    drawn = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert drawn == {path.name: path.read_text() for path in PICTURES.iterdir()}
    assert sorted(drawn) == sorted(re.findall(r"!\[[^\]]+\]\(docs/handout/([^)]+)\)", TEXT))


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.stem)
def test_no_words_of_a_picture_cross_its_edge(path):
    picture = path.read_text()
    width, *_ = re.findall(r'viewBox="0 0 (\d+) \d+"', picture)
    assert int(width) == 830
    for x, size, anchor, words in re.findall(
        r'<text x="([\d.]+)" y="[\d.]+" font-size="([\d.]+)" text-anchor="(\w+)"[^>]*>([^<]*)<', picture
    ):
        long = LETTER * float(size) * len(unescape(words))
        left = float(x) - {"start": 0, "middle": long / 2, "end": long}[anchor]
        assert 0 <= left <= left + long <= int(width), words


# What it promises

ANY_SIZE = "Sizes are not multiples of a tile and not powers of two; 0 and 1 occur."
ANY_LAYOUT = (
    "Inputs may be strided, sliced, transposed or otherwise permuted, expanded (stride 0), and may begin anywhere in "
    "memory. So may an incoming gradient."
)
FINITE = "**Values are finite**, of any size and sign, and all may be equal. Only softmax also gets −∞."
DTYPES = "**Dtypes** are float32, float16 and bfloat16."
REFUSED = "**What does not fit** (sizes, dtypes, devices of two arguments) raises `ValueError`"
GROUP = "1 to 4 ranks, or some of them as a group"

# What can be special about an input, and the words that promise it. See `kinds`.
PROMISES = {
    "float32": DTYPES,
    "float16": DTYPES,
    "bfloat16": DTYPES,
    "float64": "Any other dtype raises `ValueError`",
    "int32": "Any other dtype raises `ValueError`",
    "any size": ANY_SIZE,
    "size 0": ANY_SIZE,
    "size 1": ANY_SIZE,
    "0 dimensions": "Any number of dimensions, unless a function says otherwise.",
    "many dimensions": "Any number of dimensions, unless a function says otherwise.",
    "rows strided": ANY_LAYOUT,
    "every other": ANY_LAYOUT,
    "transposed": ANY_LAYOUT,
    "permuted": ANY_LAYOUT,
    "expanded along": ANY_LAYOUT,
    "starting elements": ANY_LAYOUT,
    "other values": FINITE,
    "-inf": "A logit of −∞ gives 0; a row of −∞ only gives NaN, as in PyTorch",
    "two that differ": REFUSED,
    "Heads.is_causal": "Causal is top left, for all n_q and n_k",
    "Heads.scale": "any scale, also 0 or below",
    "Heads.d": "d is any number from 1 to 256",
    "Heads.leading": "Any leading dimensions, also none",
    "Heads.key_leading": "k and v may have fewer heads than q, a divisor",
    "Heads.o_layout": "do, o and lse have strides of their own, also 0",
    "Heads.lse_layout": "do, o and lse have strides of their own, also 0",
    "Training.world": GROUP,
    "Training.group": GROUP,
    "Training.function": "The problem is a ladder of four: `broadcast_module`, `all_reduce_gradients`, "
    "`all_reduce_gradients_flat`, `DDP`.",
    "Training.steps": "Several steps, each as right as the first",
    "Training.rows": "also where batches have different sizes: the mean of the ranks' means",
    "Training.backwards": "the next backward outside averages all that has accumulated",
    "Training.local_route": "also what only the backwards inside have used",
    "Training.routes": "No hang, whichever branches the ranks take",
    "Training.bucket_bytes": "`bucket_bytes`, which may be smaller than a parameter or larger than the model",
    "Training.form": "Arguments, results (a tensor, tuple or dict), names of parameters",
    "Training.begins_with": "names of parameters, `train()` and `eval()` pass through",
    "Plan.tied": "tied ones once",
    "Plan.frozen": "frozen ones (when DDP was constructed) never",
    "layers of batch_norm": "Parameters and buffers of rank 0 *of the group* go to all ranks",
    "transposed weights": "frozen ones, strided ones and integers too",
    "layers in bfloat16": "Several dtypes: each bucket (or flat tensor) holds one",
    "Optimization.world": GROUP,
    "Optimization.group": GROUP,
    "Optimization.steps": "After every step all ranks have equal weights, to the bit",
    "Optimization.optimizer": "SGD with momentum, AdamW, and any subclass of `Optimizer` whose step needs no closure",
    "Optimization.options": "SGD with momentum, AdamW, and any subclass of `Optimizer` whose step needs no closure",
    "Optimization.groups": "Groups with options of their own; defaults fill in what a group leaves out",
    "Optimization.added": "`add_param_group` between two steps",
    "Optimization.schedule": "What a scheduler writes into `param_groups` counts from the next step on",
    "Optimization.closure": "`step(closure)` calls the closure once",
    "Optimization.reloaded": "Loaded on the same rank of as many, it goes on as if nothing had happened",
    "Optimization.averaged": "Together with gradients that were averaged before",
    "Optimization.generator": "`params` are parameters or groups, in a list or from a generator",
    "Optimization.missing": "A parameter whose gradient is None on all ranks stays as it is",
}

# Which public checks look at the same kinds with other numbers: their promises hold there.
SAME_KINDS = {
    "gelu.other_sizes": "sizes layouts float16",
    "gelu.mixed_values": "large_values tanh_form",
    "gelu.many_dimensions": "shapes sizes",
    "gelu.half_layouts": "layouts float16",
    "softmax.mixed_scales": "large_logits float32",
    "softmax.half_sums": "float16 long_rows",
    "softmax.other_layouts": "layouts dimensions",
    "softmax.random_minus_infinity": "minus_infinity",
    "softmax.other_rows": "columns long_rows",
    "softmax.other_gradients": "gradient gradient_layouts gradient_float16",
    "matmul.other_sizes": "sizes float16",
    "matmul.steps_and_a_rest": "depth",
    "matmul.other_layouts": "layouts",
    "matmul.half_sums": "float16 layouts",
    "matmul.other_activations": "activation",
    "matmul.empty_activations": "activation empty",
    "flash_attention.other_tiled": "tiled_output tiled_causal tiled_log_sum_exp tiled_float16 tiled_other_inputs",
    "flash_attention.other_sizes": "forward_padded_tiles forward_causal forward_log_sum_exp",
    "flash_attention.other_inputs": "forward_layouts forward_scales forward_large_scores forward_float16",
    "flash_attention.half_sums": "forward_float16",
    "flash_attention.other_gradients": "backward_sizes backward_causal backward_head_dimensions",
    "flash_attention.gradients_of_other_inputs": "backward_layouts backward_other_inputs backward_float16",
    "flash_attention.other_key_heads": "fewer_key_heads",
    "ddp.batch_sizes": "mean",
    "ddp.everything_at_once": "mean buckets unused traffic mixed_dtypes wrapped_module process_group",
    "ddp.accumulated_gradients": "no_sync unused",
    "ddp.after_the_backward": "naive_mean naive_unused flat_mean flat_unused",
    "ddp.other_traffic": "traffic bucket_traffic",
    "ddp.other_overlap": "overlap",
    "sharded_optimizer.everything_at_once": "groups added_group scheduler missing_gradients averaged_gradients",
    "sharded_optimizer.other_shares": "shares",
    "sharded_optimizer.other_state": "state_dict missing_gradients",
}


def promised(problem: str) -> dict[str, str]:
    """Each check that the table of promises names, and the promise."""
    rows_of = [cells for cells in rows(of_problem(problem).partition("### Ladder")[0]) if len(cells) == 2]
    header = next(place for place, cells in enumerate(rows_of) if cells == ["promised, and checked", "by"])
    table = [cells for cells in rows_of[header + 1 :] if re.fullmatch(r"(`\w+`(, )?)+", cells[1])]
    return {name: promise for promise, names in table for name in re.findall(r"`(\w+)`", names)}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_public_check_stands_beside_a_promise(problem):
    assert set(promised(problem)) == set(RUBRIC.checks(problem, Visibility.PUBLIC))


def test_every_hidden_check_is_covered_by_promises_that_public_checks_look_at():
    assert set(SAME_KINDS) == set(HIDDEN)
    for hidden, names in SAME_KINDS.items():
        assert set(names.split()) <= set(promised(hidden.partition(".")[0])), hidden


def test_no_hidden_check_is_named():
    public = {name.partition(".")[2] for name in CHECKS}
    hidden = {name.partition(".")[2] for name in HIDDEN} - public
    assert not [name for name in hidden if f"`{name}`" in TEXT]


def kinds(case: Any) -> set[str]:
    """What is special about a case, in the words of `PROMISES`."""
    match case:
        case Input():
            return {
                str(case.dtype).removeprefix("torch."),
                *sizes(case.shape),
                *kinds(case.layout),
                *kinds(case.values),
            }
        case Layout():
            words = re.sub(r"\d+|,", "", case.words).split()
            return {" ".join(words[: 1 if words[0] in ("transposed", "permuted") else 2])} if words else set()
        case Values():
            return {"-inf" if "-inf" in case.words else "other values"} if case.words else set()
        case Matrices():
            return kinds(case.a) | kinds(case.b)
        case Heads():
            named = {"is_causal", "scale", "d", "leading", "key_leading", "o_layout", "lse_layout"}
            tensors = [case.q, case.k, case.v, case.do]
            return {f"Heads.{name}" for name in changed(case) & named}.union(*map(kinds, tensors))
        case Training():
            return {f"Training.{name}" for name in changed(case)} | kinds(case.plan)
        case Plan():
            special = {f"layers of {layer['kind']}" for layer in case.layers if layer["kind"] == "batch_norm"}
            halves = {"layers in bfloat16" for layer in case.layers if layer.get("dtype") == "bfloat16"}
            strided = {"transposed weights" for layer in case.layers if layer.get("transposed")}
            return {f"Plan.{name}" for name in changed(case)} | special | halves | strided
        case Optimization():
            return {f"Optimization.{name}" for name in changed(case)}
        case tuple() | list():  # the two arguments of one call
            return set().union(*map(kinds, case))
        case torch.dtype() | str() | int():
            return set()
    raise TypeError(case)


def sizes(shape: tuple[int, ...]) -> set[str]:
    found = {f"size {size}" for size in shape if size < 2} | ({"any size"} if max(shape, default=0) > 1 else set())
    return found | ({"0 dimensions"} if not shape else {"many dimensions"} if len(shape) > 2 else set())


def changed(case: Any) -> set[str]:
    """Fields that differ from their default, but for those that only say so."""
    found = set()
    for one in fields(case):
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if default is not MISSING and getattr(case, one.name) != default:
            found.add(one.name)
    return found - {"note"}


def kinds_of(folder: str, problem: str) -> dict[str, set[str]]:
    """What is special about the cases of each check of a module."""
    module = importlib.import_module(f"{folder}.test_{problem}")
    found = {}
    for name, function in vars(module).items():
        marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
        if name.startswith("test_") and marks:
            found[name.removeprefix("test_")] = set().union(*(kinds(value) for mark in marks for value in mark.args[1]))
    return found


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_kind_of_input_has_a_promise(problem):
    text = words_of(TEXT)
    for folder in ("tests", "grader.hidden"):
        for check, found in kinds_of(folder, problem).items():
            for kind in found:
                assert kind in PROMISES, f"{problem}.{check} has a kind of input that nobody has promised: {kind}"
                assert PROMISES[kind] in text, f"the handout does not say any more: {PROMISES[kind]}"


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_kind_of_input_of_a_hidden_check_occurs_in_a_public_one(problem):
    public = set().union(*kinds_of("tests", problem).values())
    for check, found in kinds_of("grader.hidden", problem).items():
        assert found <= public, check


def test_wrong_arguments_are_promised_to_be_refused():
    """Cases of these checks are names in a table, which `kinds` does not see."""
    refusing = [name for name in CHECKS if "wrong" in name or name.endswith("two_devices")]
    assert REFUSED in words_of(TEXT)
    for name in refusing:
        problem, _, check = name.partition(".")
        assert "`ValueError`" in promised(problem)[check]
