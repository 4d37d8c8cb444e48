"""What staff read first of a batch: what needs a person before anything else, in 80 columns."""

import io
from decimal import Decimal

import pytest
from rich.console import Console

from grader.judge.verdict import Verdict
from grader.reports.graded import Graded
from grader.reports.summary import Tally, histogram, show_tally
from grader.result import IntakeInfo
from grader.rubric import LatePolicy, Rubric
from grader.terminal import make_console
from tests.staff.reported import OPEN, RUBRIC, a_check, a_result, a_student, graded

TODO = dict.fromkeys(RUBRIC.problems, Verdict.TODO)


UNDATED = {"submitted_at": None, "submitted_at_source": None}


def with_a_date() -> Rubric:
    late = LatePolicy(due="2026-10-02T23:00:00Z", per_day=10)
    return Rubric(RUBRIC.public.model_copy(update={"late": late}), RUBRIC.hidden, RUBRIC.sha256)


def summary(*attempts: Graded, encoding: str = "utf-8", rubric: Rubric = RUBRIC) -> str:
    tally = Tally()
    for attempt in attempts:
        tally.add(attempt)
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    console = make_console(stream)
    console.width = 80
    show_tally(tally, rubric, console)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)


def one_line(text: str) -> str:
    return " ".join(text.split())


def named(name: str, **fields) -> Graded:
    """An attempt with a tree of its own."""
    verdicts, checks, student = (fields.pop(key, None) for key in ("verdicts", "checks", "student"))
    info = {"tree_sha256": name, **fields.pop("info", {})}
    return graded(a_result(verdicts, checks or (), name, info), student or a_student(), **fields)


def test_our_faults_and_open_reviews_come_before_what_was_rejected_and_suspicious():
    rejected = {"intake": IntakeInfo(status="rejected")}
    text = summary(
        named("a-suspicious", attention="two students in one"),
        named("b-rejected", verdicts=TODO, info=rejected, attention="a RAR archive; ask for a zip"),
        named("c-review", checks=[a_check("softmax.columns", review=OPEN)], student=a_student(final=None)),
        named("d-broken", verdicts={"gelu.sizes": Verdict.GRADER_ERROR}, student=a_student(final=None)),
    )
    said = [
        "A person has to look (4):", "d-broken the grader itself failed: gelu.sizes",
        "c-review open review: softmax.columns", "b-rejected rejected: a RAR archive; ask for a zip",
        "a-suspicious two students in one", "No grade yet, open reviews (1): c-review.",
    ]  # fmt: skip
    places = [one_line(text).index(sentence) for sentence in said]
    assert places == sorted(places)
    assert one_line(text).startswith("3 of 4 attempts are graded; 4 students, 2 with a grade.")


def test_what_was_skipped_is_said_loudly_at_the_top():
    text = summary(named("a", verdicts={"gelu": Verdict.SKIPPED}), named("b", verdicts={"gelu.sizes": Verdict.SKIPPED}))
    assert one_line("".join(text.splitlines(keepends=True)[1:3])) == (
        "SKIPPED: 17 checks of 2 submissions have no score. Needs a GPU: speed is measured there."
    )


def test_an_attempt_that_is_not_graded_and_one_of_nobody_are_named():
    nobody = graded(a_result(submission="plain-x", info={"tree_sha256": "x"}))
    text = one_line(summary(graded(None, a_student(final=None), submission="gradescope-9"), nobody))
    assert "1 of 2 attempts are graded; 1 students, 0 with a grade." in text
    assert "No grade yet, not run (1): gradescope-9." in text
    assert "Of nobody known (1): plain-x." in text


def test_points_of_a_problem_are_shown_with_their_middle_and_ends():
    attempts = [named("a"), named("b", verdicts={"gelu": Verdict.FAIL} | failing("gelu")), named("c")]
    [row] = [line for line in summary(*attempts).splitlines() if line.strip().startswith("gelu ")]
    assert row.split()[:6] == ["gelu", "3", "5.00", "of", "5.00", "1"]
    assert row.split()[-1] == "2"


