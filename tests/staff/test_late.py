"""What lateness costs, to the microsecond and the hundredth, and which attempt gives the grade."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.batch.attempts import Attempt, can_count, counting, warnings
from grader.batch.late import Deadlines, Lateness, final, penalty
from grader.batch.layouts import Student
from grader.batch.times import Extension
from grader.result import Score
from grader.rubric import Attempts, LatePolicy

DUE = datetime(2026, 10, 2, 22, tzinfo=UTC)
ADA, CARL = Student("1", "ada@example.edu"), Student(email="Carl@example.edu")
HOUR, MICROSECOND = timedelta(hours=1), timedelta(microseconds=1)
POLICY = LatePolicy(due=DUE, grace_minutes=10, per_day=Decimal("12.5"), cap=Decimal(40), slip_days=1)


def lateness(after: timedelta, policy: LatePolicy = POLICY, **extensions: Extension) -> Lateness:
    deadlines = Deadlines(policy, {key.replace("_", ":"): extension for key, extension in extensions.items()})
    return deadlines.lateness(DUE + after, None, ADA)


@pytest.mark.parametrize(
    ("after", "days", "percent"),
    [
        (-HOUR, 0, "0"), (timedelta(), 0, "0"), (timedelta(minutes=10), 0, "0"),
        (timedelta(minutes=10) + MICROSECOND, 1, "0"), (24 * HOUR, 1, "0"), (24 * HOUR + MICROSECOND, 2, "12.5"),
        (48 * HOUR, 2, "12.5"), (72 * HOUR + MICROSECOND, 4, "37.5"), (96 * HOUR + MICROSECOND, 5, "40"),
        (timedelta(days=1000), 1000, "40"),
    ],
)  # fmt: skip
def test_each_begun_day_after_the_grace_costs_up_to_the_cap(after, days, percent):
    """min(cap, per_day · max(0, ⌈(t − due) / 24 h⌉ − slip days)), and nothing up to due + grace."""
    assert lateness(after) == Lateness(days > 0, days, Decimal(percent))


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_later_submission_never_costs_less(first, second):
    earlier, later = sorted((first, second))
    costs = [lateness(timedelta(seconds=seconds)).percent for seconds in (earlier, later)]
    assert costs[0] <= costs[1] <= POLICY.cap


@pytest.mark.parametrize(
    ("extension", "days"),
    [
        (Extension(DUE + 48 * HOUR), 1), (Extension(extra=36 * HOUR), 2), (Extension(extra=72 * HOUR), 0),
        (Extension(DUE - 48 * HOUR), 3),
    ],
    ids=["a date", "hours", "enough hours", "a date that is earlier shortens nothing"],
)  # fmt: skip
def test_an_extension_is_the_students_own(extension, days):
    deadlines = Deadlines(POLICY, {"email:carl@example.edu": extension})
    assert deadlines.lateness(DUE + 72 * HOUR, None, CARL).days == days
    assert deadlines.lateness(DUE + 72 * HOUR, None, ADA).days == 3
    assert deadlines.lateness(DUE + 72 * HOUR, None, None).days == 3


@pytest.mark.parametrize(("late", "known"), [(None, False), (True, False), (False, True)])
def test_without_a_time_nothing_is_taken(late, known):
    found = Deadlines(POLICY).lateness(None, late, ADA)
    assert (found.late, found.percent, found.known) == (late, 0, known)


def test_without_a_date_nothing_is_late():
    assert Deadlines().lateness(DUE, None, ADA) == Lateness(False)


def test_the_same_instant_in_another_zone_is_the_same_lateness():
    there = (DUE + 25 * HOUR).astimezone(datetime.fromisoformat("2026-01-01T00:00+14:00").tzinfo)
    assert Deadlines(POLICY).lateness(there, None, ADA) == lateness(25 * HOUR)


def score(raw: str, bonus: str = "0", complete: bool = True) -> Score:
    return Score(raw=Decimal(raw), max=Decimal(100), bonus=Decimal(bonus), complete=complete)


@pytest.mark.parametrize(
    ("raw", "percent", "points"),
    [("0.10", "5", "0.01"), ("0.30", "5", "0.02"), ("0.50", "5", "0.03"), ("33.33", "12.5", "4.17"), ("7", "0", "0")],
)
def test_points_are_rounded_once_half_up(raw, percent, points):
    """0.005 is 0.01, 0.015 is 0.02 and 0.025 is 0.03; 4.16625 is 4.17."""
    assert penalty(score(raw), Decimal(percent)) == Decimal(points)


def test_a_bonus_is_on_top_and_loses_nothing():
    assert final(score("80", bonus="3"), Decimal(50)) == 43
    assert final(score("80", complete=False), Decimal(50)) is None


@given(st.decimals(0, 100, places=2), st.decimals(0, 100, places=2))
def test_a_penalty_is_within_the_raw_score(raw, percent):
    assert 0 <= penalty(score(str(raw)), percent) <= raw


def attempt(
    name: str, after_h: float | None = None, *students: Student, late: bool | None = None, number: int = 1
) -> Attempt:
    at = None if after_h is None else DUE + timedelta(hours=after_h)
    return Attempt(f"plain-{name}", number, name, at, late, students)


def counts(*attempts: Attempt, policy: str = "latest", scores: dict[str, Score] | None = None) -> list[str]:
    """Names of those that count, in whatever order they come."""
    rules = Deadlines(LatePolicy(due=DUE, per_day=10, attempts=policy))
    known = {(f"plain-{name}", 1): score for name, score in (scores or {}).items()}
    found = [[one.submission for one in counting(order, rules, known)] for order in (attempts, attempts[::-1])]
    assert sorted(found[0]) == sorted(found[1])
    assert policy == "best" or {(one, 1) for one in found[0]} == can_count(attempts, rules)
    return [one.removeprefix("plain-") for one in found[0]]


THREE = (attempt("b", -2, ADA), attempt("a", -1, ADA), attempt("c", 1, ADA))


@pytest.mark.parametrize(("policy", "name"), [("latest", "c"), ("first", "b"), ("latest-on-time", "a")])
def test_the_policy_says_which_attempt_counts(policy, name):
    assert counts(*THREE, policy=policy) == [name]


def test_if_none_is_on_time_the_oldest_counts():
    assert counts(attempt("a", 30, ADA), attempt("b", 3, ADA), policy="latest-on-time") == ["b"]


def test_what_is_on_time_is_the_students_own_matter():
    rules = Deadlines(LatePolicy(due=DUE, attempts="latest-on-time"), {"sid:1": Extension(extra=2 * HOUR)})
    both = [attempt("a", -1, ADA, CARL), attempt("b", 1, ADA, CARL)]
    assert {one.owner: one.submission for one in counting(both, rules)} == {
        "sid:1": "plain-b", "email:carl@example.edu": "plain-a",
    }  # fmt: skip
    assert can_count(both, rules) == {("plain-a", 1), ("plain-b", 1)}


def test_the_best_is_best_after_lateness_and_the_newest_of_equal_ones():
    graded = {"b": score("90"), "a": score("90"), "c": score("99")}  # c loses 9.90 of them
    assert counts(*THREE, policy="best", scores=graded) == ["a"]
    assert counts(*THREE, policy="best", scores=graded | {"c": score("100")}) == ["c"]
    assert counts(*THREE, policy="best", scores=graded | {"c": score("99", bonus="5")}) == ["c"]


def test_of_the_best_all_are_graded_and_one_without_a_score_waits_for_it():
    rules = Deadlines(LatePolicy(attempts="best"))
    assert can_count(THREE, rules) == {one.key for one in THREE}
    assert counts(*THREE, policy="best", scores={"b": score("1"), "c": score("9", complete=False)}) == ["b"]
    assert counts(*THREE, policy="best") == ["c"]


def test_attempts_without_a_time_are_the_newest_in_the_order_of_their_copies():
    names = ("ada.zip", "ada (2).zip", "ada (10).zip")
    assert counts(*(attempt(name, None, ADA) for name in names)) == ["ada (10).zip"]
    assert counts(*(attempt(name, None, ADA) for name in names), policy="first") == ["ada.zip"]
    assert counts(attempt("z", 5, ADA), attempt("a", None, ADA)) == ["a"]


def test_what_the_export_calls_late_is_not_on_time():
    both = [attempt("a", None, ADA, late=False), attempt("b", None, ADA, late=True)]
    assert counts(*both, policy="latest-on-time") == ["a"]


def test_later_attempts_at_one_submission_are_newer():
    first, second = (attempt("a", None, ADA, number=number) for number in (1, 2))
    [found] = counting([second, first], Deadlines())
    assert found.attempt == 2


def test_a_submission_of_nobody_counts_for_itself():
    nameless = Student(name="Ada")
    assert counts(attempt("a", 1), attempt("b", 2)) == ["a", "b"]
    assert counts(attempt("a", 1, nameless), attempt("b", 2, nameless)) == ["a", "b"]


def test_each_member_of_a_group_has_a_grade_of_their_own():
    found = counting([attempt("a", 1, ADA, CARL), attempt("b", 30, ADA)], Deadlines(POLICY))
    assert {one.owner: (one.submission, one.lateness.days, one.student) for one in found} == {
        "sid:1": ("plain-b", 2, ADA), "email:carl@example.edu": ("plain-a", 1, CARL),
    }  # fmt: skip


def test_a_student_in_two_submissions_is_a_warning():
    twice = [attempt("a", 1, ADA, CARL), attempt("b", 2, ADA), attempt("b", 3, ADA, number=2)]
    assert warnings(twice) == ["1 is in plain-a and plain-b: one of them counts"]
    assert not warnings([attempt("a", 1), attempt("b", 2)])


@given(
    st.lists(st.tuples(st.integers(-50, 50) | st.none(), st.sets(st.sampled_from("1234")))), st.sampled_from(Attempts)
)
def test_every_student_and_every_ownerless_submission_has_one_that_counts(given_attempts, policy):
    all_of_them = [
        attempt(str(number), after, *map(Student, sorted(sids))) for number, (after, sids) in enumerate(given_attempts)
    ]
    rules = Deadlines(LatePolicy(due=DUE, per_day=10, attempts=policy))
    found = counting(all_of_them, rules)
    owners = [owner for one in all_of_them for owner in one.owners]
    assert sorted(one.owner for one in found) == sorted(set(owners))
    by_key = {one.key: one for one in all_of_them}
    assert all(one.owner in by_key[one.submission, one.attempt].owners for one in found)
    assert {(one.submission, one.attempt) for one in found} <= can_count(all_of_them, rules)
