"""JSON that every reader takes: no NaN, no control characters, no half of a character."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from grader.judge.output import clean


def strict_json(value: Any) -> str:
    """A value as JSON, on lines; a number that is not finite becomes null, and text loses what cannot be printed."""
    return json.dumps(_strict(value), allow_nan=False, ensure_ascii=False, indent=2) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value, limit=len(value))
    if isinstance(value, Mapping):
        return {str(_strict(key)): _strict(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(one) for one in value]
    if isinstance(value, Decimal):
        value = float(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
