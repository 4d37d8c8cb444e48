"""What `bench` makes of measured times, and what it says where nothing can be measured. No GPU and no clock."""

import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from grader import cli
from grader.bench import meters
from grader.bench.ladders import LADDERS, operations
from grader.bench.meters import JudgesClock, OwnWord, Times, meter_of
from grader.bench.plot import _rate, draw, short
from grader.bench.record import Bench, Limit, Limits, Timed, Untimed
from grader.bench.rows import Measurements, Session, launching_s, rate_of, work_of
from grader.bench.table import show_bench, show_row
from grader.clock import works
from grader.clock.curve import Threshold
from grader.clock.works import Work
from grader.command import FAILED, OURS, PASSED, STOPPED, USAGE
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.verdict import Outcome, Verdict
from grader.result import Clocks, Gpu
from grader.rubric import Rubric
from grader.runner.blocks import CudaFailed

THROTTLED = Gpu(
    name="GPU A", clocks_mhz=Clocks(min=1470, median=1500, max=1980), power_w=640.4, temperature_c=61,
    throttle=("power",),
)  # fmt: skip
COPY_S, PRODUCT_S = 0.5e-3, 2e-3  # of 1 GiB, and of 8192 x 8192 x 8192
COPY, PRODUCT = 2 * 2**30 / COPY_S / 1e12, 2 * 8192**3 / PRODUCT_S / 1e12  # TB/s, TFLOP/s
TINY_S = 40e-6
RUBRIC = Rubric.read()
for entry in RUBRIC.problems.values():  # a ratio of 0.5 is half of the points, whatever is calibrated
    for name, timed in entry.speed.items():
        entry.speed[name] = timed.model_copy(update={"threshold": Threshold(none=0.25, full=1.0), "gpus": {}})
PROBLEMS = ("gelu", "softmax", "matmul", "flash_attention")


class Simulated:
    """A meter whose functions take a millisecond, or what it is told, and baselines half of that."""

    estimates = False

    def __init__(self, takes: Callable[[Work], float] = lambda work: 1e-3, gpu: Gpu | None = THROTTLED) -> None:
        self.takes, self.gpu, self.asked = takes, gpu, list[str]()

    def beside(self, work, entry, fine_s=None):
        self.asked.append(f"{work.function} {work}{' briefly' * (fine_s is not None)}")
        time_s = self.takes(work)
        return Times(time_s, time_s / 100, time_s / 2, self.gpu)

    def alone_s(self, work, entry, baseline):
        self.asked.append(f"{baseline} {work}")
        return {"device_copy": COPY_S, "cublas": PRODUCT_S, "torch": 0.8e-3}[baseline]


def measured(*problems: str, meter: Simulated | None = None, ladders: bool = False, told=lambda row: None):
    started = list[str]()
    session = Session(RUBRIC, meter or Simulated(), 141 << 30, "GPU A", started.append)
    found = Measurements()
    found.by(session, problems, ladders, told)
    return found


def record(*problems: str, meter: Simulated | None = None, ladders: bool = False) -> Bench:
    return measured(*problems, meter=meter, ladders=ladders).record("GPU A", {"torch": "2.13.0", "triton": "3.7.1"})


def raising(verdict: Verdict, where: Callable[[Work], bool] = lambda work: True) -> Callable[[Work], float]:
    def takes(work: Work) -> float:
        if where(work):
            raise Outcome(verdict, "it is wrong", hint="mend it")
        return 1e-3

    return takes


def shown(bench: Bench) -> str:
    console = Console(file=io.StringIO(), width=110, color_system=None)
    for row in bench.rows:
        show_row(row, console)
    show_bench(bench, console)
    return console.file.getvalue()


def lines_of(bench: Bench) -> list[str]:
    return [" ".join(line.split()) for line in shown(bench).splitlines()]


# Rates, limits, points


def test_a_rate_is_what_must_be_moved_or_computed_in_the_time_of_a_call():
    assert rate_of(works.gelu(1 << 30), 2e-3) == (pytest.approx(2 * 2 * 2**30 / 2e-3 / 1e12), "TB/s")
    assert rate_of(works.matmul(8192, 8192, 8192), 2e-3) == (pytest.approx(2 * 8192**3 / 2e-3 / 1e12), "TFLOP/s")


