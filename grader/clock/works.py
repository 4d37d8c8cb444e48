"""What is timed: functions with the shapes of their arguments, and what is right in single rows of their answers.

An answer is looked at row by row, in float64 on the GPU: rows that nobody could foresee, of every call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from grader.clock.memory import Spec
from grader.judge.reference.flash_attention import GRADIENT_TOLERANCES, OUTPUT_TOLERANCES
from grader.judge.reference.matmul import rms_of_sums
from grader.judge.tolerance import ROUNDOFF, Tolerance

Tensors = Sequence[torch.Tensor]
Rows = Callable[[Tensors, int, torch.Tensor], list[torch.Tensor]]
Refill = Callable[[Tensors, torch.Generator], None]

GELU_COLUMNS = 8192  # a long vector is looked at as a matrix


def random_numbers(tensors: Tensors, generator: torch.Generator) -> None:
    """Fill with normal numbers."""
    for tensor in tensors:
        tensor.normal_(generator=generator)


@dataclass(frozen=True)
class Opponent:
    """A function of `baselines` that a work is compared with."""

    function: str
    options: Mapping[str, object] = field(default_factory=dict)
    differentiates: bool = True  # where the work does


@dataclass(frozen=True)
class Work:
    """A function with arguments of fixed shapes."""

    problem: str
    function: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    rows: Rows  # of arguments, a head and rows in it: what is right there, in float64, for each output
    tolerances: tuple[Tolerance, ...]  # of each output, relative to the rms of the rows
    moved_bytes: int  # at least, to and from device memory
    operations: int = 0  # on tensor cores, at least
    options: Mapping[str, object] = field(default_factory=dict)
    gradient: int | None = None  # which input is that of the result: then those of the others come after the answer
    refill: Refill = random_numbers
    late: tuple[int, ...] = (0,)  # inputs that nothing else depends on, and of which a column is written last
    libraries: Mapping[str, str] = field(default_factory=dict)  # functions of `baselines`, by the baseline's name

    def __str__(self) -> str:
        shapes = " and ".join(" x ".join(map(str, spec.shape)) for spec in dict.fromkeys(self.inputs))
        return f"{shapes} {str(self.inputs[0].dtype).removeprefix('torch.')}"

    def opponent(self, baseline: str) -> Opponent:
        """What a baseline is for this work. Raises `ValueError` where there is none."""
        if baseline == "device_copy":
            halves = round(self.moved_bytes / self.inputs[0].nbytes)
            options = {"halves": halves, "results": len(self.outputs)}
            return Opponent("device_copy", options, differentiates=False)
        if baseline not in self.libraries:
            raise ValueError(f"there is no baseline {baseline} for {self.function}")
        return Opponent(self.libraries[baseline], self.options)

    @property
    def heads(self) -> int:
        """How many matrices an answer has."""
        return math.prod(self.outputs[0].shape[:-2]) if len(self.outputs[0].shape) > 1 else 1


def gelu(elements: int, dtype: torch.dtype = torch.bfloat16) -> Work:
    """gelu(x) for one long vector."""
    x = Spec((elements // GELU_COLUMNS, GELU_COLUMNS), dtype)

    def rows(tensors: Tensors, head: int, at: torch.Tensor) -> list[torch.Tensor]:
        return [torch.nn.functional.gelu(tensors[0][at].double(), approximate="tanh")]

    return Work("gelu", "gelu", (x,), (x,), rows, (_rounded_once(dtype),), 2 * x.nbytes, libraries={"torch": "gelu"})


def softmax(rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Work:
    """softmax(x) over rows."""
    x = Spec((rows, columns), dtype)

    def right(tensors: Tensors, head: int, at: torch.Tensor) -> list[torch.Tensor]:
        return [torch.softmax(tensors[0][at].double(), -1)]

    tolerances = (_rounded_once(dtype),)
    return Work("softmax", "softmax", (x,), (x,), right, tolerances, 2 * x.nbytes, libraries={"torch": "softmax"})


def softmax_step(rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> Work:
    """softmax(x), and from a gradient back to that of x: both are looked at."""
    x = Spec((rows, columns), dtype)

    def right(tensors: Tensors, head: int, at: torch.Tensor) -> list[torch.Tensor]:
        y, dy = torch.softmax(tensors[0][at].double(), -1), tensors[1][at].double()
        return [y, y * (dy - (dy * y).sum(-1, keepdim=True))]

    once = _rounded_once(dtype)
    twice = Tolerance(2 * once.max, 2 * (once.rms or 0.0))  # y is rounded before the gradient is made of it
    return Work(
        "softmax", "softmax", (x, x), (x, x), right, (once, twice), 5 * x.nbytes, gradient=1, late=(0, 1),
        libraries={"torch": "softmax"},
    )  # fmt: skip


def matmul(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16) -> Work:
    """matmul(a, b)."""
    a, b, c = Spec((m, k), dtype), Spec((k, n), dtype), Spec((m, n), dtype)

    def right(tensors: Tensors, head: int, at: torch.Tensor) -> list[torch.Tensor]:
        return [tensors[0][at].double() @ tensors[1].double()]

    return Work(
        "matmul", "matmul", (a, b), (c,), right, (_rounded_once(dtype, k),), a.nbytes + b.nbytes + c.nbytes,
        2 * m * n * k, late=(0, 1), libraries={"cublas": "matmul"},
    )  # fmt: skip


def attention_forward(heads: int, n: int, d: int, causal: bool, dtype: torch.dtype = torch.bfloat16) -> Work:
    """flash_attention_forward(q, k, v, causal): o and lse."""
    x, lse = Spec((heads, n, d), dtype), Spec((heads, n), torch.float32)

    def right(tensors: Tensors, head: int, at: torch.Tensor) -> list[torch.Tensor]:
        q, k, v = (tensor[head].double() for tensor in tensors)
        scores = _scores(q[at], k, at, causal)
        return [torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)]

    tolerances = (OUTPUT_TOLERANCES[dtype], Tolerance(max=1e-5))
    return Work(
        "flash_attention", "flash_attention_forward", (x, x, x), (x, lse), right, tolerances, 4 * x.nbytes,
        4 * heads * n * n * d // (2 if causal else 1), {"is_causal": causal},
        late=(0, 2), libraries={"sdpa_flash": "attention_forward"},
    )  # fmt: skip


def attention_backward(heads: int, n: int, d: int, causal: bool, dtype: torch.dtype = torch.bfloat16) -> Work:
    """flash_attention_backward(do, q, k, v, o, lse, causal): dq, dk and dv, for a right o and lse."""
    x, lse = Spec((heads, n, d), dtype), Spec((heads, n), torch.float32)

    def refill(tensors: Tensors, generator: torch.Generator) -> None:
        random_numbers(tensors[:4], generator)
        _, q, k, v, o, log_sum = tensors
        found = torch.ops.aten._scaled_dot_product_flash_attention(q[None], k[None], v[None], 0.0, causal)
        o.copy_(found[0][0])
        log_sum.copy_(found[1][0])

    def right(tensors: Tensors, head: int, at: torch.Tensor) -> list[torch.Tensor]:
        do, q, k, v, o, log_sum = (tensor[head].double() for tensor in tensors)
        of_rows, row_sums = torch.softmax(_scores(q[at], k, at, causal), -1), (do * o).sum(-1)
        dq = (of_rows * (do[at] @ v.T - row_sums[at, None])) @ k / math.sqrt(d)
        p = torch.exp(_scores(q, k[at], None, False) - log_sum[:, None])  # of some keys, for all queries
        if causal:
            p = p.masked_fill(at > torch.arange(n, device=at.device)[:, None], 0.0)
        ds = p * (do @ v[at].T - row_sums[:, None]) / math.sqrt(d)
        return [dq, ds.T @ q, p.T @ do]

    return Work(
        "flash_attention", "flash_attention_backward", (x, x, x, x, x, lse), (x, x, x), right,
        (GRADIENT_TOLERANCES[dtype],) * 3, 8 * x.nbytes, 10 * heads * n * n * d // (2 if causal else 1),
        {"is_causal": causal}, refill=refill, libraries={"sdpa_flash": "attention_backward"},
    )  # fmt: skip


def _scores(q: torch.Tensor, k: torch.Tensor, at: torch.Tensor | None, causal: bool) -> torch.Tensor:
    """Scores of these queries, of which `at` are the numbers, with these keys: hidden ones are -inf."""
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if not causal or at is None:
        return scores
    return scores.masked_fill(torch.arange(len(k), device=q.device) > at[:, None], -torch.inf)


def _rounded_once(dtype: torch.dtype, terms: int = 1) -> Tolerance:
    """A computation in float32, sums of so many terms, and one rounding: TF32 and half precision are further off."""
    if dtype is torch.float32:
        return Tolerance(max=1e-4, rms=1e-5 + rms_of_sums(terms))
    return Tolerance(max=4 * ROUNDOFF[dtype], rms=1.5 * ROUNDOFF[dtype])
