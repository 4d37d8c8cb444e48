"""Functions for the clock: kernels that are honest, and such that lie about their time. Each is softmax over rows.

Loaded as `assignment.clocked`, beside a solution.
"""

import threading
import time
from pathlib import Path
from typing import TextIO

import torch
import triton
import triton.language as tl


@triton.jit
def row_kernel(x_pointer, y_pointer, columns, BLOCK: tl.constexpr):
    """One program normalises one row of `columns` elements."""
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_pointer + start + column, mask=inside, other=-float("inf")).to(tl.float32)
    weights = tl.exp(x - tl.max(x, 0))
    y = weights / tl.sum(weights, 0)
    tl.store(y_pointer + start + column, y.to(y_pointer.dtype.element_ty), mask=inside)


def softmax_into(y: torch.Tensor, x: torch.Tensor, warps: int) -> torch.Tensor:
    row_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=warps)
    return y


def eight_warps(x: torch.Tensor) -> torch.Tensor:
    return softmax_into(torch.empty_like(x), x, 8)


def thirty_two_warps(x: torch.Tensor) -> torch.Tensor:
    return softmax_into(torch.empty_like(x), x, 32)


def twice(x: torch.Tensor) -> torch.Tensor:
    eight_warps(x)
    return eight_warps(x)


def with_gaps_between_rows(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(x.shape[0], x.shape[1] + 64, dtype=x.dtype, device=x.device)[:, : x.shape[1]]
    return y.copy_(eight_warps(x))


def transposed(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device).t()
    return y.copy_(eight_warps(x))


# With CUDA's own events around the calls that the clock measures


EVENTS: list[torch.cuda.Event] = []  # one after each call of a sample, used again: a new one takes time
RECORDED: list[int] = []  # numbers of this sample's
BY_EVENTS = Path(__file__).with_suffix(".events")  # a line for each sample: calls after the first one, and their ms
OPENED: list[TextIO] = []


def recorded(y: torch.Tensor) -> torch.Tensor:
    if len(RECORDED) == len(EVENTS):
        EVENTS.append(torch.cuda.Event(enable_timing=True))
    EVENTS[len(RECORDED)].record()
    RECORDED.append(len(RECORDED))
    return y


def between_samples() -> None:
    """Write down the last sample, if the GPU is done with it: then this call begins another one.

    In few microseconds, or it would be more than a right function may take before its first kernel.
    """
    if RECORDED and EVENTS[RECORDED[-1]].query():
        if not OPENED:
            OPENED.append(BY_EVENTS.open("a", buffering=1))
        OPENED[0].write(f"{RECORDED[-1]} {EVENTS[0].elapsed_time(EVENTS[RECORDED[-1]])}\n")
        RECORDED.clear()


def eight_warps_recorded(x: torch.Tensor) -> torch.Tensor:
    between_samples()
    return recorded(eight_warps(x))


def thirty_two_warps_recorded(x: torch.Tensor) -> torch.Tensor:
    between_samples()
    return recorded(thirty_two_warps(x))


# Lies


CALLS: list[float] = []
KNOWN: dict[int, torch.Tensor] = {}


def skips_now_and_then(x: torch.Tensor) -> torch.Tensor:
    """Every twentieth answer is whatever was in its memory."""
    CALLS.append(0.0)
    return twice(x) if len(CALLS) % 20 else torch.empty_like(x)


def remembers_by_address(x: torch.Tensor) -> torch.Tensor:
    if x.data_ptr() not in KNOWN:
        KNOWN[x.data_ptr()] = twice(x)
    return KNOWN[x.data_ptr()]


def replies_early(x: torch.Tensor) -> torch.Tensor:
    """Nobody waits for the GPU before the reply."""
    torch.cuda.synchronize = lambda *_: None
    return twice(x)


LAST: list[torch.cuda.Event] = []  # after each call of a sample


def replies_before_the_last(x: torch.Tensor) -> torch.Tensor:
    """Four calls, a millisecond, are not waited for where a sample has many."""
    if LAST and LAST[-1].query():
        LAST.clear()
    torch.cuda.synchronize = lambda *_: LAST[-5 if len(LAST) > 20 else -1].synchronize()
    y = eight_warps(x)
    LAST.append(torch.cuda.Event())
    LAST[-1].record()
    return y


def sleeps_in_small_samples(x: torch.Tensor) -> torch.Tensor:
    """Three milliseconds in the first call of a sample, unless the one before was large."""
    now = time.perf_counter()
    if CALLS and now - CALLS[-1] > 0.003:
        if len(CALLS) < 24:
            time.sleep(0.003)
        CALLS.clear()
    CALLS.append(time.perf_counter())
    return twice(x)


WATCHED: list[torch.Tensor] = []
STARTED: list[threading.Thread] = []


def polls_in_a_thread(x: torch.Tensor) -> torch.Tensor:
    """A thread looks at all arguments, and starts when one changes."""
    if all(x.data_ptr() != one.data_ptr() for one in WATCHED):
        WATCHED.append(x)
    if not STARTED:
        STARTED.append(threading.Thread(target=poll, daemon=True))
        STARTED[0].start()
    ready = KNOWN.pop(x.data_ptr(), None)
    return twice(x) if ready is None else ready


def poll() -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        seen: dict[int, float] = {}
        while True:
            for x in list(WATCHED):
                first = float(x[0, 0])
                if seen.get(x.data_ptr(), first) != first:
                    KNOWN[x.data_ptr()] = twice(x)
                seen[x.data_ptr()] = first


# Right, in unusual ways


STREAMS: list[torch.cuda.Stream] = []
WORKSPACES: list[torch.Tensor] = []
GRAPHS: list[tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = []


def on_a_stream_of_its_own(x: torch.Tensor) -> torch.Tensor:
    """Which the caller's stream waits for."""
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
    current = torch.cuda.current_stream()
    STREAMS[0].wait_stream(current)
    with torch.cuda.stream(STREAMS[0]):
        y = eight_warps(x)
    y.record_stream(current)
    current.wait_stream(STREAMS[0])
    return y


def with_a_workspace(x: torch.Tensor) -> torch.Tensor:
    """A buffer is kept between calls, and the answer copied out of it."""
    if not WORKSPACES:
        WORKSPACES.append(torch.empty_like(x))
    return softmax_into(WORKSPACES[0], x, 8).clone()


def from_a_graph(x: torch.Tensor) -> torch.Tensor:
    """Captured once; each argument is copied in, and each answer out."""
    if not GRAPHS:
        argument = x.clone()
        eight_warps(argument)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            answer = eight_warps(argument)
        GRAPHS.append((graph, argument, answer))
    graph, argument, answer = GRAPHS[0]
    argument.copy_(x)
    graph.replay()
    return answer.clone()
