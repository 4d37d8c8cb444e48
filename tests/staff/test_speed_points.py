"""What a speed is worth: the curve, points to the hundredth, the checks it needs, the floor. No GPU and no clock."""

import doctest
import io
import math
from decimal import Decimal
from types import SimpleNamespace

import pytest
from pydantic import ValidationError
from rich.console import Console

from grader import units
from grader.clock import curve
from grader.clock.curve import Threshold, share
from grader.judge import run
from grader.judge.conclude import conclude
from grader.judge.plugin import CaseResult, Judge, Obstacles
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.verdict import Outcome, Verdict
from grader.result import CheckResult, Clocks, Gpu, Result, Review, Speed
from grader.rubric import ROOT, Baseline, Rubric, Visibility
from grader.scoring import NEEDS, award, bound_review, rescored, settled, total, unmet
from grader.summary import _show_speeds, show_result
from grader.terminal import make_console
from tests.staff.conftest import Silent
from tests.staff.test_rubric import TIMED, read, result

TENTH = Threshold(none=0.1, full=10.0)  # two decades: a factor of ten is half


@pytest.mark.parametrize("module", [curve, units])
def test_the_examples_in_docstrings_hold(module):
    tried = doctest.testmod(module)
    assert (tried.failed, tried.attempted > 0) == (0, True)


@pytest.mark.parametrize(
    ("ratio", "part"), [(0.001, 0), (0.1, 0), (1.0, 0.5), (math.sqrt(0.1), 0.25), (10.0, 1), (10.1, 1), (1e9, 1)]
)
def test_points_grow_with_the_logarithm_between_none_and_full(ratio, part):
    assert share(ratio, TENTH) == part


@pytest.mark.parametrize(("none", "full"), [(0.4, 0.85), (0.35, 0.8), (0.45, 1.0), (0.3, 0.7), (0.07, 1.9)])
def test_the_geometric_mean_of_none_and_full_earns_exactly_half(none, full):
    assert share(math.sqrt(none * full), Threshold(none, full)) == 0.5


@pytest.mark.parametrize(
    ("none", "full"), [(0.4, 0.79), (0.4, 0.4), (0.8, 0.4), (0, 1), (-1, 1), (math.nan, 1), (1, math.inf)]
)
def test_thresholds_that_leave_no_room_between_them_cannot_be_made(none, full):
    with pytest.raises(ValueError, match="must be"):
        Threshold(none, full)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1e-6, "1.00 µs"), (9.99e-4, "999 µs"), (9.996e-4, "1.00 ms"), (0.01234, "12.3 ms"), (0.9999, "1.00 s"),
     (9.994e-6, "9.99 µs"), (9.996e-6, "10.0 µs"), (99.96e-3, "100 ms"), (75.0, "75.0 s")],
)  # fmt: skip
def test_a_time_has_three_digits_and_the_unit_that_fits(seconds, words):
    assert units.duration(seconds) == words


def speed(ratio: float = 0.5, gpu: str = "GPU", bound_s: float | None = None) -> Speed:
    """A call of 2 ms beside a baseline."""
    return Speed(
        function="gelu", time_s=2e-3, iqr_s=1e-5, samples=20, refusals=1, baseline="torch", baseline_s=ratio * 2e-3,
        ratio=ratio, bound_s=bound_s, threshold=TENTH,
        gpu=Gpu(name=gpu, clocks_mhz=Clocks(min=1470, median=1500, max=1980), power_w=640.5, temperature_c=61,
                throttle=("sw_power_cap",)),
    )  # fmt: skip


def check(rubric: Rubric, name: str, verdict: Verdict = Verdict.PASS, measured: Speed | None = None, **fields):
    """One check as a run records it."""
    given = award(rubric, f"gelu.{name}", verdict, fields.get("review"), measured)
    return CheckResult(
        id=f"gelu.{name}", problem="gelu", title="", visibility=Visibility.PUBLIC, verdict=verdict, **given, **fields
    )


def all_passed(rubric: Rubric, *timed: CheckResult) -> list[CheckResult]:
    """The public checks, which pass, and timed ones."""
    return [*(check(rubric, name) for name in "abc"), *timed]


