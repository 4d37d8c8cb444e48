"""Attention with a fault: o and the log-sum-exp by `Forward`, one gradient by `Backward`, in float64.

Both go over whole matrices, as the reference does. Which faults there are, and what is said of each, is in
`attention_mistakes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from grader.judge.reference.attention import heads_like, over_group, scale_of, scores, share

LOG_2 = math.log(2)


class At(NamedTuple):
    """Indices of queries, as a column, and of keys, as a row, and how many there are."""

    query: torch.Tensor
    key: torch.Tensor
    queries: int
    keys: int


Sees = Callable[[At], torch.Tensor]  # which query sees which key


def every_key(at: At) -> torch.Tensor:
    return (at.query >= 0) & (at.key < at.keys)


def top_left(at: At) -> torch.Tensor:
    return at.key <= at.query


def strictly_before(at: At) -> torch.Tensor:
    return at.key < at.query


def bottom_right(at: At) -> torch.Tensor:
    return at.key <= at.query + at.keys - at.queries


def up_to_the_diagonal(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """Only tiles of keys that end before a tile of queries begins."""
    return at.key < at.query // of_queries * of_queries // of_keys * of_keys


def across_the_diagonal(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """All of each tile of keys in which the last query of a tile sees one."""
    after = (at.query // of_queries + 1) * of_queries
    return at.key < (after + of_keys - 1) // of_keys * of_keys


def from_tile_after(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """Of the tiles of queries that see a tile of keys, all but the first."""
    return at.query >= (at.key // of_keys * of_keys // of_queries + 1) * of_queries


def after_the_diagonal(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """Only tiles of queries from the one on in which a tile of keys ends."""
    return at.query >= (at.key // of_keys + 1) * of_keys // of_queries * of_queries


def before_the_diagonal(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """All of each tile of queries that sees the first key of a tile."""
    return at.query >= at.key // of_keys * of_keys // of_queries * of_queries


def first_tile_of_queries(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """The first tile of queries that sees a tile of keys, and no other."""
    return ~from_tile_after(of_queries, of_keys, at)


def keys_before(end: int, at: At) -> torch.Tensor:
    return (at.query >= 0) & (at.key < end)


def keys_from(first: int, at: At) -> torch.Tensor:
    return (at.query >= 0) & (at.key >= first)


def queries_before(end: int, at: At) -> torch.Tensor:
    return (at.query < end) & (at.key >= 0)


def queries_from(first: int, at: At) -> torch.Tensor:
    return (at.query >= first) & (at.key >= 0)


def last_keys_hidden(tile: int, at: At) -> torch.Tensor:
    """Whether a query sees nothing of the last tile of keys."""
    return at.query < at.key // tile * tile


def first_visited_hidden(of_queries: int, of_keys: int, at: At) -> torch.Tensor:
    """Whether a query sees nothing of the last tile of keys in which another one of its tile sees something."""
    last = torch.minimum(at.key, (at.query // of_queries + 1) * of_queries - 1)
    return at.query < last // of_keys * of_keys


def together(one: Sees, other: Sees, at: At) -> torch.Tensor:
    return one(at) & other(at)


class Sums(NamedTuple):
    """What a forward has after the last tile: weights whose product with v is a, weights whose sum is l, and m."""

    of_values: torch.Tensor
    of_weights: torch.Tensor
    maximum: torch.Tensor


def right_sums(s: torch.Tensor) -> Sums:
    maximum = s.amax(-1, keepdim=True)
    weights = torch.exp(s - maximum)
    return Sums(weights, weights, maximum)


def no_maximum(s: torch.Tensor) -> Sums:
    """In float32: where the sum overflows, but no single weight, 0 or NaN, so by the kernel's order of steps."""
    weights = torch.exp(s.float())
    return Sums(weights, weights, torch.zeros_like(weights[..., :1]))


def maximum_kept_out(tile: int, s: torch.Tensor) -> Sums:
    """exp(s) in place of exp(s - n), and all the rest as it ought to be."""
    maximum = s.amax(-1, keepdim=True)
    weights = torch.exp(s - maximum + _so_far(s, tile))
    return Sums(weights, weights, maximum)


