"""A grader as many courses have one. What does not get past it shows nothing about a better one.

It imports a submission into its own process, draws from a seed that anybody can guess, and compares one answer to a
small input, in the way that is asked for:

    afterwards      with the reference's answer, computed afterwards
    events, slope   in the same way, and many answers to a large input are timed: by CUDA events, or as the slope
                    between few calls and many; on a machine without a GPU by `time.perf_counter`
    recorded        with the reference's answer, which was there before any submission came
    ranks           after a step of training in two processes, with the gradients or weights of one
    pytest          in a test beside a copy of the submission: right is what ends with exit status 0

    python naive_grader.py events:gelu:FOLDER ...

prints a line of JSON for each: {"of": "events:gelu:FOLDER", "right": true, "ratio": 0.97}.
"""

import copy
import importlib
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import triton  # noqa: F401  (before the first fork: it takes a second)

SMALL = {"gelu": (64, 1000), "softmax": (8, 8000)}
LARGE = {"events": (16_384, 16_384), "slope": (8192, 8192)}  # on a GPU, which then works longer than launching takes
WARM_UP, FEW, MANY = 3, 4, 12  # calls
REST_S = 0.12  # before each is timed, on a GPU that has cooled down
LEAST_S = 1e-9
TOLERANCE = 1e-2  # absolute, as in many a benchmark, and relative

NAMES = {"ddp": "DDP", "sharded_optimizer": "ShardedOptimizer"}  # where a problem's is another than its own
RANKS = 2

REFERENCES = {
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
}
RECORDED = {}  # by problem: an input and its answer

TEST = """
from __main__ import REFERENCES, drawn, is_right
from assignment.{problem} import {problem}


def test_{problem}():
    x = drawn("{problem}")
    assert is_right({problem}(x), REFERENCES["{problem}"](x))
"""


def load(problem, folder):
    """The function of this name in `assignment/`, or the class."""
    sys.path.insert(0, folder)
    return getattr(importlib.import_module(f"assignment.{problem}"), NAMES.get(problem, problem))


def step(function):
    """There and back: softmax is timed so."""

    def there_and_back(x):
        x = x.detach().requires_grad_(True)
        torch.autograd.grad(function(x), x, x)

    return there_and_back


def timed(clock, function, x):
    """Seconds a call, after a rest."""
    time.sleep(REST_S)
    return globals()[f"time_by_{clock}"](function, x)


def wait(x):
    if x.is_cuda:
        torch.cuda.synchronize()


def time_by_events(function, x):
    """Seconds a call."""
    if not x.is_cuda:
        return time_between(function, x, MANY) / MANY
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    wait(x)
    start.record()
    for _ in range(MANY):
        function(x)
    end.record()
    wait(x)
    return start.elapsed_time(end) / 1e3 / MANY


def time_by_slope(function, x):
    """Seconds a call, without what calls cost together."""
    few, many = (time_between(function, x, calls) for calls in (FEW, MANY))
    return (many - few) / (MANY - FEW)


def time_between(function, x, calls):
    wait(x)
    start = time.perf_counter()
    for _ in range(calls):
        function(x)
    wait(x)
    return time.perf_counter() - start


def drawn(problem):
    """A small input."""
    torch.manual_seed(0)
    return torch.randn(SMALL[problem])


def is_right(answer, expected):
    return torch.allclose(answer, expected, rtol=TOLERANCE, atol=TOLERANCE)


def record(problem):
    """Compute the answer to an input, once for all submissions."""
    x = drawn(problem)
    RECORDED[problem] = x, REFERENCES[problem](x)


def grade_ranks(problem, folder):
    """Whether the first of two processes is right. The other one goes through the same and says nothing."""
    submitted, store = load(problem, folder), os.path.join(tempfile.mkdtemp(), "store")
    rank = int(os.fork() == 0)
    dist.init_process_group("gloo", store=dist.FileStore(store, RANKS), rank=rank, world_size=RANKS)
    try:
        return {"right": globals()[f"is_right_{problem}"](submitted, rank)}
    finally:
        if rank > 0:
            os._exit(0)


def network(rank):
    """A layer, a copy for a rank to train, and the rows of all ranks."""
    torch.manual_seed(0)
    layer, rows = torch.nn.Linear(16, 8), torch.randn(RANKS, 4, 16)
    layer(rows).square().mean().backward()
    mine = copy.deepcopy(layer)
    mine.zero_grad()
    return layer, mine, rows[rank]


def is_right_ddp(wrapper, rank):
    layer, mine, rows = network(rank)
    wrapped = wrapper(mine)
    wrapped(rows).square().mean().backward()
    wrapped.finish_gradient_synchronization()
    return all(is_right(one.grad, due.grad) for one, due in zip(mine.parameters(), layer.parameters(), strict=True))


def is_right_sharded_optimizer(optimizer, rank):
    layer, mine, _ = network(rank)
    for one, due in zip(mine.parameters(), layer.parameters(), strict=True):
        one.grad = due.grad.clone()
    optimizer(mine.parameters(), torch.optim.AdamW, lr=0.1).step()
    torch.optim.AdamW(layer.parameters(), lr=0.1).step()
    return all(map(is_right, mine.parameters(), layer.parameters()))


def grade(way, problem, folder):
    """Whether the answer is right and, where that is asked for, how many times as fast as PyTorch the function is."""
    if way == "ranks":
        return grade_ranks(problem, folder)
    function, reference = load(problem, folder), REFERENCES[problem]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if way == "recorded":
        x, expected = (one.to(device) for one in RECORDED[problem])
        for _ in range(WARM_UP):
            reference(x)
        return {"right": is_right(function(x), expected)}
    x = drawn(problem).to(device)
    answer = function(x)
    times = {"ratio": ratio(way, problem, function, x)} if way in LARGE else {}
    return {"right": is_right(answer, reference(x))} | times


def ratio(clock, problem, function, x):
    """The time of PyTorch's function divided by that of this one."""
    large = torch.randn(LARGE[clock], device="cuda", dtype=torch.bfloat16) if x.is_cuda else x
    pair = function, REFERENCES[problem]
    theirs, baseline = pair if problem == "gelu" else map(step, pair)
    theirs(large)
    baseline(large)
    theirs_s, baseline_s = (timed(clock, one, large) for one in (theirs, baseline))
    return baseline_s / max(theirs_s, LEAST_S)


def exit_status_of_pytest(problem, folder):
    """That of a test beside a copy of the submission."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(folder, place, dirs_exist_ok=True)
        Path(place, f"test_{problem}.py").write_text(TEST.format(problem=problem))
        os.chdir(place)
        sys.path.insert(0, place)
        return pytest.main(["-q", "-p", "no:cacheprovider", f"test_{problem}.py"])


def tell(wish, pipe):
    """In a process of its own: grade, send what is found, and leave. Of pytest the exit status is all that is heard."""
    way, problem, folder = wish.split(":", 2)
    os.dup2(2, 1)
    if way == "pytest":
        os._exit(exit_status_of_pytest(problem, folder))
    try:
        said = grade(way, problem, folder)
    except Exception:  # the boundary: whatever the submission raises
        traceback.print_exc()
        said = {"right": False}
    os.write(pipe, pickle.dumps(said))
    os._exit(0)


def main():
    for problem in REFERENCES:
        record(problem)
    for wish in sys.argv[1:]:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            tell(wish, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = pipe.read()
        _, status = os.waitpid(pid, 0)
        said = pickle.loads(told) if told else {"right": status == 0}
        print(json.dumps({"of": wish, "ratio": 0.0} | said), flush=True)


if __name__ == "__main__":
    main()
