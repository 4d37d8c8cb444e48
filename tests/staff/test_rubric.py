"""The rubric's arithmetic, its mistakes with file and line, and scores as a function of results."""

import ast
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pydantic import ValidationError

from grader.judge.verdict import Verdict
from grader.result import CheckResult, GraderInfo, Result, Review, Run, Score, SubmissionInfo, Target
from grader.rubric import ROOT, Attempts, Rubric, RubricError, Visibility
from grader.scoring import award, rescored, total

PUBLIC = """\
assignment: example
points: 8
share: {public: 40, hidden: 30, speed: 30}
problems:
  gelu:
    points: 5
    handout: GeLU
    functions: [gelu]
    checks:
      a: {weight: 1}
      b: {weight: 1}
      c: {weight: 1}
coming:
  softmax: 3
"""
HIDDEN = """\
problems:
  gelu:
    d: {weight: 2, hint: look there}
    e: {weight: 1, hint: and there}
"""
TIMED = PUBLIC.replace(
    "coming:",
    """\
    speed:
      quick:
        weight: 1
        function: gelu
        baseline: torch
        threshold: {none: 0.25, full: 1.0}
        gpus: {"GPU A": {none: 0.5, full: 1.5}, "GPU A 80GB": {none: 0.75, full: 2}}
        needs: [a, "[bc]"]
      slow: {weight: 2, function: gelu, baseline: cublas, threshold: {none: 0.1, full: 0.4}, needs: ["*"]}
coming:""",
)
LATE = f"""{PUBLIC}\
late:
  due: 2026-10-02 23:59 +02:00
  grace_minutes: 15
  per_day: 12.5
  cap: 50
  slip_days: 2
  attempts: latest-on-time
"""


def read(tmp_path, public: str = PUBLIC, hidden: str | None = HIDDEN) -> Rubric:
    folder = tmp_path / "staff"
    folder.mkdir(exist_ok=True)
    (folder / "rubric.yaml").write_text(public)
    if hidden is not None:
        (folder / "hidden.yaml").write_text(hidden)
    (folder / "handout.md").write_text("# Handout\n\n## GeLU\n\n### Deeper\n")
    (folder / "test_gelu.py").write_text(
        "".join(f"def test_{name}(submission): ...\n" for name in (*"abcde", "quick", "slow"))
    )
    folders = {Visibility.PUBLIC: folder, Visibility.HIDDEN: folder}
    return Rubric.read(folder / "rubric.yaml", folder / "hidden.yaml", folders, folder / "handout.md")


def check(verdict: Verdict, score: str | None, most: str = "1.00") -> CheckResult:
    return CheckResult(
        id="gelu.a",
        problem="gelu",
        title="",
        visibility=Visibility.PUBLIC,
        verdict=verdict,
        score=None if score is None else Decimal(score),
        max=Decimal(most),
    )


def test_points_of_checks_add_up_to_their_share_exactly(tmp_path):
    points = read(tmp_path).points
    assert points["gelu.a"] + points["gelu.b"] + points["gelu.c"] == Decimal("2.00")
    assert points["gelu.d"] + points["gelu.e"] == Decimal("1.50")
    assert sorted(points[f"gelu.{name}"] for name in "abc") == [Decimal("0.66"), Decimal("0.67"), Decimal("0.67")]


def test_weights_split_a_share(tmp_path):
    points = read(tmp_path).points
    assert (points["gelu.d"], points["gelu.e"]) == (Decimal("1.00"), Decimal("0.50"))


def test_our_own_rubric_adds_up():
    """A kernel's points are 40 % public and 30 % hidden, as the design has it; without speed it is 60 and 40."""
    rubric = Rubric.read()
    for name, problem in rubric.problems.items():
        share = problem.share or rubric.public.share
        for visibility, percent in ((Visibility.PUBLIC, share.public), (Visibility.HIDDEN, share.hidden)):
            entries = rubric.checks(name, visibility).items()
            counted = [rubric.points[f"{name}.{check}"] for check, entry in entries if not entry.bonus]
            assert sum(counted) == Decimal(problem.points) * percent / 100