# Of gelu.quick: 0.50 points from 0.25 to 1.0; on GPU A from 0.5 to 1.5, on GPU A 80GB from 0.75 to 2.
@pytest.mark.parametrize(
    ("ratio", "gpu", "score"),
    [(0.25, "GPU", "0.00"), (0.5, "GPU", "0.25"), (1.0, "GPU", "0.50"), (4.0, "GPU", "0.50"),
     (0.5, "GPU A", "0.00"), (1.5, "GPU A", "0.50"), (math.sqrt(1.5), "GPU A 80GB", "0.25"),
     (0.5, "GPU A 40GB", "0.25"), (0.25 * 4**0.02, "GPU", "0.01"), (0.25 * 4**0.98, "GPU", "0.49")],
)  # fmt: skip
def test_a_timed_check_earns_points_by_the_thresholds_of_its_gpu(tmp_path, ratio, gpu, score):
    given = award(read(tmp_path, TIMED), "gelu.quick", Verdict.PASS, None, speed(ratio, gpu))
    assert (given["score"], given["max"]) == (Decimal(score), Decimal("0.50"))


def test_the_thresholds_that_scored_are_recorded(tmp_path):
    rubric = read(tmp_path, TIMED)
    for verdict in (Verdict.PASS, Verdict.FAIL):
        given = award(rubric, "gelu.quick", verdict, None, speed(gpu="GPU A"))
        assert given["speed"].threshold == Threshold(none=0.5, full=1.5)


def test_half_a_hundredth_is_rounded_up_and_the_sum_is_exact(tmp_path):
    rubric = read(tmp_path, TIMED.replace("slow: {weight: 2", "slow: {weight: 6"))  # 0.21 and 1.29 points
    quick, slow = check(rubric, "quick", measured=speed(0.5)), check(rubric, "slow", measured=speed(0.2))
    assert (quick.score, slow.score) == (Decimal("0.11"), Decimal("0.65"))  # of 0.105 and 0.645
    assert total([quick, slow]).raw == Decimal("0.76")
    assert total([quick, slow]).max == Decimal("1.50")


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.CRASH, Verdict.TIMEOUT])
def test_a_timed_check_that_did_not_pass_earns_nothing(tmp_path, verdict):
    assert award(read(tmp_path, TIMED), "gelu.quick", verdict, None, speed(4.0))["score"] == 0


def test_a_timed_check_that_was_skipped_has_no_score(tmp_path):
    assert award(read(tmp_path, TIMED), "gelu.quick", Verdict.SKIPPED, None)["score"] is None


def test_a_timed_check_cannot_pass_without_a_speed(tmp_path):
    with pytest.raises(ValueError, match=r"gelu\.quick is timed, and has passed without a speed"):
        award(read(tmp_path, TIMED), "gelu.quick", Verdict.PASS, None)


@pytest.mark.parametrize(
    ("verdict", "score", "measured", "said"),
    [
        (Verdict.PASS, "0.25", None, "nothing was timed"),
        (Verdict.PASS, "0.51", speed(), "does not go with"),
        (Verdict.PASS, "-0.01", speed(), "does not go with"),
        (Verdict.FAIL, "0.25", speed(), "does not go with"),
        (Verdict.FAIL, "0.50", None, "does not go with"),
    ],
)
def test_a_score_that_nobody_can_have_earned_cannot_be_made(verdict, score, measured, said):
    with pytest.raises(ValidationError, match=said):
        CheckResult(
            id="gelu.quick", problem="gelu", title="", visibility=Visibility.PUBLIC, verdict=verdict,
            score=Decimal(score), max=Decimal("0.50"), speed=measured,
        )  # fmt: skip


@pytest.mark.parametrize("field", ["time_s", "baseline_s", "ratio", "bound_s", "iqr_s"])
@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_a_speed_of_no_finite_positive_time_cannot_be_made(field, value):
    with pytest.raises(ValidationError, match=field):
        Speed.model_validate(speed().model_dump() | {field: value})


def test_needed_checks_that_did_not_pass_are_named_in_their_order(tmp_path):
    rubric = read(tmp_path, TIMED)
    others = [check(rubric, "c", Verdict.CRASH), check(rubric, "b", Verdict.TODO), check(rubric, "a")]
    assert unmet(rubric, "gelu.quick", others) == ["gelu.b", "gelu.c"]
    assert unmet(rubric, "gelu.quick", all_passed(rubric)) == []
    assert unmet(rubric, "gelu.a", []) == []  # needs nothing: it is not timed


