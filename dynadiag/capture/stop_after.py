"""End a program after a number of calls of compiled functions (``--stop-after``), for loops that run for days.

The program ends as with ``sys.exit(0)`` at its next such call: its ``finally`` and ``with`` blocks run, and no ``except
Exception`` stops it. A compiled function that another one calls counts only when Python calls it, not when it was
inlined into the caller's graph.
"""

from __future__ import annotations

import itertools

from dynadiag.capture.recorder import Recorder
from dynadiag.torch_private import capture as torch_private

__all__ = ["StoppedAfterCalls", "stop_after"]


class StoppedAfterCalls(SystemExit):
    """The program has made the requested number of calls."""


def stop_after(calls: int, recorder: Recorder) -> None:
    """Let this process make ``calls`` calls of compiled functions, and end it at the next one."""
    made = itertools.count(1)

    def count() -> None:
        if next(made) > calls:
            recorder.note("stopped", {"calls": calls})
            raise StoppedAfterCalls(0)

    torch_private.call_before_compiled_calls(count)
