"""How `bench` shows what it has measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from grader.bench.rows import Row
from grader.judge.output import clean
from grader.terminal import plain_table
from grader.units import duration


def show_row(row: Row, console: Console) -> None:
    """What went wrong with one function, if anything did."""
    if row.outcome:
        said = clean(str(row.outcome), 2000)
        console.print(Text.assemble((str(row.outcome.verdict), "red"), "  ", (row.check, "bold"), f"  {said}"))


def show_rows(rows: Sequence[Row], console: Console) -> None:
    """A line for each function that was measured, and the GPU below."""
    timed = [(row, row.speed) for row in rows if row.speed]
    if not timed:
        return
    table = plain_table(console, "function", "shape")
    for name in ("a call", "rate", "ratio", "to", "points"):
        table.add_column(name, justify="right")
    for row, speed in timed:
        rate, unit = row.rate
        table.add_row(
            speed.function, str(row.work), duration(speed.time_s), f"{rate:.3g} {unit}", f"{speed.ratio:.2f}",
            speed.baseline.value, f"{row.share:.0%}",
        )  # fmt: skip
    console.print(table)
    gpu = timed[-1][1].gpu
    slowed = f", held back by {' and '.join(gpu.throttle)}" if gpu.throttle else ""
    state = f"{gpu.clocks_mhz.median:.0f} MHz, {gpu.power_w:.0f} W, {gpu.temperature_c:.0f} °C{slowed}"
    console.print(Text(f"{gpu.name} at {state}.", style="dim"))
    console.print(
        Text("A ratio of 1 is as fast as the baseline. Points count once the public checks pass.", style="dim")
    )
