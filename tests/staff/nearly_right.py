"""Answers that are right but for one thing, which every comparison refuses, and right ones that look different.

`refused` holds an answer against a reference as checks do. `wrong_in_one_thing` and `right_all_the_same` make answers
from a reference, each with what is particular about it.
"""

import math
from collections.abc import Iterator

import torch

from grader.judge.compare import assert_matches
from grader.judge.expected import Expected
from grader.judge.replies import TensorEntry
from grader.judge.submission import Result
from grader.judge.tolerance import ROUNDOFF, TRAILING
from grader.judge.verdict import Outcome, Verdict

DTYPES = (*ROUNDOFF, torch.float64)
TILES = (16, 32, 64, 128)  # rows or columns
MUCH = 0.1  # of what errors are relative to
NOT_FINITE = (math.nan, math.inf, -math.inf)


def result(tensor: torch.Tensor) -> Result:
    """An answer of the runner."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Result("the answer", TensorEntry(kind="tensor", dtype=dtype, shape=list(tensor.shape), device="cpu"), tensor)


def refused(tensor: torch.Tensor, expected: Expected) -> bool:
    try:
        assert_matches(result(tensor), expected, find=lambda evidence: None)  # why is nobody's business here
    except Outcome as outcome:
        return outcome.verdict is Verdict.FAIL
    return False


def right(expected: Expected) -> torch.Tensor:
    """The reference, rounded to the answer's dtype."""
    return expected.values.to(expected.dtype)


def wrong_in_one_thing(expected: Expected) -> Iterator[tuple[str, torch.Tensor]]:
    """Of another dtype, of a shape that could be broadcast, with two rows swapped, with one element changed."""
    for dtype in DTYPES:
        if dtype is not expected.dtype:
            yield f"{dtype}", expected.values.to(dtype)
    answer = right(expected)
    yield "a dimension of size 1 behind the last", answer[..., None]
    yield "a dimension of size 1 before the first", answer[None]
    yield from rows_swapped(expected)
    yield from one_element_moved(expected)
    yield from one_element_not_finite(expected)


def right_all_the_same(expected: Expected) -> Iterator[tuple[str, torch.Tensor]]:
    """-0.0 for 0.0, and the same values with other strides."""
    answer = right(expected)
    yield "negative zeros", torch.where(answer == 0, -torch.zeros_like(answer), answer)
    backwards = tuple(reversed(range(answer.dim())))
    yield "strides in the other order", answer.permute(backwards).contiguous().permute(backwards)
    yield "every other element of memory", torch.stack((answer, answer + 1), -1)[..., 0]
    if answer.dim() and (answer == answer[:1]).all():
        yield "rows that are one", answer[:1].expand_as(answer)


def rows_swapped(expected: Expected) -> Iterator[tuple[str, torch.Tensor]]:
    """First and last, and neighbours, where they differ by much of what errors are relative to."""
    answer = right(expected)
    rows = answer.flatten(0, -2) if answer.dim() > 1 else answer.view(-1)
    for one, other in ((0, len(rows) - 1), (0, 1)) if len(rows) > 1 and answer.numel() else ():
        difference = (rows[one] - rows[other]).double()
        if bool(difference.isfinite().all()) and difference.abs().max() > MUCH * largest_scale(expected):
            order = torch.arange(len(rows))
            order[one], order[other] = other, one
            yield f"rows {one} and {other} swapped", rows[order].reshape(answer.shape)


def largest_scale(expected: Expected) -> float:
    finite = torch.where(expected.values.isfinite(), expected.values, 0.0)
    return max(float(finite.square().mean(dim=groups(expected)).sqrt().max()), expected.least_scale)


def groups(expected: Expected) -> tuple[int, ...]:
    """The dimensions of what has a size of its own."""
    every = tuple(range(expected.values.dim()))
    return every[-TRAILING[expected.group] :] if expected.group in TRAILING else every


def one_element_moved(expected: Expected) -> Iterator[tuple[str, torch.Tensor]]:
    """By the size of its row, or of whatever has one."""
    for index in borders(expected):
        moved = right(expected)
        group = expected.values[index[: len(index) - TRAILING[expected.group]]] if expected.group in TRAILING else None
        size = root_mean_square(expected.values if group is None else group)
        moved[index] = (expected.values[index] + size).to(moved.dtype)
        if size > 0 and bool(moved[index].isfinite()) and moved[index] != right(expected)[index]:
            yield f"element {index} moved by {size:g}", moved


def root_mean_square(values: torch.Tensor) -> float:
    return float(values[values.isfinite()].square().mean().sqrt())


def one_element_not_finite(expected: Expected) -> Iterator[tuple[str, torch.Tensor]]:
    """First, middle and last."""
    places = borders(expected) if expected.dtype.is_floating_point else []
    for value in NOT_FINITE:
        for index in {places[0], places[len(places) // 2], places[-1]} if places else ():
            broken = right(expected)
            broken[index] = value
            yield f"{value} at {index}", broken


def borders(expected: Expected) -> list[tuple[int, ...]]:
    """First, last, middle, the neighbours of every power of two, and the corners where four tiles meet.

    Only elements that are finite.
    """
    count = expected.values.numel()
    powers = range(4, 20, 1 if count < 100_000 else 3)
    flat = {0, count - 1, count // 2} | {(1 << power) + side for power in powers for side in (-1, 0)}
    places = {unravelled(place, expected.values.shape) for place in flat if 0 <= place < count}
    places |= corners(expected.values.shape)
    return [index for index in sorted(places) if expected.values[index].isfinite()]


def corners(shape: torch.Size) -> set[tuple[int, ...]]:
    """Elements of the last matrix on both sides of the first border of tiles of each size, across and down."""
    if len(shape) < 2 or shape.numel() == 0:
        return set()
    before = tuple(size - 1 for size in shape[:-2])
    pairs = {(tile - up, tile - left) for tile in TILES for up in (0, 1) for left in (0, 1)}
    return {(*before, *pair) for pair in pairs if pair[0] < shape[-2] and pair[1] < shape[-1]}


def unravelled(place: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(place % size)
        place //= size
    return tuple(reversed(index))
