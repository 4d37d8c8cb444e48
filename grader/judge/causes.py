"""The likely cause of a wrong answer: a table of small predicates, asked in order; the first that fits is told.

A predicate suspects only what the numbers show. None of this decides anything: the answer was wrong before.
"""

from __future__ import annotations

from grader.judge import causes_in_memory as in_memory
from grader.judge import causes_in_numbers as in_numbers
from grader.judge.causes_in_memory import describe_access
from grader.judge.causes_in_numbers import ANSWER_OVERWRITTEN, ORDER_DEPENDENT, OTHER_STREAM
from grader.judge.evidence import Cause, Evidence, Predicate

__all__ = [
    "ANSWER_OVERWRITTEN",
    "ORDER_DEPENDENT",
    "OTHER_STREAM",
    "Cause",
    "Evidence",
    "describe_access",
    "likely_cause",
]

# What is certain first, what is only likely last. A misread input explains the same values that a load from its gaps
# reports, so it comes before that; and a sum with fresh memory has its bits, so what tells of NaN that was computed
# comes before what was never written.
PREDICATES: tuple[Predicate, ...] = (
    in_numbers.no_keys,
    in_memory.output_strides_ignored,
    in_memory.strides_ignored,
    in_numbers.known_mistake_in_finite_numbers,
    in_memory.out_of_bounds,
    in_memory.red_zone_read,
    in_numbers.overflow,
    in_numbers.infinity_minus_infinity,
    in_numbers.infinity_missing,
    in_memory.output_strides_swapped,
    in_memory.row_longer_than_block,
    in_memory.masked_by_other_size,
    in_memory.tiles_missing,
    in_memory.never_written,
    in_numbers.previous_answer,
    in_numbers.known_mistake_with_nan,
    in_numbers.constant,
    in_numbers.lower_precision,
    in_numbers.kept_between_calls,
    in_numbers.unexpected_nan,
    in_numbers.row_sum,
    in_numbers.wrong_tail,
)


def likely_cause(evidence: Evidence) -> Cause | None:
    """The first cause that fits."""
    return next((cause for predicate in PREDICATES if (cause := predicate(evidence))), None)
