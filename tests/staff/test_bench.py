"""What `bench` shows of measured speeds, and what it says where nothing can be measured. No GPU and no clock."""

import io

import pytest
from rich.console import Console

from grader import cli
from grader.bench import rows as rows_module
from grader.bench.rows import Row, measured, work_of
from grader.bench.table import show_row, show_rows
from grader.clock import works
from grader.clock.curve import Threshold
from grader.judge.servers import Servers
from grader.judge.snapshot import Snapshot
from grader.judge.verdict import Outcome, Verdict
from grader.result import Clocks, Gpu, Speed
from grader.rubric import Rubric

from .conftest import ROOT

CLOCKS = Clocks(min=1470, median=1500, max=1980)
THROTTLED = Gpu(name="GPU A", clocks_mhz=CLOCKS, power_w=640.4, temperature_c=61, throttle=("power",))


def speed(function: str, time_s: float, ratio: float) -> Speed:
    return Speed(
        function=function, time_s=time_s, iqr_s=1e-6, samples=24, baseline="device_copy", baseline_s=ratio * time_s,
        ratio=ratio, bound_s=None, threshold=Threshold(none=0.25, full=1.0), gpu=THROTTLED,
    )  # fmt: skip


COPYING = Row("gelu.speed", works.gelu(1 << 30), speed("gelu", 2e-3, 0.5))
MULTIPLYING = Row("matmul.speed", works.matmul(8192, 8192, 8192), speed("matmul", 2e-3, 1.2))
BROKEN = Row("softmax.speed", works.softmax(64, 64), outcome=Outcome(Verdict.FAIL, "it is wrong", hint="mend it"))


def shown(*rows: Row) -> str:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    for row in rows:
        show_row(row, console)
    show_rows(rows, console)
    return console.file.getvalue()


def test_a_rate_is_what_must_be_moved_or_computed_in_the_time_of_a_call():
    assert COPYING.rate == (pytest.approx(2 * 2 * 2**30 / 2e-3 / 1e12), "TB/s")
    assert MULTIPLYING.rate == (pytest.approx(2 * 8192**3 / 2e-3 / 1e12), "TFLOP/s")


def test_a_line_has_time_rate_ratio_and_what_it_would_earn():
    lines = [" ".join(line.split()) for line in shown(COPYING, MULTIPLYING).splitlines()]
    assert "gelu 131072 x 8192 bfloat16 2.00 ms 2.15 TB/s 0.50 device_copy 50%" in lines
    assert "matmul 8192 x 8192 bfloat16 2.00 ms 550 TFLOP/s 1.20 device_copy 100%" in lines


def test_the_gpu_is_told_with_what_held_it_back():
    assert "GPU A at 1500 MHz, 640 W, 61 °C, held back by power." in shown(COPYING)


def test_what_was_not_measured_says_why_and_leaves_the_others():
    text = shown(BROKEN, COPYING)
    assert "fail  softmax.speed  it is wrong" in text
    assert "mend it" in text
    assert "gelu" in text
    assert "GPU A" not in shown(BROKEN)


def test_each_timed_shape_is_measured_once_and_a_failure_ends_nothing(monkeypatch):
    class OneFails:
        def __init__(self, process, servers, entry):
            self.process, self.speed = process, None

        def time(self, work):
            if self.process.module == "softmax":
                raise Outcome(Verdict.FAIL, "it is wrong")
            self.speed = speed(work.function, 1e-3, 1.0)

    monkeypatch.setattr(rows_module, "Clock", OneFails)
    snapshot, rubric = Snapshot.of(ROOT / "solutions"), Rubric.read()
    started: list[str] = []
    found = list(measured(rubric, ["gelu", "softmax"], snapshot, Servers(), started.append))
    snapshot.remove()
    assert started == [row.check for row in found]
    assert [row.check for row in found] == [
        f"{problem}.{name}" for problem in ("gelu", "softmax") for name in rubric.problems[problem].speed
    ]
    assert [row.speed is None for row in found] == [row.check.startswith("softmax") for row in found]


def test_what_a_timed_check_measures_is_found_without_measuring():
    assert work_of("gelu", "speed_bfloat16").function == "gelu"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["ddp"], "Nothing of `ddp` is timed; there are gelu, softmax, matmul, flash_attention."),
     ([], "there is none here (`doctor` says why)"), (["--submission", "nowhere"], "There is no folder nowhere.")],
)  # fmt: skip
def test_bench_says_in_one_sentence_why_it_measures_nothing(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(cli, "uses_gpu", lambda machine: False)
    with pytest.raises(SystemExit) as ended:
        cli.app(args=["bench", *arguments], prog_name="python -m grader")
    assert ended.value.code == cli.USAGE
    assert words in capsys.readouterr().err
