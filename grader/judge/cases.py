"""Cases as data: the shape, dtype and layout of one input, and how its values are drawn.

A check has a table of cases beside it; the fixture `draw` turns one into a tensor with fresh values:

    SIZES = [Input((1000,)), Input((127, 511), torch.float16, layout=row_pitch(640))]

Shapes are fixed, values random. `str(case)` is what a student reads: "127 x 511 float16, rows strided by 640".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from grader.judge.memory import guarded

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory: strides as a function of the shape, and where its first element lies."""

    words: str
    strides: Callable[[Shape], Sequence[int]]
    offset: int = 0  # elements by which the first element is moved off its 64-byte alignment


def _contiguous(shape: Shape) -> list[int]:
    strides, stride = [0] * len(shape), 1
    for dimension in reversed(range(len(shape))):
        strides[dimension] = stride
        stride *= max(shape[dimension], 1)
    return strides


CONTIGUOUS = Layout("", _contiguous)


def row_pitch(pitch: int) -> Layout:
    """Rows that start `pitch` elements apart: a slice of a wider matrix."""

    def strides(shape: Shape) -> list[int]:
        return _contiguous((*shape[:-1], pitch))

    return Layout(f"rows strided by {pitch}", strides)


def every_other(dimension: int) -> Layout:
    """Each second index along one dimension: `x[::2]`."""

    def strides(shape: Shape) -> list[int]:
        widened = list(shape)
        widened[dimension] *= 2
        found = _contiguous(tuple(widened))
        found[dimension] *= 2
        return found

    name = {0: "row", -1: "column"}.get(dimension, f"index of dimension {dimension}")
    return Layout(f"every other {name} of a larger tensor", strides)


def permuted(*order: int) -> Layout:
    """Dimensions in another order in memory: `order` lists them from the outermost to the innermost."""

    def strides(shape: Shape) -> list[int]:
        in_memory = _contiguous(tuple(shape[dimension] for dimension in order))
        return [in_memory[order.index(dimension)] for dimension in range(len(shape))]

    return Layout("transposed" if order == (1, 0) else f"permuted, memory order {order}", strides)


def expanded(dimension: int) -> Layout:
    """One slice repeated along a dimension without a copy: stride 0, as `expand` makes it."""

    def strides(shape: Shape) -> list[int]:
        single = list(shape)
        single[dimension] = 1
        found = _contiguous(tuple(single))
        found[dimension] = 0
        return found

    return Layout(f"expanded along dimension {dimension} (stride 0)", strides)


def shifted(elements: int) -> Layout:
    """Contiguous, but starting some elements off the alignment of an allocation."""
    return Layout(f"starting {elements} elements into its memory", _contiguous, elements)


@dataclass(frozen=True)
class Values:
    """How values are drawn: float32 of a shape, from a generator."""

    words: str
    draw: Callable[[Shape, torch.Generator], torch.Tensor]


def normal(scale: float = 1.0, centre: float = 0.0) -> Values:
    """Normal values of this standard deviation around a centre."""
    words = "" if (scale, centre) == (1.0, 0.0) else f"normal values around {centre:g}, scale {scale:g}"
    return Values(words, lambda shape, generator: centre + scale * torch.randn(shape, generator=generator))


STANDARD_NORMAL = normal()


def uniform(bound: float) -> Values:
    """Uniform values of either sign, up to a bound."""
    return Values(
        f"values up to +-{bound:g}", lambda shape, generator: bound * (2 * torch.rand(shape, generator=generator) - 1)
    )


def drifting(bound: float) -> Values:
    """Normal values around a centre that goes from -bound to bound along the rows; a negative bound falls."""
    words = f"values around a centre that goes from {-bound:g} in the first row to {bound:g} in the last"

    def draw(shape: Shape, generator: torch.Generator) -> torch.Tensor:
        return torch.linspace(-bound, bound, shape[-2])[:, None] + torch.randn(shape, generator=generator)

    return Values(words, draw)


def constant(value: float) -> Values:
    """The same number everywhere."""
    return Values(f"all {value:g}", lambda shape, generator: torch.full(shape, value))


