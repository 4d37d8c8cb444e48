"""Causes in numbers: what was computed, in which precision, and from which call's inputs."""

from __future__ import annotations

import torch

from grader.judge.evidence import NEXT_TO, Cause, Evidence
from grader.judge.expected import Mistake
from grader.judge.tolerance import ROUNDOFF

# float32 answers off by this much of their size look like float16 or TF32 inside (10 and 10 bits of fraction).
HALF_PRECISION_RMS = (2e-5, 5e-3)
NO_DOUBT = 1e-5  # of the answer's size: what float32 rounds
LEAST_BLOCK = 16  # elements
FEW_ERRORS = 32  # of these, all may go one way by chance

# What a check can know by its design, however the wrong numbers look.
OTHER_STREAM = Cause(
    "other_stream",
    "the kernel does not run on the current stream, or the answer is not ready on it",
    "launch without a stream of your own; one that you do use has to wait for the current one, and to be waited for",
)
ORDER_DEPENDENT = Cause(
    "order_dependent",
    "it is right when the programs run one after another, and wrong in another order: one program uses what another "
    "has written, or two write to the same elements",
    "a program may read only the inputs and what it wrote itself, and store only to its own elements: what all "
    "programs need comes from a launch before",
)
ANSWER_OVERWRITTEN = Cause(
    "answer_overwritten", "it was right, and has been overwritten by a later call",
    "allocate the output anew at every call: a caller may still hold the last one",
)  # fmt: skip


def infinity_missing(evidence: Evidence) -> Cause | None:
    """All is right but numbers that are too large for the dtype, and round to infinity."""
    got, values = evidence.got, evidence.expected.values
    infinite = values.to(got.dtype).isinf() & values.isfinite()
    if not evidence.wrong.any() or bool((evidence.wrong & ~infinite).any()):
        return None
    dtype = str(got.dtype).removeprefix("torch.")
    largest = f"{torch.finfo(got.dtype).max:g}, the largest of {dtype}"
    beyond = f"only numbers beyond {largest}, are wrong: they round to infinity"
    if bool(got[evidence.wrong].isnan().any()):
        return Cause(
            "infinity_missing", f"{beyond}, and what comes after that, inf - inf or 0 * inf, is NaN",
            f"compute in float32, where they are no infinity yet, and convert to {dtype} last, at the store",
        )  # fmt: skip
    return Cause(
        "infinity_missing", f"{beyond}; here they seem to be cut off",
        f"store the float32 sum as it is: the conversion to {dtype} makes the infinity, as in PyTorch",
    )  # fmt: skip


def overflow(evidence: Evidence) -> Cause | None:
    """An element-wise function, also one of a product, that is not finite from some size of its input on."""
    expected, got, broken = evidence.expected, evidence.got, evidence.not_finite
    elementwise = (
        len(expected.arguments) == 1 and expected.group == "tensor" and expected.arguments[0].shape == got.shape
    )
    if not (elementwise or evidence.product) or min(int(broken.sum()), int((~broken).sum())) < 2:
        return None  # one element is the largest by chance
    x, name = (expected.arguments[0].double(), "x") if elementwise else (expected.values, "result")
    same_sign = ~broken & torch.isin(x.sign(), x[broken].sign())
    if bool((x[same_sign].abs() >= x[broken].abs().min()).any()):
        return None
    first = x[broken][x[broken].abs().argmin()]
    return Cause(
        "overflow",
        f"every {name} from {float(first):.3g} on gives {float(got[broken][0]):g}: "
        "an exponential or a power overflows to infinity, and inf / inf is NaN",
        "compute in float32, and rewrite the formula so that the exponent is never large and positive: "
        "1 / (1 + exp(-2u)) has no such quotient, (exp(2u) - 1) / (exp(2u) + 1) has",
    )  # fmt: skip


def infinity_minus_infinity(evidence: Evidence) -> Cause | None:
    """Whole rows are NaN, and those are the rows that begin with the most -inf."""
    x, broken = evidence.expected.arguments[0], evidence.not_finite
    if x.shape != broken.shape or not broken.any() or bool((broken.any(-1) != broken.all(-1)).any()):
        return None
    leading = (x == -torch.inf).long().cumprod(-1).sum(-1)
    fewest, right = int(leading[broken.all(-1)].min()), evidence.got.isfinite().all(-1)
    if fewest == 0 or bool((leading[right] >= fewest).any()):
        return None
    return Cause(
        "infinity_minus_infinity", f"rows that begin with {fewest} or more -inf are NaN: -inf - (-inf) is NaN",
        "while the running maximum is -inf, subtract 0 in its place: exp(-inf - 0) is 0, as it ought to be",
    )  # fmt: skip


