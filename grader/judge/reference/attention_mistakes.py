"""What is known to go wrong in attention, and what is said of it: a `Mistake` for o, lse or a gradient.

The formulas are in `attention_faults`; of a fault that depends on the tiles there is one for each usual tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from grader.judge.expected import Mistake
from grader.judge.reference.attention import scale_of, share
from grader.judge.reference.attention_faults import (
    LOG_2,
    At,
    Backward,
    Ending,
    Forward,
    Sees,
    across_the_diagonal,
    after_the_diagonal,
    before_the_diagonal,
    bottom_right,
    every_key,
    first_tile_of_queries,
    first_visited_hidden,
    from_tile_after,
    keys_before,
    keys_from,
    last_keys_hidden,
    maximum_kept_out,
    no_maximum,
    not_rescaled,
    queries_before,
    queries_from,
    strictly_before,
    together,
    top_left,
    up_to_the_diagonal,
    upside_down,
)

TILES = (16, 32, 64, 128)  # queries or keys of a tile, tried where the fault depends on it
PAIRS = [*itertools.product(TILES, TILES)]  # queries and keys
MOST_SCORES = 1 << 19  # of all heads: with more of them, faults of tiles are not looked for
ALL_TILES = "go over all tiles, range(0, {0}, BLOCK), also the last one that is not full: mask what it lacks"

# What a mask can get wrong, in the forward and in the backward: a name, what is seen, why, and what to try.
MASKS: tuple[tuple[str, Sees, str, str], ...] = (
    ("causal_ignored", every_key, "every query sees every key", "with is_causal, query i sees keys j <= i"),
    ("causal_off_by_one", strictly_before, "query i sees keys j < i only", "let query i see key i, too: j <= i"),
    (
        "causal_bottom_right", bottom_right, "the mask is aligned at the bottom right",
        "here it is aligned at the top left: query i sees keys j <= i, however many keys there are",
    ),
)  # fmt: skip
ON_THE_DIAGONAL: tuple[tuple[str, Callable[[int, int, At], torch.Tensor], str, str], ...] = (
    (
        "diagonal_skipped", up_to_the_diagonal, "the tiles of keys on the diagonal are skipped",
        "go over the keys up to the last one that a tile of queries sees: first query + BLOCK_QUERIES, at most n_k",
    ),
    (
        "diagonal_not_masked", across_the_diagonal,
        "the tiles of keys on the diagonal are seen as a whole",
        "mask them, too: only tiles below the diagonal need no mask",
    ),
)  # fmt: skip
GROUPS = (
    "heads_in_turns", "head h of q uses head h % key_heads of k and v",
    "neighbours share: head h uses head h // (heads // key_heads)",
)  # fmt: skip
NOT_RESCALED_HINT = "for each tile, before it is added: {} * exp(m - n), with m the maximum before it and n the new one"
RESCALING = (
    (
        "sums_not_rescaled", not_rescaled, (True, True), "neither a nor l is rescaled when a tile brings a new maximum",
        NOT_RESCALED_HINT.format("a * exp(m - n) and l"),
    ),
    (
        "accumulator_not_rescaled", not_rescaled, (True, False),
        "a is not rescaled when a tile brings a new maximum", NOT_RESCALED_HINT.format("a"),
    ),
    (
        "sum_not_rescaled", not_rescaled, (False, True),
        "l is not rescaled when a tile brings a new maximum", NOT_RESCALED_HINT.format("l"),
    ),
    *(
        (
            "rescaled_upside_down", upside_down, which, f"{words} multiplied by exp(n - m) when a tile brings a new "
            "maximum n", "what was summed shrinks: exp(m - n) is 1 or less, with m the maximum before",
        )
        for which, words in (((True, True), "a and l are"), ((True, False), "a is"), ((False, True), "l is"))
    ),
)  # fmt: skip
SCALES = {
    "scale_fixed": ("the scale is 1/8, as for d = 64", "it is 1/sqrt(d)"),
    "scale_missing": ("the scores are not scaled", "multiply them by the scale, 1/sqrt(d)"),
    "scale_twice": ("the scores are scaled twice", "multiply q k^T by the scale once: q, k, or their product"),
    "scale_inverted": ("the scores are divided by the scale", "multiply them by 1/sqrt(d)"),
}


def _other_scales(q_scale: float, scale: float | None) -> Iterator[tuple[str, float | None, str, str]]:
    """Scales that are taken for the right one."""
    if scale is not None:
        yield "scale_ignored", None, "the scale that was given is not used", "use it where it is not None"
    others = {"scale_fixed": 1 / 8, "scale_missing": 1.0, "scale_twice": q_scale**2}
    for name, other in (others | ({"scale_inverted": 1 / q_scale} if q_scale else {})).items():
        yield name, other, *SCALES[name]


def of_forward(
    of: Literal["o", "lse"], q: torch.Tensor, k: torch.Tensor, is_causal: bool, scale: float | None
) -> tuple[Mistake, ...]:
    """What is known to go wrong in o or lse."""
    if not k.shape[-2]:
        return ()
    right = Forward(of, is_causal, scale)
    found = [*_of_all_scores(right, q, k)]
    if q.shape[:-1].numel() * k.shape[-2] <= MOST_SCORES:
        found += _of_tiles(right, k.shape[-2])
    return tuple(found)


def _of_all_scores(right: Forward, q: torch.Tensor, k: torch.Tensor) -> Iterator[Mistake]:
    """Faults of a forward that do not depend on its tiles."""
    yield Mistake(
        "missing_maximum", replace(right, sums=no_maximum),
        "exp overflows: the largest score so far is not subtracted before it",
        "subtract it from every score of the row first, and rescale what was summed when it grows",
    )  # fmt: skip
    for name, sees, why, hint in MASKS if right.is_causal else ():
        yield from _with_empty_rows(Mistake(name, replace(right, sees=sees), why, hint))
    for name, other, why, hint in _other_scales(scale_of(q, right.scale), right.scale):
        yield Mistake(name, replace(right, scale=other), why, hint)
    if share(k, q) > 1:
        yield Mistake(GROUPS[0], replace(right, in_turns=True), *GROUPS[1:])
    yield from _of_weights(right) if right.of == "o" else _of_endings(right)


def _of_weights(right: Forward) -> Iterator[Mistake]:
    yield Mistake(
        "not_divided", replace(right, divided=False), "a is not divided by l, the sum of the weights",
        "after the last tile, o = a / l",
    )  # fmt: skip
    yield from (Mistake(*known, replace(right, factor=factor), *words) for known, factor, *words in _bases())


def _bases() -> Iterator[tuple[tuple[str], float, str, str]]:
    """exp and exp2 in each other's place."""
    yield (
        ("exp2_without_log2e",), LOG_2, "the weights are powers of 2 of scores for exp",
        "exp(x) is exp2(x * log2(e)): multiply the scale by log2(e) where exp2 is used, 1.4426950",
    )  # fmt: skip
    yield (
        ("exp_with_log2e",), 1 / LOG_2, "the weights are powers of e of scores that have the factor log2(e)",
        "that factor goes with exp2: exp(x) is exp2(x * log2(e))",
    )  # fmt: skip