def test_every_problem_of_the_assignment_is_in_our_rubric_with_its_points():
    rubric = Rubric.read()
    points = {name: problem.points for name, problem in rubric.problems.items()} | rubric.public.coming
    assert points == {
        "gelu": 5, "softmax": 10, "matmul": 15, "flash_attention": 30, "ddp": 15, "sharded_optimizer": 10,
        "roofline": 10, "profiling": 5,
    }  # fmt: skip


def test_a_problem_may_have_a_share_of_its_own(tmp_path):
    own = PUBLIC.replace("    points: 5", "    points: 5\n    share: {public: 60, hidden: 40, speed: 0}")
    points = read(tmp_path, own).points
    assert points["gelu.a"] + points["gelu.b"] + points["gelu.c"] == 3
    assert points["gelu.d"] + points["gelu.e"] == 2


def test_a_bonus_is_on_top_and_takes_nothing_from_the_others(tmp_path):
    points = read(tmp_path, PUBLIC.replace("c: {weight: 1}", "c: {bonus: 1.5}")).points
    assert points["gelu.c"] == Decimal("1.5")
    assert (points["gelu.a"], points["gelu.b"]) == (1, 1)


def test_the_points_of_a_void_check_go_to_the_others_of_its_share(tmp_path):
    points = read(tmp_path, PUBLIC.replace("c: {weight: 1}", "c: {weight: 1, void: it asked too much}")).points
    assert (points["gelu.a"], points["gelu.b"], points["gelu.c"]) == (1, 1, 0)


def test_without_the_hidden_file_there_are_no_hidden_checks(tmp_path):
    rubric = read(tmp_path, hidden=None)
    assert rubric.checks("gelu", Visibility.HIDDEN) == {}
    assert set(rubric.points) == {"gelu.a", "gelu.b", "gelu.c"}


def test_timed_checks_split_the_share_of_speed_by_weight(tmp_path):
    rubric = read(tmp_path, TIMED)
    assert (rubric.points["gelu.quick"], rubric.points["gelu.slow"]) == (Decimal("0.50"), Decimal("1.00"))
    assert sum(rubric.points.values()) == 5
    uneven = read(tmp_path, TIMED.replace("slow: {weight: 2", "slow: {weight: 6"))
    assert (uneven.points["gelu.quick"], uneven.points["gelu.slow"]) == (Decimal("0.21"), Decimal("1.29"))


def test_the_points_of_a_void_timed_check_go_to_the_others(tmp_path):
    points = read(tmp_path, TIMED.replace("slow: {weight: 2", "slow: {weight: 2, void: too noisy")).points
    assert (points["gelu.quick"], points["gelu.slow"]) == (Decimal("1.50"), 0)


@pytest.mark.parametrize(
    ("gpu", "none"), [("GPU A", 0.5), ("GPU A 80GB", 0.75), ("GPU", 0.25), ("gpu a", 0.25), ("GPU A 40GB", 0.25)]
)
def test_a_gpu_has_thresholds_of_its_own_by_its_exact_name_in_any_order(tmp_path, gpu, none):
    other_order = '"GPU A 80GB": {none: 0.75, full: 2}, "GPU A": {none: 0.5, full: 1.5}'
    first = '"GPU A": {none: 0.5, full: 1.5}, "GPU A 80GB": {none: 0.75, full: 2}'
    for public in (TIMED, TIMED.replace(first, other_order)):
        assert read(tmp_path, public).timed("gelu.quick").threshold_on(gpu).none == none


def test_only_timed_checks_are_timed(tmp_path):
    rubric = read(tmp_path, TIMED)
    assert rubric.timed("gelu.slow").needed("abc") == ["a", "b", "c"]
    assert [rubric.timed(name) for name in ("gelu.a", "gelu.d", "gelu.z", "softmax.quick")] == [None] * 4