def previous_answer(evidence: Evidence) -> Cause | None:
    """The answer to the call before."""
    if evidence.previous is None or not evidence.is_explained_by(evidence.previous):
        return None
    return Cause(
        "previous_answer", "this is the right answer to the call before",
        "compute from the content of the input at every call; the same address may hold new values",
    )  # fmt: skip


def no_keys(evidence: Evidence) -> Cause | None:
    """Attention without keys, where no sum has a term."""
    if evidence.attention is None or evidence.attention[1].shape[-2]:
        return None
    due = float(evidence.expected.values.flatten()[0])
    return Cause(
        "no_keys", f"there are no keys (n_k = 0), so every element is {due:g}"
        + ("; l is 0 here, and 0 / 0 is NaN" if evidence.got.isnan().any() else ""),
        "without keys o and dq are zeros and lse is -inf: divide by l only where it is not 0, or return torch.zeros "
        "and torch.full(..., -torch.inf) before the first tile",
    )  # fmt: skip


def known_mistake(evidence: Evidence) -> Cause | None:
    """The wrong formula that explains the answer; of several that do, the nearest, and of equal ones the first."""
    found: list[tuple[float, Mistake]] = []
    for mistake in evidence.expected.mistakes:
        wrong = mistake.formula(*evidence.expected.arguments)
        if evidence.is_explained_by(wrong):
            found.append((evidence.expected.errors(evidence.got, wrong.double()).rms, mistake))
            if found[-1][0] < NO_DOUBT:
                break
    if not found:
        return None
    _, nearest = min(found, key=lambda one: one[0])
    return Cause(nearest.name, nearest.why, nearest.hint)


def known_mistake_in_finite_numbers(evidence: Evidence) -> Cause | None:
    """The same, where no NaN blurs the picture: a stray load beside it cannot be what makes the answer wrong."""
    return None if evidence.not_finite.any() else known_mistake(evidence)


def known_mistake_with_nan(evidence: Evidence) -> Cause | None:
    """The same, where a number is due and there is none."""
    return known_mistake(evidence) if evidence.not_finite.any() else None


def constant(evidence: Evidence) -> Cause | None:
    """The same number everywhere."""
    got, values = evidence.got, evidence.expected.values
    value = float(got.flatten()[0])
    if bool((got == value).all()) and (value == 0 or not bool((values == values.flatten()[0]).all())):
        hint = "is it assigned at all?" if evidence.without_kernel else "is the result stored at all?"
        if evidence.attention:
            hint += " Does the loop over the tiles take a step?"
        if value in (torch.inf, -torch.inf):
            hint = "a number on the way is too large for its dtype: compute in float32, and convert at the store"
        return Cause("constant", f"every element is {value:g}", hint)
    return None


def lower_precision(evidence: Evidence) -> Cause | None:
    """Close, but not as close as float32 inside gives."""
    got, errors = evidence.got, evidence.errors
    if not bool(torch.isfinite(got).eq(torch.isfinite(evidence.expected.values.to(got.dtype))).all()):
        return None
    low, high = HALF_PRECISION_RMS
    if got.dtype == torch.float32 and low < errors.rms < high and errors.max < 0.1 and _is_like_rounding(evidence):
        size = f"the error is {errors.rms:.0e} of the answer's size, as half precision inside gives"
        if evidence.without_kernel:
            return Cause(
                "lower_precision", size,
                "compute in float32 from the first product to the last sum: is there a .half(), a .to(torch.float16), "
                "or a tensor that was made with another dtype?",
            )  # fmt: skip
        return Cause(
            "lower_precision", f"{size}, or TF32 on a GPU",
            "keep every step and every sum in float32: .to(tl.float32) after the load, input_precision=\"ieee\" in "
            "tl.dot, accumulators that begin as tl.zeros(..., tl.float32); at the store convert to the output's dtype "
            "(output_pointer.dtype.element_ty), and not to tl.float16",
        )  # fmt: skip
    if got.dtype in (torch.float16, torch.bfloat16) and errors.max < 100 * ROUNDOFF[got.dtype]:
        return Cause(
            "lower_precision",
            f"the answer is close, but {errors.max / ROUNDOFF[got.dtype]:.1f} roundings off where 1 is right: "
            "sums or products are kept in half precision",
            "sum in float32, tl.zeros((BLOCK_M, BLOCK_N), tl.float32), and convert once, at the store"
            if evidence.product
            else "compute in float32, from .float() before the first product on, and round once, at the end"
            if evidence.without_kernel
            else "compute in float32 (.to(tl.float32) after the load) and round once, at the store",
        )  # fmt: skip
    return None


