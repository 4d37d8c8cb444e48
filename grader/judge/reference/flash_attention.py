"""What flash attention is compared with: o, its log-sum-exp and its gradients, with their tolerances.

The formulas are in `attention`, those of known mistakes in `attention_mistakes`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch

from grader.judge.expected import Expected
from grader.judge.reference import attention_mistakes
from grader.judge.reference.attention import Gradient, LogSumExp, Output, scores
from grader.judge.tolerance import ROUNDOFF, Tolerance

# Derivation, simulated on a CPU with several orders of tiles. float32: right kernels have rms 4e-7 (with queries four
# times as large 8e-7), TF32 3.5e-4. 16 bits: the rms of right kernels is up to 1.4 times that of rounding alone, since
# the probabilities are rounded before their product, and single elements are up to 4 roundoffs off; a sum in half
# precision has 4.3 times at 2048 keys, scores in half precision 1.8 to 6 times.
ROUNDING_RMS = {torch.float16: 2.1e-4, torch.bfloat16: 1.7e-3}  # of normal data
OUTPUT_TOLERANCES = {
    torch.float32: Tolerance(max=1e-4, rms=1e-5),
    torch.float16: Tolerance(max=8 * ROUNDOFF[torch.float16], rms=1.9 * ROUNDING_RMS[torch.float16]),
    torch.bfloat16: Tolerance(max=8 * ROUNDOFF[torch.bfloat16], rms=1.9 * ROUNDING_RMS[torch.bfloat16]),
}
# The log-sum-exp is float32 for every dtype: 2e-5 below 10, 2e-6 of its size above. Right kernels have 1e-6; TF32 2e-4,
# scores in half precision 7e-5 and more, a sum of probabilities that were rounded to float16 6e-5 at 100 keys.
LSE_TOLERANCE, LSE_SCALE = Tolerance(max=2e-6), 10.0
# Gradients: float32 rms 6e-7, TF32 4.5e-4. 16 bits: right ones 1.4 to 2.2 times rounding, sums in half precision 2.4 to
# 4.2 times at 512 keys and more. Single elements of right ones are up to 22 roundoffs off.
GRADIENT_TOLERANCES = {
    torch.float32: Tolerance(max=2e-4, rms=1e-5),
    torch.float16: Tolerance(max=40 * ROUNDOFF[torch.float16], rms=2.0 * ROUNDING_RMS[torch.float16]),
    torch.bfloat16: Tolerance(max=40 * ROUNDOFF[torch.bfloat16], rms=2.0 * ROUNDING_RMS[torch.bfloat16]),
}
FEW = 256  # elements of a head: rounding has no settled rms in fewer

O_FORM = "o has the shape, dtype and device of q: torch.empty(q.shape, dtype=q.dtype, device=q.device)"
LSE_FORM = (
    "lse has one float32 number for each row of q: torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)"
)
GRADIENT_FORM = (
    "each gradient has the shape, dtype and device of its input: torch.empty(q.shape, dtype=q.dtype, device=q.device)"
)


def output(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> Expected:
    """The right o."""
    return Expected.of(
        Output(is_causal, scale), q, k, v, group="matrix", form=O_FORM,
        mistakes=attention_mistakes.of_forward("o", q, k, is_causal, scale),
        tolerance=_settled(OUTPUT_TOLERANCES[q.dtype], q, _rounding_of_scores(q, k, scale)),
    )  # fmt: skip


def log_sum_exp(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> Expected:
    """The right lse."""
    return Expected.of(
        LogSumExp(is_causal, scale), q, k, v, tolerance=LSE_TOLERANCE, group="row", least_scale=LSE_SCALE,
        form=LSE_FORM, mistakes=attention_mistakes.of_forward("lse", q, k, is_causal, scale), dtype=torch.float32,
    )  # fmt: skip


def gradients(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Expected, Expected, Expected]:  # fmt: skip
    """The right dq, dk and dv."""
    found, rounded = [], _rounding_of_scores(q, k, scale)
    names: tuple[tuple[Literal["q", "k", "v"], torch.Tensor], ...] = (("q", q), ("k", k), ("v", v))
    for name, like in names:
        formula = Gradient(name, is_causal, scale)
        terms = formula.terms(do, q, k, v)
        found.append(Expected.of(
            formula, do, q, k, v, tolerance=_settled(GRADIENT_TOLERANCES[q.dtype], like, rounded),
            group="matrix", mistakes=attention_mistakes.of_gradient(name, q, k, v, is_causal, scale),
            least_scale=_rms(terms), terms=terms, form=GRADIENT_FORM, dtype=q.dtype,
        ))  # fmt: skip
    dq, dk, dv = found
    return dq, dk, dv


def _rms(x: torch.Tensor) -> float:
    return math.sqrt(float(x.square().mean())) if x.numel() else 0.0


def _settled(tolerance: Tolerance, like: torch.Tensor, rounded: float) -> Tolerance:
    """Widened by the rounding of scores, and without the rms where a head has too few elements for it."""
    rms = None if like.dtype is not torch.float32 and like.shape[-2:].numel() < FEW else tolerance.rms
    return replace(tolerance, max=tolerance.max + 4 * rounded, rms=None if rms is None else rms + rounded)


def _rounding_of_scores(q: torch.Tensor, k: torch.Tensor, scale: float | None) -> float:
    """How far off a float32 score is: of a sum of d products, whose error grows as √d, and its product with log2(e)."""
    products = scores(q.abs(), k.abs(), False, None if scale is None else abs(scale))
    largest = float(products.max()) if products.numel() else 0.0
    return float(ROUNDOFF[torch.float32] * (2 + math.sqrt(q.shape[-1])) * largest)
