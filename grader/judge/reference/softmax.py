"""Softmax over the last dimension and its gradient, in float64."""

from __future__ import annotations

from dataclasses import replace

import torch

from grader.judge.expected import Expected, Formula, Mistake
from grader.judge.tolerance import ROUNDOFF, UNDECIDED, Tolerance

# Derivation. float32: right kernels have rms 5e-7 up to 8192 columns and 4e-6 at 65 536 (the order of the sum);
# with a float16 sum 6e-4 and more. 16 bits: right kernels differ from the rounded reference in 0.01 % of
# elements, with a sum in half precision in 15 to 90 %.
TOLERANCES = {
    torch.float32: Tolerance(max=1e-4, rms=1e-5),
    torch.float16: Tolerance(max=1.5 * ROUNDOFF[torch.float16], disagree=0.03),
    torch.bfloat16: Tolerance(max=1.5 * ROUNDOFF[torch.bfloat16], disagree=0.03),
}
LONG_ROW = 8192
LONG_ROW_RMS = 5e-5
COMMON_BLOCKS = (128, 256, 512, 1024, 2048, 4096, 8192)  # columns; of tiles that do not follow the row's length

# Derivation. dx = y·(dy − Σ dy·y). A kernel may save y rounded to its dtype, as PyTorch does: then it is up to
# 1.9 roundoffs off for standard normal logits, where one that recomputes y stays within 1. Half precision inside
# shows when dy has a mean m: the sum is about m, rounded by m roundoffs, and m cancels in dy − Σ. With m = 8 and
# logits up to ±2 (so that no element is far above the others) that is 20 roundoffs and more, with a rounded y 3.
# float32: right kernels have rms 1e-7 (m = 8: 1e-6), with float16 inside 4e-4.
GRADIENT_TOLERANCES = {
    torch.float32: Tolerance(max=3e-4, rms=3e-5),
    torch.float16: Tolerance(max=8 * ROUNDOFF[torch.float16]),
    torch.bfloat16: Tolerance(max=8 * ROUNDOFF[torch.bfloat16]),
}


def _softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=-1)


def _without_maximum(x: torch.Tensor) -> torch.Tensor:
    power = torch.exp(x.float())
    return power / power.sum(-1, keepdim=True)


def _global_maximum(x: torch.Tensor) -> torch.Tensor:
    """In float32, where a row far below the largest logit of all underflows to 0 / 0."""
    power = torch.exp(x.float() - x.float().max())
    return power / power.sum(-1, keepdim=True)


def _padding_counts(block: int | None) -> Formula:
    """The row padded with zeros to whole blocks, or to a power of two: a load without `other` on the interpreter."""

    def padded_softmax(x: torch.Tensor) -> torch.Tensor:
        columns = x.shape[-1]
        padding = -columns % block if block else (1 << (columns - 1).bit_length()) - columns
        return torch.softmax(torch.nn.functional.pad(x.double(), (0, padding)), dim=-1)[..., :columns]

    return padded_softmax


def _empty_rows_zero(x: torch.Tensor) -> torch.Tensor:
    return torch.where((x == -torch.inf).all(-1, keepdim=True), 0.0, _softmax(x))


def _first_dimension(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double(), dim=0)


def _all_but_first_dimension(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double().reshape(x.shape[0], -1), dim=-1).reshape(x.shape)


def _base_two(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x.double() * 0.6931471805599453, dim=-1)


def _not_divided(x: torch.Tensor) -> torch.Tensor:
    x = x.double()
    return torch.exp(x - x.amax(-1, keepdim=True))


