"""Numbers with their units, as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A time to three digits, in the unit that fits.

    >>> [duration(seconds) for seconds in (2.58e-4, 0.0123, 1.5, 9.996e-4)]
    ['258 µs', '12.3 ms', '1.50 s', '1.00 ms']
    """
    rounded = float(f"{seconds:.3g}")
    unit, size = next((unit for unit in (("s", 1.0), ("ms", 1e-3)) if rounded >= unit[1]), ("µs", 1e-6))
    number = rounded / size
    return f"{number:.{2 if number < 9.995 else 1 if number < 99.95 else 0}f} {unit}"
