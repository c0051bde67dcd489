"""End a program after so many calls of compiled functions (``--stop-after``), for loops that run for days.

The program ends as by ``sys.exit(0)`` where it makes the next such call: its ``finally`` and ``with`` blocks run, and
nobody's ``except Exception`` holds it up. A compiled function that another one calls counts when Python calls it, that
is, not where it became part of the caller's graph.
"""

from __future__ import annotations

import itertools

from dynadiag.capture.recorder import Recorder
from dynadiag.torch_private import capture as torch_private

__all__ = ["StoppedAfterCalls", "stop_after"]


class StoppedAfterCalls(SystemExit):
    """The program has made the calls that it was run for."""


def stop_after(calls: int, recorder: Recorder) -> None:
    """Let this process make ``calls`` calls of compiled functions, and end it at the next."""
    made = itertools.count(1)

    def count() -> None:
        if next(made) > calls:
            recorder.note("stopped", {"calls": calls})
            raise StoppedAfterCalls(0)

    torch_private.call_before_compiled_calls(count)