MISTAKES = (
    Mistake(
        "missing_maximum", _without_maximum,
        "exp overflows: the maximum of the row is not subtracted before it",
        "subtract the row's maximum from every element first; the result is the same and exp stays at most 1",
    ),
    Mistake(
        "global_maximum", _global_maximum,
        "the maximum of the whole input is subtracted: exp underflows in rows far below it, and 0 / 0 is NaN",
        "subtract from each row its own maximum",
    ),
    Mistake(
        "empty_row", _empty_rows_zero, "rows of -inf only come out as zeros, all others are right",
        "a row of -inf only gives NaN, as in PyTorch: pad with -float('inf') and divide without a guard",
    ),
    *(
        Mistake(
            "padding_counted", _padding_counts(block),
            "the padded columns of the block are counted as logits of 0 in the row's sum",
            "load with other=-float('inf'), so that exp gives 0 for the columns that do not exist",
        )
        for block in (None, *COMMON_BLOCKS)
    ),
    Mistake(
        "wrong_dimension", _first_dimension, "these are the values of a softmax over the first dimension",
        "normalise over the last dimension: each row sums to 1",
    ),
    Mistake(
        "flattened_dimensions", _all_but_first_dimension,
        "these are the values of a softmax over all dimensions but the first",
        "normalise over the last dimension only: x.reshape(-1, x.shape[-1]) has the rows",
    ),
    Mistake(
        "base_two", _base_two, "these are powers of 2, not of e",
        "exp(x) is exp2(x * 1.44269504): multiply by log2(e), after the maximum is subtracted",
    ),
    Mistake(
        "not_normalised", _not_divided, "the exponentials are not divided by their sum",
        "divide each row by the sum of its exponentials",
    ),
)  # fmt: skip


def softmax(x: torch.Tensor) -> Expected:
    """The right answer of `softmax(x)`."""
    tolerance = TOLERANCES[x.dtype]
    # exp2(x·log2(e) − m·log2(e)) is right, too, and rounds both products by half a unit of their last place in float32.
    largest = float(torch.where(x.isfinite(), x, 0).abs().max()) if x.numel() else 0.0
    rounded = 2 * ROUNDOFF[torch.float32] * largest
    tolerance = replace(tolerance, max=tolerance.max + 2 * rounded)
    if tolerance.rms is not None:
        tolerance = replace(tolerance, rms=(tolerance.rms if x.shape[-1] <= LONG_ROW else LONG_ROW_RMS) + rounded)
    if tolerance.disagree is not None:
        # Numbers of a dtype are at least one roundoff apart, so a shift by a part of it moves at most that part over.
        shifted = max(rounded / ROUNDOFF[x.dtype] - UNDECIDED, 0.0)
        tolerance = replace(tolerance, disagree=tolerance.disagree + shifted)
    return Expected.of(_softmax, x, tolerance=tolerance, group="row", mistakes=MISTAKES)


def _gradient(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    y = _softmax(x)
    return y * (dy.double() - (dy.double() * y).sum(-1, keepdim=True))


def _gradient_without_sum(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return _softmax(x) * dy.double()


def _gradient_passed_through(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return dy.double()


def _gradient_from_logits(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    return x.double() * (dy.double() - (dy.double() * x.double()).sum(-1, keepdim=True))


GRADIENT_MISTAKES = (
    Mistake(
        "missing_row_sum", _gradient_without_sum, "the sum over the row is missing: this is y * dy",
        "the gradient is y * (dy - sum(dy * y)), the sum over the row: all logits share one denominator",
    ),
    Mistake(
        "gradient_passed_through", _gradient_passed_through, "the incoming gradient is returned as it came",
        "the gradient is y * (dy - sum(dy * y)), the sum over the row",
    ),
    Mistake(
        "logits_for_probabilities", _gradient_from_logits, "this is the formula with x in place of y",
        "save y in the forward, ctx.save_for_backward(y), or compute it anew from x",
    ),
)  # fmt: skip


def gradient(x: torch.Tensor, dy: torch.Tensor) -> Expected:
    """The right gradient of `softmax(x)` with respect to x, for the incoming gradient `dy`."""
    return Expected.of(
        _gradient, x, dy, tolerance=GRADIENT_TOLERANCES[x.dtype], group="tensor", mistakes=GRADIENT_MISTAKES
    )
