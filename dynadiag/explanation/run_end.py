"""What the recorder saw at the end of a program: the exception that nothing caught, with its message and frames."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.explanation.formatting import first_line, shorten
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.recording.code_origin import named_frames
from dynadiag.recording.json_values import int_or_none
from dynadiag.recording.records import Frame
from dynadiag.recording.torch_text.reasons import without_address

_MESSAGE = 300  # characters of an exception's message


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a program's interpreter. ``error`` is the qualified type of the exception that ended it, if any.

    ``stack`` are the user's frames that the exception passed, outermost first.
    """

    error: str | None
    message: str
    stack: tuple[Frame, ...]

    @property
    def name(self) -> str:
        """The type of the exception as a traceback has it."""
        return (self.error or "").removeprefix("builtins.").removeprefix("__main__.")

    @property
    def said(self) -> str:
        """Its message on one line, cut where it is long."""
        return shorten(without_address(" ".join(self.message.split())), _MESSAGE)

    @property
    def first_line(self) -> str:
        """The first line of its message."""
        return shorten(without_address(first_line(self.message)), _MESSAGE)


def read_end(recording: ExplainedRecording) -> RunEnd | None:
    """The end that a recording has. None where nobody saw it (`os._exit`, a signal, a foreign log)."""
    for _, end in event_data(recording, "dynadiag_end"):
        error, message = end.get("uncaught"), end.get("message")
        return RunEnd(
            error if isinstance(error, str) else None,
            message if isinstance(message, str) else "",
            read_frames(end.get("stack")),
        )
    return None


def read_frames(frames: Any) -> tuple[Frame, ...]:
    """The frames of a stack that the recorder wrote."""
    return named_frames(
        Frame(str(each.get("file")), int_or_none(each.get("line")), str(each.get("function")))
        for each in (frames if isinstance(frames, list) else ())
        if isinstance(each, dict)
    )