def test_our_own_timed_checks_carry_30_percent_and_time_functions_that_students_write():
    rubric = Rubric.read()
    kernels = ("gelu", "softmax", "matmul", "flash_attention")
    assert tuple(name for name, problem in rubric.problems.items() if problem.speed) == kernels
    for name in kernels:
        problem = rubric.problems[name]
        assert sum(rubric.points[f"{name}.{check}"] for check in problem.speed) == Decimal(problem.points) * 30 / 100
        tree = ast.parse((ROOT / "assignment" / f"{name}.py").read_text())
        written = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert {timed.function for timed in problem.speed.values()} <= written


@pytest.mark.parametrize(
    "due", ["2026-10-02 23:59 +02:00", "2026-10-02 23:59:00 +02:00", "2026-10-02T21:59:00Z", "'2026-10-02 21:59 UTC'"]
)
def test_a_rubric_may_say_what_lateness_costs(tmp_path, due):
    late = read(tmp_path, LATE.replace("2026-10-02 23:59 +02:00", due)).public.late
    assert late.due == datetime(2026, 10, 2, 21, 59, tzinfo=UTC)
    assert (late.grace_minutes, late.per_day, late.cap, late.slip_days) == (15, Decimal("12.5"), 50, 2)
    assert late.attempts is Attempts.LATEST_ON_TIME


def test_without_a_section_nothing_is_late_and_the_newest_attempt_counts(tmp_path):
    late = read(tmp_path).public.late
    assert (late.due, late.per_day, late.attempts) == (None, 0, Attempts.LATEST)
    assert read(tmp_path, f"{PUBLIC}late: {{attempts: best}}\n").public.late.attempts is Attempts.BEST


def test_either_file_changes_the_hash(tmp_path):
    first = read(tmp_path).sha256
    assert read(tmp_path, hidden=HIDDEN.replace("2", "3")).sha256 != first
    assert read(tmp_path, public=PUBLIC.replace("weight: 1", "weight: 2")).sha256 != first