@dataclass(frozen=True)
class Input:
    """One tensor that the judge draws."""

    shape: Shape
    dtype: torch.dtype = torch.float32
    layout: Layout = CONTIGUOUS
    values: Values = STANDARD_NORMAL

    def __str__(self) -> str:
        size = " x ".join(map(str, self.shape)) if self.shape else "scalar"
        if len(self.shape) == 1:
            size += " element" if self.shape == (1,) else " elements"
        name = str(self.dtype).removeprefix("torch.")
        return ", ".join(part for part in (f"{size} {name}", self.layout.words, self.values.words) if part)

    def draw(self, generator: torch.Generator) -> torch.Tensor:
        """Fresh values in guarded memory."""
        strides = self.layout.strides(self.shape)
        tensor = guarded(self.shape, self.dtype, strides, self.layout.offset)
        distinct = tensor
        for dimension, stride in enumerate(strides):
            if stride == 0 and self.shape[dimension] > 1:
                distinct = distinct.narrow(dimension, 0, 1)
        values = self.values.draw(tuple(distinct.shape), generator)
        assert values.shape == distinct.shape, f"{self.values.words}: {values.shape} for {distinct.shape}"
        distinct.copy_(values)
        return tensor


def placed(values: torch.Tensor, layout: Layout = CONTIGUOUS) -> torch.Tensor:
    """A copy in guarded memory."""
    return guarded(values.shape, values.dtype, layout.strides(tuple(values.shape)), layout.offset).copy_(values)


@dataclass(frozen=True)
class Matrices:
    """The two inputs of a matrix product: `a` of m x k, `b` of k x n elements."""

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.float32
    a_layout: Layout = CONTIGUOUS
    b_layout: Layout = CONTIGUOUS
    a_values: Values = STANDARD_NORMAL
    b_values: Values = STANDARD_NORMAL

    @property
    def a(self) -> Input:
        return Input((self.m, self.k), self.dtype, self.a_layout, self.a_values)

    @property
    def b(self) -> Input:
        return Input((self.k, self.n), self.dtype, self.b_layout, self.b_values)

    def __str__(self) -> str:
        return f"a {self.a}; b {self.b}"


@dataclass(frozen=True)
class Heads:
    """The inputs of attention: `q` of (..., queries, d), `k` and `v` of (..., keys, d), and `do`, which is like q.

    The backward also gets o, (..., queries, d), and lse, (..., queries): here are their layouts alone.
    """

    queries: int
    keys: int
    d: int = 64
    leading: Shape = (1,)
    dtype: torch.dtype = torch.float32
    is_causal: bool = False
    scale: float | None = None
    layout: Layout = CONTIGUOUS  # of q, k and v
    v_layout: Layout | None = None  # of v alone, where it is another one
    do_layout: Layout = CONTIGUOUS
    o_layout: Layout = CONTIGUOUS
    lse_layout: Layout = CONTIGUOUS
    q_values: Values = STANDARD_NORMAL
    k_values: Values = STANDARD_NORMAL
    v_values: Values = STANDARD_NORMAL
    do_values: Values = STANDARD_NORMAL
    key_leading: Shape | None = None  # where keys have fewer heads

    @property
    def q(self) -> Input:
        return Input((*self.leading, self.queries, self.d), self.dtype, self.layout, self.q_values)

    @property
    def k(self) -> Input:
        leading = self.leading if self.key_leading is None else self.key_leading
        return Input((*leading, self.keys, self.d), self.dtype, self.layout, self.k_values)

    @property
    def v(self) -> Input:
        return replace(self.k, layout=self.v_layout or self.layout, values=self.v_values)

    @property
    def do(self) -> Input:
        return Input((*self.leading, self.queries, self.d), self.dtype, self.do_layout, self.do_values)

    @property
    def options(self) -> dict[str, bool | float]:
        """What the call is given besides tensors: what is not the default."""
        return ({"is_causal": True} if self.is_causal else {}) | ({} if self.scale is None else {"scale": self.scale})

    def __str__(self) -> str:
        parts = [f"q {self.q}", "k and v " + " x ".join(map(str, self.k.shape))]
        parts += [f"k {self.k_values.words}"] if self.k_values.words else []
        parts += [f"v {self.v_layout.words or 'contiguous'}"] if self.v_layout else []
        parts += [f"v {self.v_values.words}"] if self.v_values.words else []
        parts += ["causal"] if self.is_causal else []
        parts += [f"scale {self.scale:g}"] if self.scale is not None else []
        do = ", ".join(filter(None, (self.do_layout.words, self.do_values.words)))
        given = (("do", do), ("o", self.o_layout.words), ("lse", self.lse_layout.words))
        return "; ".join([*parts, *(f"{name} {words}" for name, words in given if words)])
