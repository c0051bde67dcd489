"""Dataclasses as JSON and back, for what processes of a search tell each other and for what its recording keeps.

Text that is no valid Unicode (half a surrogate pair, from the name of a file) is written as an escape, and an object
that JSON does not have as its text.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

__all__ = ["dump", "load", "to_data", "typed"]

T = TypeVar("T")


def to_data(value: object) -> Any:
    """A dataclass, or a container of them, as dicts, lists and plain values."""
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def typed(data: Any, kind: type[T]) -> T:
    """The value of type ``kind`` that ``to_data`` has made ``data`` of. Unknown keys are ignored.

    Raises `msgspec.ValidationError` where it is none.
    """
    return msgspec.convert(data, kind, str_keys=True)


def dump(value: object) -> str:
    """A dataclass, or a container of them, as one line of JSON."""
    return json.dumps(to_data(value))


def load(text: str | bytes, kind: type[T]) -> T:
    """The value of type ``kind`` in JSON text. Raises `ValueError` or `msgspec.ValidationError` where it is none."""
    return typed(json.loads(text), kind)
