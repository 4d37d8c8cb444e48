"""A runner whose calls are timed: the submission's, or one of the judge's own with a baseline in it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from grader.clock.memory import Block, TheirBlocks
from grader.clock.works import Work
from grader.judge import replies
from grader.judge.child import RunnerChild
from grader.judge.output import clean
from grader.judge.replies import PlaceEntry
from grader.judge.verdict import Outcome, Verdict
from grader.judge.wording import raised_outcome
from grader.runner.protocol import Malformed
from grader.runner.tensors import DTYPES
from grader.sandbox.processes import descendants, is_stopped

BASELINES = Path(__file__).resolve().parent / "baselines"
PATIENCE_S = 5.0  # for all processes to stop
LOOK_EVERY_S = 0.0001
AWAKE_S = 1.0  # in which the judge's core waits for a reply, and does nothing else


@dataclass
class Player:
    """A child that has loaded its module, and what it is asked to call."""

    child: RunnerChild
    function: str
    options: Mapping[str, object] = field(default_factory=dict)
    differentiates: bool = True  # where the work has a gradient: a copy does not
    limit_s: float = 60.0  # of a sample
    theirs: TheirBlocks = field(default_factory=TheirBlocks)
    last: list[list[torch.Tensor]] = field(default_factory=list)  # what the last calls gave, in its memory
    _until: float = 0.0  # of the sample, by `time.monotonic()`

    def prepare(self, work: Work, sets: Sequence[Block]) -> None:
        """Tell it where the arguments lie. Raises `Outcome`."""
        gradient = work.gradient if self.differentiates else None
        grads = [gradient not in (None, number) for number in range(len(work.inputs))]
        header: dict[str, object] = {
            "verb": "prepare", "function": self.function, "options": dict(self.options), "gradient": gradient,
            "arguments": [number for number in range(len(work.inputs)) if number != work.gradient],
            "blocks": [block.handle for block in sets],
            "sets": [block.described(number, grads) for number, block in enumerate(sets)],
        }  # fmt: skip
        self._timed(*self.child.request(header, (), self.limit_s, self.limit_s))

    def call(self, order: Sequence[int], work: Work) -> list[list[torch.Tensor]]:
        """Let it call with these sets: where the answers will be, in the runner's memory, while the GPU still works.

        Raises `Outcome` where that is not what is due.
        """
        self._until = time.monotonic() + self.limit_s
        self.child.ask({"verb": "sample", "order": list(order)}, (), self._until, self.limit_s)
        reply = self._timed(*self.child.hear(0, self._until, self.limit_s))
        try:
            self.theirs.open(reply.blocks)
            if len(reply.places) != len(order):
                raise Malformed("fewer or more answers than calls")
            self.last = [self._answer(work, places) for places in reply.places]
        except Malformed as error:
            raise self.child.malformed(str(error)) from None
        return self.last

    def wait(self) -> float:
        """Until it says that the answers are there: when that was, by the clock. Raises `Outcome`.

        Whoever sleeps meanwhile is woken up the later, the longer it has slept: some microseconds a call.
        """
        self.child.attend(AWAKE_S)
        reply, _ = self.child.hear(0, self._until, self.limit_s)
        arrived = time.perf_counter()  # all of the message, which is as short for many calls as for few
        if isinstance(reply, replies.Done):
            return arrived
        raise self._unless_raised(reply)

    def leave(self) -> None:
        """Give back what was mapped of its memory."""
        self.last = []
        self.theirs.close()

    def _answer(self, work: Work, places: Sequence[replies.Placed]) -> list[torch.Tensor]:
        found = []
        for number, spec in enumerate(work.outputs):
            place = places[number] if number < len(places) else None
            if not isinstance(place, PlaceEntry):
                raise Outcome(Verdict.FAIL, f"a timed call of {self.function} returned something else than a tensor")
            if tuple(place.shape) != spec.shape or DTYPES.get(place.dtype) is not spec.dtype:
                got = f"{place.shape} {clean(place.dtype, 20)}"
                raise Outcome(Verdict.FAIL, f"a timed call of {self.function} returned a tensor of {got[:200]}")
            found.append(self.theirs.tensor(place))
        return found

    def _timed(self, reply: replies.Reply, _: bytearray) -> replies.Timed:
        if isinstance(reply, replies.Timed):
            return reply
        raise self._unless_raised(reply)

    def _unless_raised(self, reply: replies.Reply) -> Outcome:
        if isinstance(reply, replies.Raised):
            return raised_outcome(reply, f"a timed call of {self.function}")
        return self.child.malformed("an answer where nothing was asked")


@contextmanager
def frozen(leaders: Sequence[int]) -> Iterator[set[int]]:
    """All processes from these servers on are stopped while this is entered; they go on at its end."""
    stopped: set[int] = set()
    try:
        stopped = freeze(leaders)
        yield stopped
    finally:
        release(stopped)


def freeze(leaders: Sequence[int]) -> set[int]:
    """Stop all processes from these servers on, until two looks agree that nothing runs. Raises `Outcome`."""
    give_up, agreed, told = time.monotonic() + PATIENCE_S, 0, set[int]()
    while agreed < 2:
        family = {pid for leader in leaders for pid in {leader} | descendants(leader)}
        running = {pid for pid in family if pid not in told or not is_stopped(pid)}
        _signal(running, signal.SIGSTOP)
        told |= running
        agreed = 0 if running else agreed + 1
        if time.monotonic() > give_up:
            release(family)
            raise Outcome(
                Verdict.FAIL, "your processes cannot be stopped between timed calls",
                hint="start no process and no timer: a kernel needs none", cause="not_stopped",
            )  # fmt: skip
        if running:
            time.sleep(LOOK_EVERY_S)
    return family


def release(pids: set[int]) -> None:
    """Let stopped processes go on."""
    _signal(pids, signal.SIGCONT)


def _signal(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