def test_the_limits_are_measured_first_by_a_copy_and_a_matmul_of_the_judges_own():
    meter = Simulated()
    bench = record("gelu", meter=meter)
    assert meter.asked[:2] == ["device_copy 65536 x 8192 bfloat16", "cublas 8192 x 8192 bfloat16"]
    assert (bench.limits.device_copy.rate, bench.limits.device_copy.unit) == (pytest.approx(COPY), "TB/s")
    assert (bench.limits.matmul.rate, bench.limits.matmul.unit) == (pytest.approx(PRODUCT), "TFLOP/s")


def test_a_small_gpu_copies_and_multiplies_less():
    meter = Simulated()
    Session(Rubric.read(), meter, 8 << 30, "GPU B", lambda what: None).limits()
    assert meter.asked == ["device_copy 8192 x 8192 bfloat16", "cublas 8192 x 8192 bfloat16"]


def test_a_rate_is_told_as_a_part_of_its_limit():
    of_limit = {row.check: row.of_limit for row in record("gelu", "matmul").rows}
    assert of_limit["gelu.speed_bfloat16"] == pytest.approx(COPY_S / 1e-3)  # the same bytes
    assert of_limit["matmul.speed_bfloat16"] == pytest.approx(PRODUCT_S / 1e-3)
    assert of_limit["matmul.speed_float32"] is None, "tensor cores are no limit for float32"


def test_a_function_is_compared_with_each_of_its_baselines():
    [row] = record("gelu").rows
    assert (row.baseline, row.baseline_s, row.ratio) == ("device_copy", 0.5e-3, 0.5)
    assert row.others == {"torch": 0.8e-3}


def test_points_are_those_of_the_threshold():
    [row] = record("gelu").rows
    assert row.share == 0.5


@pytest.mark.parametrize(("time_s", "bound"), [(99e-6, True), (101e-6, False)])
def test_a_scored_shape_below_a_hundred_microseconds_is_launch_bound_and_not_scored(time_s, bound):
    bench = record("gelu", meter=Simulated(lambda work: time_s))
    [row] = bench.rows
    assert row.launch_bound == bound
    assert (row.share is None) == bound
    assert ("launch-bound: launching takes as long" in shown(bench)) == bound


# The table


def test_a_line_has_time_rate_part_of_the_limit_ratios_and_what_it_would_earn():
    lines = lines_of(record("gelu", "matmul"))
    assert "gelu bfloat16 1.00 ms 2.15 TB/s 50% 0.50 device_copy 50%" in lines
    assert "65536 x 8192 bfloat16 0.80 torch" in lines
    assert "matmul bfloat16 1.00 ms 1.1e+03 TFLOP/s 200% 0.50 cublas 50%" in lines
    assert (
        "Limits, measured just now: a copy of 1 GiB, 4.29 TB/s; cuBLAS with 8192 x 8192 x 8192 bfloat16, 550 TFLOP/s."
        in lines
    )


def test_a_table_of_eighty_columns_has_every_number():
    console = Console(file=io.StringIO(), width=80, color_system=None)
    show_bench(record(*PROBLEMS), console)
    words = console.file.getvalue().split()
    assert words.count("1.00") == 7  # ms
    assert "…" not in console.file.getvalue()


def test_the_gpu_is_told_with_what_held_it_back():
    assert "GPU A at 1500 MHz, 640 W, 61 °C, held back by power." in shown(record("gelu"))


def test_an_estimate_is_marked_wherever_it_is_told():
    meter = Simulated(gpu=None)
    meter.estimates = True
    bench = record("gelu", meter=meter)
    [row] = bench.rows
    assert row.estimate
    assert "gelu bfloat16 ~1.00 ms 2.15 TB/s 50% 0.50 device_copy ~50%" in lines_of(bench)
    assert "~ is an estimate: CUDA IPC does not work here" in shown(bench)
    assert "estimate" not in shown(record("gelu"))


