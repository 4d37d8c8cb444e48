"""How `bench` shows what it has measured."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from grader.bench.record import Bench, Limits, Row, Timed, Untimed
from grader.terminal import plain_table
from grader.units import duration

ESTIMATE = (
    "~ is an estimate: CUDA IPC does not work here (WSL, gVisor), so your own process measures, and nobody looks at "
    "its answers. It says nothing about a grade."
)
LAUNCH_BOUND = "launch-bound: launching takes as long as computing, which is not scored."
NOT_POINTS = "A ratio of 1 is as fast as the baseline. Points count once the public checks pass."


def show_row(row: Row, console: Console) -> None:
    """What went wrong with one function, if anything did."""
    if isinstance(row, Untimed):
        console.print(Text.assemble((str(row.verdict), "red"), "  ", (row.check, "bold"), f"  {row.message}"))


def show_bench(bench: Bench, console: Console) -> None:
    """A line for each function that was measured, below it what this GPU can do, and what is missing in a picture."""
    _show_rows(bench, console)
    for row in bench.points:
        if isinstance(row, Untimed):
            reason = row.message.partition("\n")[0]
            console.print(Text(f"not drawn: {row.name}, {row.shape} {row.dtype}: {row.verdict}, {reason}"))


def _show_rows(bench: Bench, console: Console) -> None:
    timed = [row for row in bench.rows if isinstance(row, Timed)]
    if not timed or not bench.limits:
        return
    table = plain_table(console, "function")
    for name in ("a call", "rate", "of\nlimit", "ratio to", "points"):
        table.add_column(name, justify="left" if name == "ratio to" else "right", no_wrap=True)
    for row in timed:
        table.add_row(f"{row.name}\n{row.shape} {row.dtype}", *_measured(row))
    console.print(table)
    sentences = [_limits(bench.limits), _gpu(bench.gpu, timed[-1]), NOT_POINTS]
    sentences += [LAUNCH_BOUND] if any(row.launch_bound for row in timed) else []
    sentences += [ESTIMATE] if any(row.estimate for row in timed) else []
    for sentence in sentences:
        console.print(Text(sentence, style="dim"))


def _measured(row: Timed) -> list[str]:
    """The cells of a row; a line in a cell for each baseline."""
    about = "~" if row.estimate else ""
    ratios = {row.baseline: row.ratio} | {name: other_s / row.time_s for name, other_s in row.others.items()}
    return [
        f"{about}{duration(row.time_s)}",
        f"{row.rate:.3g} {row.unit}",
        "-" if row.of_limit is None else f"{row.of_limit:.0%}",
        "\n".join(f"{ratio:.2f} {name.value}" for name, ratio in ratios.items()),
        "launch-\nbound" if row.share is None else f"{about}{row.share:.0%}",
    ]


def _limits(limits: Limits) -> str:
    rates = [f"{limit.work}, {limit.rate:.3g} {limit.unit}" for limit in (limits.device_copy, limits.matmul)]
    return f"Limits, measured just now: {'; '.join(rates)}."


def _gpu(name: str, last: Timed) -> str:
    """The GPU, and how it was at the last function."""
    if not (gpu := last.gpu):
        return f"{name}."
    slowed = f", held back by {' and '.join(gpu.throttle)}" if gpu.throttle else ""
    return f"{name} at {gpu.clocks_mhz.median:.0f} MHz, {gpu.power_w:.0f} W, {gpu.temperature_c:.0f} °C{slowed}."
