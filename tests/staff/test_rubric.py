"""The rubric's arithmetic, and scores as a function of results."""

from decimal import Decimal

import pytest
from pydantic import ValidationError

from grader.judge.verdict import Verdict
from grader.result import CheckResult, total
from grader.rubric import Rubric, RubricError, Visibility

PUBLIC = """
assignment: example
share: {public: 40, hidden: 30, speed: 30}
problems:
  gelu:
    points: 5
    handout: GeLU
    checks: {a: {weight: 1}, b: {weight: 1}, c: {weight: 1}}
"""
HIDDEN = "problems: {gelu: {d: {weight: 2, hint: look there}, e: {weight: 1, hint: and there}}}"


def read(tmp_path, public: str = PUBLIC, hidden: str | None = HIDDEN) -> Rubric:
    (tmp_path / "rubric.yaml").write_text(public)
    if hidden is not None:
        (tmp_path / "hidden.yaml").write_text(hidden)
    return Rubric.read(tmp_path / "rubric.yaml", tmp_path / "hidden.yaml")


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
    rubric = Rubric.read()
    for name, problem in rubric.problems.items():
        public = sum(rubric.points[f"{name}.{check}"] for check in rubric.checks(name, Visibility.PUBLIC))
        hidden = sum(rubric.points[f"{name}.{check}"] for check in rubric.checks(name, Visibility.HIDDEN))
        assert (public, hidden) == (Decimal(problem.points) * 4 / 10, Decimal(problem.points) * 3 / 10)
    built = sum(problem.points for problem in rubric.problems.values())
    assert built + sum(rubric.public.coming.values()) == 100


def test_without_the_hidden_file_there_are_no_hidden_checks(tmp_path):
    rubric = read(tmp_path, hidden=None)
    assert rubric.checks("gelu", Visibility.HIDDEN) == {}
    assert set(rubric.points) == {"gelu.a", "gelu.b", "gelu.c"}


def test_either_file_changes_the_hash(tmp_path):
    first = read(tmp_path).sha256
    assert read(tmp_path, hidden=HIDDEN.replace("2", "3")).sha256 != first
    assert read(tmp_path, public=PUBLIC.replace("points: 5", "points: 6")).sha256 != first


@pytest.mark.parametrize(
    ("wrong", "named"),
    [("points: -5", "points"), ("pionts: 5", "pionts"), ("points: 5\n    limit: 3", "limit"), ("points: [", "YAML")],
)
def test_a_mistake_in_the_rubric_is_named(tmp_path, wrong, named):
    with pytest.raises(RubricError, match=named) as caught:
        read(tmp_path, public=PUBLIC.replace("points: 5", wrong))
    assert "rubric.yaml" in str(caught.value)


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