def test_what_was_not_measured_says_why_and_leaves_the_others():
    broken = Simulated(raising(Verdict.FAIL, lambda work: work.function == "softmax"))
    text = shown(record("gelu", "softmax", meter=broken))
    assert "fail  softmax.speed_forward  it is wrong" in text
    assert "mend it" in text
    assert "gelu bfloat16" in text
    assert "GPU A" not in shown(record("softmax", meter=broken))


# What is measured


def test_each_timed_shape_is_measured_once_and_a_failure_ends_nothing():
    meter, told = Simulated(raising(Verdict.FAIL, lambda work: work.function == "gelu")), []
    found = measured("gelu", "softmax", meter=meter, told=told.append)
    assert [row.check for row in found.rows] == [
        f"{problem}.{name}" for problem in ("gelu", "softmax") for name in RUBRIC.problems[problem].speed
    ]
    assert [isinstance(row, Untimed) for row in found.rows] == [True, False, False]
    assert told == found.rows
    assert not found.points


@pytest.mark.parametrize(
    ("end", "stopped", "broken"), [(KeyboardInterrupt(), True, False), (RunnerBroken("no runner"), False, True)]
)
def test_what_was_measured_before_the_end_is_kept(end, stopped, broken):
    def takes(work: Work) -> float:
        if work.function == "softmax":
            raise end
        return 1e-3

    found = measured("gelu", "softmax", meter=Simulated(takes))
    assert [row.check for row in found.rows] == ["gelu.speed_bfloat16"]
    assert (found.stopped, found.broken is not None) == (stopped, broken)
    assert "gelu bfloat16" in shown(found.record("GPU A", {}))


def test_a_baseline_that_fails_alone_is_ours():
    class Failing(Simulated):
        def alone_s(self, work, entry, baseline):
            raise Outcome(Verdict.SKIPPED, "no memory")

    assert "no memory" in str(measured("gelu", meter=Failing()).broken)


def test_what_a_timed_check_measures_is_found_without_measuring():
    assert work_of("gelu", "speed_bfloat16").function == "gelu"


# Ladders of sizes


def test_a_ladder_is_that_of_a_timed_check_and_begins_with_what_takes_no_time():
    for check, ladder in LADDERS.items():
        scored = work_of(*check.split("."))
        for work in (ladder.tiny, *map(ladder.work, ladder.sizes)):
            assert (work.function, work.gradient, work.options) == (scored.function, scored.gradient, scored.options)
            assert work.outputs[0].shape[-2] >= 4, "the clock copies four rows out"
        assert list(ladder.sizes) == sorted(ladder.sizes)
        assert ladder.tiny.moved_bytes < min(ladder.work(size).moved_bytes for size in ladder.sizes)
    assert LADDERS["softmax.speed_forward"].work(8192).inputs == work_of("softmax", "speed_forward").inputs
    assert LADDERS["flash_attention.speed_forward"].work(4096).inputs[0].shape == (64, 4096, 128)


def test_ladders_are_climbed_with_few_samples_after_the_scored_shapes_and_only_if_asked_for():
    meter = Simulated()
    bench = record("matmul", meter=meter, ladders=True)
    asked = [one for one in meter.asked if one.startswith("matmul")]
    sizes = LADDERS["matmul.speed_bfloat16"].sizes
    assert [one.endswith("briefly") for one in asked] == [False, False, *[True] * (len(sizes) + 1)]
    assert [point.size for point in bench.points] == list(sizes)
    assert {point.share for point in bench.points} == {None}
    assert not record("matmul").points


@pytest.mark.parametrize(("times", "bound"), [(1.49, True), (1.51, False)])
def test_a_size_that_takes_as_long_as_a_tiny_one_is_launch_bound(times, bound):
    tiny = LADDERS["matmul.speed_bfloat16"].tiny
    meter = Simulated(lambda work: TINY_S if work.inputs == tiny.inputs else times * TINY_S)
    assert {point.launch_bound for point in record("matmul", meter=meter, ladders=True).points} == {bound}


