"""Points in time as people and platforms write them; without a zone there is none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo


def instant(text: str, zone: tzinfo | None = None) -> datetime:
    """A point in time in UTC. `zone` holds where the text has none. Raises `ValueError` with a sentence.

    >>> instant("2026-10-02 23:58:03.5 +02:00").isoformat()
    '2026-10-02T21:58:03.500000+00:00'
    """
    joined = re.sub(r"\s*(?:UTC|Z)$", "Z", re.sub(r"\s+([+-]\d\d:?\d\d)$", r"\1", text.strip()))
    try:
        found = datetime.fromisoformat(joined)
    except ValueError:
        raise ValueError(f"`{text}` is no point in time: write 2026-10-02T21:58:03Z") from None
    return in_utc(found.replace(tzinfo=found.tzinfo or zone), text)


def in_utc(found: datetime, text: str) -> datetime:
    """The same point in time in UTC, of which `text` was written. Raises `ValueError` where it has no zone."""
    if found.utcoffset() is None:
        raise ValueError(f"`{text}` has no zone: write one behind it, as in 2026-10-02T23:58:03+02:00")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"`{text}` is no point in time: write 2026-10-02T21:58:03Z") from None
