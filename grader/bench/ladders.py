"""The sizes that `bench --plot` goes through, a ladder for each function, and how many operations a call has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from grader.clock import works
from grader.clock.works import Work

ELEMENTS = 1 << 29  # of a softmax's argument: 1 GiB of bfloat16
TOKENS = 1 << 18  # of all heads together
WIDTH = 128  # of a head

# Operations for each element of the result, a special function (exp, tanh) counted as one.
GELU_OPERATIONS = 9  # 0.5 x (1 + tanh(c (x + 0.044715 x x x))): six products, two sums, tanh
SOFTMAX_OPERATIONS = 5  # maximum, difference, exp, sum, division
GRADIENT_OPERATIONS = 4  # dy y, its sum, the difference from dy, and times y


@dataclass(frozen=True)
class Ladder:
    """A function's works by size."""

    title: str
    axis: str  # what the size is
    sizes: tuple[int, ...]
    work: Callable[[int], Work]
    tiny: Work  # its time is that of launching it


def powers(first: int, last: int) -> tuple[int, ...]:
    """Powers of two from 2^first to 2^last."""
    return tuple(1 << exponent for exponent in range(first, last + 1))


def square(size: int) -> Work:
    """matmul of two square matrices."""
    return works.matmul(size, size, size)


def forward(tokens: int) -> Work:
    """Causal attention of so many heads that all have TOKENS together."""
    return works.attention_forward(TOKENS // tokens, tokens, WIDTH, True)


def backward(tokens: int) -> Work:
    """Its gradients."""
    return works.attention_backward(TOKENS // tokens, tokens, WIDTH, True)


LADDERS: Mapping[str, Ladder] = {  # by the timed check
    "gelu.speed_bfloat16": Ladder(
        "gelu", "elements", (1 << 16, 1 << 18, *powers(20, 29)), works.gelu, tiny=works.gelu(1 << 15)
    ),
    "softmax.speed_forward": Ladder(
        "softmax", "columns, 1 GiB in all", powers(7, 17),
        lambda columns: works.softmax(ELEMENTS // columns, columns), tiny=works.softmax(4, 128),
    ),
    "softmax.speed_backward": Ladder(
        "softmax, there and back", "columns, 1 GiB in all", powers(7, 17),
        lambda columns: works.softmax_step(ELEMENTS // columns, columns), tiny=works.softmax_step(4, 128),
    ),
    "matmul.speed_bfloat16": Ladder(
        "matmul", "m = n = k (3001 is prime)", (*powers(7, 11), 3001, 4096, 6144, 8192), square, tiny=square(64)
    ),
    "flash_attention.speed_forward": Ladder(
        "attention, causal", "tokens a head, 2¹⁸ in all", powers(7, 14), forward,
        tiny=works.attention_forward(1, 128, WIDTH, True),
    ),
    "flash_attention.speed_backward": Ladder(
        "attention, causal, backward", "tokens a head, 2¹⁸ in all", powers(7, 14), backward,
        tiny=works.attention_backward(1, 128, WIDTH, True),
    ),
}  # fmt: skip


def operations(work: Work) -> int:
    """Of a call: those on tensor cores where the work has such, or else a few for each element."""
    if work.operations:
        return work.operations
    elements = work.outputs[0].nbytes // work.outputs[0].dtype.itemsize
    each = {"gelu": GELU_OPERATIONS, "softmax": SOFTMAX_OPERATIONS}[work.function]
    return elements * (each if work.gradient is None else each + GRADIENT_OPERATIONS)
