"""How far an answer may be from the float64 reference: three numbers, all relative to the answer's own size.

An absolute tolerance is wrong for these problems: a softmax over 16 384 columns is below 1e-2 everywhere,
so zeros would pass. With `scale` the root mean square of the reference over a group (a row, or everything):

    rms       ‖got − ref‖ ÷ ‖ref‖ per group, the worst counts           finds lower precision in float32
    max       largest |got − ref| ÷ max(|ref|, scale)                   finds single wrong elements
    disagree  share of elements that are not the reference rounded      finds half precision inside a kernel
              to the answer's dtype (16-bit answers only);              whose output is rounded anyway
              between two numbers, either is right

Tests of the grader prove each: right implementations stay under every limit, and zeros, constants, single moved
elements and the next lower precision do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

# Unit roundoff: half the distance from 1 to the next number (IEEE 754; bfloat16 keeps 8 significant bits).
ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}

# float16 numbers under 6.1e-5 are 2^-24 apart, so rounding alone moves them by up to 2^-25.
SUBNORMAL_ROUNDING = {torch.float16: 2.0**-25}

# A right kernel computes in float32, and ends within this part of a roundoff of float64. A reference that is as close
# to the middle between two numbers may be rounded to either: a row may have a few values only, and all be so.
UNDECIDED = 1 / 8

Group = Literal["row", "matrix", "tensor"]  # what has a size of its own: an answer's errors are relative to it
TRAILING = {"row": 1, "matrix": 2}  # dimensions


@dataclass(frozen=True)
class Tolerance:
    """Limits for one output; `None` means that the number is not looked at."""

    max: float
    rms: float | None = None
    disagree: float | None = None


@dataclass(frozen=True)
class Errors:
    """What an answer has of the three numbers, and which elements are over the limit for `max`."""

    max: float
    rms: float
    disagree: float  # share of all elements, less the few that chance allows
    wrong: torch.Tensor  # bool, of the answer's shape

    def within(self, tolerance: Tolerance) -> bool:
        """Whether every number that the tolerance looks at is under its limit."""
        return not self.wrong.any() and self.excess(tolerance) <= 1

    def excess(self, tolerance: Tolerance) -> float:
        """The largest of the numbers, each divided by its limit: over 1 means refused."""
        ratios = [self.max / tolerance.max]
        if tolerance.rms is not None:
            ratios.append(self.rms / tolerance.rms)
        if tolerance.disagree is not None:
            ratios.append(self.disagree / tolerance.disagree)
        return max(ratios)


def measure(
    got: torch.Tensor,
    reference: torch.Tensor,
    tolerance: Tolerance,
    group: Group,
    least_scale: float = 0.0,
    terms: torch.Tensor | None = None,
) -> Errors:
    """Compare `got` (any float dtype) with `reference` (float64) of the same shape; both finite or both not.

    Positions where the reference, rounded to the answer's dtype, is NaN or infinite must hold the same;
    they count as wrong otherwise, and are left out of the three numbers. `least_scale` is for references that
    cancel: a scale that errors are relative to even where the answers themselves are smaller. `terms`, of the
    reference's shape, is the same for `max` element by element: how large the terms are that each sums up.
    """
    if got.numel() == 0:
        return Errors(0.0, 0.0, 0.0, torch.zeros(got.shape, dtype=torch.bool))
    rounded = reference.to(got.dtype)
    finite = rounded.isfinite()
    misplaced = torch.where(finite, ~got.isfinite(), (got != rounded) & ~(got.isnan() & rounded.isnan()))
    ref = torch.where(finite, reference, 0.0)
    difference = torch.where(finite & got.isfinite(), (got.double() - ref).abs(), 0.0)
    groups = tuple(range(got.dim()))[-TRAILING[group] :] if group in TRAILING else tuple(range(got.dim()))
    scale = ref.square().mean(dim=groups, keepdim=True).sqrt() if got.dim() else ref.abs()
    scale = scale.clamp(min=least_scale)
    floor = SUBNORMAL_ROUNDING.get(got.dtype, 0.0)
    size = torch.maximum(ref.abs(), scale)
    relative = _ratio((difference - floor).clamp(min=0), size if terms is None else torch.maximum(size, terms))
    rms = _ratio(difference.square().mean(dim=groups, keepdim=True).sqrt() if got.dim() else difference, scale)
    return Errors(
        max=float(relative.max()),
        rms=float(rms.max()),
        disagree=0.0 if tolerance.disagree is None else _disagreement(got, ref, finite, tolerance.disagree),
        wrong=misplaced | (relative > tolerance.max),
    )


def _disagreement(got: torch.Tensor, ref: torch.Tensor, finite: torch.Tensor, allowed: float) -> float:
    """The share of elements that are not rounded right, less what chance adds to an allowed share.

    That is two, and three standard deviations.
    """
    nearest = (ref.to(got.dtype).double() - ref).abs() + UNDECIDED * ROUNDOFF[got.dtype] * ref.abs()
    unequal = int((((got.double() - ref).abs() > nearest) & finite & got.isfinite()).sum())
    chance = 2 + 3 * math.sqrt(allowed * got.numel())
    return max(unequal - chance, 0.0) / got.numel()


def _ratio(numerator: torch.Tensor, denominator: torch.Tensor) -> torch.Tensor:
    """Their quotient, where 0 ÷ 0 is 0: a reference that is zero throughout demands exact zeros."""
    quotient = numerator / denominator
    return torch.where(numerator == 0, 0.0, quotient)
