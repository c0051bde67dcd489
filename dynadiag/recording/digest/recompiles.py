"""Recompiles: why no cached entry fitted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from dynadiag.recording.digest.context import Context, Record, integer, text_or_none
from dynadiag.recording.records import Event, GuardFailure

_REASON = re.compile(r"^(?P<against>[!\d/]+): (?P<reason>.*)$", re.DOTALL)
_COMMENT = re.compile(r"(\S+):(\d+) in (\S+)")
_STACK_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in')
_TENSOR = re.compile(
    r"tensor '(?P<source>.*)' (?P<what>size|stride|rank|dtype|requires_grad|dispatch key set|device)\b.*? mismatch"
    r"(?: at index (?P<index>\d+))?\. expected (?P<was>.*?), actual (?P<now>.*?)\.?\s*$",
    re.DOTALL,
)
_EQUAL = re.compile(r"^(?P<source>.+?) == (?P<was>.+)$", re.DOTALL)


def read(context: Context, event: Event, _metadata: dict[str, Any], payload: Callable[[], str]) -> Iterator[Record]:
    """Keep the reasons until it is known whether the frame was compiled again or given up (`Compiles`)."""
    text = payload()
    data = context.take("recompile", event.compile_id) or {}
    told = [reason for line in _texts(text) if (reason := _parse(context, line)) is not None]
    known = [_failure(context, item) for item in data.get("failures", ()) if isinstance(item, dict)]
    context.note("recompiled", event.compile_id, {**data, "reasons": _merge(known, told)})
    return iter(())


def _texts(payload: str) -> list[str]:
    try:
        found = json.loads(payload)
    except ValueError:
        return [payload]
    return [str(item) for item in found] if isinstance(found, list) else [str(found)]


def _merge(known: list[GuardFailure], told: list[GuardFailure]) -> tuple[GuardFailure, ...]:
    """What the recorder found, and torch's own reason for an entry where it found nothing."""
    entries = {failure.against for failure in known}
    return (*known, *(failure for failure in told if failure.against not in entries))


def _failure(context: Context, item: dict[str, Any]) -> GuardFailure:
    file, line = _place(context, str(item.get("comment", "")))
    return GuardFailure(
        guard=str(item.get("guard", "")),
        source=text_or_none(item.get("source")),
        was=text_or_none(item.get("was")),
        now=text_or_none(item.get("now")),
        against=str(item.get("against", "")),
        file=text_or_none(item.get("file")) or file,
        line=integer(item.get("line")) or line,
    )


def _place(context: Context, comment: str) -> tuple[str | None, int | None]:
    found = _COMMENT.findall(comment)
    file = context.full_name(found[-1][0]) if found else None
    return (file, int(found[-1][1])) if file else (None, None)


def _parse(context: Context, text: str) -> GuardFailure | None:
    """One of torch's own sentences, ``0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5``."""
    match = _REASON.match(text.strip())
    if match is None:
        return None
    reason, _, stack = match["reason"].partition("\nUser stack trace:")
    frames = _STACK_FRAME.findall(stack)
    code, _, comment = reason.partition("  # ")
    file, line = (frames[-1][0], int(frames[-1][1])) if frames else _place(context, comment)
    source, was, now = _values(code.strip())
    return GuardFailure(code.strip(), source, was, now, match["against"], file, line)


def _values(code: str) -> tuple[str | None, str | None, str | None]:
    if match := _TENSOR.match(code):
        index = f"()[{match['index']}]" if match["index"] else ""
        return f"{match['source']}.{match['what']}{index}", match["was"], match["now"]
    if match := _EQUAL.match(code):
        return match["source"], match["was"], None
    return None, None, None
