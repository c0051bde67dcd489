"""Frames that Dynamo left to Python untraced. A foreign log has none, since torch has no event for them."""

from __future__ import annotations

from typing import Any

from dynadiag.recording.digest.context import int_or_none
from dynadiag.recording.records import SkippedFrame

__all__ = ["read_skipped_frame"]


def read_skipped_frame(data: dict[str, Any]) -> SkippedFrame:
    """Return the frame of one event. A resume function has torch's name, and the line where it continues."""
    name, reason = str(data.get("function", "?")), str(data.get("reason", ""))
    return SkippedFrame(str(data.get("file", "?")), int_or_none(data.get("line")), name, reason)
