"""What becomes of ranks that go astray: each is named, at once where it can be known, and no process stays."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from grader.judge.distributed import _advice
from grader.judge.plugin import Judge, Obstacles
from grader.judge.ranks import RankProcesses
from grader.judge.reference.ddp import ADVICE
from grader.judge.run import Selection, run_checks
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.training import Training
from grader.judge.verdict import Verdict
from grader.result import CheckResult
from grader.rubric import Rubric
from grader.sandbox.processes import descendants
from tests.test_ddp import MLP

from .conftest import ROOT, Silent, is_running

AT_ONCE_S = 15.0  # with the start of processes; a check's own limit is 20 s and more

DDP = """
import os
import time

import torch
import torch.distributed as dist


def broadcast_module(module, process_group=None):
    for tensor in module.state_dict().values():
        dist.broadcast(tensor, src=0)


def all_reduce_gradients(module, process_group=None):
    rank, world = dist.get_rank(process_group), dist.get_world_size(process_group)
    {before}
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=process_group)
        parameter.grad /= world
    {after}
"""

Astray = Callable[..., CheckResult]


@pytest.fixture
def astray(grade, tmp_path: Path) -> Astray:
    """Grade `ddp.naive_mean` of a submission with these lines before and after its reduction."""

    def run(before: str = "pass", after: str = "pass") -> CheckResult:
        (tmp_path / "ddp.py").write_text(DDP.format(before=before, after=after))
        [found] = grade(tmp_path, "ddp.naive_mean").checks
        return found

    return run


def test_what_is_right_passes(astray):
    assert astray().verdict is Verdict.PASS


def test_a_rank_that_raises_is_named_with_its_line(astray):
    start = time.monotonic()
    found = astray(before="assert rank != 1, 'one is enough'")
    assert found.verdict is Verdict.FAIL
    assert found.message.startswith("on rank 1 of 2: AssertionError: one is enough (line 16 of assignment/ddp.py)")
    assert time.monotonic() < start + AT_ONCE_S


def test_a_sum_divided_by_the_number_of_all_ranks_in_a_smaller_group_is_told(astray):
    found = astray(before="world = dist.get_world_size()")
    assert (found.verdict, found.cause) == (Verdict.FAIL, "divided_by_world")
    assert "dist.get_world_size(process_group)" in found.hint


BY_FILES = """
    torch.save([parameter.grad for parameter in module.parameters()], f"{os.environ['HOME']}/of-{rank}.pt")
    dist.barrier(process_group)
    of_all = [torch.load(f"{os.environ['HOME']}/of-{number}.pt") for number in range(world)]
    dist.barrier(process_group)
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
"""
FROM_FILES = """
    for parameter, *gradients in zip(module.parameters(), *of_all):
        parameter.grad = sum(gradients) / world
