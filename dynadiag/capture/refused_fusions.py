"""Why Inductor's scheduler did not fuse two of its nodes.

It considers a pair again whenever one of them has grown, so the reason for the largest nodes counts, and of those the
last one. Names are kept until the code of the graph is emitted; a text is made only then, and only of pairs that are
two kernels in the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_MAX_PAIRS = 50_000  # pairs of one graph that are kept
_OPERATION = re.compile(r"\w*?op\d+")  # in the name of a fused node, which joins those of its operations


class RefusedFusions:
    """The pairs of nodes that were not fused since the last code was emitted."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], tuple[str, tuple[Any, ...]]] = {}

    def add(self, first: str, second: str, reason: str, arguments: tuple[Any, ...]) -> None:
        """Add a pair, or a later reason for it. It never raises."""
        if len(self._pairs) < _MAX_PAIRS:
            self._pairs[first, second] = reason, arguments

    def clear(self) -> None:
        """Forget the pairs: of a graph whose code was emitted, or whose compile failed."""
        self._pairs.clear()

    def between(self, groups: Mapping[str, int]) -> Iterator[tuple[int, int, str]]:
        """Yield pairs of groups of operations that were not fused, each once, with the reason.

        `groups` has the group of each operation by its name. Operations of one group are fused.
        """
        found: dict[tuple[int, int], tuple[int, str, tuple[Any, ...]]] = {}
        for names, (reason, arguments) in self._pairs.items():
            first, second = ([name.lstrip("_") for name in _OPERATION.findall(each)] for each in names)
            of_first, of_second = ({groups.get(name) for name in side} for side in (first, second))
            if len(of_first) == len(of_second) == 1 and of_first != of_second:
                one, other = of_first.pop(), of_second.pop()
                size = len(first) + len(second)
                if one is not None and other is not None and size >= found.get((one, other), (0,))[0]:
                    found[one, other] = size, reason, arguments
        for (one, other), (_, reason, arguments) in found.items():
            yield one, other, reason % arguments if arguments else reason