def _of_endings(right: Forward) -> Iterator[Mistake]:
    """The ways in which lse is made of m and l, and not m + log(l)."""
    natural = "lse = m + log(l), with natural logarithms and m a natural exponent; from exponents of 2 it is "
    natural += "(m + log2(l)) * log(2)"
    yield Mistake(
        "base_two", replace(right, ending=Ending(1 / LOG_2, "log2")), "this is the logarithm to base 2",
        "multiply it by log(2): the natural logarithm is due",
    )  # fmt: skip
    endings = (
        ("mixed_logarithms", 1.0, "log2", "this is m + log2(l), with m a natural exponent"),
        ("mixed_logarithms", 1 / LOG_2, "log", "this is m + log(l), with m an exponent of 2"),
        ("maximum_missing", 0.0, "log", "this is log(l), without m"),
        ("maximum_missing", 0.0, "log2", "this is log2(l), without m"),
        ("sum_missing", 1.0, "nothing", "this is m, without log(l)"),
        ("sum_missing", 1 / LOG_2, "nothing", "this is m as an exponent of 2, without log2(l)"),
        ("logarithm_missing", 1.0, "itself", "this is m + l, without the logarithm of l"),
    )
    for name, of_maximum, of_sum, why in endings:
        yield Mistake(name, replace(right, ending=Ending(of_maximum, of_sum)), why, natural)  # type: ignore[arg-type]
    for (name,), factor, why, hint in _bases():
        for of_maximum, of_sum in ((1.0, "log"), (1.0, "log2"), (1 / factor, "log"), (1 / factor, "log2")):
            ending = Ending(of_maximum, of_sum)  # type: ignore[arg-type]
            yield Mistake(name, replace(right, factor=factor, ending=ending), why, hint)


