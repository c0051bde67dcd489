"""Counts the later calls of compiled functions that torch left to Python, by the line that calls.

Dynamo asks nobody about code that it has marked, but each call of a compiled function passes through its wrapper.
Nothing is counted, and no function of torch's is replaced, before the first function is left.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from dynadiag.capture.code_locations import frame_data, is_stdlib_or_torch
from dynadiag.torch_private import capture as torch_private

__all__ = ["LaterCalls"]

_Place = tuple[str, int]  # file and line


class LaterCalls:
    """The calls of functions that were left, from then on. A function is known by the callback of its wrapper."""

    def __init__(self) -> None:
        self._by_callback: WeakKeyDictionary[Any, Counter[_Place]] = WeakKeyDictionary()
        self._left: list[tuple[dict[str, Any], Counter[_Place]]] = []
        self._stop: Callable[[], None] | None = None

    def count_from_now(self, function: dict[str, Any], callback: Any) -> None:
        """Count the calls of a compiled function from the next one on; ``function`` is its file, line and name."""
        if callback not in self._by_callback:
            calls = self._by_callback[callback] = Counter()
            self._left.append((function, calls))
            self._stop = self._stop or torch_private.call_before_compiled_calls(self._called)

    def forget_calls(self) -> None:
        """Begin again with no call: a fork has its parent's."""
        for _, calls in self._left:
            calls.clear()

    def stop(self) -> None:
        """Count no more."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def counts(self) -> Iterator[dict[str, Any]]:
        """What the recorder writes: each function with the lines that called it, and how often."""
        for function, calls in self._left:
            places = [{"file": file, "line": line, "count": count} for (file, line), count in calls.most_common()]
            yield {**frame_data(function["file"], function["line"], function["function"]), "calls": places}

    def _called(self, callback: Any) -> None:
        try:
            calls = self._by_callback.get(callback)
        except TypeError:  # a callback of the program's own, which no reference can be kept of
            return
        if calls is not None:
            calls[_calling_place(sys._getframe(1))] += 1


def _calling_place(frame: FrameType | None) -> _Place:
    """The user's innermost line from ``frame`` outwards."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_stdlib_or_torch(file) and str(frame.f_globals.get("__name__")).partition(".")[0] != "dynadiag":
            return file, frame.f_lineno
        frame = frame.f_back
    return "?", 0
