"""GeLU in its tanh form, ½·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))).

That is `torch.nn.functional.gelu(x, approximate="tanh")`.
"""

from __future__ import annotations

import math

import torch

from grader.judge.expected import Expected, Mistake
from grader.judge.tolerance import ROUNDOFF, Tolerance

# Derivation. float32: right kernels have rms 5e-8; computed in float16 inside 3e-4, the erf form 1e-4. 16 bits:
# a right kernel differs from the rounded reference in 0.03 % of elements and by one roundoff at most; one that
# computes in the input's dtype in 38 % and more. A hardware tanh (2^-11 relative) passes in bfloat16 (8 %)
# and fails in float16 (26 %): the handout says so. Standard normal inputs.
TOLERANCES = {
    torch.float32: Tolerance(max=1e-5, rms=1e-6),
    torch.float16: Tolerance(max=1.5 * ROUNDOFF[torch.float16], disagree=0.12),
    torch.bfloat16: Tolerance(max=1.5 * ROUNDOFF[torch.bfloat16], disagree=0.12),
}

_SLOPE = math.sqrt(2 / math.pi)


def _inner(x: torch.Tensor) -> torch.Tensor:
    return _SLOPE * (x + 0.044715 * x**3)


def tanh_form(x: torch.Tensor) -> torch.Tensor:
    """In float64."""
    x = x.double()
    return 0.5 * x * (1 + torch.tanh(_inner(x)))


def _erf_form(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def _sigmoid_form(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return x * torch.sigmoid(1.702 * x)


def _without_cube(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return 0.5 * x * (1 + torch.tanh(_SLOPE * x))


MISTAKES = (
    Mistake(
        "erf_form", _erf_form, "these are the values of the erf form of GeLU",
        "compute the tanh form: 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))",
    ),
    Mistake(
        "sigmoid_form", _sigmoid_form, "these are the values of x * sigmoid(1.702 x), a coarser approximation",
        "compute the tanh form: 0.5 * x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 * x**3)))",
    ),
    Mistake(
        "missing_cube", _without_cube, "the term 0.044715 * x**3 is missing",
        "the argument of tanh is sqrt(2/pi) * (x + 0.044715 * x**3)",
    ),
)  # fmt: skip


def gelu(x: torch.Tensor) -> Expected:
    """The right answer of `gelu(x)`."""
    # 1 + tanh(u) cancels for negative x: its rounding is relative to x/2, however small the answer is.
    least_scale = float(x.double().square().mean().sqrt()) / 2 if x.numel() else 0.0
    tolerance = TOLERANCES[x.dtype]
    return Expected.of(tanh_form, x, tolerance=tolerance, group="tensor", mistakes=MISTAKES, least_scale=least_scale)
