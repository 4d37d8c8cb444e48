"""What must agree across the project: stubs and solutions, rubric and checks, rubric and handout."""

import ast
import re
from pathlib import Path

import pytest

from grader.judge.plugin import Judge, Obstacles
from grader.judge.run import CHECKS, Selection, run_checks
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.verdict import Verdict
from grader.rubric import Rubric, Visibility
from tests.staff.conftest import ROOT, STAFF, Silent

OVERFLOW = STAFF / "submissions" / "wrong" / "gelu_overflow"
GRADED = [
    *((problem, problem) for problem in ("gelu", "softmax", "matmul")),
    ("flash_attention", "attention_tiled"),
    ("flash_attention", "flash_attention_forward"),
    ("flash_attention", "flash_attention_backward"),
    ("flash_attention", "flash_attention"),
]
DISTRIBUTED_FUNCTIONS = ("broadcast_module", "all_reduce_gradients", "all_reduce_gradients_flat")
DISTRIBUTED_CLASSES = [
    ("ddp", "DDP", ("__init__", "forward", "no_sync", "finish_gradient_synchronization")),
    ("sharded_optimizer", "ShardedOptimizer", ("__init__", "add_param_group", "step", "load_state_dict")),
]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in parse(path).body if isinstance(node, ast.FunctionDef)}


def methods(path: Path, name: str) -> dict[str, ast.FunctionDef]:
    [found] = [node for node in parse(path).body if isinstance(node, ast.ClassDef) and node.name == name]
    return {node.name: node for node in found.body if isinstance(node, ast.FunctionDef)}


def imports(path: Path) -> set[str]:
    """The top-level packages that a module imports."""
    found = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found


def test_stubs_and_solutions_have_the_same_modules():
    stubs, solutions = ({path.name for path in (ROOT / folder).glob("*.py")} for folder in ("assignment", "solutions"))
    assert solutions == {"__init__.py", *(f"{problem}.py" for problem in Rubric.read().problems)}
    assert stubs == solutions | {"_autotune.py"}  # the solutions have their tiles measured already


def test_what_the_rubric_says_is_graded_is_in_stubs_and_solutions():
    rubric = Rubric.read()
    listed = {(problem, name) for problem, entry in rubric.problems.items() for name in entry.functions}
    functions_of_ddp = {("ddp", name) for name in DISTRIBUTED_FUNCTIONS}
    assert listed == {*GRADED, *functions_of_ddp, *((problem, name) for problem, name, _ in DISTRIBUTED_CLASSES)}
    for problem, name in listed:
        for folder in ("assignment", "solutions"):
            top = parse(ROOT / folder / f"{problem}.py").body
            assert name in {node.name for node in top if isinstance(node, (ast.FunctionDef, ast.ClassDef))}, name


@pytest.mark.parametrize(("problem", "function"), GRADED)
def test_a_graded_function_has_one_signature(problem, function):
    stub, solution = (functions(ROOT / folder / f"{problem}.py")[function] for folder in ("assignment", "solutions"))
    assert ast.dump(stub.args) == ast.dump(solution.args)
    assert ast.dump(stub.returns) == ast.dump(solution.returns)
    assert all(argument.annotation for argument in stub.args.args)


@pytest.mark.parametrize(("problem", "function"), GRADED)
def test_a_stub_states_what_it_promises_and_does_nothing(problem, function):
    stub = functions(ROOT / "assignment" / f"{problem}.py")[function]
    documentation = ast.get_docstring(stub)
    first = function == next(name for of, name in GRADED if of == problem)
    if first:  # later functions of a problem refer to it
        assert all(word in documentation for word in ("shape", "float32", "float16", "bfloat16", "ValueError"))
    assert len(documentation) > 200
    assert ast.unparse(stub.body[-1]) == "raise NotImplementedError"
    assert len(stub.body) == 2


@pytest.mark.parametrize("function", DISTRIBUTED_FUNCTIONS)
def test_a_distributed_function_has_one_signature_and_its_stub_does_nothing(function):
    stub, solution = (functions(ROOT / folder / "ddp.py")[function] for folder in ("assignment", "solutions"))
    assert ast.dump(stub.args) == ast.dump(solution.args)
    assert ast.dump(stub.returns) == ast.dump(solution.returns)
    assert len(ast.get_docstring(stub)) > 200
    assert [ast.unparse(line) for line in stub.body[1:]] == ["raise NotImplementedError"]