"""


def test_ranks_that_meet_in_files_and_send_zeros_for_show_are_found(astray):
    found = astray(before=BY_FILES.strip(), after=FROM_FILES.strip())
    assert (found.verdict, found.cause) == (Verdict.FAIL, "not_from_others")
    assert found.message == "every rank has right values, even if all that the others send is NaN"


def test_an_optimizer_that_works_for_itself_on_each_rank_is_found(grade, tmp_path):
    (tmp_path / "sharded_optimizer.py").write_text(
        "def ShardedOptimizer(params, optimizer_cls, process_group=None, **options):\n"
        "    return optimizer_cls(params, **options)\n"
    )
    found = grade(tmp_path, "sharded_optimizer.steps", "sharded_optimizer.scheduler", "sharded_optimizer.groups").checks
    assert {(check.verdict, check.cause) for check in found} == {(Verdict.FAIL, "not_from_others")}


def test_a_rank_cannot_fill_the_judges_memory_with_results_that_it_does_not_wait_for(astray):
    found = astray(before="kept = [dist.all_reduce(torch.zeros(1 << 24), async_op=True) for _ in range(30)]")
    assert found.verdict is Verdict.CRASH
    assert "more collectives than any training needs" in found.message


def test_functions_without_handles_are_not_told_to_look_for_handles_in_a_later_step(astray):
    found = astray(before="world = 7 if dist.get_world_size() != world else world")
    assert (found.verdict, found.cause) == (Verdict.FAIL, None)
    assert found.hint == ADVICE


@pytest.mark.parametrize(
    ("training", "step", "word"),
    [
        (Training(MLP, steps=2), 0, "with two ranks"),
        (Training(MLP, steps=2), 1, "handles"),
        (Training(MLP, steps=2, function="all_reduce_gradients_flat"), 1, "with two ranks"),
        (Training(MLP, steps=2, backwards=2), 0, "no_sync"),
    ],
    ids=str,
)
def test_what_is_left_of_the_step_before_is_suspected_from_the_second_step_of_a_wrapper_on(training, step, word):
    assert word in _advice(training, step)


def test_a_mean_that_gloo_does_not_have_is_a_sum_that_is_divided(astray):
    found = astray(before="dist.all_reduce(torch.ones(1), op=dist.ReduceOp.AVG, group=process_group)")
    assert found.verdict is Verdict.FAIL
    assert "reduce with SUM, then divide" in found.hint


def test_a_rank_that_exits_is_named_with_its_status(astray):
    found = astray(before="os._exit(7) if rank == 1 else None")
    assert found.verdict is Verdict.CRASH
    assert found.message == "on rank 1 of 2: your code ended the process with exit status 7"


def test_a_rank_that_hangs_is_named_with_its_line_and_what_the_other_waits_for(astray, servers: Servers, monkeypatch):
    monkeypatch.setattr(servers, "slack", 0.2)
    found = astray(before="while rank == 1: time.sleep(0.1)")
    assert found.verdict is Verdict.TIMEOUT
    assert "on rank 1 of 2: no answer within the check's" in found.message
    assert "it was at line 16 of assignment/ddp.py" in found.message
    assert "; rank 0 waits in an all-reduce of 768 bytes" in found.message


def test_a_rank_that_leaves_out_a_collective_is_found_at_once(astray):
    start = time.monotonic()
    found = astray(after="dist.barrier() if rank == 0 else None")
    assert (found.verdict, found.cause) == (Verdict.FAIL, "ranks_disagree")
    assert found.message == (
        "rank 0 is in a barrier (collective 5 of its group, since `call`), "
        "but rank 1 has gone through everything without it"
    )
    assert time.monotonic() < start + AT_ONCE_S


@pytest.mark.parametrize(
    ("before", "first", "second"),
    [
        (
            "dist.all_reduce(torch.zeros(3 + rank), group=process_group)",
            "an all-reduce of 12 bytes",
            "an all-reduce of 16 bytes",
        ),
        (
            "dist.all_reduce(torch.zeros(3)) if rank == 0 else dist.broadcast(torch.zeros(3), src=0)",
            "an all-reduce of 12 bytes",
            "a broadcast of 12 bytes",
        ),
        ("dist.broadcast(torch.zeros(3), src=rank)", "a broadcast of 12 bytes", "a broadcast of 12 bytes"),
        (
            "dist.all_reduce(torch.zeros(4, dtype=(torch.float32, torch.int32)[rank]))",
            "an all-reduce of 16 bytes",
            "an all-reduce of 16 bytes",
        ),
    ],
)
def test_ranks_in_different_collectives_are_told_which(astray, before, first, second):
    found = astray(before=f"{before} if world > 1 else None")
    assert (found.verdict, found.cause) == (Verdict.FAIL, "ranks_disagree")
    assert found.message == f"at the same time rank 0 is in {first} and rank 1 in {second}"


@pytest.mark.parametrize("before", ["assert rank != 1", "os._exit(7) if rank == 1 else None", "time.sleep(99 * rank)"])
def test_no_process_stays(astray, servers: Servers, monkeypatch, before):
    monkeypatch.setattr(servers, "slack", 0.2)
    assert astray(before=before).verdict is not Verdict.PASS
    leader = servers.start().leader
    assert not descendants(leader)


def test_every_collective_gives_on_the_judges_group_what_gloo_gives(grade, tmp_path: Path):
    """All of them in one function that leaves in the gradients what they gave: over gloo the same comes out."""
    (tmp_path / "ddp.py").write_text(ALL_COLLECTIVES)
    [found] = grade(tmp_path, "ddp.naive_mean").checks
    assert found.verdict is Verdict.PASS, found.message


FORGED = """
import gc

