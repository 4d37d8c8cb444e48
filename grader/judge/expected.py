"""What an answer is compared with: values in float64, how far from them it may be, and known mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from grader.judge.tolerance import Errors, Group, Tolerance, measure

Formula = Callable[..., torch.Tensor]

# Not `empty_like`: of a transposed input it is transposed, too.
LIKE_X = "the result has the shape, dtype and device of the input: torch.empty(x.shape, dtype=x.dtype, device=x.device)"


@dataclass(frozen=True)
class Mistake:
    """A wrong formula that students are known to compute: an answer that matches it tells the cause."""

    name: str
    formula: Formula  # like the reference's, from the same arguments
    why: str
    hint: str


@dataclass(frozen=True)
class Expected:
    """The right answer for one call."""

    formula: Formula  # float64 from the arguments
    arguments: tuple[torch.Tensor, ...]
    values: torch.Tensor  # formula(*arguments)
    dtype: torch.dtype
    tolerance: Tolerance
    group: Group  # what an answer's size is that of
    mistakes: tuple[Mistake, ...] = ()
    least_scale: float = 0.0  # what errors are relative to where answers are smaller: see `measure`
    terms: torch.Tensor | None = None  # and where the terms of a sum are larger than the sum
    form: str = LIKE_X  # what a result looks like, and how to allocate it
    # what to try if no cause is found
    advice: str = "compute the first wrong element by hand, and print each step on the way to it"

    @classmethod
    def of(
        cls,
        formula: Formula,
        *arguments: torch.Tensor,
        tolerance: Tolerance,
        group: Group,
        mistakes: tuple[Mistake, ...] = (),
        least_scale: float = 0.0,
        terms: torch.Tensor | None = None,
        form: str = LIKE_X,
        dtype: torch.dtype | None = None,
        advice: str | None = None,
    ) -> Expected:
        """Compute the answer for these arguments; its dtype is the first argument's, unless one is given."""
        values, dtype = formula(*arguments), dtype or arguments[0].dtype
        found = cls(formula, arguments, values, dtype, tolerance, group, mistakes, least_scale, terms, form)
        return replace(found, advice=advice) if advice else found

    def errors(self, got: torch.Tensor, instead: torch.Tensor | None = None) -> Errors:
        """How far an answer of the right shape is from the right values (or from others instead)."""
        values = self.values if instead is None else instead
        return measure(got, values, self.tolerance, self.group, self.least_scale, self.terms)
