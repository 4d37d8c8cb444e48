"""What only a GPU can show of the judge: one child for a problem, a broken context, device memory. Graded confined."""

import shutil
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from grader.doctor import Machine, uses_gpu
from grader.judge.plugin import Judge
from grader.judge.run import Selection, run_checks
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.verdict import Verdict
from grader.result import Result
from grader.rubric import Rubric
from grader.sandbox.bubblewrap import Bubblewrap
from grader.sandbox.gpu import ManagedGpu

from .conftest import ROOT, Silent, seen_inside, submitted

GIB = 1 << 30

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not uses_gpu(Machine.here()), reason="needs a GPU"),
]

GradeBody = Callable[..., Result]


@pytest.fixture
def grade_body(confined: Servers, tmp_path: Path) -> GradeBody:
    """Grade softmax of the solutions after a gelu that runs these lines before it gives the right answer."""

    def grade(body: str, *names: str, limit_s: float | None = None) -> Result:
        folder = tmp_path / "submission"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(ROOT / "solutions" / "softmax.py", folder)
        shutil.copy(ROOT / "solutions" / "gelu.py", folder / "right.py")
        lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
        (folder / "gelu.py").write_text(f"{HEAD}\n\ndef gelu(x):\n{lines}\n    return right(x)\n")
        rubric = Rubric.read()
        with submitted(confined, folder) as snapshot:
            judge = Judge(snapshot, confined, rubric)
            return run_checks(judge, Selection(names, hidden=False).checks(rubric), Silent(), "bad")

    return grade


HEAD = """
import torch
import triton
import triton.language as tl

from .right import gelu as right

CALLS = []

@triton.jit
def wild_kernel(pointer):
    tl.store(pointer + (1 << 44), 1.0)
"""


def verdicts(result: Result, problem: str) -> set[Verdict]:
    return {check.verdict for check in result.checks if check.problem == problem}


def test_the_probe_ran_on_the_gpu_and_opened_the_judges_memory(confined: Servers) -> None:
    confined.ready()
    assert confined.device == "cuda"
    assert confined.shares_memory is True


def test_only_the_granted_gpu_has_a_node_inside(confined: Servers) -> None:
    found = seen_inside(
        confined, confined.sandbox.tree, "return ['/dev/' + name for name in os.listdir('/dev') if 'nvidia' in name]"
    )
    assert confined.gpu
    assert sorted(found) == sorted(ManagedGpu(confined.gpu.uuid).nodes())


def test_a_broken_context_fails_its_check_and_leaves_the_next_problem_well(grade_body: GradeBody) -> None:
    result = grade_body("if x.numel():\n    wild_kernel[(1,)](x)\n    torch.cuda.synchronize()", "gelu", "softmax")
    assert verdicts(result, "gelu") <= {Verdict.FAIL, Verdict.CRASH}
    assert verdicts(result, "softmax") == {Verdict.PASS}


def test_a_context_broken_after_the_answer_harms_its_own_problem_only(grade_body: GradeBody) -> None:
    result = grade_body("answer = right(x)\nif x.numel():\n    wild_kernel[(1,)](x)\nreturn answer", "gelu", "softmax")
    assert Verdict.PASS not in verdicts(result, "gelu")
    assert verdicts(result, "softmax") == {Verdict.PASS}


def test_the_checks_of_a_problem_share_a_process_until_one_fails(grade_body: GradeBody) -> None:
    counting = "CALLS.append(1)\nif len(CALLS) > 1 and x.dtype == torch.float16:\n    raise RuntimeError(len(CALLS))"
    checks = ("gelu.sizes", "gelu.float16", "gelu.second_call", "gelu.any_order")
    by_id = {check.id: check for check in grade_body(counting, *checks).checks}
    assert by_id["gelu.sizes"].verdict is Verdict.PASS
    said = [word for word in by_id["gelu.float16"].message.split() if word.strip(".,;").isdigit()]
    assert by_id["gelu.float16"].verdict is Verdict.FAIL  # the calls of the check before are remembered
    assert int(said[0].strip(".,;")) > 1, by_id["gelu.float16"].message
    assert by_id["gelu.any_order"].verdict is Verdict.PASS


def test_running_out_of_the_gpus_memory_has_its_own_verdict_and_the_next_check_runs(grade_body: GradeBody) -> None:
    result = grade_body(
        "if x.dtype == torch.float32:\n    torch.empty(1 << 40, device=x.device)", "gelu", "softmax.columns"
    )
    assert Verdict.OUT_OF_MEMORY in verdicts(result, "gelu")
    assert verdicts(result, "softmax") == {Verdict.PASS}


def test_the_gpu_has_its_memory_back_after_a_submission_that_took_much_and_was_killed(tmp_path: Path) -> None:
    taking = "import torch\nreturn torch.ones(8 << 30, dtype=torch.uint8, device=x.device).numel()"
    servers = Servers.on(Machine.here(), Bubblewrap(tmp_path.resolve()))
    gpu = ManagedGpu(servers.gpu.uuid)
    before = gpu.used_bytes()
    assert seen_inside(servers, tmp_path, taking) == 8 << 30
    servers.close()
    assert servers.unreturned_bytes == 0
    assert gpu.used_bytes() - before < GIB


TELLS_ITS_GROUP = """
import torch.distributed as dist


def all_reduce_gradients(module, process_group=None):
    devices = [None] * dist.get_world_size(process_group)
    dist.all_gather_object(devices, str(next(module.parameters()).device), group=process_group)
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=process_group)
        parameter.grad /= dist.get_world_size(process_group)
    if dist.get_backend(process_group) != "judged" and len(devices) == 2:
        raise RuntimeError(f"{dist.get_backend(process_group)} on {devices}")
"""


@pytest.mark.parametrize(
    ("gpus", "told"), [(1, "gloo on ['cuda:0', 'cuda:0']"), (2, "nccl on ['cuda:0', 'cuda:1']")], ids=["one", "two"]
)
def test_ranks_with_a_gpu_each_speak_by_nccl_and_others_by_gloo(gpus: int, told: str, tmp_path: Path) -> None:
    if len(Machine.here().gpus) < gpus:
        pytest.skip(f"needs {gpus} GPUs")
    (tmp_path / "ddp.py").write_text(TELLS_ITS_GROUP)
    snapshot, rubric = Snapshot.of(tmp_path), Rubric.read()
    servers = Servers.on(Machine.here(), Bubblewrap(snapshot.folder), gpus)
    try:
        judge = Judge(snapshot, servers, rubric)
        [found] = run_checks(judge, Selection(("ddp.naive_mean",), hidden=False).checks(rubric), Silent(), "bad").checks
    finally:
        servers.close()
        snapshot.remove()
    assert found.verdict is Verdict.FAIL
    assert f"RuntimeError: {told}" in found.message
