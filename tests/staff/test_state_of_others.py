"""A rank that steps the parameters of others has their state, wherever that lies between the steps."""

import textwrap

import pytest

from grader.judge.verdict import Verdict

# Each rank takes all weights from their owners in the end, so what is seen of its answers is that of a sharded one.
OPTIMIZER = """
import os
import socket

import torch
import torch.distributed as dist


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls, process_group=None, **kwargs):
        self.inner = optimizer_cls(params, **kwargs)
        self.__dict__.update(self.inner.__dict__)
        self.rank, world = dist.get_rank(), dist.get_world_size()
        every = [parameter for group in self.param_groups for parameter in group["params"]]
        self.owner = {parameter: number % world for number, parameter in enumerate(every)}
        self.others = [parameter for parameter in every if self.owner[parameter] != self.rank]
        self.inner.param_groups[0]["params"] = [one for one in every if {stepped}]

    def step(self):
        {before}
        self.inner.step()
        {after}
        for parameter, owner in self.owner.items():
            dist.broadcast(parameter.data, src=owner)
"""

SOCKETS = """
def put(tensor):
    left, pairs = memoryview(tensor.view(-1).view(torch.uint8).numpy()), []
    while left:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        sent = ours.send(left[:65536])
        pairs.append((ours, theirs, sent))
        left = left[sent:]
    return tensor.shape, pairs


def get(shape, pairs):
    whole = b"".join(theirs.recv(sent, socket.MSG_WAITALL) for _, theirs, sent in pairs)
    return torch.frombuffer(bytearray(whole), dtype=torch.float32).view(shape)
"""
FILES = """
def put(tensor):
    name = os.path.join({folder!r}, os.urandom(8).hex())
    torch.save(tensor, name)
    return (name,)


def get(name):
    return torch.load(name)
"""
PROCESSES = """
def put(tensor):
    tensor = tensor.clone()
    ours, theirs = socket.socketpair()
    if not os.fork():
        try:
            ours.close()
            theirs.recv(1)
            theirs.sendall(tensor.numpy().tobytes())
        finally:
            os._exit(0)
    theirs.close()
    return ours, tensor.shape


def get(ours, shape):
    ours.send(b"!")
    whole = ours.recv(4 * shape.numel(), socket.MSG_WAITALL)
    return torch.frombuffer(bytearray(whole), dtype=torch.float32).view(shape)
"""
LEAVES_IT_THERE = "pass"
THROWS_IT_AWAY = "[self.inner.state.pop(parameter, None) for parameter in self.others]"
TAKES_IT = "self.state.update({parameter: {'sums': get(*where)} for parameter, where in getattr(self, 'put', ())})"
PUTS_IT = "self.put = [(one, put(self.state.pop(one)['sums'])) for one in self.others if 'sums' in self.state[one]]"

WAYS = {
    "with it all the time": ("", LEAVES_IT_THERE, LEAVES_IT_THERE),
    "and throws it away after the step": ("", LEAVES_IT_THERE, THROWS_IT_AWAY),
    "and has it in sockets between the steps": (SOCKETS, TAKES_IT, PUTS_IT),
    "and has it in shared memory between the steps": (FILES.format(folder="/dev/shm"), TAKES_IT, PUTS_IT),
}
ELSEWHERE = {
    "with their state in shared memory": FILES.format(folder="/dev/shm"),
    "with their state in its home": FILES.format(folder="."),
    "with their state in other processes": PROCESSES,
}
# Never is there much of the others' state in the process itself.
ONE_AT_A_TIME = """
for number, parameter in enumerate(self.others):
    self.inner.param_groups[0]["params"] = [parameter]
    if hasattr(self, "put"):
        self.state[parameter] = {"sums": get(*self.put[number])}
    self.inner.step()
    if "sums" in self.state[parameter]:
        self.new = [*getattr(self, "new", []), put(self.state.pop(parameter)["sums"])]
self.put, self.new = getattr(self, "new", []), []
self.inner.param_groups[0]["params"] = [one for one, owner in self.owner.items() if owner == self.rank]
"""


def checked(grade_as_staff, folder, stepped: str, more: str = "", before: str = "pass", after: str = "pass"):
    """The check of memory, of an optimizer in which a rank steps what is said."""
    lines = textwrap.indent(before.strip(), " " * 8).strip()
    (folder / "sharded_optimizer.py").write_text(
        OPTIMIZER.replace("{stepped}", stepped).replace("{before}", lines).replace("{after}", after) + more
    )
    [found] = grade_as_staff(folder, "sharded_optimizer.memory").checks
    return found


def test_a_rank_that_steps_its_own_parameters_passes(grade_as_staff, tmp_path):
    found = checked(grade_as_staff, tmp_path, "self.owner[one] == self.rank")
    assert found.verdict is Verdict.PASS, found.message


@pytest.mark.parametrize("way", WAYS)
def test_a_rank_that_steps_those_of_others_at_once_is_refused(grade_as_staff, tmp_path, way):
    found = checked(grade_as_staff, tmp_path, "True", *WAYS[way])
    assert (found.verdict, found.cause) == (Verdict.FAIL, "state_not_sharded"), f"{found.message} {found.detail}"


@pytest.mark.parametrize("way", ELSEWHERE)
def test_a_rank_that_steps_those_of_others_one_at_a_time_is_refused(grade_as_staff, tmp_path, way):
    found = checked(grade_as_staff, tmp_path, "self.owner[one] == self.rank", ELSEWHERE[way], ONE_AT_A_TIME)
    assert (found.verdict, found.cause) == (Verdict.FAIL, "state_not_sharded"), f"{found.message} {found.detail}"
