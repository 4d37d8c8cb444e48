"""Attention, its log-sum-exp and its gradients, in float64: softmax(scale · q kᵀ) v over the last two dimensions.

Each output is a formula of its own, of (q, k, v) or of (do, q, k, v): a wrong scale in dQ alone shows in dQ alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch


def scores(q: torch.Tensor, k: torch.Tensor, is_causal: bool, scale: float | None) -> torch.Tensor:
    """scale · q kᵀ with -inf where a key is not seen. Fewer heads of keys are repeated."""
    product = q.double() @ heads_like(k, q).double().mT * scale_of(q, scale)
    if not is_causal:
        return product
    queries, keys = product.shape[-2:]
    return product.masked_fill(torch.ones(queries, keys, dtype=torch.bool).triu(1), -torch.inf)


def scale_of(q: torch.Tensor, scale: float | None) -> float:
    """The scale that is given, or 1/√d."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def heads_like(k: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """k with each head repeated, so that there are as many as in q."""
    return k.repeat_interleave(share(k, q), dim=-3) if share(k, q) != 1 else k


def share(k: torch.Tensor, q: torch.Tensor) -> int:
    """How many heads of q share one of k."""
    return 1 if k.dim() < 3 or not k.shape[-3] else q.shape[-3] // k.shape[-3]


@dataclass(frozen=True)
class Output:
    """o, of (q, k, v)."""

    is_causal: bool = False
    scale: float | None = None

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(scores(q, k, self.is_causal, self.scale), dim=-1) @ heads_like(v, q).double()


@dataclass(frozen=True)
class LogSumExp:
    """lse, of (q, k, v)."""

    is_causal: bool = False
    scale: float | None = None

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(scores(q, k, self.is_causal, self.scale), dim=-1)


@dataclass(frozen=True)
class Gradient:
    """The gradient of one input, of (do, q, k, v): P = softmax(S), D = rowsum(do ∘ o), dS = P ∘ (do vᵀ − D)."""

    of: Literal["q", "k", "v"]
    is_causal: bool = False
    scale: float | None = None

    def __call__(self, do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(scores(q, k, self.is_causal, self.scale), dim=-1)
        do = do.double()
        if self.of == "v":
            return over_group(weights.mT @ do, v)
        products = do @ heads_like(v, q).double().mT
        row_sums = (weights * products).sum(-1, keepdim=True)
        ds = scale_of(q, self.scale) * weights * (products - row_sums)
        return ds @ heads_like(k, q).double() if self.of == "q" else over_group(ds.mT @ q.double(), k)

    def terms(self, do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """How large each sum would be with random signs of its terms: they cancel, their rounding does not."""
        weights = torch.softmax(scores(q, k, self.is_causal, self.scale), dim=-1)
        do = do.double()
        if self.of == "v":
            return over_group(weights.mT.square() @ do.square(), v).sqrt()
        products = do @ heads_like(v, q).double().mT
        row_sums = (weights * products).sum(-1, keepdim=True)
        ds = (scale_of(q, self.scale) * weights).square() * (products.square() + row_sums.square())
        if self.of == "q":
            return (ds @ heads_like(k, q).double().square()).sqrt()
        return over_group(ds.mT @ q.double().square(), k).sqrt()


def over_group(gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The sum over the heads of queries that share a head of keys."""
    if gradient.shape == like.shape:
        return gradient
    return gradient.reshape(*like.shape[:-2], -1, *gradient.shape[-2:]).sum(-3)
