"""Comparison of what came back with what is right. Returns nothing, or raises the `Outcome` to show."""

from __future__ import annotations

from collections.abc import Callable

import torch

from grader.judge.causes import Cause, Evidence, likely_cause
from grader.judge.expected import LIKE_X, Expected
from grader.judge.output import clean
from grader.judge.replies import Raised
from grader.judge.submission import Result
from grader.judge.tolerance import ROUNDOFF, Errors
from grader.judge.verdict import Outcome, Verdict
from grader.judge.wording import raised_outcome


def assert_matches(
    result: Result,
    expected: Expected,
    previous: Expected | None = None,
    cause: Cause | None = None,
    find: Callable[[Evidence], Cause | None] = likely_cause,
) -> None:
    """Hold a result against the reference: form first, then every element.

    `previous` is the right answer of the call before, so that a stale answer can be told. `cause` is given where the
    check itself tells why an answer is wrong, because everything else was right a moment ago; else `find` looks for it.
    """
    got = result.plain()
    _assert_form(result, got, expected)
    errors = expected.errors(got)
    if errors.within(expected.tolerance):
        return
    stale = previous.values if previous and previous.values.shape == got.shape else None
    watched = result.launches is not None and result.device == "cpu"
    cause = cause or find(Evidence(got, expected, errors, result.accesses, stale, result.launches, watched))
    raise Outcome(
        Verdict.FAIL,
        _what_is_wrong(result.name, got, expected, errors),
        cause.why if cause else "",
        cause.hint if cause else expected.advice,
        cause=cause.name if cause else None,
        where=cause.where if cause else None,
    )


def assert_allowed(result: Result, expected: Expected) -> None:
    """Hold the answer to an allowed call against the reference, in a check of what is refused."""
    try:
        assert_matches(result, expected)
    except Outcome as outcome:
        outcome.message = f"already in a call that is allowed: {outcome.message}"
        raise


def assert_raises(outcome: Raised | Result, kind: str, naming: tuple[str, ...], refusing: str) -> None:
    """Demand an exception of this type whose message names these words; `refusing` says for what it is due."""
    words = " and ".join(naming)
    hint = f"raise {kind} for {refusing}; its message has the word{'s' * (len(naming) > 1)} {words}"
    if isinstance(outcome, Result):
        raise Outcome(Verdict.FAIL, f"no exception where a {kind} is due", hint=hint, cause="no_exception")
    if outcome.type != kind:
        other = raised_outcome(outcome, f"a {kind} is due here")
        if other.verdict is Verdict.FAIL:
            other.cause, other.why, other.hint = "wrong_exception", "", hint
        raise other
    missing = [word for word in naming if word not in outcome.message]
    if missing:
        said = clean(outcome.message, 200)
        raise Outcome(
            Verdict.FAIL, f"the message of the {kind} does not name {' and '.join(missing)}: {said}", hint=hint,
            cause="unclear_exception",
        )  # fmt: skip


def _assert_form(result: Result, got: torch.Tensor, expected: Expected) -> None:
    if got.shape != expected.values.shape:
        raise Outcome(
            Verdict.FAIL, f"{result.name} has shape {list(got.shape)}, expected {list(expected.values.shape)}",
            hint=expected.form, cause="wrong_shape",
        )  # fmt: skip
    if got.dtype != expected.dtype:
        found, wanted = _name(got.dtype), _name(expected.dtype)
        raise Outcome(
            Verdict.FAIL, f"{result.name} is {found}, expected {wanted}", f"the output is allocated as {found}",
            f"{expected.form}; the store converts", cause="wrong_dtype",
        )  # fmt: skip
    device = getattr(result.entry, "device", result.device)
    if device != result.device:
        raise Outcome(
            Verdict.FAIL, f"{result.name} is on {device}, expected {result.device}",
            hint=expected.form, cause="wrong_device",
        )  # fmt: skip


def _what_is_wrong(name: str, got: torch.Tensor, expected: Expected, errors: Errors) -> str:
    """The first sentence of a failure: how many elements, the first of them, got and expected."""
    if errors.wrong.any():
        index = tuple(errors.wrong.nonzero()[0].tolist())
        count = int(errors.wrong.sum())
        of = f"{count} of {got.numel()} elements of {name}" if got.numel() > 1 else f"{name}"
        verb = "are" if count > 1 and got.numel() > 1 else "is"
        place = f", the first at {list(index)}" if got.numel() > 1 else ""
        values = f"got {float(got[index]):.7g}, expected {float(expected.values[index].to(got.dtype)):.7g}"
        if expected.group == "tensor" and len(expected.arguments) == 1 and expected.form == LIKE_X:
            values += f" for x = {float(expected.arguments[0][index]):.7g}"
        return f"{of} {verb} wrong{place}: {values}"
    if expected.tolerance.rms is not None and errors.rms > expected.tolerance.rms:
        return (
            f"no element of {name} is far off, but all together: the error is {errors.rms:.1e} of "
            f"its size, {expected.tolerance.rms:.1e} is allowed"
        )
    return (
        f"no element of {name} is further off than {errors.max / ROUNDOFF[got.dtype]:.1f} roundings, but "
        f"{errors.disagree:.0%} are not rounded right, {expected.tolerance.disagree:.0%} are allowed"
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def assert_footprint(taken: int, matrix: int) -> None:
    """Demand that a call took less memory than half of a matrix of scores would take, in bytes."""
    if taken >= matrix / 2:
        raise Outcome(
            Verdict.FAIL,
            f"the call took {taken / 2**20:.0f} MiB at once; a matrix of all scores takes {matrix / 2**20:.0f} MiB",
            "a tensor with a score for each query and each key is held",
            "go over the keys tile by tile, and keep of each tile its maximum, its sum and what it adds to o",
            cause="scores_held",
        )  # fmt: skip
