"""The name that somebody probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def closest(word: str, names: Iterable[str]) -> str | None:
    """The most similar of the names, or one that holds the word, whatever the case; None if there is none.

    Every name holds the empty word, and none was meant by it.
    """
    if not word:
        return None
    by_lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1) or [
        name for name in by_lower if word.lower() in name
    ]
    return by_lower[found[0]] if found else None


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """The end of a sentence that says that there is no such name."""
    found = closest(word, names)
    return f"; did you mean `{found}`?" if found else ""
