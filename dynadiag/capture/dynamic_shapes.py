"""The `dynamic_shapes` that fit the inputs of a failed export. What the program wrote and fits is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from dynadiag.torch_private.exports import dimension_text

_PLAIN = (int, float, str, bool, type(None), complex, torch.dtype, torch.device)
_MAX_TEXT = 1000  # characters of it that are recorded


def fitting_shapes(inputs: Mapping[str, Any], given: Any, compares: bool) -> dict[str, str]:
    """Return ``right``, the text to write, and ``wrong``, a sentence on a dimension that a tensor does not have.

    ``right`` has None for each input whose given shape does not fit. It is missing where an input is of a class that
    only its own pytree functions can open. ``wrong`` is missing where each tensor has its dimensions. Both are missing
    where the shapes fit: then torch did not fail while it ``compares`` them with the inputs.
    """
    found = dict[str, str]()
    if isinstance(given, (list, tuple)):
        given = dict(zip(inputs, given, strict=False))
    wrong = next(_wrong(inputs, given, ""), None)
    if wrong is not None:
        found["wrong"] = wrong
    elif not compares:
        return found
    try:
        found["right"] = _right(inputs, given)[:_MAX_TEXT]
    except TypeError:
        return found
    return found


def _right(value: Any, given: Any) -> str:
    """The text for one input, or for what is in it. Raises TypeError where it is of a class that is not known."""
    if isinstance(value, torch.Tensor):
        return _shape_text(given) if _fits(value, given) else "None"
    if isinstance(value, Mapping):
        parts = (f"{key!r}: {_right(each, _item(given, key))}" for key, each in value.items())
        return f"{{{', '.join(parts)}}}"
    if type(value) in (list, tuple):
        parts = (_right(each, _item(given, place)) for place, each in enumerate(value))
        text = ", ".join(parts)
        return f"[{text}]" if isinstance(value, list) else f"({text}{',' if len(value) == 1 else ''})"
    if isinstance(value, _PLAIN):
        return "None"
    raise TypeError(type(value).__name__)


def _item(given: Any, key: Any) -> Any:
    """What the program wrote for one item of a container; None where it wrote nothing for it."""
    if isinstance(given, Mapping):
        return given.get(key)
    return given[key] if isinstance(given, (list, tuple)) and isinstance(key, int) and key < len(given) else None


def _fits(tensor: torch.Tensor, given: Any) -> bool:
    if isinstance(given, Mapping):
        known = all(_has_dimension(tensor, each) for each in given)
        return known and all(dimension_text(each) for each in given.values())
    return isinstance(given, (list, tuple)) and len(given) == tensor.dim() and all(map(dimension_text, given))


def _has_dimension(tensor: torch.Tensor, dimension: Any) -> bool:
    return isinstance(dimension, int) and -tensor.dim() <= dimension < tensor.dim()


def _shape_text(given: Any) -> str:
    if isinstance(given, Mapping):
        return f"{{{', '.join(f'{key}: {dimension_text(each)}' for key, each in given.items())}}}"
    return f"({', '.join(str(dimension_text(each)) for each in given)}{',' if len(given) == 1 else ''})"


def _wrong(value: Any, given: Any, path: str) -> Iterator[str]:
    """A sentence for each dimension that `dynamic_shapes` names and its tensor does not have."""
    if isinstance(value, torch.Tensor):
        for each in given if isinstance(given, Mapping) else ():
            if not _has_dimension(value, each):
                yield f"`dynamic_shapes{path}` names dimension {each!r}, and the tensor has {value.dim()}, from 0 on"
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _wrong(each, _item(given, key), f"{path}[{key!r}]")
    elif type(value) in (list, tuple):
        for place, each in enumerate(value):
            yield from _wrong(each, _item(given, place), f"{path}[{place}]")
