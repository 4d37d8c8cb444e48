"""Attention, its log-sum-exp and its gradients, in float64: softmax(scale · q kᵀ) v over the last two dimensions.

Each output is a formula of its own, of (q, k, v) or of (do, q, k, v): a wrong scale in dQ alone shows in dQ alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch

from grader.judge.expected import Expected, Mistake
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

O_FORM = "o is like q: torch.empty_like(q)"
LSE_FORM = (
    "lse has one float32 number for each row of q: torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)"
)
GRADIENT_FORM = "each gradient has the shape, dtype and device of its input: torch.empty_like(q)"

Alignment = Literal["top-left", "bottom-right", "strict"]


def scores(
    q: torch.Tensor, k: torch.Tensor, is_causal: bool, scale: float | None, alignment: Alignment = "top-left"
) -> torch.Tensor:
    """scale · q kᵀ with -inf where a key is not seen. Fewer heads of keys are repeated."""
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    product = q.double() @ heads_like(k, q).double().mT * scale
    if not is_causal:
        return product
    queries, keys = product.shape[-2:]
    shift = {"top-left": 1, "bottom-right": 1 + keys - queries, "strict": 0}[alignment]
    hidden = torch.ones(queries, keys, dtype=torch.bool).triu(shift)
    return product.masked_fill(hidden, -torch.inf)


def heads_like(k: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """k with each head repeated, so that there are as many as in q."""
    if k.dim() < 3 or k.shape[-3] == q.shape[-3] or not k.shape[-3]:
        return k
    return k.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3)


@dataclass(frozen=True)
class Output:
    """o, of (q, k, v); other fields than the first two make it a mistake that students are known to make."""

    is_causal: bool = False
    scale: float | None = None
    alignment: Alignment = "top-left"
    padding: int = 0  # keys of zeros that are counted as well
    stable: bool = True  # False: in float32, and no maximum is subtracted

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        s = scores(q, k, self.is_causal, self.scale, self.alignment)
        if self.padding:
            extra = -s.shape[-1] % self.padding
            s = torch.nn.functional.pad(s, (0, extra))
        v = heads_like(v, q)
        if (
            not self.stable
        ):  # where the sum overflows, but no single weight, 0 or NaN: so by the kernel's order of steps
            power = torch.exp(s.float())
            return (power[..., : k.shape[-2]] @ v.float() / power.sum(-1, keepdim=True)).double()
        return torch.softmax(s, dim=-1)[..., : k.shape[-2]] @ v.double()


@dataclass(frozen=True)
class LogSumExp:
    """lse, of (q, k, v)."""

    is_causal: bool = False
    scale: float | None = None
    base: float = math.e

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(scores(q, k, self.is_causal, self.scale), dim=-1) / math.log(self.base)


@dataclass(frozen=True)
class Gradient:
    """The gradient of one input, of (do, q, k, v): P = softmax(S), D = rowsum(do ∘ o), dS = P ∘ (do vᵀ − D)."""

    of: Literal["q", "k", "v"]
    is_causal: bool = False
    scale: float | None = None
    factor: float = 1.0
    without_row_sum: bool = False

    def __call__(self, do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scale = 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale
        weights = torch.softmax(scores(q, k, self.is_causal, self.scale), dim=-1)
        do = do.double()
        if self.of == "v":
            return self.factor * _over_group(weights.mT @ do, v)
        products = do @ heads_like(v, q).double().mT
        row_sums = 0.0 if self.without_row_sum else (weights * products).sum(-1, keepdim=True)
        ds = self.factor * scale * weights * (products - row_sums)
        return ds @ heads_like(k, q).double() if self.of == "q" else _over_group(ds.mT @ q.double(), k)

    def terms(self, do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> float:
        """The rms that a sum of the same terms would have with random signs: they cancel, their rounding does not."""
        scale = 1 / math.sqrt(q.shape[-1]) if self.scale is None else self.scale
        weights = torch.softmax(scores(q, k, self.is_causal, self.scale), dim=-1)
        do = do.double()
        if self.of == "v":
            summed = weights.mT.square() @ do.square()
        else:
            products = do @ heads_like(v, q).double().mT
            row_sums = (weights * products).sum(-1, keepdim=True)
            ds = (scale * weights).square() * (products.square() + row_sums.square())
            summed = ds @ heads_like(k, q).double().square() if self.of == "q" else ds.mT @ q.double().square()
        return math.sqrt(float(summed.mean())) if summed.numel() else 0.0


def _over_group(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The sum over the heads of queries that share a head of keys."""
    if gradient.shape == like.shape:
        return gradient
    return gradient.reshape(*like.shape[:-2], -1, *gradient.shape[-2:]).sum(-3)


