"""Which values of a recorded program are kept: what ``--values`` and its companions on the command line say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.errors import DynadiagError

_CALLS = re.compile(r"(\d+)(?:\.\.(\d+))?$")
_MAX_BYTES = 64_000_000  # of the summaries of one process


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """What to keep.

    ``calls`` are ranges, ends inclusive, of the calls of each graph, from 0. ``nodes`` is a regular expression or a
    list of names with commas: what is not named has no summary. The values of the nodes that ``full`` matches are kept
    whole, in files of ``folder``. ``limit`` is in bytes of summaries.
    """

    calls: Sequence[Sequence[int]] = ((0, 0),)
    nodes: str | None = None
    full: str | None = None
    folder: str | None = None
    limit: int = _MAX_BYTES

    def takes(self, call: int) -> bool:
        """Whether this call of a graph is run node by node."""
        return any(first <= call <= last for first, last in self.calls)

    def names(self, node: str) -> bool:
        """Whether a node's summary is kept."""
        return self.nodes is None or _matches(self.nodes, node)

    def keeps_whole(self, node: str) -> bool:
        """Whether a node's value is kept whole."""
        return self.full is not None and _matches(self.full, node)


def _matches(pattern: str, node: str) -> bool:
    """Whether a node is in a list of names, or is matched from its start to its end."""
    return node in pattern.split(",") or re.fullmatch(pattern, node) is not None


def check_pattern(option: str, pattern: str) -> None:
    """Raise `DynadiagError` if the value of an option is neither a regular expression nor a list of names."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise DynadiagError(f"{option} {pattern[:100]}: not a regular expression ({error})") from None


def parse_calls(text: str) -> tuple[tuple[int, int], ...]:
    """Return the ranges of ``3,10..12``. Raises `DynadiagError` for anything else."""
    ranges = []
    for part in text.split(","):
        parsed = _CALLS.match(part.strip())
        if parsed is None or int(parsed[2] or parsed[1]) < int(parsed[1]):
            raise DynadiagError(f"--calls {text[:100]}: give numbers and ranges of calls, from 0, such as 0,10..12")
        ranges.append((int(parsed[1]), int(parsed[2] or parsed[1])))
    return tuple(ranges)