def test_needed_checks_that_did_not_run_have_not_passed(tmp_path):
    assert unmet(read(tmp_path, TIMED), "gelu.quick", []) == ["gelu.a", "gelu.b", "gelu.c"]


def test_only_checks_like_the_patterns_are_needed(tmp_path):
    rubric = read(tmp_path, TIMED.replace('[a, "[bc]"]', '["[ab]"]'))
    others = [check(rubric, "a"), check(rubric, "b"), check(rubric, "c", Verdict.FAIL)]
    assert unmet(rubric, "gelu.quick", others) == []
    assert unmet(rubric, "gelu.slow", others) == ["gelu.c"]


@pytest.mark.parametrize("verdict", [Verdict.SKIPPED, Verdict.GRADER_ERROR])
def test_what_this_machine_lacks_or_we_broke_costs_no_speed(tmp_path, verdict):
    rubric = read(tmp_path, TIMED)
    assert unmet(rubric, "gelu.quick", [check(rubric, "a", verdict), check(rubric, "b"), check(rubric, "c")]) == []


def test_a_void_check_is_not_needed(tmp_path):
    rubric = read(tmp_path, TIMED.replace("b: {weight: 1}", "b: {weight: 1, void: unfair}"))
    others = [check(rubric, "a"), check(rubric, "b", Verdict.FAIL), check(rubric, "c")]
    assert unmet(rubric, "gelu.quick", others) == []


@pytest.mark.parametrize(("decision", "lacking"), [(None, []), ("accept", []), ("reject", ["gelu.a"])])
def test_a_needed_check_that_a_person_rejected_has_not_passed(tmp_path, decision, lacking):
    rubric = read(tmp_path, TIMED)
    review = Review(reason="PyTorch's own gelu ran", evidence="aten::gelu", decision=decision)
    others = [check(rubric, "a", review=review), check(rubric, "b"), check(rubric, "c")]
    assert unmet(rubric, "gelu.quick", others) == lacking


def test_a_speed_without_what_it_needs_fails_and_says_which_checks_it_needs(tmp_path):
    rubric = read(tmp_path, TIMED)
    timed = check(rubric, "quick", measured=speed(4.0), cause="borrowed", why="PyTorch's own gelu ran")
    [*_, found] = settled([check(rubric, "a"), check(rubric, "b", Verdict.FAIL), timed], rubric)
    assert (found.verdict, found.score, found.max) == (Verdict.FAIL, 0, Decimal("0.50"))
    assert found.message == "speed counts once these checks pass in the same run: gelu.b, gelu.c"
    assert (found.cause, found.why, found.speed.ratio) == (NEEDS, "", 4.0)


def test_a_timed_check_that_failed_by_itself_keeps_its_own_words(tmp_path):
    rubric = read(tmp_path, TIMED)
    slow = check(rubric, "quick", Verdict.FAIL, message="[3] is 0.5, and 0.25 was due", cause="wrong")
    [found] = settled([slow], rubric)
    assert (found.message, found.cause) == (slow.message, "wrong")


def test_many_needed_checks_are_counted_not_listed():
    rubric = Rubric.read()
    [found] = settled([check(rubric, "speed_bfloat16", measured=speed())], rubric)
    assert found.message.endswith(": gelu.sizes, gelu.shapes, gelu.layouts, gelu.large_values and 6 more")


def test_other_thresholds_give_other_points_to_the_same_speed(tmp_path):
    rubric = read(tmp_path, TIMED)
    found = result(*all_passed(rubric, check(rubric, "quick", measured=speed(1.0))))
    stricter = read(tmp_path, TIMED.replace("none: 0.25, full: 1.0", "none: 0.5, full: 2.0"))
    again = rescored(found, stricter)
    assert (found.checks[-1].score, again.checks[-1].score) == (Decimal("0.50"), Decimal("0.25"))
    assert again.checks[-1].speed.threshold == Threshold(none=0.5, full=2.0)
    assert again.score.raw == Decimal("2.25")
    assert again.checks[-1].speed.ratio == found.checks[-1].speed.ratio
    assert rescored(again, stricter) == again
    assert rescored(again, rubric).checks == found.checks


