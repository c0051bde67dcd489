"""Describe what a graph is compiled with: the backend, and the options that differ from torch's defaults."""

from __future__ import annotations

import json
from typing import Any

from dynadiag.torch_private import capture as torch_private

_MAX_VALUE = 200  # characters of a value
_INDUCTOR = "torch._inductor.config"


def describe_options(backend: Any) -> dict[str, dict[str, Any]]:
    """Return the backend and the options, by module and name. Values are those of JSON.

    Among them are ``torch.compile(options=...)`` and ``mode=``, which hold while Inductor compiles.
    """
    options = torch_private.changed_options()
    options[_INDUCTOR] = {**options.get(_INDUCTOR, {}), **torch_private.inductor_options(backend)}
    found = {module: {name: _value(value) for name, value in values.items()} for module, values in options.items()}
    return {"torch.compile": {"backend": torch_private.backend_label(backend)}, **found}


def _value(value: Any) -> Any:
    """A value for JSON. A function becomes its name, file and line, another object its type."""
    if value is None or type(value) in (bool, int, float):
        return value
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{value.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    if callable(value):
        return _type_name(value)
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=_type_name, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        text = _type_name(value)
    return text[:_MAX_VALUE]


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
