"""Small networks built from data, for scenarios. The judge builds the same ones, for its references.

Both sides import this file, and it imports nothing but torch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

Pass = Callable[[int, int], torch.Tensor]  # of a gate and its width: its factors, once it may be passed
FORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda y: y,
    "tuple": lambda y: (y, y.shape[0]),
    "dict": lambda y: {"y": y},
}


class Gated(torch.autograd.Function):
    """Forward the identity; backward factors, one a feature, that come from outside some time later."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, number: int, let_pass: Pass) -> torch.Tensor:
        ctx.number, ctx.let_pass = number, let_pass
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        factors = ctx.let_pass(ctx.number, gradients[0].shape[-1])
        return gradients[0] * factors.to(gradients[0]), None, None


class Gate(nn.Module):
    """All gradients of the layers before it depend on its factors: none of them exists before."""

    def __init__(self, number: int, let_pass: Pass) -> None:
        super().__init__()
        self.number, self.let_pass = number, let_pass

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Gated.apply(x, self.number, self.let_pass)  # type: ignore[no-any-return, no-untyped-call]


def closed(number: int, width: int) -> torch.Tensor:
    """What a network's gates do where none is meant to be passed."""
    raise RuntimeError(f"nobody opens gate {number}")


def layer_of(spec: dict[str, Any], let_pass: Pass) -> nn.Module:
    """One layer: `linear`, `batch_norm`, `gate`, `relu` or `tanh`."""
    if spec["kind"] == "linear":
        dtype = getattr(torch, spec["dtype"])
        layer = nn.Linear(spec["inputs"], spec["outputs"], bias=spec["bias"], dtype=dtype)
        if spec["transposed"]:
            layer.weight = nn.Parameter(layer.weight.detach().t().contiguous().t())
        return layer
    if spec["kind"] == "batch_norm":
        return nn.BatchNorm1d(spec["outputs"])
    if spec["kind"] == "gate":
        return Gate(spec["number"], let_pass)
    return nn.ReLU() if spec["kind"] == "relu" else nn.Tanh()


class Network(nn.Module):
    """Layers by name, applied one after the other, or along a route of names."""

    def __init__(self, spec: dict[str, Any], let_pass: Pass = closed) -> None:
        """Build `spec`: layers, pairs of tied parameters, names of frozen ones. Values are whatever torch draws."""
        super().__init__()
        for layer in spec["layers"]:
            self.add_module(layer["name"], layer_of(layer, let_pass))
        self.whole = [layer["name"] for layer in spec["layers"]]
        for name, other in spec["tied"]:
            owner, _, last = name.rpartition(".")
            setattr(self.get_submodule(owner), last, self.get_parameter(other))
        for name in spec["frozen"]:
            self.get_parameter(name).requires_grad_(False)

    def forward(self, x: torch.Tensor, *, route: Sequence[str] | None = None, form: str = "tensor") -> Any:
        """(rows, inputs) to (rows, outputs), in float32; alone, or in a tuple or a dict."""
        for name in self.whole if route is None else route:
            layer = self.get_submodule(name)
            dtype = next((parameter.dtype for parameter in layer.parameters()), x.dtype)
            x = layer(x.to(dtype))
        return FORMS[form](x.float() if x.dtype in (torch.bfloat16, torch.float16) else x)


class SignMomentum(torch.optim.Optimizer):
    """An optimizer that no library has: it steps by the sign of a running sum, and counts its steps in a number."""

    def __init__(self, params: Any, lr: float = 0.01, decay: float = 0.5) -> None:
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state["steps"] = state.get("steps", 0) + 1
                running = group["decay"] * state["running"] if "running" in state else torch.zeros_like(parameter)
                state["running"] = running + parameter.grad
                parameter -= group["lr"] / state["steps"] * torch.sign(state["running"])
        return loss


class ManySums(torch.optim.Optimizer):
    """An optimizer whose state is large beside its parameters: running sums, each with a decay of its own.

    It steps by their mean, writes to all of them in each step, and takes memory for nothing else but that mean.
    """

    SUMS = 128

    def __init__(self, params: Any, lr: float = 0.01) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["sums"] = parameter.new_zeros(self.SUMS, *parameter.shape)
                decays = torch.arange(self.SUMS).view(-1, *[1] * parameter.dim()) / self.SUMS
                state["sums"].mul_(decays.to(parameter)).add_(parameter.grad)
                parameter.sub_(state["sums"].mean(0), alpha=group["lr"])


OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW, "SignMomentum": SignMomentum, "ManySums": ManySums,
}  # fmt: skip