def test_a_speed_comes_back_when_the_check_that_held_it_is_void_and_goes_when_a_person_rejects_one(tmp_path):
    rubric = read(tmp_path, TIMED)
    timed = check(rubric, "quick", measured=speed())
    ran = [check(rubric, "a"), check(rubric, "b", Verdict.FAIL), check(rubric, "c"), timed]
    held = rescored(result(*ran), rubric)
    assert (held.checks[-1].verdict, held.checks[-1].score) == (Verdict.FAIL, 0)
    void = read(tmp_path, TIMED.replace("b: {weight: 1}", "b: {weight: 1, void: unfair}"))
    back = rescored(held, void)
    assert back.checks[-1] == timed
    rejected = back.checks[0].model_copy(update={"review": Review(reason="", evidence="", decision="reject")})
    gone = rescored(back.model_copy(update={"checks": (rejected, *back.checks[1:])}), void)
    assert (gone.checks[-1].verdict, gone.checks[-1].score) == (Verdict.FAIL, 0)
    assert gone.checks[-1].message.endswith(": gelu.a")


def test_a_void_timed_check_counts_nothing_and_keeps_what_was_measured(tmp_path):
    rubric = read(tmp_path, TIMED)
    void = read(tmp_path, TIMED.replace("slow: {weight: 2", "slow: {weight: 2, void: too noisy"))
    [*_, found] = rescored(result(*all_passed(rubric, check(rubric, "slow", measured=speed()))), void).checks
    assert (found.score, found.max, found.void, found.speed.ratio) == (0, 0, "too noisy", 0.5)


@pytest.mark.parametrize(("bound_s", "doubted"), [(None, False), (1.9e-3, False), (2e-3, False), (2.1e-3, True)])
def test_a_time_below_the_floor_is_a_doubt(bound_s, doubted):
    assert (bound_review(speed(bound_s=bound_s)) is not None) is doubted


def timed_case(measured: Speed | None, outcome: Outcome | None = None) -> CaseResult:
    return CaseResult("gelu.quick", "Fast.", Visibility.PUBLIC, "2^28 bfloat16", outcome, 1.0, speed=measured)


@pytest.mark.parametrize(
    ("staff", "bound_s", "score"),
    [(True, 2.1e-3, None), (True, 1.9e-3, Decimal("0.25")), (False, 2.1e-3, Decimal("0.25"))],
)
def test_in_grading_a_speed_below_the_floor_waits_for_a_person(tmp_path, staff, bound_s, score):
    judge = SimpleNamespace(rubric=read(tmp_path, TIMED), staff=staff, seed_of=lambda name: 7)
    found = conclude(judge, "gelu.quick", [timed_case(speed(bound_s=bound_s))], runs=1)
    assert (found.score, found.speed.ratio) == (score, 0.5)
    if score is None:
        assert found.review.reason == "faster than this GPU can be"
        assert found.review.evidence == "2.00 ms a call; GPU needs 2.10 ms at least"
        accepted = found.review.model_copy(update={"decision": "accept"})
        assert award(judge.rubric, found.id, found.verdict, accepted, found.speed)["score"] == Decimal("0.25")


def test_a_wrong_answer_below_the_floor_fails_and_needs_no_person(tmp_path):
    judge = SimpleNamespace(rubric=read(tmp_path, TIMED), staff=True, seed_of=lambda name: 7, options="")
    case = timed_case(speed(bound_s=2.1e-3), Outcome(Verdict.FAIL, "[0] is 0, and 1 was due"))
    found = conclude(judge, "gelu.quick", [case], runs=1)
    assert (found.verdict, found.score, found.review) == (Verdict.FAIL, 0, None)


def test_a_run_holds_a_speed_back_whose_needed_checks_did_not_pass(monkeypatch):
    snapshot = Snapshot.of(ROOT / "solutions")
    judge = Judge(snapshot, Servers(), Rubric.read(), cannot_run=Obstacles("no", "no"))
    name = "gelu.speed_bfloat16"
    recorder = run.Recorder(judge, Silent(), [CaseResult(name, "", Visibility.PUBLIC, "", None, 1.0, speed=speed(4.0))])
    recorder.titles[name] = ("", Visibility.PUBLIC)
    monkeypatch.setattr(run, "_run_pytest", lambda judge, checks, listener: recorder)
    found = run.run_checks(judge, [name], Silent(), "solutions")
    snapshot.remove()
    assert [(one.verdict, one.cause) for one in found.checks] == [(Verdict.FAIL, NEEDS)]
    assert (found.score.raw, found.score.max) == (0, Decimal("1.50"))


