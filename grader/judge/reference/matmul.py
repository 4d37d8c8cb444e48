"""The product of two matrices, with an activation on it, in float64."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from grader.judge.expected import Expected
from grader.judge.reference.matmul_mistakes import FORMULAS, MISTAKES
from grader.judge.tolerance import ROUNDOFF, Tolerance

# Derivation. float32: right kernels have rms 2e-7; TF32 or float16 inside 3e-4. 16 bits, K = 1024: right kernels
# differ from the rounded reference in 0.3 % of elements, by one roundoff, and have its rms; with the accumulator in
# half precision 60 % and more, and 2.8 times its rms. The rms limit is thus 1.3 times what rounding alone gives.
#
# Three products in TF32 are float32, but tensor cores round each sum towards zero: 3 K / 8 sums, half a roundoff each,
# are 1.1e-8 K of the answer's size (measured at K = 1000: 7.2e-6; docs/measurements.md). TF32 stays six times larger.
TOLERANCES = {
    torch.float32: Tolerance(max=1e-4, rms=5e-6),
    torch.float16: Tolerance(max=1.5 * ROUNDOFF[torch.float16], disagree=0.03),
    torch.bfloat16: Tolerance(max=1.5 * ROUNDOFF[torch.bfloat16], disagree=0.03),
}
RMS_OF_ROUNDING = 1.3
OF_EACH_SUM, OF_ALL_SUMS = 1.2e-8, 4.5e-5  # that the rms limit of float32 grows by with K, and at most
LEAST_RMS_ROUNDOFFS = 0.1  # where rounding is exact by chance


def rms_of_sums(terms: int) -> float:
    """What rounding towards zero adds to the error of sums of so many terms on tensor cores, of their size."""
    return min(OF_EACH_SUM * terms, OF_ALL_SUMS)


FORM = "the result has one row for each of a, one column for each of b: " + (
    "torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)"
)


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> Expected:
    """The right answer of `matmul(a, b, activation)`."""
    # Rounding is relative to the terms of a sum, however much they cancel: to the product's size for random signs.
    terms = math.sqrt(a.shape[0] * b.shape[1] * max(a.shape[1], 1))
    size = float(a.double().norm() * b.double().norm()) / terms if terms else 0.0
    expected = Expected.of(
        FORMULAS[activation], a, b, tolerance=TOLERANCES[a.dtype], group="tensor", mistakes=MISTAKES[activation],
        form=FORM, least_scale=size / 2 if activation == "gelu" else size,
    )  # fmt: skip
    values = expected.values
    if a.dtype is torch.float32:
        rms = (expected.tolerance.rms or 0.0) + rms_of_sums(a.shape[1])
        return replace(expected, tolerance=replace(expected.tolerance, rms=rms))
    rounded = values.to(a.dtype)
    finite = rounded.isfinite()
    rounding = (rounded.double() - values)[finite].norm() / values[finite].norm().clamp(min=1e-300)
    rms = RMS_OF_ROUNDING * float(rounding) + LEAST_RMS_ROUNDOFFS * ROUNDOFF[a.dtype]
    return replace(expected, tolerance=replace(expected.tolerance, rms=rms))
