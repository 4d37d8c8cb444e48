"""A picture as SVG: boxes, words, arrows on a white ground, so that it is readable on light and dark pages alike."""

from __future__ import annotations

from html import escape
from pathlib import Path

WIDTH = 830  # of a page on GitHub, pixels
FONTS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"

INK, MUTED, LINE = "#1f2328", "#59636e", "#8c959f"
WHITE, GREY = "#ffffff", "#eaeef2"
WARNING = "#cf222e"  # of lines
BLUE, ORANGE, GREEN, RED, PURPLE = "#b6d8ff", "#ffd8a3", "#b4e8c0", "#ffc4c0", "#dccbfb"
MASKED = "url(#masked)"  # stripes: lanes that are switched off, tiles that are skipped

HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
font-family="{fonts}" role="img">
<title>{title}</title>
<defs>
<pattern id="masked" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<rect width="7" height="7" fill="#f6f8fa"/><rect width="2" height="7" fill="#afb8c1"/></pattern>
<marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">\
<path d="M0 0L10 5L0 10z" fill="{ink}"/></marker>
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>
"""


class Picture:
    """Coordinates are pixels from the top left corner."""

    def __init__(self, title: str, height: int) -> None:
        self._parts = [HEAD.format(width=WIDTH, height=height, fonts=FONTS, title=escape(title), ink=INK)]

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = WHITE, *, line: str = LINE,
        thick: float = 1, dashed: bool = False, label: str = "", size: float = 13, color: str = INK,
    ) -> None:  # fmt: skip
        """A rectangle, with words in its middle."""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{fill}" stroke="{line}" '
            f'stroke-width="{thick:g}"{dashes}/>\n'
        )
        if label:
            self.words(x + width / 2, y + height / 2 + size * 0.36, label, size=size, anchor="middle", color=color)

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """A thick outline around what is drawn already."""
        self.box(x, y, width, height, "none", line=INK, thick=2)

    def words(
        self, x: float, y: float, text: str, *, size: float = 13, anchor: str = "start", color: str = INK,
        bold: bool = False, code: bool = False,
    ) -> None:  # fmt: skip
        """One line; `y` is where its letters stand."""
        weight = ' font-weight="600"' if bold else ""
        family = " font-family=\"ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace\"" if code else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" fill="{color}"{weight}{family}>'
            f"{escape(text, quote=False)}</text>\n"
        )

    def note(self, x: float, y: float, text: str, anchor: str = "start") -> None:
        """A line in small print."""
        self.words(x, y, text, size=12, anchor=anchor, color=MUTED)

    def arrow(
        self, x: float, y: float, to_x: float, to_y: float, *, color: str = INK, thick: float = 1.4, head: bool = True,
        dashed: bool = False,
    ) -> None:  # fmt: skip
        """A line, with a head at its end."""
        end = ' marker-end="url(#head)"' if head else ""
        dashes = ' stroke-dasharray="4 4"' if dashed else ""
        self._parts.append(
            f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" stroke="{color}" stroke-width="{thick:g}"{end}'
            f"{dashes}/>\n"
        )

    def grid(self, x: float, y: float, columns: int, rows: int, side: float, fill: str = WHITE) -> None:
        """Cells of one size."""
        for row in range(rows):
            for column in range(columns):
                self.box(x + column * side, y + row * side, side, side, fill)

    def write(self, path: Path) -> None:
        path.write_text("".join([*self._parts, "</svg>\n"]))