def failing(problem: str) -> dict[str, Verdict]:
    """All but the timed checks of a problem, which fail: without a speed those cannot pass either."""
    names = [name for name in RUBRIC.points if name.startswith(f"{problem}.")]
    return dict.fromkeys(names, Verdict.FAIL)


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "|▄      █ █|"), ("ascii", "|4      8 8|")])
def test_a_histogram_has_a_bar_for_each_tenth(encoding, shown):
    console = make_console(io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    parts = [Decimal(part) for part in ("0.05", "0.71", "0.75", "0.9", "1")]
    assert histogram(parts, console).plain == shown


def test_checks_that_most_fail_come_first_and_one_that_all_fail_is_suspicious():
    attempts = [named(str(place), verdicts={"gelu.sizes": Verdict.FAIL}) for place in range(20)]
    attempts.append(named("20", verdicts={"gelu.sizes": Verdict.FAIL, "softmax.columns": Verdict.CRASH}))
    lines = [one_line(line) for line in summary(*attempts).splitlines()]
    place = lines.index("gelu.sizes 21 of 21 100 % at fault itself?")
    assert lines[place + 1] == "softmax.columns 1 of 21 5 %"


def test_a_check_that_19_of_20_fail_is_not_suspicious_and_what_is_to_do_does_not_count():
    attempts = [named(str(place), verdicts={"gelu.sizes": Verdict.FAIL}) for place in range(19)]
    attempts += [named("passes"), named("to-do", verdicts={"gelu": Verdict.TODO})]
    assert "gelu.sizes 19 of 20 95 %\n" in "\n".join(map(one_line, summary(*attempts).splitlines())) + "\n"
    assert "at fault" not in summary(*attempts)


def test_submissions_with_the_same_files_are_named_and_attempts_of_one_are_not():
    twin = {"tree_sha256": "t"}
    text = summary(
        named("a", info=twin), named("b", info=twin), named("b", info=twin, counts=False), named("c"), named("c")
    )
    assert [one_line(line) for line in text.splitlines() if "same files" in line] == ["The same files (2): a, b."]


def test_submissions_without_files_are_not_the_same():
    nothing = {"tree_sha256": "", "intake": IntakeInfo(status="no_submission"), "submitted_at": None}
    text = summary(named("a", verdicts=TODO, info=nothing), named("b", verdicts=TODO, info=nothing))
    assert "same files" not in text
    assert "Lateness unknown" not in text
    assert "gelu" not in text


def test_unknown_lateness_and_a_penalty_by_a_date_that_a_student_could_set_are_told():
    claimed = {"submitted_at_source": "commit (claimed)"}
    text = one_line(summary(
        named("a", info={"submitted_at": None, "submitted_at_source": None}),
        named("b", info=claimed, student=a_student(late="2")), named("c", info=claimed), rubric=with_a_date(),
    ))  # fmt: skip
    assert "Lateness unknown, no penalty (1): a." in text
    assert "Late by a commit's date, which the student could set (1): b." in text


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_nothing_is_wider_than_80_columns_and_text_is_no_markup(encoding):
    attempts = [named(f"gradescope-{1000 + place}", verdicts=failing("softmax"), info=UNDATED,
                      attention="[bold]x[/bold] \x1b[31m" + "word " * 60) for place in range(40)]  # fmt: skip
    text = summary(*attempts, encoding=encoding, rubric=with_a_date())
    assert max(map(len, text.splitlines())) <= 80
    assert "[bold]x[/bold]" in text
    assert "\x1b" not in text
    assert "and 20 more" in text


def test_a_tally_keeps_no_results():
    """It is for classes of any size."""
    tally = Tally()
    tally.add(named("a"))
    assert "CheckResult" not in repr(tally)
    show_tally(tally, RUBRIC, Console(file=io.StringIO(), width=80))


def test_without_a_date_nobody_wonders_about_lateness():
    assert "Lateness unknown" not in summary(named("a", info=UNDATED))


def test_what_counts_and_has_no_result_or_only_a_reason_to_look_is_not_whole():
    def whole(*attempts: Graded) -> bool:
        tally = Tally()
        for attempt in attempts:
            tally.add(attempt)
        return tally.whole

    review = named("c", checks=[a_check("softmax.columns", review=OPEN)], student=a_student(final=None))
    assert whole(named("a"), review)
    assert not whole(named("a"), named("b", attention="a RAR archive"))
    assert not whole(graded(None))