def test_without_the_tiny_size_what_launching_costs_is_assumed():
    tiny = LADDERS["gelu.speed_bfloat16"].tiny
    bench = record(
        "gelu", meter=Simulated(raising(Verdict.FAIL, lambda work: work.inputs == tiny.inputs)), ladders=True
    )
    assert launching_s(bench.points[0]) == 100e-6


def test_a_size_that_is_wrong_is_left_out_and_named():
    wrong = works.gelu(1 << 22).inputs
    bench = record("gelu", meter=Simulated(raising(Verdict.FAIL, lambda work: work.inputs == wrong)), ladders=True)
    assert [point.size for point in bench.points if isinstance(point, Untimed)] == [1 << 22]
    assert "not drawn: gelu bfloat16, 512 x 8192 bfloat16: fail, it is wrong" in lines_of(bench)


@pytest.mark.parametrize(
    ("verdict", "climbed"), [(Verdict.FAIL, False), (Verdict.TODO, False), (Verdict.SKIPPED, True)]
)
def test_a_function_that_is_wrong_has_no_ladder_and_one_without_room_has(verdict, climbed):
    scored = work_of("gelu", "speed_bfloat16").inputs
    meter = Simulated(raising(verdict, lambda work: work.inputs == scored))
    assert bool(record("gelu", meter=meter, ladders=True).points) == climbed


@pytest.mark.parametrize(
    ("work", "count"),
    [
        (works.gelu(1 << 20), 9 << 20),
        (works.softmax(1 << 10, 1 << 10), 5 << 20),
        (works.softmax_step(1 << 10, 1 << 10), 9 << 20),
        (works.matmul(64, 48, 32), 2 * 64 * 48 * 32),
        (works.attention_forward(2, 64, 16, False), 4 * 2 * 64 * 64 * 16),
        (works.attention_forward(2, 64, 16, True), 2 * 2 * 64 * 64 * 16),
    ],
)
def test_operations_are_those_on_tensor_cores_or_a_few_for_each_element(work, count):
    assert operations(work) == count


# The record


def test_the_json_is_the_whole_record(tmp_path: Path):
    bench = record(*PROBLEMS, meter=Simulated(raising(Verdict.FAIL, lambda w: w.function == "softmax")), ladders=True)
    bench.write(tmp_path / "bench.json")
    text = (tmp_path / "bench.json").read_text()
    assert Bench.model_validate_json(text) == bench
    found = json.loads(text)
    assert found["schema"] == "grader.bench/1"
    gelu, softmax = found["rows"][:2]
    assert (gelu["shape"], gelu["dtype"], gelu["unit"], gelu["estimate"]) == ("65536 x 8192", "bfloat16", "TB/s", False)
    assert (softmax["verdict"], softmax["message"]) == ("fail", "it is wrong\nmend it")
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]


def test_a_record_refuses_what_cannot_be():
    [row] = record("gelu").rows
    for change in ({"time_s": 0.0}, {"time_s": float("nan")}, {"launch_bound": True}, {"share": None}, {"share": 1.5}):
        with pytest.raises(ValidationError):
            Timed(**row.model_dump() | change)
    with pytest.raises(ValidationError):
        Untimed(**{name: row.model_dump()[name] for name in Untimed.model_fields if name != "message"}, message="")


# The picture

BOUND = Simulated(lambda work: TINY_S if work.moved_bytes < 1 << 24 else 1e-3)


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_a_picture_is_drawn_from_the_record_alone(tmp_path: Path, ending):
    bench = Bench.model_validate_json(record("gelu", ladders=True, meter=BOUND).model_dump_json(by_alias=True))
    draw(bench, tmp_path / f"picture.{ending}")
    content = (tmp_path / f"picture.{ending}").read_bytes()
    assert content.startswith({"svg": b"<?xml", "png": b"\x89PNG"}[ending])