@pytest.mark.parametrize("bound_s", [None, 1.5e-3])
def test_a_speed_survives_json(tmp_path, bound_s):
    rubric = read(tmp_path, TIMED)
    timed = check(rubric, "quick", measured=speed(math.sqrt(0.3), bound_s=bound_s))
    found = rescored(result(*all_passed(rubric, timed)), rubric)
    assert 0 < found.checks[-1].score < found.checks[-1].max
    found.write(tmp_path / "result.json")
    assert Result.model_validate_json((tmp_path / "result.json").read_text()) == found


def test_a_result_from_before_speeds_were_measured_can_be_read(tmp_path):
    rubric = read(tmp_path, TIMED)
    found = result(*all_passed(rubric))
    assert '"speed":null' in found.model_dump_json(by_alias=True)
    assert Result.model_validate_json(found.model_dump_json(by_alias=True, exclude_none=True)) == found


def shown(found: Result, rubric: Rubric) -> str:
    """What a student sees on a terminal of 80 columns."""
    console = Console(file=io.StringIO(), width=80)
    show_result(found, rubric, console, staff=False)
    return console.file.getvalue()


def test_a_timed_function_has_its_time_its_points_its_ratio_and_what_full_points_take(tmp_path):
    rubric = read(tmp_path, TIMED)
    timed = check(rubric, "quick", measured=speed(1.5, "GPU A 80GB"))  # no points at 0.75, all at 2
    said = shown(rescored(result(*all_passed(rubric, timed)), rubric), rubric)
    assert "speed  gelu.quick  2.00 ms, 0.35 of 0.50 points\n" in said
    assert "1.50 of the speed of torch; full points take 2.00 (1.50 ms)\n" in said  # the baseline took 3 ms
    assert "Hidden checks are graded by staff" in said
    assert "Coming later, not counted: softmax." in said


def test_a_speed_under_review_waits_for_a_person(tmp_path):
    rubric = read(tmp_path, TIMED)
    measured = speed(bound_s=2.1e-3)
    timed = check(rubric, "quick", measured=measured, review=bound_review(measured))
    said = shown(rescored(result(*all_passed(rubric, timed)), rubric), rubric)
    assert "speed  gelu.quick  2.00 ms, waits for a person\n" in said
    assert "review  gelu: faster than this GPU can be" in said
    assert "0.50 points more, wait for a person to decide" in said


def test_where_nothing_was_timed_speed_is_coming(tmp_path):
    rubric = read(tmp_path, TIMED)
    said = shown(rescored(result(*all_passed(rubric)), rubric), rubric)
    assert "speed  " not in said
    assert "3 of 3 public checks passed: 2.00 of 2.00 points" in said
    assert "Coming later, not counted: speed, softmax." in said
    assert "Hidden checks and speed are graded by staff" in said


def test_speeds_fit_80_columns_and_a_plain_terminal():
    rubric = Rubric.read()
    slow = speed().model_copy(update={"time_s": 2.58e-4, "baseline_s": 1.29e-4, "baseline": Baseline.DEVICE_COPY})
    checks = [
        CheckResult(
            id=f"{problem}.{name}", problem=problem, title="", visibility=Visibility.PUBLIC, verdict=Verdict.PASS,
            **award(rubric, f"{problem}.{name}", Verdict.PASS, None, slow),
        )
        for problem, entry in rubric.problems.items() for name in entry.speed
    ]  # fmt: skip
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    _show_speeds(checks, make_console(stream))
    stream.seek(0)
    lines = stream.read().splitlines()
    assert (len(lines), max(map(len, lines)) <= 80) == (1 + 2 * len(checks), True)
    assert all("258 us" in line for line in lines[1::2])


def test_a_timed_check_that_is_asked_for_by_name_brings_what_it_needs(tmp_path):
    rubric = read(tmp_path, TIMED)
    assert run.Selection(("gelu.quick",), hidden=False).checks(rubric) == ["gelu.a", "gelu.b", "gelu.c", "gelu.quick"]
    assert run.Selection(("gelu.b",), hidden=False).checks(rubric) == ["gelu.b"]