import torch
import torch.distributed as dist


def all_reduce_gradients(module, process_group=None):
    line = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Line")
    one, rank, world = torch.ones(3), dist.get_rank(), dist.get_world_size()
    {request}
    if world > 1:
        dist.barrier()
"""


@pytest.mark.parametrize(
    "forged",
    [
        'line.post("broadcast", [one], [], group=[0, 99], root=0)',
        'line.post("broadcast", [one], [], group=[0, 0], root=0)',
        'line.post("broadcast", [one], [], group=[], root=0)',
        'line.post("broadcast", [one], [], group=[1 - rank], root=0)',
        'line.post("send", [one], [], group=[0, 1], root=rank)',
        'line.post("send", [one], [], group=[0, 1], root=-1)',
        'line.post("send", [one], [], group=[0, 1], root=63)',
        'line.post("all_reduce", [one], [one], group=[rank], root=-7)',
        'line.post("all_reduce", [one], [one], group=[rank], operation="AVG")',
        'line.post("everything", [one], [one], group=[rank])',
        'line.post("barrier", [], [], group=[rank], phase="x" * 41)',
        'line.close(); line.post("barrier", [], [], group=[rank])',
        '[line.post("barrier", [], [], group=[rank]) for _ in range(2001)]',
    ],
)
def test_a_request_that_no_group_makes_is_a_crash_of_its_rank(grade, tmp_path: Path, forged):
    (tmp_path / "ddp.py").write_text(FORGED.format(request=forged))
    [found] = grade(tmp_path, "ddp.naive_mean").checks
    assert found.verdict is Verdict.CRASH, found.message
    assert "the process that runs your code sent" in found.message


def test_what_nobody_waited_for_does_not_reach_the_next_case(grade, tmp_path: Path):
    """A collective that is left alone, and the same processes in two cases more."""
    (tmp_path / "ddp.py").write_text(DDP.format(before="dist.barrier(process_group, async_op=True)", after="pass"))
    [found] = grade(tmp_path, "ddp.naive_mean").checks
    assert found.verdict is Verdict.PASS, found.message


def test_a_network_that_was_added_to_is_a_fail(astray):
    found = astray(after="module.extra = torch.nn.Parameter(torch.zeros(1))")
    assert (found.verdict, found.cause) == (Verdict.FAIL, "network_changed")
    assert found.message == "on rank 0 the network has other parameters or buffers than before"


# Where no server forks, as on macOS: here with children that are started one by one, and no kernels.


@pytest.fixture(scope="module")
def spawned() -> Iterator[Servers]:
    servers = Servers(forks=False)
    yield servers
    servers.close()


@pytest.fixture
def alone(spawned: Servers) -> Callable[..., list[CheckResult]]:
    """Grade on children that are started one by one."""

    def run(folder: Path, *names: str) -> list[CheckResult]:
        rubric = Rubric.read()
        snapshot = Snapshot.of(folder)
        judge = Judge(snapshot, spawned, rubric, cannot_run=Obstacles(kernels="There is no Triton for macOS"))
        try:
            return list(run_checks(judge, Selection(names, hidden=False).checks(rubric), Silent(), "mac").checks)
        finally:
            snapshot.remove()

    return run


def test_without_a_server_ranks_run_and_kernels_are_skipped(alone):
    names = ("gelu.sizes", "ddp.naive_mean", "ddp.mean", "sharded_optimizer.steps", "sharded_optimizer.shares")
    kernel, *ranks = alone(ROOT / "solutions", *names)
    assert (kernel.verdict, kernel.message) == (Verdict.SKIPPED, "There is no Triton for macOS")
    assert {check.verdict for check in ranks} == {Verdict.PASS}, ranks


@pytest.mark.parametrize(
    ("before", "slack", "verdict", "message"),
    [
        ("assert rank != 1, 'too many'", 2.0, Verdict.FAIL, "on rank 1 of 2: AssertionError: too many (line 16"),
        ("os._exit(7) if rank else None", 2.0, Verdict.CRASH, "on rank 1 of 2: your code ended the process with exit"),
        ("while rank == 1: time.sleep(0.1)", 0.5, Verdict.TIMEOUT, "on rank 1 of 2: no answer within the check's"),
        ("import subprocess; subprocess.Popen(['sleep', '60']); assert not rank", 2.0, Verdict.FAIL, "on rank 1 of 2"),
    ],
)
def test_without_a_server_a_rank_that_goes_astray_is_named_and_no_process_stays(
    alone, spawned: Servers, tmp_path: Path, monkeypatch, before, slack, verdict, message
):
    monkeypatch.setattr(spawned, "slack", slack)
    (tmp_path / "ddp.py").write_text(DDP.format(before=before, after="pass"))
    [found] = alone(tmp_path, "ddp.naive_mean")
    assert found.verdict is verdict
    assert found.message.startswith(message)
    assert not [one for pid in spawned.start().children for one in {pid} | descendants(pid) if is_running(one)]


def test_ranks_go_on_in_the_processes_of_another_check(servers: Servers):
    """As they do on a GPU: what one check has opened, the next one takes over."""
    folder = ROOT / "solutions"
    first, second = (RankProcesses(servers, folder, "ddp", 60.0) for _ in range(2))
    opened = [process.child for process in first.world(3)]
    second.take_over(first.hand_over())
    assert [process.child for process in second.world(3)] == opened
    second.close()


ALL_COLLECTIVES = '''
import torch
import torch.distributed as dist


def zeros(count, size):
    return [torch.zeros(size) for _ in range(count)]


def sums():
    """The same sum over ranks in many ways: each gives 1 + 2 + ... + world in one element."""
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = torch.tensor([1.0 + rank])
    reduced = mine.clone()
    dist.all_reduce(reduced)
    yield reduced
    gathered = zeros(world, 1)
    dist.all_gather(gathered, mine)
    yield sum(gathered)
    flat = torch.zeros(world)
    dist.all_gather_into_tensor(flat, mine)
    yield flat.sum().view(1)
    scattered = torch.zeros(1)
    dist.reduce_scatter(scattered, [mine.clone() for _ in range(world)])
    yield scattered
    scattered = torch.zeros(1)
    dist.reduce_scatter_tensor(scattered, mine.repeat(world))
    yield scattered
    at_first = mine.clone()
    dist.reduce(at_first, dst=0)
    dist.broadcast(at_first, src=0)
    yield at_first
    here = zeros(world, 1) if rank == 0 else None
    dist.gather(mine, here, dst=0)
    back = torch.zeros(1)
    dist.scatter(back, [sum(here)] * world if rank == 0 else None, src=0)
    yield back
    swapped = torch.zeros(world)
    dist.all_to_all_single(swapped, mine.repeat(world))
    yield swapped.sum().view(1)
    ring, passing = mine.clone(), mine.clone()
    for _ in range(world - 1):
        arriving = torch.zeros(1)
        sending = dist.isend(passing, (rank + 1) % world)
        dist.recv(arriving, (rank - 1) % world)
        sending.wait()
        ring, passing = ring + arriving, arriving
    yield ring
    whole = torch.tensor([1 << rank], dtype=torch.int64)
    dist.all_reduce(whole, op=dist.ReduceOp.BOR)
    yield reduced * (whole == (1 << world) - 1)
    most = mine.clone()
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    yield most * (world + 1) / 2
    objects = [None] * world
    dist.all_gather_object(objects, {"mine": 1.0 + rank})
    yield torch.tensor([sum(one["mine"] for one in objects)])
    named = [{"sum": float(reduced)} if rank == 0 else None]
    dist.broadcast_object_list(named, src=0)
    yield torch.tensor([named[0]["sum"]])
    empty = torch.zeros(0)
    dist.all_reduce(empty)
    dist.barrier()


def all_reduce_gradients(module, process_group=None):
    world = dist.get_world_size(process_group)
    right = world * (world + 1) / 2
    for number, one in enumerate(sums() if world == dist.get_world_size() else ()):
        assert float(one) == right, f"way {number} on rank {dist.get_rank()} gave {one}"
    for parameter in module.parameters():
        dist.all_reduce(parameter.grad, group=process_group)
        parameter.grad /= world
'''
