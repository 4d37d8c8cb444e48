"""The far end of a scenario's process groups: here the ranks' collectives meet.

What the ranks send is seen from outside: who takes part in what, with how many bytes, and how far each rank's backward
was by then. Ranks that wait for different things are found at once, without waiting for a deadline.

How far a backward is, the judge knows because it holds the gates of the network: the gradients of the layers before a
gate depend on a number that the judge gives when the gate is reached. A slow network is one whose results take some
gates to come: no clock is in it, so a busy machine changes nothing.
"""

from __future__ import annotations

import select
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

import torch

from grader.judge.child import LOOK_EVERY_S, RunnerChild
from grader.judge.collectives import Disagreement, Part, meet, words_of
from grader.judge.memory import storage_bytes
from grader.judge.output import clean
from grader.judge.replies import Carried, Raised, Request
from grader.judge.verdict import Outcome, Verdict
from grader.judge.wording import on_rank, raised_outcome
from grader.runner.protocol import Malformed
from grader.runner.tensors import DTYPES

MOST_PAYLOAD_BYTES = 256 << 20  # of one request, or of a rank's reports
MOST_WAITING_BYTES = 512 << 20  # of all that waits, for others or to be sent, and of what is kept
MOST_REQUESTS = 2_000  # of one rank
GATES_LATER = 2
QUIET_S = 0.002  # without a word from any rank, before results are sent
PATIENCE_S = 5.0  # without a word from any rank: then one waits for a result

P = ParamSpec("P")
T = TypeVar("T")
Channel = tuple[str, tuple[int, ...]]  # a group of ranks, or one rank's way to another one


@dataclass(frozen=True)
class Network:
    """What is between the ranks of a scenario. A gate opens once all ranks that are not through yet have reached it."""

    factors: tuple[torch.Tensor, ...] = ()  # that the gates of the network give, by number
    gates: int = 0  # that a rank comes to in all
    slow: bool = False  # from the first gate on, a result comes once all have reached GATES_LATER more, or the last one
    garbled_from: int | None = None  # gates that each rank has reached: from then on, what comes from others is NaN


@dataclass(frozen=True)
class Passed:
    """A collective that has gone through."""

    kind: str
    bytes: int  # of the largest part that a rank gave or got
    gates: int  # that each rank had reached, or more, when it took part

    @property
    def volume(self) -> int:
        """Bytes on a rank's wire: an all-reduce reduces, then gathers, as a ring does."""
        return 2 * self.bytes if self.kind == "all_reduce" else self.bytes


@dataclass(frozen=True)
class Result:
    """What a rank is to be told."""

    rank: int
    header: dict[str, object]
    tensors: list[torch.Tensor]
    gates: int = 0  # that all ranks must have reached before

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)