def output(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> Expected:
    """The right o."""
    mistakes = [
        Mistake(
            "missing_maximum", Output(is_causal, scale, stable=False),
            "exp overflows: the largest score so far is not subtracted before it",
            "subtract it from every score of the row first, and rescale what was summed when it grows",
        ),
        *(
            Mistake(
                "padded_keys_counted", Output(is_causal, scale, padding=block),
                "the keys that pad the last tile are counted, with scores of 0",
                "set the scores of keys from n_k on to -float('inf'), before the maximum: their weight is then 0",
            )
            for block in (16, 32, 64, 128)
        ),
    ]  # fmt: skip
    if is_causal:
        mistakes += [
            Mistake(
                "causal_ignored", Output(False, scale), "every query sees every key",
                "with is_causal, query i sees keys j <= i",
            ),
            Mistake(
                "causal_off_by_one", Output(True, scale, "strict"), "query i sees keys j < i only",
                "let query i see key i, too: j <= i",
            ),
            Mistake(
                "causal_bottom_right", Output(True, scale, "bottom-right"), "the mask is aligned at the bottom right",
                "here it is aligned at the top left: query i sees keys j <= i, however many keys there are",
            ),
        ]  # fmt: skip
    if scale is not None:
        mistakes.append(
            Mistake(
                "scale_ignored",
                Output(is_causal),
                "the scale that was given is not used",
                "use it where it is not None",
            )
        )
    mistakes += [
        Mistake("scale_fixed", Output(is_causal, 1 / 8), "the scale is 1/8, as for d = 64", "it is 1/sqrt(d)"),
        Mistake("scale_missing", Output(is_causal, 1.0), "the scores are not scaled", "multiply them by 1/sqrt(d)"),
    ]
    return Expected.of(
        Output(is_causal, scale), q, k, v, group="matrix", mistakes=tuple(mistakes), form=O_FORM,
        tolerance=_settled(OUTPUT_TOLERANCES[q.dtype], q, _largest(q, k, scale)),
    )  # fmt: skip


def log_sum_exp(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> Expected:
    """The right lse."""
    mistakes = (
        Mistake(
            "base_two", LogSumExp(is_causal, scale, 2.0), "this is the logarithm to base 2",
            "multiply it by log(2): the natural logarithm is due",
        ),
        Mistake(
            "scale_missing", LogSumExp(is_causal, 1.0), "the scores are not scaled", "the scale is part of the scores",
        ),
    )  # fmt: skip
    return Expected.of(
        LogSumExp(is_causal, scale), q, k, v, tolerance=LSE_TOLERANCE, group="row", mistakes=mistakes,
        least_scale=LSE_SCALE, form=LSE_FORM, dtype=torch.float32,
    )  # fmt: skip


def gradients(
    do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool = False,
    scale: float | None = None,
) -> tuple[Expected, Expected, Expected]:  # fmt: skip
    """The right dq, dk and dv."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    found = []
    for name, like in (("q", q), ("k", k), ("v", v)):
        formula = Gradient(name, is_causal, scale)  # type: ignore[arg-type]
        mistakes = [
            Mistake(
                "scale_missing", replace(formula, factor=1 / factor if factor else 0.0),
                f"d{name} is off by the factor {1 / factor if factor else 0.0:.4g}: a scale is missing",
                "the scores are scaled, so dq and dk are, too",
            ),
            Mistake(
                "scale_twice", replace(formula, factor=factor),
                f"d{name} is off by the factor {factor:.4g}: it is scaled twice",
                "apply the scale to dq and dk once, at the end",
            ),
            Mistake(
                "missing_row_sum", replace(formula, without_row_sum=True), "D is missing: this is P * dP",
                "dS = P * (dP - D), with D = rowsum(do * o)",
            ),
        ]  # fmt: skip
        tolerance = _settled(GRADIENT_TOLERANCES[q.dtype], like, _largest(q, k, scale))
        found.append(Expected.of(
            formula, do, q, k, v, tolerance=tolerance, group="matrix", mistakes=tuple(mistakes if name != "v" else ()),
            least_scale=formula.terms(do, q, k, v), form=GRADIENT_FORM, dtype=q.dtype,
        ))  # fmt: skip
    dq, dk, dv = found
    return dq, dk, dv


def _settled(tolerance: Tolerance, like: torch.Tensor, largest_score: float) -> Tolerance:
    """Widened by the rounding of the largest score, and without the rms where a head has too few elements for it."""
    rounded = 2 * ROUNDOFF[torch.float32] * largest_score
    rms = None if like.dtype is not torch.float32 and like.shape[-2:].numel() < FEW else tolerance.rms
    return replace(tolerance, max=tolerance.max + 4 * rounded, rms=None if rms is None else rms + rounded)


def _largest(q: torch.Tensor, k: torch.Tensor, scale: float | None) -> float:
    """The size of the largest score."""
    products = scores(q, k, False, scale)
    return float(products.abs().max()) if products.numel() else 0.0
