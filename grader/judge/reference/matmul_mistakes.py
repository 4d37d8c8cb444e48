"""What goes wrong in a product of matrices: formulas whose values tell the mistake that was made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from grader.judge.expected import Formula, Mistake
from grader.judge.reference import gelu as gelu_reference

COMMON_BLOCKS = (16, 32, 64, 128, 256)  # steps along k


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a (m, k) times b (k, n), in float64."""
    return a.double() @ b.double()


def _relu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.relu(product(a, b))


def _gelu(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return gelu_reference.tanh_form(product(a, b))


# What an answer is by its activation, and the activation alone.
FORMULAS: dict[str | None, Formula] = {None: product, "relu": _relu, "gelu": _gelu}
OUTER: dict[str | None, Formula] = {None: lambda x: x, "relu": torch.relu, "gelu": gelu_reference.tanh_form}


def _at(a: torch.Tensor, b: torch.Tensor, of_a: torch.Tensor, of_b: torch.Tensor) -> torch.Tensor:
    return product(a[:, of_a], b[of_b])


def _first_step(block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return product(a[:, :block], b[:block])


def _last_step(block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    start = max(a.shape[1] - 1, 0) // block * block
    return product(a[:, start:], b[start:])


def _without_rest(block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    end = a.shape[1] // block * block
    return product(a[:, :end], b[:end])


def _first_step_repeated(a_stays: bool, b_stays: bool, block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    k = torch.arange(a.shape[1])
    return _at(a, b, k % block if a_stays else k, k % block if b_stays else k)


def _moved_sideways(x: torch.Tensor, along: int, block: int) -> torch.Tensor:
    """What a kernel reads of `x` that moves its pointer by the other stride after each step along k."""
    index = torch.meshgrid(*(torch.arange(size) for size in x.shape), indexing="ij")
    moved = index[along] // block * block
    place = (index[along] - moved) * x.stride(along) + (index[1 - along] + moved) * x.stride(1 - along)
    memory = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())[x.storage_offset() :]
    return torch.where(place < len(memory), memory[place.clamp(max=len(memory) - 1)], torch.nan)


def _a_moves_along_m(block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _unless_lost(product(_moved_sideways(a, 1, block), b))


def _b_moves_along_n(block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return _unless_lost(product(a, _moved_sideways(b, 0, block)))


def _unless_lost(values: torch.Tensor) -> torch.Tensor:
    """NaN throughout fits too many stories: then a tensor of no shape."""
    return values if values.isfinite().any() else torch.empty(0)


def _tiles_of_b_transposed(block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    rows, columns = b.shape
    padded = torch.nn.functional.pad(b.double(), (0, -columns % block, 0, -rows % block))
    tiles = padded.reshape(padded.shape[0] // block, block, padded.shape[1] // block, block)
    return product(a, tiles.transpose(1, 3).reshape(padded.shape)[:rows, :columns])


def _with_ten_bits(x: torch.Tensor, rounded: bool) -> torch.Tensor:
    """float32 numbers with the 10 bits of fraction of TF32 and float16: cut, or rounded to even."""
    if x.dtype is not torch.float32:
        return x
    bits = x.contiguous().view(torch.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1) if rounded else bits) & ~0x1FFF).view(torch.float32)


def _of_ten_bits(rounded: bool, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return product(_with_ten_bits(a, rounded), _with_ten_bits(b, rounded))


def _stored_transposed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    right = product(a, b)
    return right.t().reshape(right.shape)


def _activated_at_each_step(activation: str, block: int, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for start in range(0, a.shape[1], block):
        total = OUTER[activation](total + product(a[:, start : start + block], b[start : start + block]))
    return total


# What can go wrong along k: a name, the wrong product for a step of so many elements, why, and what to try.
STEPS = (
    (
        "first_step_only", _first_step, "only the first {block} products of each sum are in it",
        "run tl.cdiv(K, BLOCK) steps, and mask k once: with k = i * BLOCK + tl.arange(0, BLOCK) the mask is k < K",
    ),
    (
        "last_step_only", _last_step, "only the products of the last step of {block} are in it",
        "add to the accumulator: accumulator += tl.dot(...), or tl.dot(a, b, accumulator)",
    ),
    (
        "rest_dropped", _without_rest,
        "the last products of each sum are missing, those of a step along k that is not full",
        "run tl.cdiv(K, BLOCK) steps, and mask k < K in the loads of both operands",
    ),
    (
        "pointers_stay", partial(_first_step_repeated, True, True),
        "every step of {block} reads the same elements along k again",
        "move both pointers on by BLOCK * stride in each step",
    ),
    (
        "pointer_of_a_stays", partial(_first_step_repeated, True, False),
        "every step of {block} reads the same elements of `a` again",
        "move a's pointer on by BLOCK * its stride along k",
    ),
    (
        "pointer_of_b_stays", partial(_first_step_repeated, False, True),
        "every step of {block} reads the same elements of `b` again",
        "move b's pointer on by BLOCK * its stride along k",
    ),
    (
        "a_moves_along_m", _a_moves_along_m, "after each step of {block}, `a` is read {block} rows further down",
        "along k `a` goes from column to column: move its pointer on by BLOCK * a.stride(1)",
    ),
    (
        "b_moves_along_n", _b_moves_along_n, "after each step of {block}, `b` is read {block} columns further right",
        "along k `b` goes from row to row: move its pointer on by BLOCK * b.stride(0)",
    ),
    (
        "tiles_of_b_transposed", _tiles_of_b_transposed,
        "each tile of `b`, {block} x {block}, enters the product transposed",
        "k runs down the tile of b: k[:, None] * its stride along k + n[None, :] * its stride along n; "
        "a tile that is loaded the other way round goes through tl.trans",
    ),
)  # fmt: skip

OF_THE_WHOLE_PRODUCT = (
    # Tensor cores ignore the lower 13 bits of a float32 operand (PTX, wgmma.mma_async with .tf32); a conversion to
    # float16, or to TF32 by cvt, rounds.
    Mistake(
        "tf32", partial(_of_ten_bits, False), "the operands are cut to TF32 (10 bits of fraction in place of 23)",
        "pass input_precision=\"ieee\" to tl.dot: for float32 its default is TF32",
    ),
    Mistake(
        "rounded_operands", partial(_of_ten_bits, True),
        "the operands are rounded to float16 or TF32 (10 bits of fraction in place of 23)",
        "multiply them as they are: no .to(tl.float16), and input_precision=\"ieee\" in tl.dot",
    ),
    Mistake(
        "stored_transposed", _stored_transposed, "the right product is stored transposed",
        "element (m, n) of the result lies at m * output.stride(0) + n * output.stride(1)",
    ),
)  # fmt: skip


def _composed(activation: str | None, formula: Formula, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A wrong product under an activation. Zeros throughout fit too many stories there: x > 0 makes them of NaN."""
    found = OUTER[activation](formula(a, b))
    return found if activation is None or found.any() else torch.empty(0)


def _mistakes(activation: str | None) -> tuple[Mistake, ...]:
    """Known mistakes of the product under an activation, and those of the activation itself."""
    found = [
        Mistake(name, partial(_composed, activation, partial(wrong, block)), why.format(block=block), hint)
        for name, wrong, why, hint in STEPS
        for block in COMMON_BLOCKS
    ]
    found += [
        replace(mistake, formula=partial(_composed, activation, mistake.formula)) for mistake in OF_THE_WHOLE_PRODUCT
    ]
    if activation:
        found.append(Mistake(
            "activation_missing", product, f"this is the product without its {activation}",
            f"apply {activation} to the accumulator after the loop over k, before the store",
        ))  # fmt: skip
        found += [
            Mistake(
                "activation_in_the_loop", partial(_activated_at_each_step, activation, block),
                f"{activation} is applied after every step of {block} along k", "apply it once, after the loop",
            )
            for block in COMMON_BLOCKS
        ]  # fmt: skip
    found += [
        Mistake(
            "other_activation", formula, f"this is the product with {other}",
            "the argument activation decides: None, \"relu\" or \"gelu\"; inside the kernel it is a tl.constexpr",
        )
        for other, formula in FORMULAS.items()
        if other not in (None, activation)
    ]  # fmt: skip
    if activation == "gelu":
        found.append(Mistake(
            "activation_of_rounded", _gelu_of_rounded, "gelu is applied to sums that were rounded before",
            "apply it to the float32 accumulator, and convert once, at the store",
        ))  # fmt: skip
        found += [
            replace(mistake, formula=partial(_of_product, mistake.formula)) for mistake in gelu_reference.MISTAKES
        ]
    return tuple(found)


def _gelu_of_rounded(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return gelu_reference.tanh_form(product(a, b).to(a.dtype))


def _of_product(outer: Formula, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return outer(product(a, b))


MISTAKES = {activation: _mistakes(activation) for activation in FORMULAS}