# What is replaced by what in the file, the line of the mistake, and what is said of it.
PUBLIC_MISTAKES = [
    ("points: 5", "points: -5", 6, "`points` is -5 in `problems.gelu`, and must be more than 0"),
    ("points: 5", "points: five", 6, "`points` in `problems.gelu`: "),
    ("points: 5", "pionts: 5", 6, "there is no key `pionts` in `problems.gelu`; did you mean `points`?"),
    ("    points: 5\n", "", 5, "`points` is missing in `problems.gelu`"),
    ("points: 5", "points: [", 6, "expected ',' or ']'"),
    ("points: 5", "points: 6", 2, "the problems' points, with those coming, add up to 9, not to 8"),
    ("speed: 30", "speed: 20", 3, "public, hidden and speed add up to 90 percent, not to 100"),
    ("a: {weight: 1}", "a: {weight: 1, limit_s: -3}", 10, "`limit_s` is -3 in `problems.gelu.checks.a`"),
    ("a: {weight: 1}", "a: {weight: -1}", 10, "`weight` is -1"),
    ("a: {weight: 1}", "a: {wieght: 1}", 10, "there is no key `wieght`"),
    ("a: {weight: 1}", "a: {weight: 1, bonus: 1}", 10, "a check has either a weight or a bonus"),
    ("a: {weight: 1}", "a: {}", 10, "a check has either a weight or a bonus"),
    ("a: {weight: 1}", "a: {weight: 1, void: ''}", 10, "`void` in `problems.gelu.checks.a`"),
    ("b: {weight: 1}", "a: {weight: 1}", 11, "`a` stands there twice"),
    ("b: {weight: 1}", "bb: {weight: 1}", 11, "test_gelu.py has no check `bb`; did you mean `b`?"),
    ("b: {weight: 1}", "d: {weight: 1}", 3, "a public check is called gelu.d, too"),
    ("handout: GeLU", "handout: Gelu", 7, "handout.md has no section `Gelu`; did you mean `GeLU`?"),
    ("handout: GeLU", "handout: Deeper", 7, "handout.md has no section `Deeper`"),
    ("functions: [gelu]", "functions: []", 8, "`functions` in `problems.gelu`"),
    ("weight: 1", "weight: 0", 9, "no public check of gelu carries its 2 points"),
    ("weight: 1}", "weight: 1, void: broken}", 9, "no public check of gelu carries its 2 points"),
]
NOISE = "twice as much as none, or the clock's noise decides"
SPEED_MISTAKES = [
    ("none: 0.25, full: 1.0", "none: 0.55, full: 1.0", 18, f"full is 1, and must be 1.1 or more: {NOISE}"),
    ("none: 0.25, full: 1.0", "none: 0, full: 1.0", 18, "none is 0, and must be a number above 0"),
    ("none: 0.25, full: 1.0", "none: -1, full: 1.0", 18, "none is -1, and must be a number above 0"),
    ("none: 0.25, full: 1.0", "none: .nan, full: 1.0", 18, "none is nan, and must be a number above 0"),
    ("none: 0.25, full: 1.0", "none: 0.25, full: .inf", 18, "full is inf, and must be 0.5 or more"),
    (
        "none: 0.25, full: 1.0",
        "none: 0.25, fall: 1.0",
        18,
        "`full` is missing in `problems.gelu.speed.quick.threshold`",
    ),
    (
        "none: 0.25, full: 1.0",
        "none: 0.25, full: 1.0, half: 0.5",
        18,
        "`half` in `problems.gelu.speed.quick.threshold`",
    ),
    ("{none: 0.5, full: 1.5}", "{none: 0.8, full: 1.5}", 19, "full is 1.5, and must be 1.6 or more"),
    (
        "baseline: torch",
        "baseline: tortch",
        17,
        "`baseline` in `problems.gelu.speed.quick`: input should be 'device_copy'",
    ),
    ('[a, "[bc]"]', "[a, A]", 20, "gelu has no public check like `A`; did you mean `a`?"),
    ('[a, "[bc]"]', "[d]", 20, "gelu has no public check like `d`"),
    ('[a, "[bc]"]', "[]", 20, "`needs` in `problems.gelu.speed.quick`"),
    ('        needs: [a, "[bc]"]\n', "", 14, "`needs` is missing in `problems.gelu.speed.quick`"),
    ("function: gelu", "function: gleu", 16, "gelu has no function `gleu`; did you mean `gelu`?"),
    ("slow: {", "a: {", 21, "a public check is called gelu.a, too"),
    ("slow: {", "d: {", 3, "a timed check is called gelu.d, too"),
    ("weight: 1\n        function", "weight: -1\n        function", 15, "`weight` is -1"),
    ("weight: 1\n        function", "wieght: 1\n        function", 15, "there is no key `wieght`"),
]
LATE_MISTAKES = [
    ("23:59 +02:00", "23:59", 16, "`due` in `late`: `2026-10-02 23:59` has no zone: write one behind it"),
    ("23:59 +02:00", "23:59:00", 16, "`due` in `late`: `2026-10-02 23:59:00` has no zone"),
    (" 23:59 +02:00", "", 16, "`due` in `late`: `2026-10-02` has no zone"),
    ("2026-10-02 23:59 +02:00", "Friday", 16, "`due` in `late`: `Friday` is no point in time"),
    ("2026-10-02 23:59 +02:00", "1790978283", 16, "`due` in `late`: `1790978283` is no point in time"),
    ("  due: 2026-10-02 23:59 +02:00\n", "", 15, "`due` is missing: when is a submission late?"),
    ("grace_minutes: 15", "grace_minutes: -1", 17, "`grace_minutes` is -1 in `late`, and must be 0 or more"),
    ("per_day: 12.5", "per_day: -1", 18, "`per_day` is -1 in `late`, and must be 0 or more"),
    ("per_day: 12.5", "per_day: .nan", 18, "`per_day` in `late`"),
    ("cap: 50", "cap: 120", 19, "`cap` is 120 in `late`, and must be 100 or less"),
    ("cap: 50", "cup: 50", 19, "there is no key `cup` in `late`; did you mean `cap`?"),
    ("slip_days: 2", "slip_days: 0.5", 20, "`slip_days` in `late`"),
    (
        "latest-on-time",
        "last",
        21,
        "`attempts` in `late`: input should be 'latest', 'latest-on-time', 'best' or 'first'",
    ),
]
HIDDEN_MISTAKES = [
    ("hint: look there", "hint: ''", 3, "`hint` in `problems.gelu.d`"),
    (", hint: look there", "", 3, "`hint` is missing in `problems.gelu.d`"),
    ("gelu", "gleu", 2, "there is no problem `gleu`; did you mean `gelu`?"),
    ("e: {", "f: {", 4, "test_gelu.py has no check `f`"),
]


