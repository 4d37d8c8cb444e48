"""Tables that staff give, as CSV: whatever a spreadsheet makes of it, and each mistake with file and line."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from grader.batch.rejected import shown
from grader.closest import did_you_mean
from grader.located import Mistake

SEPARATORS = ",;\t"


@dataclass(frozen=True)
class Row:
    """A row: its values by the column's name in lower case, those that are not empty."""

    file: str
    line: int
    values: dict[str, str]

    def get(self, column: str) -> str | None:
        """The value, or None where there is none."""
        return self.values.get(column)

    def refuse(self, sentence: str) -> NoReturn:
        """Raise `Mistake` about this row."""
        raise Mistake(f"{self.file}, line {self.line}: {sentence}")


def read_table(path: Path) -> tuple[list[str], list[Row]]:
    """The names of all columns, in lower case, and all rows that are not empty. Raises `Mistake`."""
    name = shown(path.name)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise Mistake(f"{name} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise Mistake(f"{name}, line {line}: this is not UTF-8; save it as CSV in UTF-8") from None
    first = text.partition("\n")[0]
    separator = max(SEPARATORS, key=first.count)
    rows = _rows(csv.reader(text.splitlines(keepends=True), delimiter=separator), name)
    _, header = next(rows, (1, []))
    columns = [column.strip().lower() for column in header]
    if twice := next((column for column in columns if column and columns.count(column) > 1), None):
        raise Mistake(f"{name}, line 1: there are two columns `{shown(twice)}`")
    return columns, [_row(name, line, columns, values) for line, values in rows]


def need_one_of(path: Path, columns: Collection[str], known: Sequence[str]) -> None:
    """Raise `Mistake` if none of these columns is there."""
    if not set(columns) & set(known):
        close = next((hint for column in columns if (hint := did_you_mean(column, known))), "")
        found = ", ".join(f"`{shown(column)}`" for column in columns) or "nothing"
        raise Mistake(f"{shown(path.name)}, line 1: no column is called {' or '.join(known)}, found {found}{close}")


def _rows(reader: Iterator[list[str]], name: str) -> Iterator[tuple[int, list[str]]]:
    """Rows with something in them, and the line on which each begins."""
    begins = 1
    while True:
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise Mistake(f"{name}, line {begins}: {error}") from None
        if any(value.strip() for value in values):
            yield begins, values
        begins = reader.line_num + 1  # type: ignore[attr-defined]


def _row(file: str, line: int, columns: Sequence[str], values: Sequence[str]) -> Row:
    if any(value.strip() for value in values[len(columns) :]):
        raise Mistake(f"{file}, line {line}: there are {len(values)} values for {len(columns)} columns")
    filled = {column: value.strip() for column, value in zip(columns, values, strict=False)}
    return Row(file, line, {column: value for column, value in filled.items() if value})
