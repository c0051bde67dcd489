"""Frames that Dynamo left to Python untraced. A foreign log has none of them: no event of torch's says so."""

from __future__ import annotations

from typing import Any

from dynadiag.recording.digest.context import int_or_none
from dynadiag.recording.records import SkippedFrame

__all__ = ["read_skipped_frame"]


def read_skipped_frame(data: dict[str, Any]) -> SkippedFrame:
    """The frame of one event; what follows a break has torch's own name for it, and the line where it goes on."""
    name, reason = str(data.get("function", "?")), str(data.get("reason", ""))
    return SkippedFrame(str(data.get("file", "?")), int_or_none(data.get("line")), name, reason)