def test_a_picture_has_a_panel_for_each_function_and_one_roofline(tmp_path: Path):
    bench = record("gelu", "matmul", ladders=True, meter=BOUND)
    panels = drawn(bench, tmp_path)
    assert [panel.get_title("left") for panel in panels] == ["gelu", "matmul", "roofline"]
    gelu, _, roofline = panels
    assert [text.get_text() for text in gelu.get_legend().get_texts()] == [
        "yours", "device_copy", "torch", "limit: a large copy",
    ]  # fmt: skip
    assert (gelu.get_xlabel(), gelu.get_ylabel()) == ("elements", "TB/s")
    yours, limit, hollow = (line_named(gelu, name) for name in ("yours", "limit: a large copy", None))
    assert list(yours.get_xdata()) == list(LADDERS["gelu.speed_bfloat16"].sizes)
    assert yours.get_ydata()[-1] == pytest.approx(2 * 2 * 2**29 / 1e-3 / 1e12)
    assert list(limit.get_ydata()) == [pytest.approx(COPY)] * 2
    assert list(hollow.get_xdata()) == [1 << 16, 1 << 18, 1 << 20, 1 << 21]  # 4 bytes each, below 16 MiB
    assert hollow.get_markerfacecolor() == "white"
    names = {text.get_text() for text in roofline.texts}
    assert {"gelu bfloat16", "matmul bfloat16", "matmul float32"} <= names
    roof, points = roofline.lines
    assert roof.get_ydata()[1] / roof.get_xdata()[1] == pytest.approx(COPY)
    assert list(roof.get_ydata()[1:]) == [pytest.approx(PRODUCT)] * 2
    assert points.get_xdata()[0] == pytest.approx(9 / 4)  # operations of a gelu, by 2 bytes read and 2 written


def test_a_line_is_broken_where_a_size_could_not_be_measured(tmp_path: Path):
    wrong = works.gelu(1 << 22).inputs
    meter = Simulated(raising(Verdict.FAIL, lambda work: work.inputs == wrong))
    yours = line_named(drawn(record("gelu", ladders=True, meter=meter), tmp_path)[0], "yours")
    missing = [size for size, rate in zip(yours.get_xdata(), yours.get_ydata(), strict=True) if rate != rate]
    assert missing == [1 << 22]


def test_names_in_the_roofline_do_not_lie_on_each_other(tmp_path: Path):
    from matplotlib.text import Text

    roofline = drawn(record(*PROBLEMS), tmp_path)[-1]
    roofline.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(text) for text in roofline.texts[2:]]  # after those of the limits
    assert len(boxes) == 7
    assert not any(one.overlaps(other) for number, one in enumerate(boxes) for other in boxes[:number])


def test_a_picture_that_fails_leaves_no_file(tmp_path: Path, monkeypatch):
    from matplotlib.figure import Figure

    def fails(self, target, **options):
        target.write(b"half")
        raise OSError("no room")

    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(OSError, match="no room"):
        draw(record("gelu"), tmp_path / "picture.svg")
    assert not list(tmp_path.iterdir())


def drawn(bench: Bench, folder: Path):
    """The panels of a picture, once it is drawn."""
    from matplotlib.figure import Figure

    with pytest.MonkeyPatch.context() as patch:
        kept: list[Figure] = []
        save = Figure.savefig
        patch.setattr(Figure, "savefig", lambda self, *a, **k: kept.append(self) or save(self, *a, **k))
        draw(bench, folder / "picture.svg")
    return kept[0].axes


def line_named(panel, name: str | None):
    """A line of a panel by its label; None for the one that has none."""
    return next(line for line in panel.lines if (line.get_label() == name if name else line.get_label()[0] == "_"))


def test_sizes_are_short():
    assert [short(size) for size in (128, 3001, 1 << 13, 1 << 29)] == ["128", "3001", "8K", "512M"]


# Who holds the clock


def test_the_judge_holds_the_clock_where_it_shares_its_memory():
    servers = Servers()
    for shares, meter in ((True, JudgesClock), (False, OwnWord)):
        servers.shares_memory = shares
        assert isinstance(meter_of(None, servers), meter)


class FakeClock:
    """A clock that has measured, and then has a doubt."""

    time_s, whole_s, doubt = 1e-3, 1.1e-3, Outcome(Verdict.FAIL, "not reproducible", cause="not_reproducible")

    def __init__(self, process, servers, entry, samples):
        self.samples, self.states, self.measured = samples, [], None

    def time(self, work):
        theirs = SimpleNamespace(time_s=self.time_s, whole_s=self.whole_s, iqr_s=1e-6)
        self.measured = SimpleNamespace(theirs=theirs, baseline=SimpleNamespace(time_s=2e-3, whole_s=2.1e-3))
        if self.doubt:
            raise self.doubt


