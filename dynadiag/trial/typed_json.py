"""Dataclasses as JSON and back, for messages between the processes of a search, and for the rows of its recording.

Text that is not valid Unicode (half a surrogate pair, from the name of a file) is written with escapes. An object
without a form in JSON is written as its text.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def to_data(value: object) -> Any:
    """A dataclass, or a container of them, as dicts, lists and plain values."""
    return msgspec.to_builtins(value, enc_hook=str, str_keys=True)


def typed(data: Any, kind: type[T]) -> T:
    """The inverse of `to_data`: a value of type ``kind``. Unknown keys are ignored. Raises `msgspec.ValidationError` if
    ``data`` does not fit the type.
    """
    return msgspec.convert(data, kind, str_keys=True)


def dump(value: object) -> str:
    """A dataclass, or a container of them, as one line of JSON."""
    return json.dumps(to_data(value))


def load(text: str | bytes, kind: type[T]) -> T:
    """The value of type ``kind`` in JSON text. Raises `ValueError` if it is not JSON, `msgspec.ValidationError` if it
    does not fit the type.
    """
    return typed(json.loads(text), kind)