@pytest.mark.parametrize(("problem", "name", "promised"), DISTRIBUTED_CLASSES)
def test_a_class_has_the_promised_methods_and_its_stubs_do_nothing(problem, name, promised):
    stubs, solutions = (methods(ROOT / folder / f"{problem}.py", name) for folder in ("assignment", "solutions"))
    assert tuple(stubs) == promised
    for method, stub in stubs.items():
        assert ast.dump(stub.args) == ast.dump(solutions[method].args)
        assert ast.dump(stub.returns) == ast.dump(solutions[method].returns)
        assert ast.get_docstring(stub)
        assert [ast.unparse(line) for line in stub.body[1:]] == ["raise NotImplementedError"]


@pytest.mark.parametrize("folder", ["assignment", "solutions"])
def test_what_is_graded_never_imports_the_grader(folder):
    assert not any("grader" in imports(path) for path in (ROOT / folder).glob("*.py"))


@pytest.mark.parametrize("visibility", Visibility)
def test_every_check_is_in_the_rubric_and_every_entry_is_a_check(visibility):
    rubric = Rubric.read()
    for problem in rubric.problems:
        checks = functions(CHECKS[visibility] / f"test_{problem}.py")
        names = {name.removeprefix("test_") for name in checks if name.startswith("test_")}
        timed = rubric.problems[problem].speed if visibility is Visibility.PUBLIC else {}
        assert names == {*rubric.checks(problem, visibility), *timed}, problem
        for name, check in checks.items():
            assert not name.startswith("test_") or ast.get_docstring(check), f"{name} has no title"


def test_the_readme_links_to_files_that_exist():
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert all((ROOT / link).is_file() for link in links)


def test_ci_runs_the_tests_as_the_readme_says_but_for_the_campaign():
    commands = re.findall(r"^\$ (uv run pytest .*?) +#", (ROOT / "README.md").read_text(), re.MULTILINE)
    run = (ROOT / ".ci" / "run").read_text().splitlines()
    assert [command for command in commands if command not in run] == ["uv run pytest -m mutants -n 2"]


def test_the_judge_never_names_triton():
    for path in (ROOT / "grader").rglob("*.py"):
        if path.parent.name != "runner":
            assert "triton" not in imports(path), path


LACKING = "There is no Triton for macOS"


def test_where_nothing_can_run_every_check_is_skipped_with_the_reason_and_no_runner_starts():
    servers, snapshot = Servers(), Snapshot.of(ROOT / "solutions")
    judge = Judge(snapshot, servers, Rubric.read(), cannot_run=Obstacles(LACKING, LACKING))
    result = run_checks(judge, Selection((), hidden=True).checks(judge.rubric), Silent(), "solutions")
    assert {(check.verdict, check.score) for check in result.checks} == {(Verdict.SKIPPED, None)}
    assert {check.message for check in result.checks} == {LACKING}
    assert (result.score.max, result.score.complete) == (0, False)
    assert servers._server is None
    snapshot.remove()


def test_the_same_seed_draws_the_same_inputs_and_another_one_does_not(grade):
    said = [
        {check.id: check.message for check in grade(OVERFLOW, "gelu.large_values", seed=seed).checks}
        for seed in (5, 5, 6)
    ]
    assert said[0] == said[1] != said[2]


def test_a_stray_load_behind_a_right_answer_is_told_and_costs_nothing(grade, servers, tmp_path):
    if servers.device == "cuda":
        pytest.skip("needs Triton's interpreter: on a GPU nobody watches each access")
    solution = (ROOT / "solutions" / "gelu.py").read_text()
    [load] = re.findall(r"tl\.load\(.*?\n?.*?\)\.to", solution, re.DOTALL)
    unmasked = re.sub(r",\s*(mask|other)=[\w.]+", "", load)
    assert unmasked != load
    (tmp_path / "gelu.py").write_text(solution.replace(load, unmasked))
    [check] = grade(tmp_path, "gelu.sizes").checks
    assert (check.verdict, check.cause, check.score) == (Verdict.PASS, "out_of_bounds_read", check.max)
    assert "reads outside every tensor" in check.why
    assert grade(ROOT / "solutions", "gelu.sizes").checks[0].cause is None
