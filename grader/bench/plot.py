"""The picture of `bench --plot`: for each function its speed over size, and the roofline of this GPU.

It is drawn from the record that `--json` writes, and needs neither a GPU nor a submission.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.bench.ladders import LADDERS
from grader.bench.record import FINE_S, Bench, Limits, Row, Timed
from grader.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec

# Okabe and Ito's colours, which people tell apart who do not see all of them; markers and dashes differ, too.
YOURS, FIRST, SECOND = "#0072B2", "#D55E00", "#009E73"
PALE, GREY, INK = "#E5E5E5", "#767676", "#333333"
WIDTH, PANEL_HEIGHT, HEAD = 9.0, 2.7, 0.5  # inches: two panels beside each other, at the width of a README
DOTS = 160  # an inch, of a PNG
MOST_TICKS = 7
HEADROOM = 1.12
DOT, LABEL_GAP = 3, 9  # points from a dot's middle to its rim, and to its name
LABEL_DOWN = range(6, 60, 6)  # points below it
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.edgecolor": GREY, "text.color": INK,
    "axes.labelcolor": INK, "axes.spines.top": False, "axes.spines.right": False, "xtick.color": INK,
    "ytick.color": INK, "legend.fontsize": 8, "legend.frameon": False, "svg.hashsalt": "bench",
}  # fmt: skip


def draw(bench: Bench, path: Path) -> None:
    """Write the picture to an .svg or .png, whole or not at all. `bench` has limits."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ladders = {check: points for check in LADDERS if (points := [row for row in bench.points if row.check == check])}
    rows = (len(ladders) + 2) // 2
    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, PANEL_HEIGHT * rows + HEAD), layout="constrained", facecolor="white")
        grid = figure.add_gridspec(rows, 2)
        for number, (check, points) in enumerate(ladders.items()):
            _panel(figure.add_subplot(grid[number // 2, number % 2]), check, points, bench)
        _roofline(_last(figure, grid, len(ladders)), bench)
        figure.suptitle(_heading(bench), x=0.01, ha="left", fontsize=9)
        content = io.BytesIO()
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        figure.savefig(content, format=path.suffix[1:], dpi=DOTS, metadata=metadata)
    write_whole(path, content.getvalue())


def _last(figure: Figure, grid: GridSpec, panels: int) -> Axes:
    """The rest of the last row, or a row of its own."""
    return figure.add_subplot(grid[panels // 2, panels % 2 :])


def _heading(bench: Bench) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in bench.versions.items() if name != "numpy")
    timed = [row for row in (*bench.rows, *bench.points) if isinstance(row, Timed)]
    bound = any(row.launch_bound for row in bench.points if isinstance(row, Timed))
    hollow = f"; hollow: launch-bound, no baselines under {FINE_S * 1e3:g} ms" if bound else ""
    by_own_word = "; estimates, by the submission's own clock" if any(row.estimate for row in timed) else ""
    return f"{bench.gpu}, {versions}{hollow}{by_own_word}"


def _panel(axes: Axes, check: str, points: Sequence[Row], bench: Bench) -> None:
    """Speed over size: the submission's, that of baselines, and the limit."""
    sizes = [point.size for point in points if point.size]  # the tiny shape has none
    points = [point for point in points if point.size]
    timed = [point for point in points if isinstance(point, Timed)]
    axes.set_title(LADDERS[check].title, loc="left", pad=20)
    axes.set_xlabel(LADDERS[check].axis)
    if not timed:
        axes.text(0.5, 0.5, "nothing could be measured", ha="center", transform=axes.transAxes, color=GREY)
        axes.set(xticks=[], yticks=[])
        return
    lines = [("yours", "o-", YOURS, 1.8), (timed[0].baseline.value, "s--", FIRST, 1.2)]
    lines += [(name.value, "^:", SECOND, 1.2) for name in timed[0].others]
    for number, (name, form, colour, width) in enumerate(lines):
        rates = [_rate(point, name) for point in points]
        axes.plot(sizes, rates, form, color=colour, label=name, lw=width, ms=2.5 * width, zorder=4 - number)
    _limit_line(axes, timed[0], bench)
    hollow = [(point.size, point.rate) for point in timed if point.launch_bound]
    axes.plot(*zip(*hollow, strict=True) if hollow else ([], []), "o", color=YOURS, mfc="white", ms=4.5, zorder=5)
    _dress(axes, sizes, timed[0].unit)


def _dress(axes: Axes, sizes: Sequence[int], unit: str) -> None:
    """Scales, ticks, and the legend above: no line can be there."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(_ticks(sizes), [short(size) for size in _ticks(sizes)])
    axes.minorticks_off()
    axes.set_ylim(0, HEADROOM * axes.dataLim.ymax)
    axes.set_ylabel(unit)
    axes.grid(axis="y", color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=4, borderpad=0, handlelength=1.8, columnspacing=1.2,
        handletextpad=0.5,
    )  # fmt: skip
    for line in axes.lines:  # also those on the lower edge are seen whole
        line.set_clip_on(False)
        line.set_in_layout(False)  # one without points has no place


def _limit_line(axes: Axes, row: Timed, bench: Bench) -> None:
    if bench.limits and row.of_limit is not None:
        copies = row.unit == "TB/s"
        limit, what = (bench.limits.device_copy, "copy") if copies else (bench.limits.matmul, "matmul")
        axes.axhline(limit.rate, color=GREY, linewidth=1.0, linestyle=(0, (6, 2, 1, 2)), label=f"limit: a large {what}")


def _rate(point: Row, whose: str) -> float:
    """TB/s or TFLOP/s of "yours", or of a baseline on the same shape; NaN where it has no time, or no steady one."""
    if not isinstance(point, Timed):
        return math.nan
    baselines = {point.baseline: point.baseline_s, **point.others}
    steady = {name.value: time_s for name, time_s in baselines.items() if time_s >= FINE_S or point.estimate}
    times_s = {"yours": point.time_s, **steady}
    return point.rate * point.time_s / times_s.get(whose, math.nan)


def _ticks(sizes: Sequence[int]) -> list[int]:
    """Some of the powers of two between the ends, evenly: at most MOST_TICKS."""
    first, last = math.ceil(math.log2(min(sizes))), math.floor(math.log2(max(sizes)))
    step = max(1, math.ceil((last - first + 1) / MOST_TICKS))
    return [1 << exponent for exponent in range(first, last + 1, step)]


def short(size: int) -> str:
    """A size as people read it.

    >>> [short(size) for size in (128, 3001, 8192, 1 << 29)]
    ['128', '3001', '8K', '512M']
    """
    for unit, exponent in (("M", 20), ("K", 10)):
        if size >= 1 << exponent and size % (1 << exponent) == 0:
            return f"{size >> exponent}{unit}"
    return str(size)


def _roofline(axes: Axes, bench: Bench) -> None:
    """Operations a second over operations a byte: the scored shapes below what copying and multiplying allow."""
    assert bench.limits
    timed = [row for row in bench.rows if isinstance(row, Timed)]
    bandwidth, peak = bench.limits.device_copy.rate, bench.limits.matmul.rate
    intensities = [row.operations / row.moved_bytes for row in timed]
    low, high = min([0.5, *intensities]) / 2, max([4 * peak / bandwidth, *intensities]) * 8
    ridge = peak / bandwidth
    axes.loglog([low, ridge, high], [bandwidth * low, peak, peak], color=GREY, linewidth=1.4)
    axes.loglog(intensities, [row.operations / row.time_s / 1e12 for row in timed], "o", color=YOURS, markersize=5)
    axes.set_xlim(low, high)
    axes.set_ylim(bandwidth * low / 4, peak * 3)
    axes.set_title("roofline", loc="left")
    axes.set_xlabel("operations a byte")
    axes.set_ylabel("TFLOP/s")
    axes.grid(color=PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    _name_limits(axes, bench.limits, low, ridge, high)
    _labels(axes, timed, ridge)


def _name_limits(axes: Axes, limits: Limits, low: float, ridge: float, high: float) -> None:
    copy, product = limits.device_copy, limits.matmul
    middle = math.sqrt(low * ridge)
    axes.annotate(
        f"copy: {copy.rate:.3g} {copy.unit}", (middle, copy.rate * middle), (-6, 4), textcoords="offset points",
        ha="right", fontsize=8, color=GREY,
    )  # fmt: skip
    axes.annotate(
        f"matmul: {product.rate:.3g} {product.unit}", (high, product.rate), (-4, 4), textcoords="offset points",
        ha="right", fontsize=8, color=GREY,
    )  # fmt: skip


def _labels(axes: Axes, timed: Sequence[Timed], ridge: float) -> None:
    """Name each point at its right, or below the roof at its left, where neither a point nor another name is."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    places = [(row.operations / row.moved_bytes, row.operations / row.time_s / 1e12) for row in timed]
    labels = [
        axes.annotate(
            row.name, place, (LABEL_GAP, 0), textcoords="offset points", va="center", fontsize=8, color=YOURS,
            arrowprops={"arrowstyle": "-", "color": YOURS, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3},
        )
        for row, place in zip(timed, places, strict=True)
    ]  # fmt: skip
    axes.figure.draw_without_rendering()  # type: ignore[union-attr]  # where everything lies is known after that
    point = axes.figure.dpi / 72  # in dots
    dots = [axes.transData.transform(place) for place in places]
    taken = [Bbox.from_bounds(x, y, 0, 0).padded(DOT * point) for x, y in dots]
    for label, place, (x, y) in zip(labels, places, dots, strict=True):
        size = Text.get_window_extent(label)  # an annotation's own includes its line
        for side, down in ((side, down) for down in LABEL_DOWN for side in (1, -1)[: 1 + (place[0] > ridge)]):
            left = x + side * LABEL_GAP * point - (size.width if side < 0 else 0)
            box = Bbox.from_bounds(left, y - down * point - size.height / 2, size.width, size.height)
            if box.x1 < axes.bbox.x1 and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)
        label.xyann = (side * LABEL_GAP, -down)
        label.set_horizontalalignment("left" if side > 0 else "right")