@pytest.fixture
def judges_clock(monkeypatch):
    monkeypatch.setattr(meters, "Clock", FakeClock)
    monkeypatch.setattr(meters, "CheckProcess", lambda *arguments: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(meters, "summary", lambda name, states: THROTTLED)
    return JudgesClock(SimpleNamespace(folder=None), SimpleNamespace(gpu=THROTTLED))


ENTRY = Rubric.read().problems["gelu"].speed["speed_bfloat16"]


@pytest.mark.parametrize(("whole_s", "fine_s"), [(1e-3, None), (1e-3, 0.5e-3), (0.1e-3, None)])
def test_a_doubt_about_a_scored_shape_or_a_long_call_stands(judges_clock, monkeypatch, whole_s, fine_s):
    monkeypatch.setattr(FakeClock, "whole_s", whole_s)
    with pytest.raises(Outcome, match="not reproducible"):
        judges_clock.beside(works.gelu(1 << 20), ENTRY, fine_s)


@pytest.mark.parametrize("doubt", [FakeClock.doubt, None])
def test_a_short_call_in_a_picture_need_not_settle_and_takes_what_launching_takes(judges_clock, monkeypatch, doubt):
    monkeypatch.setattr(FakeClock, "time_s", 0.01e-3)  # a slope that noise has made
    monkeypatch.setattr(FakeClock, "whole_s", 0.1e-3)
    monkeypatch.setattr(FakeClock, "doubt", doubt)
    found = judges_clock.beside(works.gelu(1 << 20), ENTRY, 0.25e-3)
    assert (found.time_s, found.baseline_s) == (0.1e-3, 2.1e-3)


def test_a_long_call_in_a_picture_takes_what_a_scored_one_does(judges_clock, monkeypatch):
    monkeypatch.setattr(FakeClock, "doubt", None)
    found = judges_clock.beside(works.gelu(1 << 20), ENTRY, 0.25e-3)
    assert (found.time_s, found.baseline_s) == (1e-3, 2e-3)


@pytest.mark.parametrize("whole_s", [0.0, -1e-6])
def test_a_time_that_is_none_is_no_time(judges_clock, monkeypatch, whole_s):
    monkeypatch.setattr(FakeClock, "whole_s", whole_s)
    with pytest.raises(Outcome, match="too short for the clock"):
        judges_clock.beside(works.gelu(1 << 15), ENTRY, 0.25e-3)


def test_a_shape_that_tells_what_launching_takes_never_has_to_settle():
    asked = []

    class Asked(Simulated):
        def beside(self, work, entry, fine_s=None):
            asked.append(fine_s)
            return super().beside(work, entry, fine_s)

    measured("gelu", meter=Asked(lambda work: 0.4e-3), ladders=True)
    scored, tiny, *sizes = asked
    assert (scored, tiny) == (None, math.inf)
    assert sizes == [pytest.approx(2 * 1.5 * 0.4e-3)] * len(sizes)


def test_a_baseline_that_takes_no_steady_time_is_not_drawn():
    [long, short] = [
        next(row for row in record("gelu", meter=Simulated(lambda work, s=s: s)).rows) for s in (1e-3, 0.4e-3)
    ]
    assert _rate(long, "device_copy") == pytest.approx(2 * long.rate)
    assert math.isnan(_rate(short, "device_copy"))
    assert _rate(short, "yours") == pytest.approx(short.rate)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), CudaFailed("cuMemAlloc_v2 gave 2")])
def test_a_gpu_that_is_too_small_is_no_fault_of_the_submissions(judges_clock, monkeypatch, error):
    monkeypatch.setattr(FakeClock, "doubt", error)
    with pytest.raises(Outcome) as raised:
        judges_clock.beside(works.gelu(1 << 29), ENTRY)
    assert raised.value.verdict is Verdict.SKIPPED


