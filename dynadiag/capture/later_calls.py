"""Counts the later calls of compiled functions that torch left to Python, by the line that calls.

Dynamo asks nobody about code that it has marked, but each call of a compiled function passes through its wrapper.
Nothing is counted, and no function of torch's is replaced, before the first function is left.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from dynadiag.capture.code_locations import frame_data, is_stdlib_or_torch
from dynadiag.torch_private import capture as torch_private

_Place = tuple[str, int]  # file and line


class LaterCalls:
    """Counts the calls of functions that torch left to Python, by code object: all instances of a class share one."""

    def __init__(self) -> None:
        self._left: dict[CodeType, tuple[dict[str, Any], Counter[_Place]]] = {}
        self._again: set[CodeType] = set()
        self._stop: Callable[[], None] | None = None

    def count_from_now(self, function: dict[str, Any], code: CodeType) -> None:
        """Count the calls of compiled functions with this code; ``function`` is its file, line and name."""
        if code in self._again or code not in self._left:
            self._left[code] = (function, Counter())
        self._again.discard(code)
        self._stop = self._stop or torch_private.call_before_compiled_calls(self._called)

    def compiled_again(self, code: CodeType) -> None:
        """Count no more calls of this code, and none before: `torch.compiler.reset` made torch forget that it left."""
        if code in self._left:
            self._again.add(code)

    def forget_calls(self) -> None:
        """Begin again with no call: a fork has its parent's."""
        for _, calls in self._left.values():
            calls.clear()

    def stop(self) -> None:
        """Count no more."""
        if self._stop is not None:
            self._stop()
            self._stop = None

    def counts(self) -> Iterator[dict[str, Any]]:
        """What the recorder writes: each function with the lines that called it, and how often; None for one that torch
        compiled again.
        """
        for code, (function, calls) in self._left.items():
            places = [{"file": file, "line": line, "count": count} for (file, line), count in calls.most_common()]
            counted = None if code in self._again else places
            yield {**frame_data(function["file"], function["line"], function["function"]), "calls": counted}

    def _called(self, _callback: Any) -> None:
        caller = sys._getframe(1)
        try:
            code = torch_private.called_code(caller)
            if code in self._left and code not in self._again:
                self._left[code][1][_calling_place(caller)] += 1
        except Exception:  # noqa: BLE001 - it would be raised in the user's program
            self.stop()


def _calling_place(frame: FrameType | None) -> _Place:
    """The user's innermost line from ``frame`` outwards."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not is_stdlib_or_torch(file) and str(frame.f_globals.get("__name__")).partition(".")[0] != "dynadiag":
            return file, frame.f_lineno
        frame = frame.f_back
    return "?", 0
