"""What a predicate on the likely cause gets, and what it gives: `Evidence` and `Cause`.

Predicates are in `causes_in_memory` and `causes_in_numbers`; `causes` asks them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

import torch

from grader.judge import memory
from grader.judge.expected import Expected
from grader.judge.replies import Access
from grader.judge.tolerance import Errors
from grader.judge.verdict import Where

# A rival explains an answer that lies next to it (this far by rms, room for half precision), and this much closer
# to it than to the right one.
NEXT_TO = 5e-3
CLOSER = 50.0


@dataclass(frozen=True)
class Cause:
    """Why an answer is probably wrong, and what to try."""

    name: str
    why: str
    hint: str = ""
    where: Where | None = None


@dataclass(frozen=True)
class Evidence:
    """Everything that a predicate may look at."""

    got: torch.Tensor
    expected: Expected
    errors: Errors
    accesses: tuple[Access, ...] = ()  # what the runner's watch saw: advice
    previous: torch.Tensor | None = None  # the right answer of the call before, where it has the same shape
    launches: int | None = None  # of kernels, so far in this check, None where nobody counted: advice
    watched: bool = False  # the interpreter's loads were looked at, and `accesses` are all that strayed

    @property
    def wrong(self) -> torch.Tensor:
        return self.errors.wrong

    @property
    def untouched(self) -> torch.Tensor:
        """The wrong elements that still hold the bits of fresh memory."""
        fill = memory.FILL_BITS.get(self.got.dtype)
        return self.wrong & False if fill is None else (memory.bits(self.got) == fill) & self.wrong

    @property
    def not_finite(self) -> torch.Tensor:
        """The elements that are NaN or infinite and ought not to be."""
        return ~self.got.isfinite() & self.expected.values.to(self.got.dtype).isfinite()

    @property
    def without_kernel(self) -> bool:
        """Whether PyTorch alone computed this: then no load, no store and no grid can be at fault."""
        return self.launches == 0

    @property
    def attention(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """q and k where the answer belongs to attention."""
        if self.names[-3:] != ["q", "k", "v"]:
            return None
        q, k, _ = self.expected.arguments[-3:]
        return q, k

    @property
    def is_causal(self) -> bool:
        """Whether a row sees the more the later it is: its first rows may be right by chance."""
        return bool(getattr(self.expected.formula, "is_causal", False))

    @property
    def product(self) -> tuple[int, int, int] | None:
        """m, n and k where the answer is a product of matrices, a of m x k and b of k x n."""
        if self.names != ["a", "b"]:
            return None
        a, b = self.expected.arguments
        return a.shape[0], b.shape[1], a.shape[1]

    @property
    def names(self) -> list[str]:
        """The arguments as a student knows them, from the reference's formula."""
        return [*inspect.signature(self.expected.formula).parameters]

    def words_for(self, index: int) -> str:
        """An argument in a sentence."""
        name = self.names[index]
        return "the incoming gradient" if name.startswith("d") else f"`{name}`"

    def is_explained_by(self, rival: torch.Tensor) -> bool:
        """Whether the answer is that of another formula: its NaN and infinities, its values, and not the right ones."""
        got, expected = self.got, self.expected
        if rival.shape != got.shape:
            return False
        rounded = rival.to(got.dtype)
        if not bool((rounded.isnan() == got.isnan()).all()) or not bool((rounded.isinf() == got.isinf()).all()):
            return False
        size = float(rival.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
        if self.attention and size < NEXT_TO * expected.least_scale:
            return False  # next to nothing, as with large scores many a formula's gradient is
        near = expected.errors(got, rival.double()).rms
        if near > NEXT_TO:
            return False
        right = expected.values.to(got.dtype)
        if bool((right.isfinite() != got.isfinite()).any()) or near * CLOSER < self.errors.rms:
            return True
        # Rounding to 16 bits hides a small difference from the rms, but not from the share of equal elements.
        return got.dtype != torch.float32 and _share(got == rounded) > 0.97 and _share(got == right) < 0.9


Predicate = Callable[[Evidence], Cause | None]


def strides_of(tensor: torch.Tensor) -> str:
    """The strides, as they stand in a sentence."""
    return " and ".join(str(stride) for stride in tensor.stride())


def _share(mask: torch.Tensor) -> float:
    return float(mask.double().mean()) if mask.numel() > 100 else 0.5
