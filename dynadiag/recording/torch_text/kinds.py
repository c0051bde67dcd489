"""The kind of a text of torch's: the first of several patterns that is in it."""

from __future__ import annotations

import re
from collections.abc import Mapping


def compiled_kinds(patterns: Mapping[str, str], flags: int = 0) -> dict[str, re.Pattern[str]]:
    """Compile the pattern of each kind."""
    return {kind: re.compile(pattern, flags) for kind, pattern in patterns.items()}


def kind_of(text: str, kinds: Mapping[str, re.Pattern[str]]) -> tuple[str, re.Match[str]] | tuple[None, None]:
    """The kind of a text, and where its pattern is in it.

    >>> kind_of("cpu ops", compiled_kinds({"copy": "DeviceCopy", "cpu": "^cpu"}))[0]
    'cpu'
    """
    found = ((kind, pattern.search(text)) for kind, pattern in kinds.items())
    return next(((kind, match) for kind, match in found if match), (None, None))