def _is_like_rounding(evidence: Evidence) -> bool:
    """Whether errors go up as well as down: what is left out goes one way."""
    difference = evidence.got.double() - evidence.expected.values
    up, down = int((difference > 0).sum()), int((difference < 0).sum())
    return min(up, down) > 0.05 * (up + down) or up + down < FEW_ERRORS


def kept_between_calls(evidence: Evidence) -> Cause | None:
    """The second of two like calls is wrong."""
    if evidence.previous is None:
        return None
    return Cause(
        "kept_between_calls", "the first call was right, this one is of the same form: something is kept between calls",
        "allocate scratch memory anew at every call, and zero what you add to",
    )  # fmt: skip


def unexpected_nan(evidence: Evidence) -> Cause | None:
    """NaN that was computed. On a GPU it loses its bits in the first operation, and nobody watches loads there."""
    if not bool((evidence.not_finite & evidence.got.isnan()).any()):
        return None
    if evidence.without_kernel or (evidence.watched and not evidence.accesses):
        first = (evidence.not_finite & evidence.got.isnan()).nonzero()[0].tolist()
        said = "NaN where a number is due: 0 / 0, inf - inf, inf / inf or 0 * inf somewhere before"
        if evidence.attention:
            return Cause(
                "unexpected_nan", said,
                f"print each step for {first}. While every key so far is masked, m is -inf, and m - n is NaN: subtract "
                "0 in its place; of a row that saw no key, l is 0",
            )  # fmt: skip
        return Cause("unexpected_nan", said, f"print each step for element {first}")
    return Cause(
        "unexpected_nan", "NaN where a number is due: the memory around every input is NaN, so a stray load gives it",
        "mask rows, columns and k in the loads of both operands, with other=0.0 (0 * NaN is NaN), and check the "
        "strides; what is added to (tl.atomic_add) must begin as torch.zeros"
        if evidence.product
        else "mask the load of the last block, with `other=` where masked lanes enter a sum or a maximum; "
        "if that is right, look for inf - inf, inf / inf and 0 * inf",
    )  # fmt: skip


def row_sum(evidence: Evidence) -> Cause | None:
    """Each row is right but for a factor of its own."""
    got, values = evidence.got.double(), evidence.expected.values
    if evidence.attention:  # a log-sum-exp has no sum that it is divided by
        return None
    if not (evidence.expected.group == "row" and got.dim() and bool((got.isfinite() & values.isfinite()).all())):
        return None
    factor = (got * values).sum(-1, keepdim=True) / values.square().sum(-1, keepdim=True)
    if bool(((got - factor * values).norm(dim=-1) > NEXT_TO * got.norm(dim=-1)).any()):
        return None
    factors = factor.flatten()
    row = int((factors - 1).abs().argmax())
    times = f"row {row} comes out {float(factors[row]):.3g} times its size"
    return Cause(
        "row_sum", f"the sum that each row is divided by is wrong: {times}",
        "sum in float32 over every block of the row and nothing else (load with other=-float('inf')), "
        "and rescale the sum when a block brings a larger maximum",
    )  # fmt: skip


def wrong_tail(evidence: Evidence) -> Cause | None:
    """Right up to where the last block begins, along rows, along columns or in one piece, and wrong from there on."""
    if evidence.is_causal:
        return None  # the first rows see so little that many a fault does not show there
    wrong = evidence.wrong
    rows = wrong.reshape(-1, wrong.shape[-1]) if wrong.dim() else wrong.reshape(1, 1)
    for along, kind in ((rows.any(0), "index"), (rows.any(1), "row"), (wrong.flatten(), "element")):
        first = int(along.nonzero()[0]) if along.any() else 0
        if _begins_the_last_block(first, len(along)) and bool(along[first:].float().mean() > 0.9):
            said = f"right before {kind} {first}, wrong from there on: the last"
            if evidence.without_kernel:
                return Cause(
                    "wrong_tail", f"{said} tile is cut off, or more is counted than exists",
                    "compare with a size that whole tiles fill: is the last one gone through, with all of it?",
                )  # fmt: skip
            return Cause(
                "wrong_tail", f"{said} block is cut off or not masked",
                "compare with a size that fills the block; the last block needs its mask, and a program of its own",
            )  # fmt: skip
    return None


def _begins_the_last_block(first: int, size: int) -> bool:
    """Whether blocks of some power of two, 16 or more, that begin at 0 have their last one begin here."""
    block = first & -first  # the largest that begins here
    return first > 0 and block >= LEAST_BLOCK and size <= first + block