def _with_empty_rows(mistake: Mistake) -> Iterator[Mistake]:
    """A row that sees nothing is NaN, or what is due where there are no keys, or l is 0 in lse alone."""
    assert isinstance(mistake.formula, Forward)
    yield mistake
    yield replace(mistake, formula=replace(mistake.formula, empty=0.0 if mistake.formula.of == "o" else -math.inf))


def _of_tiles(right: Forward, keys: int) -> Iterator[Mistake]:
    """Faults of a forward that depend on the keys, or on the queries and keys, of a tile."""
    for end in _ends(keys):
        sees = partial(keys_before, end)
        yield Mistake(
            "last_keys_dropped", replace(right, sees=partial(together, sees, top_left) if right.is_causal else sees),
            f"the keys from {end} on are left out", ALL_TILES.format("n_k"),
        )  # fmt: skip
        if not right.is_causal:
            yield Mistake(
                "last_keys_only", replace(right, sees=partial(keys_from, end)),
                f"only the keys from {end} on are in it",
                "add each tile's part to what was summed before, with m, l and a from the tile before",
            )  # fmt: skip
    for tile in TILES:
        yield from _of_rescaling(right, tile)
        yield Mistake(
            "padded_keys_counted", replace(right, padding=tile),
            "the keys that pad the last tile are counted, with scores of 0",
            "set the scores of keys from n_k on to -float('inf'), before the maximum: their weight is then 0",
        )  # fmt: skip
    if right.is_causal:
        yield from _of_causal_tiles(right)