@dataclass
class Hub:
    """Carries the ranks of one scenario through."""

    ranks: Sequence[RunnerChild]
    network: Network
    of_s: float  # the limit, for words
    passed: list[Passed] = field(default_factory=list)
    sent: list[Part] = field(default_factory=list)  # on a slow network, from the first gate on
    waited: bool = False  # a rank went no further before it had a result, on a slow network

    def __post_init__(self) -> None:
        self._waiting: defaultdict[Channel, dict[int, deque[Part]]] = defaultdict(lambda: defaultdict(deque))
        self._count: defaultdict[Channel, int] = defaultdict(int)
        self._held: list[Result] = []
        self._gates = [0] * len(self.ranks)  # reached
        self._requests = [0] * len(self.ranks)
        self._waiting_bytes = 0
        self._ended: set[int] = set()  # ranks that hear nothing more of this scenario
        self._carried: dict[int, tuple[Carried, bytearray]] = {}

    def carry_through(self, deadline: float) -> list[tuple[Carried, bytearray]]:
        """Serve all ranks until each has told its reports. Raises `Outcome`: whose rank has failed, and how."""
        sockets = {child.line.conversation.fileno(): rank for rank, child in enumerate(self.ranks)}
        looked = heard_s = time.monotonic()
        while len(self._carried) < len(self.ranks):
            now = time.monotonic()
            if now >= deadline:
                raise self._overdue()
            patience_s = QUIET_S if self._held else LOOK_EVERY_S
            heard, _, _ = select.select([*sockets], [], [], min(deadline - now, patience_s))
            for descriptor in heard:
                self._hear(sockets[descriptor], deadline)
                heard_s = time.monotonic()
            if self._held and time.monotonic() > heard_s + PATIENCE_S:
                self.waited = True
            if not heard:  # a result comes late: who does not wait for it goes on without
                self._release(deadline)
            if time.monotonic() > looked + LOOK_EVERY_S:
                looked = time.monotonic()
                for rank in set(range(len(self.ranks))) - set(self._carried):
                    self._for(rank, self.ranks[rank].look)
        return [self._carried[rank] for rank in range(len(self.ranks))]

    def _for(self, rank: int, act: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """Do something with one rank, and say its number where that fails."""
        try:
            return act(*arguments, **options)
        except Outcome as outcome:
            raised = on_rank(outcome, rank, len(self.ranks))
        raise raised

    def _malformed(self, rank: int, what: str) -> Outcome:
        return on_rank(self.ranks[rank].malformed(what), rank, len(self.ranks))

    def _hear(self, rank: int, deadline: float) -> None:
        reply, payload = self._for(rank, self.ranks[rank].hear, MOST_PAYLOAD_BYTES, deadline, self.of_s)
        if isinstance(reply, Raised):
            raise on_rank(raised_outcome(reply), rank, len(self.ranks))
        if isinstance(reply, Request) and rank not in self._carried:
            self._take(rank, reply, payload, deadline)
        elif isinstance(reply, Carried) and rank not in self._carried:
            self._carried[rank] = reply, payload
        else:
            raise self._malformed(rank, "a reply of the wrong kind")
        self._look_for_the_forsaken()

    def _take(self, rank: int, request: Request, payload: bytearray, deadline: float) -> None:
        """Note a rank's part in a collective, and let it meet the others."""
        if rank in self._ended:
            raise self._malformed(rank, "a request after its end")
        self._requests[rank] += 1
        if self._requests[rank] > MOST_REQUESTS or self._waiting_bytes + len(payload) > MOST_WAITING_BYTES:
            raise self._malformed(rank, "more collectives than any training needs")
        if request.kind == "end":
            self._ended.add(rank)
            self._for(rank, self.ranks[rank].tell, {"over": True}, [], deadline, self.of_s)
            return
        if request.kind == "gate":
            self._gates[rank] += 1
            factors = [self.network.factors[request.gate]] if request.gate < len(self.network.factors) else []
            if [["float32", one.numel()] for one in factors] != [list(size) for size in request.outputs]:
                raise self._malformed(rank, "a request at a gate that is none")
            self._held.append(Result(rank, _completes(request), factors, self._gates[rank]))
            self._waiting_bytes += self._held[-1].nbytes
            return
        try:
            part = Part(rank, request, _tensors(request, payload), self._gates[rank])
            self._waiting_bytes += part.nbytes
            channel, members = self._channel(part)
        except (Malformed, IndexError, KeyError):
            raise self._malformed(rank, "a collective of an impossible form") from None
        queues = self._waiting[channel]
        queues[rank].append(part)
        if all(queues[member] for member in members):
            self._count[channel] += 1
            parts = [queues[member].popleft() for member in members]
            self._waiting_bytes -= sum(part.nbytes for part in parts)
            self._meet(parts)

    def _channel(self, part: Part) -> tuple[Channel, tuple[int, ...]]:
        """Where a part waits for the others, and the ranks whose parts it needs, in the order of the group."""
        group = tuple(part.request.group)
        if part.rank not in group or not set(group) <= set(range(len(self.ranks))) or len(set(group)) < len(group):
            raise Malformed("a group that is none")
        if part.request.kind not in ("send", "receive"):
            return ("group", group), group
        other = group[part.request.root]
        if part.request.root < 0 or other == part.rank:
            raise Malformed("a way to nobody")
        way = (part.rank, other) if part.request.kind == "send" else (other, part.rank)
        return ("way", way), way

    def _meet(self, parts: list[Part]) -> None:
        try:
            results = meet(parts, self._is_garbled(min(part.gates for part in parts)))
        except Disagreement as disagreement:
            raise self._disagreement(disagreement) from None
        size, gates = max(part.nbytes for part in parts), [part.gates for part in parts]
        self.passed.append(Passed(parts[0].request.kind, size, min(gates)))
        if self.network.slow:
            self.sent += [part for part in parts if part.gates]
            self._waiting_bytes += sum(part.nbytes for part in parts if part.gates)  # they stay
        slow = self.network.slow and min(gates) > 0
        until = min(min(gates) + GATES_LATER, self.network.gates) if slow else 0
        for part, tensors in zip(parts, results, strict=True):
            result = Result(part.rank, _completes(part.request), tensors, until)
            self._held.append(result)
            self._waiting_bytes += result.nbytes

    def _is_garbled(self, gates: int) -> bool:
        return self.network.garbled_from is not None and gates >= self.network.garbled_from

    def _release(self, deadline: float) -> None:
        """Send the results that are due, in their order."""
        others = [gates for rank, gates in enumerate(self._gates) if rank not in self._ended]
        reached = min(others, default=max(self._gates))
        if self.waited:
            reached = max(self._gates) + GATES_LATER
        due = [result for result in self._held if result.gates <= reached]
        self._held = [result for result in self._held if result.gates > reached]
        self._waiting_bytes -= sum(result.nbytes for result in due)
        for result in due:
            if result.rank in self._ended:  # it has not waited for this
                continue
            copies = [one.clone() for one in result.tensors]  # each in a storage of its own
            parts = [storage_bytes(one) for one in copies]
            self._for(result.rank, self.ranks[result.rank].tell, result.header, parts, deadline, self.of_s)

    def _look_for_the_forsaken(self) -> None:
        """Raise where a rank waits for one that is through already and will never come."""
        for channel, queues in self._waiting.items():
            for rank, queue in list(queues.items()):
                if not queue:
                    continue
                _, members = channel
                absent = [member for member in members if member in self._carried and not queues[member]]
                if absent:
                    number, phase = self._count[channel] + 1, clean(queue[0].request.phase, 40)
                    raise Outcome(
                        Verdict.FAIL,
                        f"rank {rank} is in {words_of(queue[0])} (collective {number} of its group, since `{phase}`), "
                        f"but rank {absent[0]} has gone through everything without it",
                        "the ranks do not call the same collectives: which ones depends on what a rank happened to use",
                        "let every rank call the same collectives in the same order: also one that has nothing to give "
                        "(it gives zeros), or that only receives", cause="ranks_disagree",
                    )  # fmt: skip

    def _disagreement(self, disagreement: Disagreement) -> Outcome:
        one, other = disagreement.parts
        return Outcome(
            Verdict.FAIL,
            f"at the same time rank {one.rank} is in {words_of(one)} and rank {other.rank} in {words_of(other)}",
            "the ranks do not call the same collectives in the same order",
            "the order must not depend on what a rank has used or owns: a fixed order of buckets or owners, zeros for "
            "what is missing, and everybody takes part in every broadcast", cause="ranks_disagree",
        )  # fmt: skip

    def _overdue(self) -> Outcome:
        """What each rank is at, where the time is over."""
        late = [rank for rank in range(len(self.ranks)) if rank not in self._carried]
        waiting = {rank: queue[0] for queues in self._waiting.values() for rank, queue in queues.items() if queue}
        computing = [rank for rank in late if rank not in waiting]
        if not computing:
            computing = late
        rank = computing[0]
        outcome = on_rank(self.ranks[rank].overdue(self.of_s), rank, len(self.ranks))
        if others := [f"rank {one} waits in {words_of(part)}" for one, part in waiting.items() if one != rank]:
            outcome.message += f"; {others[0]}"
        outcome.hint = "look for a loop without an end, or for a wait or a receive that no other rank answers"
        return outcome


def _completes(request: Request) -> dict[str, object]:
    return {"completes": request.request}


def _tensors(request: Request, payload: bytearray) -> list[torch.Tensor]:
    """The flat tensors that a request brings. Raises `Malformed`."""
    found, at = [], 0
    for dtype, count in request.inputs:
        size = count * DTYPES[dtype].itemsize
        if at + size > len(payload):
            raise Malformed("a request without its tensors")
        content = payload[at : at + size]
        found.append(torch.frombuffer(content, dtype=DTYPES[dtype]) if content else torch.empty(0, dtype=DTYPES[dtype]))
        at += size
    if at != len(payload):
        raise Malformed("a request whose tensors do not fill its payload")
    return found