# The command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["ddp"], "Nothing of `ddp` is timed; there are gelu, softmax, matmul, flash_attention."),
     ([], "there is none here (`doctor` says why)"), (["--submission", "nowhere"], "There is no folder nowhere."),
     (["--plot", "a.pdf"], "A picture is .svg or .png, and a.pdf ends otherwise."),
     (["--plot", "nowhere/a.svg"], "There is no folder nowhere to write a.svg to."),
     (["--json", "nowhere/a.json"], "There is no folder nowhere to write a.json to.")],
)  # fmt: skip
def test_bench_says_in_one_sentence_why_it_measures_nothing(arguments, words, capsys, monkeypatch):
    monkeypatch.setattr(cli, "uses_gpu", lambda machine: False)
    with pytest.raises(SystemExit) as ended:
        cli.app(args=["bench", *arguments], prog_name="python -m grader")
    assert ended.value.code == USAGE
    assert words in capsys.readouterr().err


def test_a_stop_before_anything_is_measured_draws_nothing(tmp_path, monkeypatch, capsys):
    class Stopping(Standing):
        def ready(self):
            raise KeyboardInterrupt

    monkeypatch.setattr(cli, "uses_gpu", lambda machine: True)
    monkeypatch.setattr(cli, "Servers", Stopping)
    gpu = SimpleNamespace(name="GPU A", memory_bytes=141 << 30)
    monkeypatch.setattr(cli.Machine, "here", lambda: SimpleNamespace(gpus=(gpu,)))
    with pytest.raises(SystemExit) as ended:
        cli.app(args=["bench", "gelu", "--plot", str(tmp_path / "a.svg")], prog_name="python -m grader")
    assert ended.value.code == STOPPED
    assert not list(tmp_path.iterdir())
    assert "Stopped" in capsys.readouterr().err


class Standing:
    """Servers that are ready at once."""

    def __init__(self):
        self.versions = {"torch": "2.13.0", "triton": "3.7.1", "numpy": "2.4"}

    @classmethod
    def on(cls, machine):
        return cls()

    def ready(self): ...
    def close(self): ...


@pytest.mark.parametrize(
    ("takes", "code"),
    [(lambda work: 1e-3, PASSED), (raising(Verdict.FAIL), FAILED), (None, STOPPED), (1, OURS)],
    ids=["all is well", "something is wrong", "stopped", "ours"],
)
def test_bench_writes_what_it_has_and_ends_with_what_it_found(takes, code, tmp_path, capsys, monkeypatch):
    def ends(work: Work) -> float:
        raise RunnerBroken("no runner") if takes else KeyboardInterrupt

    meter = Simulated(takes if callable(takes) else ends)
    monkeypatch.setattr(cli, "uses_gpu", lambda machine: True)
    monkeypatch.setattr(cli, "Servers", Standing)
    gpu = SimpleNamespace(name="GPU A", memory_bytes=141 << 30)
    monkeypatch.setattr(cli.Machine, "here", lambda: SimpleNamespace(gpus=(gpu,)))
    monkeypatch.setattr(meters, "meter_of", lambda snapshot, servers: meter)
    files = [str(tmp_path / name) for name in ("a.json", "a.svg")]
    with pytest.raises(SystemExit) as ended:
        cli.app(args=["bench", "gelu", "--json", files[0], "--plot", files[1]], prog_name="python -m grader")
    assert ended.value.code == code
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.svg"]
    found = Bench.model_validate_json(Path(files[0]).read_text())
    assert (found.versions, found.stopped) == (Standing().versions, code == STOPPED)
    assert ("gelu bfloat16" in capsys.readouterr().out) == (code == PASSED)


def test_limits_are_of_moving_and_of_computing():
    copy = Limit(work="a copy", rate=4.0, unit="TB/s")
    limits = Limits(device_copy=copy, matmul=Limit(work="a matmul", rate=700.0, unit="TFLOP/s"))
    assert limits.of(3.0, "TB/s", "float32") == 0.75
    assert limits.of(350.0, "TFLOP/s", "bfloat16") == 0.5
    assert limits.of(35.0, "TFLOP/s", "float32") is None
