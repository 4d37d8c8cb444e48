"""A grader as many courses have one. What does not get past it shows nothing about a better one.

It imports a submission into its own process, draws from a seed that anybody can guess, compares one answer to a small
input, and times many to one large input. The time is taken by CUDA events, or as the slope between few calls and many;
on a machine without a GPU by `time.perf_counter`.

    python naive_grader.py events:gelu:FOLDER ...

prints a line of JSON for each: {"of": "events:gelu:FOLDER", "right": true, "ratio": 0.97}.
"""

import importlib
import json
import os
import sys
import time
import traceback

import torch
import triton  # noqa: F401  (before the first fork: it takes a second)

SMALL = (64, 1000)
LARGE = {"cpu": SMALL, "events": (16_384, 16_384), "slope": (8192, 8192)}  # the GPU works longer than launching takes
FEW, MANY = 4, 12
REST_S = 0.12  # before each is timed, on a GPU that has cooled down
LEAST_S = 1e-9

REFERENCES = {
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "softmax": lambda x: torch.softmax(x, -1),
}


def load(problem, folder):
    """The function of this name in `assignment/`."""
    sys.path.insert(0, folder)
    return getattr(importlib.import_module(f"assignment.{problem}"), problem)


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


def grade(clock, problem, folder):
    """Whether the answer is right, and how many times as fast as PyTorch the function is."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(SMALL).to(device)
    function, reference = load(problem, folder), REFERENCES[problem]
    answer = function(x)
    shape = LARGE["cpu" if device == "cpu" else clock]
    large = x if device == "cpu" else torch.randn(shape, device=device, dtype=torch.bfloat16)
    pair = (function, reference) if problem == "gelu" else (step(function), step(reference))
    pair[0](large)
    pair[1](large)
    theirs, baseline = (timed(clock, one, large) for one in pair)
    right = torch.allclose(answer, reference(x), atol=1e-5)
    return {"right": right, "ratio": baseline / max(theirs, LEAST_S)}


def main():
    """Grade each in a process of its own."""
    for wish in sys.argv[1:]:
        pid = os.fork()
        if pid == 0:
            try:
                said = grade(*wish.split(":", 2))
            except Exception:  # the boundary: whatever the submission raises
                traceback.print_exc()
                said = {"right": False, "ratio": 0.0}
            print(json.dumps({"of": wish} | said), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