def _ends(size: int) -> list[int]:
    """Where rows may end that are gone through by whole tiles, or by one."""
    return sorted({end for tile in TILES for end in (tile, size // tile * tile) if 0 < end < size})


def _of_rescaling(right: Forward, tile: int) -> Iterator[Mistake]:
    yield Mistake(
        "missing_maximum", replace(right, sums=partial(maximum_kept_out, tile)),
        "the weights are exp(s): the largest score so far is not subtracted", "p = exp(s - n), with n the new maximum",
    )  # fmt: skip
    for name, wrong, which, why, hint in RESCALING:
        if right.of == "o" or which == (False, True):  # lse has no a
            yield Mistake(name, replace(right, sums=partial(wrong, tile, *which)), why, hint)


def _of_causal_tiles(right: Forward) -> Iterator[Mistake]:
    hidden = (
        "hidden_score_zero", "keys that are not seen have the score 0, and so a weight, exp(0 - m)",
        "set their scores to -float('inf'), before the maximum: tl.where(seen, s, -float('inf'))",
    )  # fmt: skip
    yield Mistake(hidden[0], replace(right, hidden_score=0.0), *hidden[1:])
    for tile in TILES:
        yield Mistake(hidden[0], replace(right, hidden_score=0.0, padding=tile), *hidden[1:])
        yield _lost(right, partial(last_keys_hidden, tile))
    for of_queries, of_keys in PAIRS:
        visits = partial(across_the_diagonal, of_queries, of_keys)
        visits_existing = partial(together, visits, every_key)
        yield Mistake(hidden[0], replace(right, hidden_score=0.0, visits=visits_existing), *hidden[1:])
        yield Mistake(hidden[0], replace(right, hidden_score=0.0, visits=visits, padding=of_keys), *hidden[1:])
        yield _lost(right, partial(first_visited_hidden, of_queries, of_keys))
        for name, seen, why, hint in ON_THE_DIAGONAL:
            sees = partial(together, partial(seen, of_queries, of_keys), every_key)
            yield from _with_empty_rows(Mistake(name, replace(right, sees=sees), why, hint))


def _lost(right: Forward, rows: Sees) -> Mistake:
    """Tiles of keys are gone through from the end, and rows that see nothing of the first are NaN from there on."""
    return Mistake(
        "infinity_minus_infinity", replace(right, lost_rows=rows),
        "row 0: every key of the tile that comes first is masked, so m and n are -inf, and m - n is NaN",
        "while n is -inf, subtract 0 in its place, in exp(s - n) and in exp(m - n); or begin with the first tile of "
        "keys: there every query sees key 0",
    )  # fmt: skip


def of_gradient(
    of: Literal["q", "k", "v"], q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, is_causal: bool, scale: float | None
) -> tuple[Mistake, ...]:
    """What is known to go wrong in a gradient."""
    if not k.shape[-2]:
        return ()
    right = Backward(of, is_causal, scale)
    found = [*_of_all_products(right, q, k, v)]
    if q.shape[:-1].numel() * k.shape[-2] <= MOST_SCORES:
        found += _of_backward_tiles(right, q.shape[-2], k.shape[-2])
    return tuple(found)


def _of_all_products(right: Backward, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Iterator[Mistake]:
    """Faults of a backward that do not depend on its tiles."""
    scale = scale_of(q, right.scale)
    yield from _of_scales(right, scale) if right.of != "v" else ()
    for name, row_sum, why in (
        ("missing_row_sum", "nothing", "D is missing: this is P * dP"),
        ("other_row_sum", "do * do", "D is the row sum of do * do"),
        ("other_row_sum", "do", "D is the row sum of do"),
    ) if right.of != "v" else ():  # fmt: skip
        wrong = replace(right, row_sum=row_sum)  # type: ignore[arg-type]
        yield Mistake(name, wrong, why, "dS = P * (dP - D), with D = rowsum(do * o)")
    yield Mistake(
        "scale_missing_in_scores", replace(right, factor=1 / scale if scale else 1.0),
        "p is exp(q k^T - lse): the scores are not scaled here", "p = exp(scale * q k^T - lse), as in the forward",
    )  # fmt: skip
    for name, other, why, hint in _other_scales(scale, right.scale):
        if name == "scale_missing" and right.of == "v":
            name = "scale_missing_in_scores"  # dv has no other
        wrong = replace(right, own_scale=scale_of(q, other))
        yield from _with_its_forward(Mistake(name, wrong, why, hint))
    yield from _of_lse(right)
    for name, sees, why, hint in MASKS if right.is_causal else ():
        yield from _with_its_forward(
            Mistake(name, replace(right, sees=sees), why, f"{hint}; p is 0 for the others"),
        )
    for of, x in (("q", q), ("k", k), ("v", v)):
        if of != right.of and x.shape == {"q": q, "k": k, "v": v}[right.of].shape:
            wrong = replace(right, of=of)  # type: ignore[arg-type]
            yield Mistake("gradients_swapped", wrong, f"this is d{of}", "return dq, dk, dv in this order")
    if share(k, q) > 1:
        yield Mistake(GROUPS[0], replace(right, in_turns=True), f"in the backward, {GROUPS[1]}", GROUPS[2])
        for heads in (slice(0, 1), slice(-1, None)) if right.of != "q" else ():
            yield Mistake(
                "one_head_only", replace(right, heads=heads), f"d{right.of} has the part of one head of q",
                "sum over all heads of q that share this head: a loop over them in one program, or atomic additions",
            )  # fmt: skip


def _with_its_forward(mistake: Mistake) -> Iterator[Mistake]:
    """A fault of the backward alone, and of both directions."""
    assert isinstance(mistake.formula, Backward)
    yield replace(mistake, why=f"in the backward, {mistake.why}")
    yield replace(mistake, formula=replace(mistake.formula, throughout=True), why=f"in both directions, {mistake.why}")


def _of_scales(right: Backward, scale: float) -> Iterator[Mistake]:
    """dq and dk, off by a factor."""
    yield Mistake(
        "scale_missing", replace(right, final=1.0),
        f"d{right.of} is off by the factor {1 / scale if scale else 0.0:.4g}: a scale is missing",
        "the scores are scaled, so dq and dk are, too",
    )  # fmt: skip
    yield Mistake(
        "scale_twice", replace(right, final=scale**2),
            f"d{right.of} is off by the factor {scale:.4g}: it is scaled twice",
        "apply the scale to dq and dk once, at the end",
    )  # fmt: skip


def _of_lse(right: Backward) -> Iterator[Mistake]:
    """What can become of exp(scores - lse)."""
    hint = "p = exp(scale * q k^T - lse); with exp2, both the scores and lse have the factor log2(e)"
    for name, factor, lse_factor, why in (
        ("lse_missing", 1.0, 0.0, "p is exp(scale * q k^T), without lse"),
        ("lse_of_base_two", 1.0, LOG_2, "lse is taken for a logarithm to base 2, and it is a natural one"),
        ("exp2_without_log2e", LOG_2, LOG_2, "p is 2 to the power of scores and lse for exp"),
        ("exp_with_log2e", 1 / LOG_2, 1 / LOG_2, "p is e to the power of numbers that have the factor log2(e)"),
        ("exp2_without_log2e", LOG_2, 1.0, "the scores lack the factor log2(e) of exp2"),
    ):
        yield Mistake(name, replace(right, factor=factor, lse_factor=lse_factor), why, hint)


def _of_backward_tiles(right: Backward, queries: int, keys: int) -> Iterator[Mistake]:
    """Faults of a backward that depend on its tiles."""
    yield from _of_backward_pairs(right) if right.is_causal else ()
    if right.of == "q":
        for end in _ends(keys):
            why, hint = f"the keys from {end} on are left out", ALL_TILES.format("n_k")
            yield _with_tiles(right, "last_keys_dropped", partial(keys_before, end), why, hint)
        return
    for end in _ends(queries):
        why, hint = f"the queries from {end} on are left out", ALL_TILES.format("n_q")
        yield _with_tiles(right, "last_queries_dropped", partial(queries_before, end), why, hint)
    for tile in TILES:
        yield _with_tiles(
            right, "first_queries_skipped", partial(queries_from, tile), f"the first {tile} queries are left out",
            "go over the queries from 0 on; when causal, from the first tile on that sees one of these keys",
        )  # fmt: skip
        what = "p" if right.of == "v" else "ds"
        yield Mistake(
            "not_transposed", replace(right, transposed=tile),
            f"{what} enters d{right.of} without being transposed",
            f"dv = p^T do and dk = ds^T q: tl.dot(tl.trans({what}), ...)",
        )  # fmt: skip


def _of_backward_pairs(right: Backward) -> Iterator[Mistake]:
    """Faults on the diagonal of a causal backward."""
    for of_queries, of_keys in PAIRS:
        for name, pair, why, hint in ON_THE_DIAGONAL if right.of == "q" else ON_THE_DIAGONAL_OF_KEYS:
            mask = partial(pair, of_queries, of_keys)
            if name == "diagonal_not_masked":
                yield Mistake(name, replace(right, sees=mask), why, hint)
            else:
                yield _with_tiles(right, name, mask, why, hint)


def _with_tiles(right: Backward, name: str, seen: Sees, why: str, hint: str) -> Mistake:
    return Mistake(name, replace(right, sees=partial(together, seen, top_left) if right.is_causal else seen), why, hint)


FIRST_TILE = (
    "the first query that sees key j is query j: begin with the tile of queries that the first of these keys lies in, "
    "first_key // BLOCK_QUERIES * BLOCK_QUERIES"
)
ON_THE_DIAGONAL_OF_KEYS: tuple[tuple[str, Callable[[int, int, At], torch.Tensor], str, str], ...] = (
    (
        "first_queries_skipped", from_tile_after,
        "the first tile of queries that sees these keys is left out",
        FIRST_TILE,
    ),
    (
        "first_queries_skipped", after_the_diagonal,
        "the tiles of queries on the diagonal are left out", FIRST_TILE,
    ),
    (
        "last_queries_dropped", first_tile_of_queries,
        "only the first tile of queries that sees these keys is in it",
        "go over all tiles of queries from there on: range(first, n_q, BLOCK)",
    ),
    (
        "diagonal_not_masked", before_the_diagonal,
        "the tiles of queries on the diagonal see the keys as a whole",
        "mask them, too: p is 0 where j > i",
    ),
)  # fmt: skip
