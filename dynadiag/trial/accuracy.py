"""Each compiled call against its uncompiled self."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["compared_call"]


def compared_call(
    compiled: Callable[..., Any], original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    raise NotImplementedError
