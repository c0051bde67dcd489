"""Values of JSON that a log or a recording holds, checked for their type: anything else becomes None, or empty."""

from __future__ import annotations

from typing import Any

import orjson


def json_object(text: str) -> dict[str, Any]:
    """Return the JSON object that a text is, or an empty one if the text is anything else."""
    try:
        found = orjson.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def list_or_empty(value: Any) -> list[Any]:
    """Return a list, else an empty one."""
    return value if isinstance(value, list) else []


def int_or_none(value: Any) -> int | None:
    """Return an integer that fits SQLite (64 bits), else None."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else None


def text_or_none(value: Any) -> str | None:
    """Return a string, else None."""
    return value if isinstance(value, str) else None


def float_or_none(value: Any) -> float | None:
    """Return a number as float, else None."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