def not_rescaled(tile: int, values: bool, weights: bool, s: torch.Tensor) -> Sums:
    """a or l keeps what was summed with an earlier maximum as it was."""
    right = right_sums(s)
    as_it_was = torch.exp(s - _so_far(s, tile))
    return right._replace(
        of_values=as_it_was if values else right.of_values, of_weights=as_it_was if weights else right.of_weights
    )


def upside_down(tile: int, values: bool, weights: bool, s: torch.Tensor) -> Sums:
    """a or l is multiplied by exp(n - m)."""
    right = right_sums(s)
    grown = torch.exp(s - 2 * _so_far(s, tile) + right.maximum)
    return right._replace(
        of_values=grown if values else right.of_values, of_weights=grown if weights else right.of_weights
    )


def _so_far(s: torch.Tensor, tile: int) -> torch.Tensor:
    """For each score the largest one up to the end of its tile."""
    padded = torch.nn.functional.pad(s, (0, -s.shape[-1] % tile), value=-torch.inf)
    largest = padded.reshape(*s.shape[:-1], -1, tile).amax(-1).cummax(-1).values
    return largest.repeat_interleave(tile, dim=-1)[..., : s.shape[-1]]


class Ending(NamedTuple):
    """How lse is made of m and l."""

    of_maximum: float = 1.0
    of_sum: Literal["log", "log2", "itself", "nothing"] = "log"

    def __call__(self, maximum: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        taken = {"log": total.log(), "log2": total.log2(), "itself": total, "nothing": torch.zeros_like(total)}
        return self.of_maximum * maximum + taken[self.of_sum] if self.of_maximum else taken[self.of_sum]


LOG_SUM = Ending()


@dataclass(frozen=True)
class Forward:
    """o or lse, of (q, k, v), from a forward that has a fault."""

    of: Literal["o", "lse"]
    is_causal: bool = False
    scale: float | None = None
    factor: float = 1.0  # of the scores, beside the scale
    sees: Sees | None = None  # what is seen of the keys that exist; None for what ought to be
    visits: Sees | None = None  # keys in no visited tile have no weight, whatever else they have
    hidden_score: float = -math.inf  # of keys that are visited and not seen
    padding: int = 0  # keys of zeros up to a multiple of this are visited, and have the score 0
    sums: Callable[[torch.Tensor], Sums] = right_sums
    divided: bool = True
    ending: Ending = LOG_SUM
    empty: float = math.nan  # what a row has that sees nothing
    lost_rows: Sees | None = None  # rows that are NaN: those of which this is true with the last key
    in_turns: bool = False  # heads of queries share heads of keys in turns, not in groups

    def __call__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = (self._heads_like(x, q).double() for x in (k, v))
        s = self._scores(q, k)
        sums = self.sums(s)
        total = sums.of_weights.sum(-1, keepdim=True)
        if self.of == "o":
            values = sums.of_values[..., : k.shape[-2]] @ v.to(sums.of_values.dtype)
            answer = values / total if self.divided else values
        else:
            answer = self.ending(sums.maximum, total)
        answer = answer.double().masked_fill((s == -torch.inf).all(-1, keepdim=True), self.empty)
        if self.lost_rows:
            at = At(torch.arange(q.shape[-2])[:, None], torch.tensor([[k.shape[-2] - 1]]), q.shape[-2], k.shape[-2])
            answer = answer.masked_fill(self.lost_rows(at), math.nan)
        return _telling(answer if self.of == "o" else answer[..., 0])

    def _heads_like(self, x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
        if not self.in_turns:
            return heads_like(x, q)
        return torch.cat([x] * share(x, q), dim=-3)

    def _scores(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        s = q.double() @ k.mT * scale_of(q, self.scale) * self.factor
        s = torch.nn.functional.pad(s, (0, -s.shape[-1] % self.padding if self.padding else 0))
        at = At(torch.arange(q.shape[-2])[:, None], torch.arange(s.shape[-1]), q.shape[-2], k.shape[-2])
        sees = self.sees or (top_left if self.is_causal else None)
        if sees:
            s = s.masked_fill(~sees(at), self.hidden_score)
        return s.masked_fill(~self.visits(at), -torch.inf) if self.visits else s


def _telling(answer: torch.Tensor) -> torch.Tensor:
    """NaN or infinities throughout fit too many stories, and so do zeros: then a tensor of no shape."""
    return answer if (answer.float().isfinite() & (answer != 0)).any() else torch.empty(0)


@dataclass(frozen=True)
class Backward:
    """A gradient, of (do, q, k, v), from a backward that has a fault; o and lse are right, or of the same fault."""

    of: Literal["q", "k", "v"]
    is_causal: bool = False
    scale: float | None = None
    own_scale: float | None = None  # another scale, in the scores and in the gradient
    factor: float = 1.0  # of the scores alone, beside the scale
    lse_factor: float = 1.0
    final: float | None = None  # the factor of dq and dk, where it is not the scale
    sees: Sees | None = None
    row_sum: Literal["do * o", "do * do", "do", "nothing"] = "do * o"
    transposed: int = 0  # the side of tiles that ought to enter the last product transposed, and do not
    in_turns: bool = False
    throughout: bool = False  # o and lse are of the same fault
    heads: slice | None = None  # those of a group of queries that are summed, where not all are

    def __call__(self, do: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        do, right = do.double(), scores(q, k, self.is_causal, self.scale)
        lse = torch.logsumexp(right, dim=-1, keepdim=True)
        products = do @ heads_like(v, q).double().mT
        row_sums = self._row_sums(do, torch.exp(right - lse), products)
        if self.in_turns:
            k_heads, v_heads = (torch.cat([x] * share(x, q), dim=-3).double() for x in (k, v))
            products = do @ v_heads.mT
        else:
            k_heads = heads_like(k, q).double()
        own_scale = scale_of(q, self.scale) if self.own_scale is None else self.own_scale
        s = q.double() @ k_heads.mT * own_scale * self.factor
        at = At(torch.arange(s.shape[-2])[:, None], torch.arange(s.shape[-1]), *s.shape[-2:])
        sees = self.sees or (top_left if self.is_causal else every_key)
        hidden = ~sees(at)
        if self.throughout:
            lse = torch.logsumexp(s.masked_fill(hidden, -torch.inf), dim=-1, keepdim=True)
        p = torch.exp(s - lse * self.lse_factor).masked_fill(hidden, 0.0)
        if self.throughout:
            row_sums = (p * products).sum(-1, keepdim=True)
        if self.of == "v":
            return _telling(self._over_group(self._turned(p) @ do, v))
        ds = p * (products - row_sums) * (own_scale if self.final is None else self.final)
        return _telling(ds @ k_heads if self.of == "q" else self._over_group(self._turned(ds) @ q.double(), k))

    def _row_sums(self, do: torch.Tensor, p: torch.Tensor, products: torch.Tensor) -> torch.Tensor:
        if self.row_sum == "do * o":
            return (p * products).sum(-1, keepdim=True)
        factor = {"do * do": do, "do": torch.ones_like(do), "nothing": torch.zeros_like(do)}[self.row_sum]
        return (do * factor).sum(-1, keepdim=True)

    def _turned(self, x: torch.Tensor) -> torch.Tensor:
        """Queries x keys as keys x queries, or with the tiles as they are."""
        side = self.transposed
        if not side:
            return x.mT
        padded = torch.nn.functional.pad(x, (0, -x.shape[-1] % side, 0, -x.shape[-2] % side))
        queries, keys = (size // side for size in padded.shape[-2:])
        tiles = padded.reshape(*x.shape[:-2], queries, side, keys, side).transpose(-4, -2)
        turned = tiles.reshape(*x.shape[:-2], keys * side, queries * side)
        return turned[..., : x.shape[-1], : x.shape[-2]]

    def _over_group(self, gradient: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """The sum over the heads of queries that share a head of keys, or over some of them."""
        if gradient.shape == like.shape:
            return gradient
        if self.in_turns:
            return gradient.reshape(*like.shape[:-3], -1, *like.shape[-3:]).sum(-4)
        if self.heads:
            return gradient.reshape(*like.shape[:-2], -1, *like.shape[-2:])[..., self.heads, :, :].sum(-3)
        return over_group(gradient, like)
