"""Texts as the scan compares them: words without layout, whatever the language.

`Tokens.of(text)` cuts a text into names, numbers and signs. Blanks, quotes, `#`, and a comma before a closing bracket
are no tokens, so neither the layout of code nor a place in a comment, a string or a Markdown file changes anything.
Numbers are compared by value.
"""

from __future__ import annotations

import builtins
import itertools
import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

TOKEN = re.compile(
    r"(?P<number>\d(?:[\w.]|(?<=[eE])[+-])*)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<comma>,(?!\s*[)\]}]))"
    r"""|(?P<sign>\*\*=?|//=?|<<=?|>>=?|[<>=!]=|[-+*/%&|^@:]=|->|[^\s\w,"'`#\\])"""
)
FIXED = {*keyword.kwlist, *dir(builtins)}  # names that nobody can rename
COMMENT = re.compile(r"#[^\n]*")
TRIPLE_QUOTED = re.compile(r'"""(?:.|\n)*?"""|' + r"'''(?:.|\n)*?'''")


@dataclass(frozen=True)
class Tokens:
    """A text's tokens, with where each begins."""

    words: Sequence[str]
    begins: Sequence[int]
    free: Sequence[bool]  # names that could be others: no keyword, no builtin, and not after a dot

    @classmethod
    def of(cls, text: str) -> Tokens:
        """Cut a text."""
        words, begins, free = [], [], []
        for match in TOKEN.finditer(text):
            words.append(_value(match.group()) if match["number"] else match.group())
            begins.append(match.start())
            free.append(
                bool(match["name"]) and match.group() not in FIXED and text[match.start() - 1 : match.start()] != "."
            )
        return cls(words, begins, free)

    def shape(self) -> list[str]:
        """The tokens, with one sign for all names that could be others."""
        return ["" if free else word for word, free in zip(self.words, self.free, strict=True)]

    def window(self, start: int, length: int) -> tuple[str | int, ...]:
        """A run of tokens, with such names by the order in which they first occur."""
        order: dict[str, int] = {}
        pairs = zip(self.words[start : start + length], self.free[start : start + length], strict=True)
        return tuple(order.setdefault(word, len(order)) if free else word for word, free in pairs)


def readings(text: str) -> Iterator[str]:
    """A text with and without its comments, and what is in triple quotes: whoever copies code copies either.

    What is left out becomes blanks, so that lines stay where they are.
    """
    found = []
    for left_out in itertools.product((None, TRIPLE_QUOTED), (None, COMMENT)):
        reading = text
        for pattern in filter(None, left_out):
            reading = pattern.sub(lambda match: re.sub(r"\S", " ", match.group()), reading)
        if reading not in found:
            found.append(reading)
            yield reading


def _value(number: str) -> str:
    try:
        return repr(float(number.replace("_", "")))
    except ValueError:
        return number
