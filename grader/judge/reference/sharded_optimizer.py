"""What a sharded optimizer leaves in the parameters: the same as the optimizer itself that holds all state."""

from __future__ import annotations

import torch

from grader.judge.expected import Expected, Mistake
from grader.judge.optimization import OptimizationDraw, Values
from grader.judge.tolerance import Tolerance

# Derivation. Right ones differ from float64 by 1e-7 a step; a step that is left out, or has another learning rate,
# changes an element by about the learning rate, 1e-2.
TOLERANCE = Tolerance(max=1e-4, rms=1e-5)
ADVICE = "try it with two ranks: print this parameter on each before and after step()"

# What is left out of the reference, and how it is told.
LEFT_OUT = (
    (
        "schedule", "scheduler_ignored", "the learning rate of the scheduler is not used: it stays as it was",
        "a scheduler changes param_groups of your optimizer: copy them to the inner optimizer before each step",
    ),
    (
        "groups", "groups_ignored", "options of the groups are not used: all parameters are stepped alike",
        "give the inner optimizer groups, too, with the options of the group that a parameter came from",
    ),
    (
        "added", "group_not_added", "the group that was added later is not stepped",
        "add_param_group gives the new parameters to ranks, too, and their share to the inner optimizer",
    ),
    (
        "state", "state_lost", "the state is lost: this is what a new optimizer does",
        "load_state_dict has to give the share to the inner optimizer; super().load_state_dict makes a new self.state",
    ),
)  # fmt: skip


def parameter(draw: OptimizationDraw, step: int, index: int, right: Values) -> Expected:
    """One parameter after a step, float32, due on every rank; `right` is the whole reference."""
    before = draw.start[index].double()
    last = right[step - 1][index] if step else before

    def without(what: str) -> torch.Tensor:
        return draw.reference(without=(what,))[step][index]

    case = draw.case
    relevant = {"schedule": case.schedule, "groups": case.groups, "added": case.added, "state": case.reloaded}
    mistakes = (
        *(
            Mistake(name, lambda _, what=what: without(what), why, hint)
            for what, name, why, hint in LEFT_OUT
            if relevant[what]
        ),
        Mistake(
            "never_updated", lambda _: before, "the parameter is as it was at the start",
            "after the step each rank has to get the parameters of the others: dist.broadcast from their owners",
        ),
        Mistake(
            "not_updated", lambda _: last, "the parameter is as it was before this step",
            "after the step each rank has to get the parameters of the others: dist.broadcast from their owners",
        ),
        Mistake(
            "closure_called_twice", lambda _: draw.reference(calls=2)[step][index],
            "the closure was called twice: this comes of the gradients of its second call",
            "call the closure once, before the inner step, and do not pass it on",
        ),
    )  # fmt: skip
    return Expected.of(
        lambda one: one, right[step][index], tolerance=TOLERANCE, group="tensor", mistakes=mistakes,
        form="parameters are updated in place", dtype=torch.float32, advice=ADVICE,
    )  # fmt: skip


def loss(value: torch.Tensor, second: torch.Tensor) -> Expected:
    """What `step(closure)` returns: the closure's own loss, a float32 number; `second` is that of a second call."""
    twice = Mistake(
        "closure_called_twice", lambda *_: second.double(), "this is what the closure's second call returned",
        "call the closure once, before the inner step, and do not pass it on",
    )  # fmt: skip
    return Expected.of(
        lambda one: one.double(), value, tolerance=Tolerance(max=1e-12), group="tensor", mistakes=(twice,),
        form="step returns what the closure returned", dtype=torch.float32, advice="return the closure's loss",
    )  # fmt: skip
