"""Optimizations as data for the checks of `sharded_optimizer`: parameters, their groups, and what happens in each step.

    Optimization(shapes=((8, 6), (8,)), world=3, steps=4)     every rank has the same parameters and gradients

An `Optimization` becomes one program a rank for the runner, and one reference: the optimizer itself, in one process
that holds all state, in float64.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from grader.judge.ranks import Steps
from grader.runner import networks

Values = list[list[torch.Tensor]]  # parameters, after each step
CALLS_OF_CLOSURE = 3  # that a closure has gradients for


@dataclass(frozen=True)
class Group:
    """Some of the parameters, by number, with options of their own."""

    parameters: tuple[int, ...]
    options: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Optimization:
    """One case of a check of `sharded_optimizer`."""

    shapes: tuple[tuple[int, ...], ...]
    world: int = 2
    optimizer: str = "AdamW"
    options: dict[str, float] = field(default_factory=lambda: {"lr": 0.01})
    steps: int = 3
    groups: tuple[Group, ...] = ()  # none: one list of all
    added: Group | None = None  # after the first step
    schedule: dict[str, float] | None = None  # of StepLR, stepped after each step
    closure: bool = False
    reloaded: bool = False  # after the second step, each rank from its own share
    averaged: bool = False  # each rank has gradients of its own, and their mean is taken before the step
    group: tuple[int, ...] = ()  # the ranks that take part; the others do nothing. Empty: all
    generator: bool = False  # where the parameters come from, in place of a list
    missing: tuple[int, ...] = ()  # parameters that never have a gradient
    note: str = ""

    def __str__(self) -> str:
        options = ", ".join(f"{name}={value:g}" for name, value in self.options.items())
        parts = [
            f"{self.optimizer}({options}), {len(self.shapes)} parameter{'s' * (len(self.shapes) > 1)} on {self.world} "
            f"rank{'s' * (self.world > 1)}, {self.steps} step{'s' * (self.steps > 1)}"
        ]
        parts += [f"{len(self.groups)} groups"] * (len(self.groups) > 1) + ["one group added"] * bool(self.added)
        parts += [f"a group of ranks {' and '.join(map(str, self.group))}"] * bool(self.group)
        parts += ["StepLR"] * bool(self.schedule) + ["a closure"] * self.closure + [self.note] * bool(self.note)
        return ", ".join(parts)

    @property
    def bytes(self) -> list[int]:
        """Of each parameter."""
        return [4 * torch.Size(shape).numel() for shape in self.shapes]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that take part."""
        return self.group or tuple(range(self.world))

    @property
    def all_groups(self) -> tuple[Group, ...]:
        """Those at the start."""
        return self.groups or (Group(tuple(range(len(self.shapes)))),)

    @property
    def report_sizes(self) -> list[int]:
        """Of a rank's reports: after each step what a closure returned, and the parameters."""
        return [*[1] * self.closure, len(self.shapes)] * self.steps


@dataclass(frozen=True)
class OptimizationDraw:
    """All values of one optimization."""

    case: Optimization
    start: list[torch.Tensor]  # float32 parameters
    gradients: list[list[list[list[torch.Tensor]]]]  # by rank, step, call of a closure and parameter
    losses: list[list[torch.Tensor]]  # by step and call of a closure

    @classmethod
    def of(cls, case: Optimization, generator: torch.Generator) -> OptimizationDraw:
        start = [torch.randn(shape, generator=generator) for shape in case.shapes]
        own = [
            [
                [[torch.randn(shape, generator=generator) for shape in case.shapes] for _ in range(CALLS_OF_CLOSURE)]
                for _ in range(case.steps)
            ]
            for _ in range(case.world if case.averaged else 1)
        ]
        losses = [[torch.rand((), generator=generator) for _ in range(CALLS_OF_CLOSURE)] for _ in range(case.steps)]
        return cls(case, start, own if case.averaged else own * case.world, losses)

    def program(self, rank: int) -> tuple[Steps, dict[str, torch.Tensor]]:
        """What a rank does, and the tensors that it names by their place."""
        case = self.case
        tensors: dict[str, torch.Tensor] = {}

        def place(tensor: torch.Tensor) -> int:
            tensors[f"tensor {len(tensors)}"] = tensor
            return len(tensors) - 1

        groups: list[dict[str, object]] = [{"params": list(one.parameters), **one.options} for one in case.all_groups]
        steps: Steps = [
            {"do": "leaves", "values": [place(one) for one in self.start]},
            {
                "do": "shard",
                "optimizer": case.optimizer,
                "groups": groups,
                "options": case.options,
                "generator": case.generator,
            },
        ]
        if case.group:
            steps.insert(1, {"do": "subgroup", "ranks": list(case.group)})
        if rank not in case.ranks:
            return steps[:2], tensors
        if case.schedule:
            steps.append({"do": "schedule", **case.schedule})
        steps.append({"do": "pause"})
        for number in range(case.steps):
            if number == 1 and case.added:
                steps.append({"do": "add_group", "params": list(case.added.parameters), **case.added.options})
            if number == 2 and case.reloaded:
                steps.append({"do": "reload"})
            given = [
                [None if index in case.missing else place(one) for index, one in enumerate(call)]
                for call in self.gradients[rank][number][: CALLS_OF_CLOSURE if case.closure else 1]
            ]
            if case.closure:
                losses = [place(one) for one in self.losses[number]]
                steps.append({"do": "closed_step", "gradients": given, "losses": losses})
            else:
                steps.append({"do": "step", "gradients": given[0], "average": case.averaged})
            steps.append({"do": "values"})
        return steps, tensors

    def saved_bytes(self) -> int:
        """Of the file that the optimizer itself is saved in, in one process."""
        kind: Any = networks.OPTIMIZERS[self.case.optimizer]
        parameters = [torch.nn.Parameter(one.clone()) for one in self.start]
        optimizer = kind([_group(one, parameters) for one in self.case.all_groups], **self.case.options)
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        return file.getbuffer().nbytes

    def reference(self, without: Sequence[str] = (), calls: int = 1, dtype: torch.dtype = torch.float64) -> Values:
        """The parameters after each step, by the optimizer itself in one process.

        `without` names what is left out: "schedule", "groups" (their options), "added"; or "state", which is lost in
        the middle. A closure is called so often.
        """
        case = self.case
        parameters = [torch.nn.Parameter(one.to(dtype, copy=True)) for one in self.start]
        groups = [replace(one, options={}) if "groups" in without else one for one in case.all_groups]

        def make() -> Any:
            kind: Any = networks.OPTIMIZERS[case.optimizer]
            return kind([_group(one, parameters) for one in groups], **case.options)

        optimizer = make()
        scheduler = None
        if case.schedule and "schedule" not in without:
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, **case.schedule)  # type: ignore[arg-type]
        found = []
        for number in range(case.steps):
            if number == 1 and case.added and "added" not in without:
                optimizer.add_param_group(_group(case.added, parameters))
            if number == 2 and "state" in without:
                optimizer = make()
            given = [gradients[number][calls - 1] for gradients in self.gradients]
            for index, parameter in enumerate(parameters):
                mean = torch.stack([one[index].to(dtype) for one in given]).mean(0)
                parameter.grad = None if index in case.missing else mean
            optimizer.step()
            if scheduler:
                scheduler.step()
            found.append([parameter.detach().clone() for parameter in parameters])
        return found


def _group(group: Group, parameters: Sequence[torch.nn.Parameter]) -> dict[str, object]:
    return {"params": [parameters[index] for index in group.parameters], **group.options}