@pytest.mark.parametrize(
    ("public", "right", "wrong", "line", "said"),
    [
        *((PUBLIC, *row) for row in PUBLIC_MISTAKES),
        *((TIMED, *row) for row in SPEED_MISTAKES),
        *((LATE, *row) for row in LATE_MISTAKES),
    ],
    ids=[row[3] for row in (*PUBLIC_MISTAKES, *SPEED_MISTAKES, *LATE_MISTAKES)],
)
def test_a_mistake_is_one_sentence_with_file_and_line(tmp_path, public, right, wrong, line, said):
    assert right in public
    with pytest.raises(RubricError) as caught:
        read(tmp_path, public=public.replace(right, wrong))
    file = "hidden.yaml" if "is called gelu.d" in said else "rubric.yaml"
    assert str(caught.value).startswith(f"staff/{file}, line {line}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("right", "wrong", "line", "said"), HIDDEN_MISTAKES, ids=[row[3] for row in HIDDEN_MISTAKES])
def test_a_mistake_in_the_hidden_file_is_told_likewise(tmp_path, right, wrong, line, said):
    assert right in HIDDEN
    with pytest.raises(RubricError) as caught:
        read(tmp_path, hidden=HIDDEN.replace(right, wrong))
    assert str(caught.value).startswith(f"staff/hidden.yaml, line {line}: ")
    assert said in str(caught.value)


def test_timed_checks_that_all_weigh_nothing_are_a_mistake(tmp_path):
    weightless = TIMED.replace("weight: 1\n        function", "weight: 0\n        function").replace(
        "weight: 2", "weight: 0"
    )
    with pytest.raises(RubricError, match=r"line 13: no speed check of gelu carries its 1\.5 points"):
        read(tmp_path, weightless)


def test_a_check_file_that_is_not_python_is_named_with_its_line(tmp_path):
    rubric = read(tmp_path)
    assert rubric
    (tmp_path / "staff" / "test_gelu.py").write_text("x = 1\ndef test_a(:\n")
    folder = tmp_path / "staff"
    with pytest.raises(RubricError, match=r"test_gelu\.py, line 2: "):
        Rubric.read(folder / "rubric.yaml", folder / "hidden.yaml", {Visibility.PUBLIC: folder}, folder / "handout.md")


def test_the_worst_case_is_a_checks_verdict():
    assert Verdict.worst([Verdict.PASS, Verdict.FAIL, Verdict.SKIPPED]) is Verdict.FAIL
    assert Verdict.worst([Verdict.FAIL, Verdict.TIMEOUT, Verdict.TODO]) is Verdict.TIMEOUT
    assert Verdict.worst([Verdict.PASS, Verdict.SKIPPED]) is Verdict.SKIPPED
    assert Verdict.worst([Verdict.CRASH, Verdict.GRADER_ERROR]) is Verdict.GRADER_ERROR
    assert Verdict.worst([]) is Verdict.GRADER_ERROR


def test_a_check_without_a_score_makes_the_result_incomplete_and_leaves_the_maximum():
    score = total((check(Verdict.PASS, "1.00"), check(Verdict.FAIL, "0.00"), check(Verdict.SKIPPED, None, "3.00")))
    assert (score.raw, score.max, score.complete) == (Decimal(1), Decimal(2), False)
    assert total((check(Verdict.PASS, "1.00"),)).complete
    assert not total((check(Verdict.PASS, "1.00"),), stopped=True).complete


@pytest.mark.parametrize(
    ("verdict", "score"), [(Verdict.SKIPPED, "0.00"), (Verdict.GRADER_ERROR, "0.00"), (Verdict.FAIL, None)]
)
def test_a_score_that_does_not_go_with_its_verdict_cannot_be_made(verdict, score):
    with pytest.raises(ValidationError, match="does not go with"):
        check(verdict, score)


REVIEW = Review(reason="PyTorch's own gelu ran", evidence="aten::gelu 1 x")


def result(*checks: CheckResult) -> Result:
    return Result(
        assignment="example", submission=SubmissionInfo(id="s", tree_sha256=""), checks=checks,
        grader=GraderInfo(version="0", checks_sha256="", rubric_sha256="old"),
        target=Target(device="cpu", torch="", triton="", numpy="", python="", sandbox="none"),
        score=Score(raw=Decimal(0), max=Decimal(0), complete=False),
        run=Run(started_at="", ended_at="", host="", wall_s=0),
    )  # fmt: skip


def test_another_rubric_gives_other_scores_to_the_same_result(tmp_path):
    checks = [check(Verdict.PASS, "1.00"), check(Verdict.FAIL, "0.00"), check(Verdict.SKIPPED, None)]
    found = result(*(one.model_copy(update={"id": f"gelu.{name}"}) for one, name in zip(checks, "abc", strict=True)))
    weights = PUBLIC.replace("a: {weight: 1}", "a: {weight: 8}")
    again = rescored(found, read(tmp_path, weights))
    assert [one.score for one in again.checks] == [Decimal("1.6"), 0, None]
    assert (again.score.raw, again.score.max, again.score.complete) == (Decimal("1.6"), Decimal("1.8"), False)
    assert again.grader.rubric_sha256 == read(tmp_path, weights).sha256
    assert rescored(again, read(tmp_path, weights)) == again
    void = rescored(found, read(tmp_path, PUBLIC.replace("b: {weight: 1}", "b: {weight: 1, void: unfair}")))
    assert [one.score for one in void.checks] == [1, 0, None]
    assert (void.score.raw, void.score.max, void.checks[1].void) == (1, 1, "unfair")


def test_a_void_check_that_could_not_run_leaves_the_result_complete(tmp_path):
    found = result(check(Verdict.GRADER_ERROR, None))
    assert not rescored(found, read(tmp_path)).score.complete
    assert rescored(
        found, read(tmp_path, PUBLIC.replace("a: {weight: 1}", "a: {weight: 1, void: ours}"))
    ).score.complete


def test_a_check_that_the_rubric_has_lost_counts_nothing(tmp_path):
    [gone] = rescored(result(check(Verdict.PASS, "1.00").model_copy(update={"id": "gelu.z"})), read(tmp_path)).checks
    assert (gone.score, gone.max, gone.verdict) == (0, 0, Verdict.PASS)
    assert gone.void


def test_a_bonus_is_shown_beside_the_points_and_not_in_their_maximum(tmp_path):
    rubric = read(tmp_path, PUBLIC.replace("a: {weight: 1}", "a: {bonus: 1.5}"))
    found = rescored(result(check(Verdict.PASS, "1.00")), rubric)
    assert (found.score.raw, found.score.max, found.score.bonus) == (0, 0, Decimal("1.5"))


@pytest.mark.parametrize(("decision", "score"), [(None, None), ("accept", Decimal("0.67")), ("reject", Decimal(0))])
def test_a_review_holds_the_score_back_until_a_person_decides(tmp_path, decision, score):
    rubric = read(tmp_path)
    decided = REVIEW.model_copy(update={"decision": decision})
    given = award(rubric, "gelu.a", Verdict.PASS, decided)
    assert (given["score"], given["max"]) == (score, Decimal("0.67"))
    one = check(Verdict.PASS, "0.67", "0.67").model_copy(update={"review": decided, **given})
    assert total([one]).complete is (decision is not None)


def test_an_accepted_review_gives_no_points_to_a_wrong_answer(tmp_path):
    accepted = REVIEW.model_copy(update={"decision": "accept"})
    assert award(read(tmp_path), "gelu.a", Verdict.FAIL, accepted)["score"] == 0
