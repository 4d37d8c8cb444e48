"""Trainings as data for the checks of `ddp`: a network, how many ranks, and what each of them does.

    Training(MLP, world=3, steps=2)     each rank its own weights at first, its own batch in each step

A `Training` becomes one program a rank for the runner, and one reference for all: a single process that has every
rank's batch, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch

from grader.judge.ranks import Steps
from grader.runner import networks

Function = Literal["broadcast_module", "all_reduce_gradients", "all_reduce_gradients_flat", "DDP"]
LEARNING_RATE = 0.02


@dataclass(frozen=True)
class Plan:
    """A network as data."""

    words: str
    layers: tuple[dict[str, object], ...]
    tied: tuple[tuple[str, str], ...] = ()  # a parameter, and the one that it is
    frozen: tuple[str, ...] = ()

    @property
    def spec(self) -> dict[str, object]:
        """For `grader.runner.networks.Network`."""
        return {"layers": list(self.layers), "tied": list(self.tied), "frozen": list(self.frozen)}

    def network(self, let_pass: networks.Pass = networks.closed) -> networks.Network:
        return networks.Network(self.spec, let_pass)

    @cached_property
    def gradient_bytes(self) -> int:
        """Of all gradients together."""
        return sum(parameter.nbytes for parameter in self.network().parameters() if parameter.requires_grad)

    @cached_property
    def parameters(self) -> int:
        """How many there are, with frozen ones, the tied ones once."""
        return len(list(self.network().parameters()))

    @cached_property
    def values(self) -> int:
        """How many parameters and buffers there are, by their names."""
        return len(self.network().state_dict())

    @cached_property
    def mixed(self) -> bool:
        """Whether there are parameters of 16 bits."""
        return any(parameter.dtype.itemsize == 2 for parameter in self.network().parameters())


def linear(
    name: str, inputs: int, outputs: int, bias: bool = True, dtype: str = "float32", transposed: bool = False
) -> dict[str, object]:
    """`transposed`: its weight lies in memory column by column."""
    return {"name": name, "kind": "linear", "inputs": inputs, "outputs": outputs, "bias": bias, "dtype": dtype,
            "transposed": transposed}  # fmt: skip


def batch_norm(name: str, outputs: int) -> dict[str, object]:
    return {"name": name, "kind": "batch_norm", "outputs": outputs}


def tanh(name: str) -> dict[str, object]:
    return {"name": name, "kind": "tanh"}


def gate(number: int) -> dict[str, object]:
    return {"name": f"gate{number}", "kind": "gate", "number": number}


Route = tuple[str, ...] | None  # the layers that a forward goes through; None: all


@dataclass(frozen=True)
class Training:
    """One case of a check of `ddp`."""

    plan: Plan
    world: int = 2
    function: Function = "DDP"
    steps: int = 1  # of the optimizer, each with a fresh batch
    rows: tuple[int, ...] = (6,)  # of a rank's batch, by its number; repeated
    backwards: int = 1  # in a step; all but the last without synchronisation
    routes: tuple[tuple[Route, ...], ...] = ((None,),)  # by step, then by rank; both repeated
    local_route: Route = None  # of backwards without synchronisation, where it is another one
    bucket_bytes: int | None = None
    form: Literal["tensor", "tuple", "dict"] = "tensor"  # what the network returns
    begins_with: Literal["", "evaluate", "load"] = ""  # with an output in evaluation mode, or with other weights
    group: tuple[int, ...] = ()  # the ranks that take part; the others do nothing. Empty: all
    note: str = ""  # what is special about it

    def __str__(self) -> str:
        several = f", {self.backwards} backwards in each" if self.backwards > 1 else ""
        buckets = f", bucket_bytes={self.bucket_bytes}" if self.bucket_bytes else ""
        group = f", a group of ranks {' and '.join(map(str, self.group))}" if self.group else ""
        steps = f", {self.steps} steps" if self.steps > 1 else ""
        note = f", {self.note}" if self.note else ""
        return f"{self.plan.words} on {self.world} rank{'s' * (self.world > 1)}{group}{steps}{several}{buckets}{note}"

    @property
    def report_sizes(self) -> list[int]:
        """Of a rank's reports: its weights, an output if one is wanted, and each step's gradients."""
        return [self.plan.values, *[1] * (self.begins_with == "evaluate"), *[self.plan.parameters] * self.steps]

    @property
    def ranks(self) -> tuple[int, ...]:
        """Those that take part."""
        return self.group or tuple(range(self.world))

    def by(self, function: Function) -> Training:
        """The same with another function."""
        return replace(self, function=function)

    def route(self, step: int, rank: int) -> Route:
        of_step = self.routes[step % len(self.routes)]
        return of_step[rank % len(of_step)]


@dataclass(frozen=True)
class Batch:
    """What one rank has for one backward."""

    rows: torch.Tensor  # (rows, inputs) float32
    gradient: torch.Tensor  # (rows, outputs) float32; of a loss that is a mean over rows


@dataclass(frozen=True)
class Draw:
    """All values of one training."""

    training: Training
    states: list[list[torch.Tensor]]  # parameters and buffers, by rank
    batches: list[list[list[Batch]]]  # by rank, step and backward
    rows: torch.Tensor  # of an output in evaluation mode
    loaded: list[torch.Tensor]  # parameters and buffers that take the place of the first ones
    factors: tuple[torch.Tensor, ...] = field(default=())  # of gates, one a feature

    @classmethod
    def of(cls, training: Training, generator: torch.Generator) -> Draw:
        """Different weights and different data on each rank."""
        network = training.plan.network()
        states = [_state(network, generator) for _ in range(training.world)]
        if training.function.startswith("all_reduce"):  # it is not what makes weights equal
            states = states[:1] * training.world
        inputs, outputs = _width(training.plan)
        batches = []
        for rank in range(training.world):
            count = training.rows[rank % len(training.rows)]
            batches.append([
                [
                    Batch(torch.randn(count, inputs, generator=generator),
                          torch.randn(count, outputs, generator=generator) / count)
                    for _ in range(training.backwards)
                ]
                for _ in range(training.steps)
            ])  # fmt: skip
        factors = tuple(0.5 + torch.rand(width, generator=generator) for width in _gate_widths(training.plan))
        rows, loaded = torch.randn(5, inputs, generator=generator), _state(network, generator)
        return cls(training, states, batches, rows, loaded, factors)

    @property
    def gates(self) -> int:
        """How many a rank comes to: the start of the training, and those of the network in each step."""
        return 1 + len(self.factors) * self.training.steps

    def program(self, rank: int) -> tuple[Steps, dict[str, torch.Tensor]]:
        """What a rank does, and the tensors that it names by their place."""
        training, tensors = self.training, {}
        for number, one in enumerate(self.states[rank]):
            tensors[f"state {number}"] = one
        steps: Steps = [{"do": "build", "network": training.plan.spec, "values": list(range(len(tensors)))}]
        if training.group:
            steps.append({"do": "subgroup", "ranks": list(training.group)})
        if rank not in training.ranks:
            return steps, tensors
        if training.function == "DDP":
            options = {"bucket_bytes": training.bucket_bytes} if training.bucket_bytes else {}
            steps.append({"do": "wrap", **options})
        elif training.function == "broadcast_module":
            steps.append({"do": "call", "function": "broadcast_module"})
        steps.append({"do": "pause"})
        if training.begins_with == "load":
            steps.append({"do": "load", "values": [len(tensors) + number for number in range(len(self.loaded))]})
            tensors |= {f"loaded {number}": one for number, one in enumerate(self.loaded)}
        steps.append({"do": "weights"})
        if training.begins_with == "evaluate":
            evaluation = {"do": "forward", "rows": len(tensors), "form": training.form}
            steps += [{"do": "mode", "training": False}, evaluation, {"do": "output"}, {"do": "mode", "training": True}]
            tensors["rows of an evaluation"] = self.rows
        for step, batches in enumerate(self.batches[rank]):
            route = training.route(step, rank)
            for number, batch in enumerate(batches):
                places = {"rows": len(tensors), "gradient": len(tensors) + 1}
                tensors |= {f"rows {step} {number}": batch.rows, f"gradient {step} {number}": batch.gradient}
                if number < len(batches) - 1:
                    steps.append({"do": "local", **places, "route": training.local_route or route})
                    continue
                steps.append({"do": "forward", "rows": places["rows"], "route": route, "form": training.form})
                steps.append({"do": "backward", "gradient": places["gradient"]})
            if training.function == "DDP":
                steps.append({"do": "finish"})
            elif training.function != "broadcast_module":
                steps.append({"do": "call", "function": training.function})
            steps += [{"do": "gradients"}, {"do": "descend", "lr": LEARNING_RATE}]
        return steps, tensors


Gradients = list[torch.Tensor | None]  # of all parameters, in the order of the network


@dataclass(frozen=True)
class Reference:
    """What one process gives that has all batches: by step, and by rank that takes part, before they are averaged."""

    names: list[str]  # of parameters, the tied ones once
    weights: list[torch.Tensor]  # parameters and buffers at the start, in their own dtypes
    weight_names: list[str]
    output: torch.Tensor  # in evaluation mode, at the start
    trained: torch.Tensor  # in training mode
    local: list[list[Gradients]]  # by step, then by rank; None: not used there

    @classmethod
    def of(cls, draw: Draw, dtype: torch.dtype = torch.float64) -> Reference:
        """Go through all steps, in `dtype` where no parameter has 16 bits, and descend by the mean each time."""
        training = draw.training
        source = draw.loaded if training.begins_with == "load" else draw.states[training.ranks[0]]
        network = training.plan.network(lambda number, width: draw.factors[number])
        network.load_state_dict(dict(zip(network.state_dict(), source, strict=True)))
        names = [name for name, _ in network.named_parameters()]
        weight_names = list(network.state_dict())
        if not training.plan.mixed:
            network.to(dtype)
        with torch.no_grad():
            rows = draw.rows.to(torch.float32 if training.plan.mixed else dtype)
            output, trained = network.eval()(rows), network.train()(rows)
        local = []
        for step in range(training.steps):
            local.append([_gradients(network, draw, step, rank) for rank in training.ranks])
            with torch.no_grad():
                for number, parameter in enumerate(network.parameters()):
                    found = [gradients[number] for gradients in local[-1]]
                    if (mean := mean_of(found)) is not None:
                        parameter.sub_(LEARNING_RATE * mean)
        return cls(names, source, weight_names, output, trained, local)


def mean_of(gradients: Sequence[torch.Tensor | None]) -> torch.Tensor | None:
    """The mean over ranks; where a parameter was not used, its gradient counts as zero. None if it was used nowhere."""
    used = [one for one in gradients if one is not None]
    return sum(used[1:], used[0]).double() / len(gradients) if used else None


def _gradients(network: networks.Network, draw: Draw, step: int, rank: int) -> Gradients:
    """What one rank's batches of one step add up to. Buffers stay as they are."""
    buffers = [buffer.clone() for buffer in network.buffers()]
    dtype = torch.float32 if draw.training.plan.mixed else next(network.parameters()).dtype
    *local, last = draw.batches[rank][step]
    route = draw.training.route(step, rank)
    for batch in (*local, last):
        output = network(batch.rows.to(dtype), route=route if batch is last else draw.training.local_route or route)
        output.backward(batch.gradient.to(output.dtype))
    found = [None if parameter.grad is None else parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad(set_to_none=True)
    for buffer, before in zip(network.buffers(), buffers, strict=True):
        buffer.copy_(before)
    return found


def _state(network: networks.Network, generator: torch.Generator) -> list[torch.Tensor]:
    """Random parameters and buffers: of the size of a matrix's usual ones, and variances above zero."""
    drawn: dict[int, torch.Tensor] = {}
    for name, tensor in network.state_dict(keep_vars=True).items():
        if id(tensor) in drawn:
            continue
        if not tensor.is_floating_point():
            value = torch.randint(100, tensor.shape, generator=generator)
        else:
            spread = float(tensor.shape[-1]) ** -0.5 if tensor.dim() > 1 else 0.5
            value = spread * torch.randn(tensor.shape, generator=generator)
            value = value.abs() + 0.5 if "var" in name else value
        drawn[id(tensor)] = value.to(tensor.dtype)
    return [drawn[id(tensor)] for tensor in network.state_dict(keep_vars=True).values()]


def _gate_widths(plan: Plan) -> list[int]:
    """Features of each gate: those that the layer before it gives."""
    widths, width = [], 0
    for layer in plan.layers:
        width = int(str(layer.get("outputs", width)))
        widths += [width] * (layer["kind"] == "gate")
    return widths


def _width(plan: Plan) -> tuple[int, int]:
    """Inputs and outputs of the whole network."""
    linears = [layer for layer in plan.layers if layer["kind"] == "linear"]
    return int(str(linears[0]["inputs"])), int(str(linears[-1]["outputs"]))
