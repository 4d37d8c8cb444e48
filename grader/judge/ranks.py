"""The ranks of a scenario: one process of the runner each, opened at need, kept for all cases of a check."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal

import torch

from grader.judge import replies
from grader.judge.borrowed import Borrowed, borrowed_by
from grader.judge.child import RunnerChild
from grader.judge.collectives import Part
from grader.judge.footprint import Footprint, of_processes
from grader.judge.hub import Hub, Network, Passed
from grader.judge.output import clean
from grader.judge.parcel import Parcel
from grader.judge.replies import Entry, TensorEntry
from grader.judge.spawned import Runner
from grader.judge.submission import CheckProcess
from grader.judge.verdict import Outcome
from grader.runner.protocol import Malformed

IMPORTED_BY_OPTIMIZERS = "torch._dynamo"  # in their first step: seconds, in each process

Backend = Literal["gloo", "nccl", "judged"]
Steps = list[dict[str, object]]  # for the runner's `scenario.Rank`


@dataclass(frozen=True)
class Reported:
    """One value that a rank reported."""

    entry: Entry
    tensor: torch.Tensor | None


@dataclass(frozen=True)
class Run:
    """What a scenario gave."""

    reports: list[list[list[Reported]]]  # by rank, one after the other
    passed: list[Passed]  # collectives, where the judge was the far end
    sent: list[Part]  # on a slow network, what the ranks gave from the first gate on
    waited: bool  # whether a rank went no further before it had a result, on a slow network


class RankProcess(CheckProcess):
    """One rank's process."""

    def _open_on(self, server: Runner) -> RunnerChild:
        return RunnerChild(server, [IMPORTED_BY_OPTIMIZERS])


@dataclass
class RankProcesses(RankProcess):
    """The processes that serve one check of several ranks. It is itself the first rank's."""

    others: list[RankProcess] = field(default_factory=list)
    library: set[str] = field(default_factory=set)  # its classes that do the whole problem, with instances: advice
    heard: bool = False  # it is known that they have what they need from each other

    def world(self, count: int) -> list[RankProcess]:
        """The processes of so many ranks, each with the module loaded. Raises `Outcome`."""
        while len(self.others) < count - 1:
            self.others.append(RankProcess(self.servers, self.folder, self.module, self.limit_s))
        for process in [self, *self.others][:count]:
            process.start()
        for process in [self, *self.others][:count]:
            process.load()
        return [self, *self.others][:count]

    def run(
        self,
        backend: Backend,
        steps: Sequence[Steps],
        tensors: Sequence[dict[str, torch.Tensor]],
        network: Network | None = None,
        on_cpu: bool = False,
    ) -> Run:
        """Carry out one program on each rank, which names its tensors by their place. Raises `Outcome`.

        Ranks take turns on the GPUs that there are, if any, unless it has to be `on_cpu`.
        """
        of_s = self.limit_s * self.servers.slack
        processes, start = self.world(len(steps)), time.monotonic()
        deadline = start + max(of_s - self.spent_s, 0.1)
        children = [process.child for process in processes if process.child]
        hub = Hub(children, network or Network(), of_s)
        store = f"store-{secrets.token_hex(8)}"
        gpus = 0 if on_cpu else len(self.servers.gpus)
        try:
            for rank, child in enumerate(children):
                parcel = Parcel.of(tensors[rank])
                header: dict[str, object] = {
                    "verb": "scenario", "rank": rank, "world": len(steps), "backend": backend, "store": store,
                    "limit_s": 2 * of_s, "device": f"cuda:{rank % gpus}" if gpus else "cpu", "steps": steps[rank],
                    "storages": [part.nbytes for part in parcel.parts], "tensors": parcel.specs([]),
                }  # fmt: skip
                child.ask(header, parcel.parts, deadline, of_s)
            carried = hub.carry_through(deadline)
        except Outcome as outcome:
            outcome.printed = outcome.printed or self.printed()
            outcome.__context__ = None  # it may hold tensors
            self.renew()  # the others wait for what will never come
            raise
        finally:
            self.spent_s += time.monotonic() - start
        self.library.update(name for reply, _ in carried for name in reply.borrowed)
        try:
            return Run(
                [_reports(reply, payload) for reply, payload in carried],
                hub.passed,
                hub.sent,
                hub.waited,
            )
        except Malformed as error:
            raise self.malformed(str(error)) from None

    def close(self) -> None:
        for process in self.others:
            process.close()
        super().close()

    def renew(self) -> None:
        """End all ranks, so that the next case has new ones. What they printed is lost unless it was told."""
        super().renew()
        self.others = []

    def watched(self) -> AbstractContextManager[Footprint]:
        """Look at the memory of all ranks that are there, on the CPU, where each has its own."""
        assert self.child
        ranks = {one.child.line.process: one.when_forked for one in (self, *self.others) if one.child}
        return of_processes(ranks, self.child.server.leader)

    def hand_over(self) -> list[RunnerChild]:
        children = super().hand_over()
        for process in self.others:
            children += process.hand_over()
        return children

    def take_over(self, children: list[RunnerChild]) -> None:
        super().take_over(children)
        for child in children[1:]:
            self.others.append(RankProcess(self.servers, self.folder, self.module, self.limit_s))
            self.others[-1].take_over([child])

    def backends(self, world: int) -> tuple[Backend, ...]:
        """The process groups that a training of so many ranks runs on. NCCL takes a GPU for each rank."""
        return ("judged", "nccl" if world <= len(self.servers.gpus) else "gloo")

    def doubt(self) -> Borrowed | None:
        names = ", ".join(clean(name, 200) for name in sorted(self.library))
        hint = "write it yourself, with collectives of torch.distributed"
        if names:
            return Borrowed("PyTorch's own class for this was used", names, hint)
        way = next((way for way in self.ways() if way.runs_text), None)
        return borrowed_by(way, hint) if way else None

    def printed(self) -> str:
        """What all ranks wrote, cleaned; told once."""
        texts = [super().printed(), *(process.printed() for process in self.others)]
        return "\n".join(text for text in texts if text)


def _reports(reply: replies.Carried, payload: bytearray) -> list[list[Reported]]:
    """Cut a rank's payload up into its reports. Raises `Malformed`."""
    plain = [entry for entry in reply.values if isinstance(entry, TensorEntry)]
    tensors, _ = replies.split(plain, [], payload)
    if sum(reply.lengths) != len(reply.values):
        raise Malformed("a reply with too few or too many reports")
    queue = iter(tensors)
    values = iter([Reported(entry, next(queue) if isinstance(entry, TensorEntry) else None) for entry in reply.values])
    return [[next(values) for _ in range(length)] for length in reply.lengths]
