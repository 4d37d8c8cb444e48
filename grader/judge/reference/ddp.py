"""The mean of gradients over ranks, and the first rank's weights on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from grader.judge.expected import Expected, Mistake
from grader.judge.tolerance import ROUNDOFF, Tolerance

# Derivation. float32: a sum over four ranks in any order, from gradients that another order of a batch's sum has
# rounded, has rms 1e-7 at the first step and 1e-6 after five; a sum for a mean is off by its whole size. 16 bits: the
# gradients, their sum and its quotient are each rounded, and after a step the weights are.
TOLERANCES = {
    torch.float32: Tolerance(max=1e-4, rms=1e-5),
    torch.bfloat16: Tolerance(max=16 * ROUNDOFF[torch.bfloat16], rms=8 * ROUNDOFF[torch.bfloat16]),
}
EXACT = Tolerance(max=1e-12)  # a copy has no rounding
ADVICE = "try it with two ranks: print this tensor on each before and after the collective"
FORM = "one gradient for each parameter, of its shape and dtype"


def _mean(*local: torch.Tensor) -> torch.Tensor:
    return _sum(*local) / len(local)


def _sum(*local: torch.Tensor) -> torch.Tensor:
    return torch.stack([one.double() for one in local]).sum(0)


def _half(*local: torch.Tensor) -> torch.Tensor:
    return _sum(*local) / 2


def _mean_of_users(*local: torch.Tensor) -> torch.Tensor:
    """Divided by the number of ranks that have a gradient other than zero."""
    return _sum(*local) / max(sum(bool(one.any()) for one in local), 1)


def _twice_divided(*local: torch.Tensor) -> torch.Tensor:
    return _sum(*local) / len(local) ** 2


def _divided_by_world(world: int) -> Mistake:
    return Mistake(
        "divided_by_world", lambda *local: _sum(*local) / world,
        f"the sum is divided by {world}, the number of all ranks, not of the process group",
        "divide by dist.get_world_size(process_group): without an argument it counts all ranks",
    )  # fmt: skip


def _mistakes(position: int, earlier: torch.Tensor | None, ranks: int, world: int) -> tuple[Mistake, ...]:
    """What a gradient is mistaken for, on the rank at this position of its group of so many ranks."""
    others = (
        *([_divided_by_world(world)] if world > ranks else []),
        Mistake(
            "sum_for_mean", _sum, "this is the sum over all ranks, not their mean",
            "divide by dist.get_world_size(process_group), before or after the reduction",
        ),
        Mistake(
            "not_reduced", lambda *local: local[position].double(),
            "this is the gradient of this rank's own batch: nothing has come from the others",
            "all-reduce it, wait for the reduction, and write what came back into .grad; a bucket that has a parameter "
            "which no backward reached is never complete: send it in finish_gradient_synchronization",
        ),
        Mistake(
            "divided_by_two", _half, "the sum is divided by 2, whatever the number of ranks is",
            "divide by dist.get_world_size(process_group)",
        ),
        Mistake(
            "mean_of_users", _mean_of_users, "the sum is divided by the number of ranks that used this parameter",
            "a rank that did not use it counts as zero: divide by the number of all ranks",
        ),
        Mistake(
            "twice_divided", _twice_divided, "the mean is divided by the number of ranks once more",
            "divide once: before the reduction or after it",
        ),
    )  # fmt: skip
    if earlier is None:
        return others
    stale = Mistake(
        "stale_gradient", lambda *_: earlier, "this is the gradient of the step before",
        "fill the bucket anew in each step, and forget handles and flags of the step before",
    )  # fmt: skip
    added = Mistake(
        "added_to_the_last", lambda *local: _mean(*local) + earlier, "the gradient of the step before is added to it",
        "begin each step with empty buckets",
    )  # fmt: skip
    return (*others, stale, added)


def _mixed_up(name: str, sum_of_both: torch.Tensor) -> Mistake:
    return Mistake(
        "parameters_mixed_up", lambda *local: sum_of_both / len(local),
        f"on some ranks this is added to the gradient of {name} on others: their calls come in another order",
        "reduce the same parameters in the same order on every rank, whatever it has used and whatever was ready "
        "first; one that has not used a parameter gives zeros",
    )  # fmt: skip


def gradient(
    local: Sequence[torch.Tensor],
    position: int,
    dtype: torch.dtype,
    earlier: torch.Tensor | None,
    mixed_up: Mapping[str, torch.Tensor],
    world: int,
    advice: str = ADVICE,
) -> Expected:
    """The mean of all ranks' gradients of one parameter, due on the rank at this position.

    `earlier` is the right answer of the step before, and `mixed_up` has sums over the ranks in which another parameter
    stands for this one where it was not used. `world` is the number of all ranks, of which the group has some.
    """
    scale = max(float(one.double().square().mean().sqrt()) for one in local) / len(local)
    known = _mistakes(position, earlier, len(local), world)
    return Expected.of(
        _mean, *local, tolerance=TOLERANCES[dtype], group="tensor",
        mistakes=(*known, *(_mixed_up(name, both) for name, both in mixed_up.items())),
        least_scale=scale, form=FORM, dtype=dtype, advice=advice,
    )  # fmt: skip


def weight(first: torch.Tensor, own: torch.Tensor) -> Expected:
    """A parameter or buffer of the first rank, due on all, bit for bit; `own` is what a rank had before."""
    mistakes = (
        Mistake(
            "own_weights", lambda _, before: before.double(),
            "this rank still has its own: the first rank's did not come",
            "broadcast every parameter and every buffer from the group's first rank, and write it in place",
        ),
        Mistake(
            "mean_of_weights", lambda one, before: (one.double() + before.double()) / 2,
            "this is the mean of the ranks' weights", "broadcast the first rank's: dist.broadcast, not dist.all_reduce",
        ),
    )  # fmt: skip
    return Expected.of(
        lambda one, _: one.double(), first, own, tolerance=EXACT, group="tensor",
        mistakes=mistakes, form="the values of the first rank", dtype=first.dtype, advice=ADVICE,
    )  # fmt: skip


def output(values: torch.Tensor, training: torch.Tensor) -> Expected:
    """The network's own output (rows, outputs) float32, in evaluation mode; `training` is that of the other mode."""
    mistakes = (
        Mistake(
            "training_mode", lambda _, other: other.double(), "this is the output in training mode",
            "train() and eval() of the wrapper have to reach the module: make it a submodule, self.module = module",
        ),
    )  # fmt: skip
    return Expected.of(
        lambda right, _: right.double(), values, training, tolerance=TOLERANCES[torch.float32], group="tensor",
        mistakes=mistakes, form="what the module returns", dtype=torch.float32, advice=ADVICE,
    )  # fmt: skip
