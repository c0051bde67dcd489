"""The collectives that a program issues from Python, each as an event before it begins.

So the journal of a rank that hangs or is killed ends with the collective that it was in. Collectives of compiled code
and C++ have no event of their own. Only their number is known, from the count that each process group keeps.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from types import FrameType
from typing import Any

from dynadiag.capture.code_locations import frame_data, user_callers
from dynadiag.capture.graphs import plain_size
from dynadiag.torch_private import process_groups

_MAX_EVENTS = 20_000  # collectives that are recorded one by one: 5 MB
_INTERVAL = 1.0  # seconds between two of the later ones, so that a job of weeks still says where it is
_MAX_FRAMES = 6  # of the user's stack
_MAX_TENSORS = 64  # sizes of one coalesced collective
_DECORATORS = "/typing_extensions.py"  # its wrapper of deprecated functions stands between torch's own frames
# The local variable of torch's function that has what this rank contributes, the same in shape on each rank.
_TENSORS = ("tensor", "input", "input_tensor", "input_tensors", "input_tensor_list", "inputs", "tensors", "output")
_PEERS = ("group_dst", "group_src", "group_root")


class CollectiveLimit:
    """Which collectives are recorded: the first ones all, later ones at most one a second."""

    def __init__(self) -> None:
        self.count = 0
        self._last = 0.0

    def admit(self, now: float) -> bool:
        """Count one more, and return whether to record it."""
        self.count += 1
        if self.count > _MAX_EVENTS and now - self._last < _INTERVAL:
            return False
        self._last = now
        return True


class UnseenCollectives:
    """How many collectives each process group has begun that no event reports yet."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._unreported: Counter[str] = Counter()

    def step(self, group: str, numbers: tuple[int, int] | None) -> None:
        """Note a call that is seen. ``numbers`` are its group's counts before and after it, None if it has none."""
        if numbers is not None:
            self._unreported[group] += max(numbers[0] - self._known.get(group, numbers[0]), 0)
            self._known[group] = numbers[1]

    def take(self, group: str) -> int:
        """Return how many are unreported before the call that is seen now, and forget them."""
        return self._unreported.pop(group, 0)

    def since(self, issued: Mapping[str, int]) -> dict[str, int]:
        """Return how many are unreported by now. ``issued`` has the counts of the groups."""
        late = {
            name: number - self._known.get(name, number) + self._unreported[name] for name, number in issued.items()
        }
        return {name: count for name, count in late.items() if count > 0}


def describe_group(group: Any, frame: FrameType) -> dict[str, Any]:
    """Return the data of a new process group: its name, size, this process's rank in it, and its global ranks."""
    known = process_groups.caller_locals(frame)
    ranks = known.get("global_ranks_in_group")
    timeout = known.get("timeout")
    return {
        "name": str(known.get("group_name") or group.group_name),
        "size": known.get("group_size"),
        "rank": known.get("group_rank"),
        "ranks": list(ranks) if ranks else None,
        "backend": str(known.get("backend")),
        "timeout": timeout.total_seconds() if isinstance(timeout, timedelta) else None,
    }


def describe_collective(method: str, group: Any, frame: FrameType, number: int) -> dict[str, Any]:
    """Return the data of one collective: operation, group, sizes and dtypes, and the user's line."""
    known = process_groups.caller_locals(frame)
    tensors = list(_tensors(known))
    stack = [each for each in user_callers(frame) if not each["file"].endswith(_DECORATORS)][-_MAX_FRAMES:]
    data: dict[str, Any] = {
        "op": method,
        "group": str(group.group_name),
        "number": number,
        "sizes": [[plain_size(size) for size in each.shape] for each in tensors],
        "dtypes": [str(each.dtype).removeprefix("torch.") for each in tensors],
        "peer": next((known[name] for name in _PEERS if isinstance(known.get(name), int)), None),
        "async": bool(known.get("async_op", False)),
        "at": time.time(),
        **_innermost(stack),
        "callers": stack[:-1],
    }
    stance = process_groups.stance()
    return data if stance is None else {**data, "stance": stance}


def describe_standstill(since: float, frame: FrameType, number: int) -> dict[str, Any]:
    """Return the data of a standstill: since when (seconds since the epoch), after which collective, and where."""
    stack = user_callers(frame)[-_MAX_FRAMES:]
    return {"after": number, "since": since, "at": time.time(), **_innermost(stack), "callers": stack[:-1]}


def _innermost(stack: list[dict[str, Any]]) -> dict[str, Any]:
    return stack[-1] if stack else frame_data(None, None, None)


def _tensors(known: dict[str, Any]) -> Iterator[Any]:
    """The tensors that this rank contributes."""
    value = next((known[name] for name in _TENSORS if known.get(name) is not None), None)
    for each in list(value)[:_MAX_TENSORS] if isinstance(value, list | tuple) else [value]:
        if hasattr(each, "shape") and hasattr(each, "dtype"):
            yield each
