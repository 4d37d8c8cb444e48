"""Carries out a scenario of the judge's on one rank: a training as data, with the submission's functions in it.

A step is a dict with `do`, the name of a method of `Rank`. What a scenario reports travels back at its end.
"""

import contextlib
import copy
import gc
import io
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

import group
import networks
import torch
import torch.distributed as dist
from tensors import describe, pack
from torch._C._distributed_c10d import FileStore
from torch.optim.lr_scheduler import StepLR

Report = list[object]
NO_GATE = 1 << 20  # of the network
MOST_BYTES = 1 << 30  # of a reported tensor
PLAIN = (torch.Tensor, torch.nn.Parameter)
LIBRARY = {  # classes that do the whole problem
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
    "torch.distributed.fsdp.FSDPModule",
}


class Rank:
    """One rank of a scenario, between the start of its process group and the end."""

    def __init__(self, module: Any, header: dict[str, Any], tensors: list[torch.Tensor], line: group.Line):
        self.module, self.tensors, self.line = module, tensors, line
        self.number, self.world, self.device = header["rank"], header["world"], header["device"]
        self.backend, self.limit = header["backend"], timedelta(seconds=header["limit_s"])
        self.store = os.path.join(os.environ["HOME"], header["store"])
        self.options: dict[str, Any] = {}  # `process_group`, where it is not the default one
        self.reports: list[Report] = []
        self.network: torch.nn.Module  # of the judge's making
        self.wrapper: Any  # the submission's, around it, or the network itself
        self.parameters: list[torch.nn.Parameter] = []
        self.make: Callable[[], Any]  # an optimizer, as the scenario wants it
        self.optimizer: Any = None
        self.scheduler: Any = None

    def carry_out(self, steps: Sequence[dict[str, Any]]) -> list[Report]:
        """All steps, one after the other; what they reported."""
        group.start(self.line)
        store = FileStore(self.store, self.world)
        dist.init_process_group(self.backend, store=store, rank=self.number, world_size=self.world, timeout=self.limit)
        try:
            for step in steps:
                self.line.phase = step["do"]
                getattr(self, step["do"])(**{name: value for name, value in step.items() if name != "do"})
            self.line.phase = "end"
        finally:
            with contextlib.suppress(Exception):  # a submission may have ended it, or broken it
                dist.destroy_process_group()
        return self.reports

    # What is trained, and how it is distributed

    def build(self, network: dict[str, Any], values: list[int]) -> None:
        """Make the network with these tensors as its parameters and buffers."""
        self.network = self.wrapper = networks.Network(network, self._let_pass).to(self.device)
        names = self.network.state_dict()
        self.network.load_state_dict({name: self.tensors[at] for name, at in zip(names, values, strict=True)})

    def subgroup(self, ranks: list[int]) -> None:
        """Only these ranks take part from here on, in a group of their own; the others have nothing to do."""
        self.options = {"process_group": dist.new_group(ranks)}

    def wrap(self, **options: Any) -> None:
        self.wrapper = self.module.DDP(self.network, **options, **self.options)

    def call(self, function: str) -> None:
        getattr(self.module, function)(self.network, **self.options)

    def mode(self, training: bool) -> None:
        self.wrapper.train(training)

    def load(self, values: list[int]) -> None:
        """Give the wrapper other values, by the names that it ought to have."""
        names = [f"module.{name}" for name in self.network.state_dict()]
        self.wrapper.load_state_dict({name: self.tensors[at] for name, at in zip(names, values, strict=True)})

    # Training

    def forward(self, rows: int, form: str = "tensor", route: list[str] | None = None) -> None:
        answer = self.wrapper(self.tensors[rows], route=route, form=form)
        self.answer = answer["y"] if form == "dict" else answer[0] if form == "tuple" else answer

    def backward(self, gradient: int) -> None:
        self.answer.backward(self.tensors[gradient])

    def local(self, rows: int, gradient: int, route: list[str] | None = None) -> None:
        """Forward and backward without synchronisation."""
        with self.wrapper.no_sync():
            self.forward(rows, route=route)
            self.backward(gradient)

    def finish(self) -> None:
        self.wrapper.finish_gradient_synchronization()

    def descend(self, lr: float) -> None:
        """A step of gradient descent, and no gradients after it."""
        with torch.no_grad():
            for parameter in self.network.parameters():
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=lr)
                    parameter.grad = None

    def gradients(self) -> None:
        self._report(parameter.grad for parameter in self.network.parameters())

    def weights(self) -> None:
        self._report(self.network.state_dict().values())

    def output(self) -> None:
        self._report([self.answer])

    # An optimizer of the submission's

    def leaves(self, values: list[int]) -> None:
        """Parameters without a network, with these values."""
        self.parameters = [torch.nn.Parameter(self.tensors[at].clone()) for at in values]

    def shard(
        self, optimizer: str, groups: list[dict[str, Any]], options: dict[str, Any], generator: bool = False
    ) -> None:
        """A sharded optimizer for groups of parameters, their numbers and options; one without options is a list."""
        kind: Any = networks.OPTIMIZERS[optimizer]
        alone = len(groups) == 1 and set(groups[0]) == {"params"}
        every = [self._group(one) for one in groups]
        whole = every[0]["params"] if alone else every
        self.make = lambda: self.module.ShardedOptimizer(
            iter(whole) if generator else whole, kind, **self.options, **options
        )
        self.optimizer = self.make()

    def add_group(self, **one: Any) -> None:
        self.optimizer.add_param_group(self._group(one))

    def schedule(self, **options: Any) -> None:
        self.scheduler = StepLR(self.optimizer, **options)

    def step(self, gradients: list[int | None], average: bool = False) -> None:
        """One step with these gradients, or with their mean over all ranks; and one of the scheduler."""
        self.give(gradients)
        for parameter in self.parameters if average else ():
            dist.all_reduce(parameter.grad)
            parameter.grad = parameter.grad / self.world if parameter.grad is not None else None
        self.optimizer.step()
        if self.scheduler:
            self.scheduler.step()

    def pause(self) -> None:
        """Come to a gate that the judge opens once all ranks have come."""
        self.line.post("gate", [], [], gate=NO_GATE).wait()

    def closed_step(self, gradients: list[list[int | None]], losses: list[int]) -> None:
        """One step by a closure, whose calls have gradients and losses of their own. Reports what it returns."""
        calls = iter(zip(gradients, losses, strict=True))

        def closure() -> torch.Tensor:
            if not torch.is_grad_enabled():
                raise RuntimeError("a closure computes gradients: call it under torch.enable_grad()")
            given, loss = next(calls)
            self.give(given)
            return self.tensors[loss]

        self._report([self.optimizer.step(closure)])

    def reload(self) -> None:
        """Save this rank's share, throw the optimizer away, and go on with another one that has loaded it."""
        share = copy.deepcopy(self.optimizer.state_dict())
        self.optimizer = self.make()
        self.optimizer.load_state_dict(share)

    def save(self) -> None:
        """Report this rank's share as the bytes of the file that it is saved in."""
        file = io.BytesIO()
        torch.save(self.optimizer.state_dict(), file)
        self._report([torch.frombuffer(file.getbuffer(), dtype=torch.uint8)])

    def values(self) -> None:
        self._report(self.parameters)

    def _report(self, values: Iterable[Any]) -> None:
        """Note these values as they are now."""
        copies = [value.detach().clone() if type(value) in PLAIN else value for value in values]
        self.reports.append(copies)

    def _group(self, one: dict[str, Any]) -> dict[str, Any]:
        return {**one, "params": [self.parameters[number] for number in one["params"]]}

    def give(self, gradients: list[int | None]) -> None:
        for parameter, at in zip(self.parameters, gradients, strict=True):
            parameter.grad = None if at is None else self.tensors[at].clone()

    def _let_pass(self, number: int, width: int) -> torch.Tensor:
        factors = torch.zeros(width)
        self.line.post("gate", [], [factors], gate=number).wait()
        return factors


def carry_out(
    module: Any, header: dict[str, Any], tensors: list[torch.Tensor], conversation: socket.socket
) -> tuple[dict[str, Any], list[memoryview]]:
    """Be the rank that the header describes: the reply, with all reports, and its tensors."""
    line = group.Line(conversation, header["number"])
    # It lives to the end: its wrapper is looked for among all that lives, and a reducer of the library's waits, where
    # it dies, for threads of gloo, which may want the interpreter's lock once more after the last collective.
    rank = Rank(module, header, tensors, line)
    try:
        reports = rank.carry_out(header["steps"])
    finally:
        line.close()
    values = [value for report in reports for value in report]
    entries = [describe(value, MOST_BYTES) for value in values]
    parts = [pack(value) for value, entry in zip(values, entries, strict=True) if entry["kind"] == "tensor"]
    return {"status": "carried", "lengths": [*map(len, reports)], "values": entries, "borrowed": borrowed()}, parts


def borrowed() -> list[str]:
    """Classes of the library's that do the whole problem, with an instance. Advice: it can be hidden."""
    kinds = {base for thing in gc.get_objects() for base in type(thing).__mro__}
    return sorted(LIBRARY & {f"{kind.__module__}.{kind.__name__}" for kind in kinds})
