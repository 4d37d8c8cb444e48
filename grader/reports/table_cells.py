"""The cells of a CSV text with the characters that they were written in, so that the rest stays as it was."""

from __future__ import annotations

import re
from dataclasses import dataclass


class NotCells(Exception):
    """A text that is no CSV, and in which line."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


@dataclass(frozen=True)
class Cell:
    """One cell."""

    raw: str  # as it is written, quotes and all
    value: str
    ending: str  # the delimiter or the line's end behind it; nothing at the end of the text


def cells_of(text: str, delimiter: str) -> list[list[Cell]]:
    """Rows of cells. Together, `raw` and `ending` are the text. Raises `NotCells`."""
    pattern = re.compile(rf'("(?:[^"]|"")*"|[^"{delimiter}\r\n]*)({delimiter}|\r\n|\n|\r|\Z)')
    rows: list[list[Cell]] = []
    row: list[Cell] = []
    at = 0
    while at < len(text) or (row and row[-1].ending == delimiter):
        match = pattern.match(text, at)
        if match is None:
            raise NotCells(text.count("\n", 0, at) + 1)
        raw, ending = match.groups()
        row.append(Cell(raw, raw[1:-1].replace('""', '"') if raw.startswith('"') else raw, ending))
        if ending != delimiter:
            rows.append(row)
            row = []
        at = match.end()
    return rows
