"""Recompiles: why no cache entry matched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import Event, GuardFailure, Record

_REASON = re.compile(r"^(?P<against>[!\d/]+): (?P<reason>.*)$", re.DOTALL)
_COMMENT = re.compile(r"(\S+):(\d+) in (\S+)")
_TORCH_FRAME = re.compile(r" \([^()\s]+:\d+ in [^()]*\)")  # torch's frame after the user's, in a shape guard's comment
_SHORT_NAME = re.compile(r"^(?![LG]\[)([A-Za-z_]\w*)(?!\w*\()")  # torch's messages say x for L['x']
_STACK_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in')
_TENSOR = re.compile(
    r"tensor '(?P<source>.*)' (?P<what>size|stride|rank|dtype|requires_grad|dispatch key set|device)\b.*? mismatch"
    r"(?: at index (?P<index>\d+))?\. expected (?P<was>.*?), actual (?P<now>.*?)\.?\s*$",
    re.DOTALL,
)
_EQUAL = re.compile(r"^(?P<source>.+?) == (?P<was>.+)$", re.DOTALL)


def read_reasons(context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Payload) -> Iterator[Record]:
    """Hold the reasons until `CompileCollector` knows whether the frame was compiled again or given up."""
    text = payload()
    data = context.take("recompile", event.compile_id) or {}
    reported = [reason for line in _reason_texts(text) if (reason := _parse_reason(context, line)) is not None]
    known = [_recorded_failure(context, item) for item in list_or_empty(data.get("failures")) if isinstance(item, dict)]
    context.hold("recompiled", event.compile_id, {**data, "reasons": _merge_failures(known, reported)})
    return iter(())


def _reason_texts(payload: str) -> list[str]:
    try:
        found = json.loads(payload)
    except ValueError:
        return [payload]
    return [str(item) for item in found] if isinstance(found, list) else [str(found)]


def _merge_failures(known: list[GuardFailure], reported: list[GuardFailure]) -> tuple[GuardFailure, ...]:
    """The failures that the recorder found, and torch's own reason for an entry without any."""
    entries = {failure.against for failure in known}
    return (*known, *(failure for failure in reported if failure.against not in entries))


def _recorded_failure(context: DigestContext, item: dict[str, Any]) -> GuardFailure:
    against, source = str(item.get("against", "")), text_or_none(item.get("source"))
    file, line = _user_line(context, str(item.get("comment", "")), against, source)
    return GuardFailure(
        guard=str(item.get("guard", "")),
        source=source,
        was=text_or_none(item.get("was")),
        now=text_or_none(item.get("now")),
        against=against,
        file=text_or_none(item.get("file")) or file,
        line=int_or_none(item.get("line")) or line,
    )


def _user_line(context: DigestContext, comment: str, against: str, source: str | None) -> tuple[str | None, int | None]:
    """The user's line: the last that the comment names, or that of the entry's guard on the same source."""
    for short, line, _ in reversed(_COMMENT.findall(_TORCH_FRAME.sub("", comment))):
        file = context.full_name(short)
        if file and is_user_file(file):
            return file, int(line)
    return context.guard_location(context.unique_id(against), source)


def _parse_reason(context: DigestContext, text: str) -> GuardFailure | None:
    """Parse one of torch's messages, ``0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5``."""
    match = _REASON.match(text.strip())
    if match is None:
        return None
    reason, _, stack = match["reason"].partition("\nUser stack trace:")
    frames = _STACK_FRAME.findall(stack)
    code, _, comment = reason.partition("  # ")
    source, was, now = _split_values(code.strip())
    full = _SHORT_NAME.sub(r"L['\1']", source) if source else None
    found = (frames[-1][0], int(frames[-1][1])) if frames else _user_line(context, comment, match["against"], full)
    file, line = found
    return GuardFailure(code.strip(), source, was, now, match["against"], file, line)


def _split_values(code: str) -> tuple[str | None, str | None, str | None]:
    if match := _TENSOR.match(code):
        index = f"()[{match['index']}]" if match["index"] else ""
        return f"{match['source']}.{match['what']}{index}", match["was"], match["now"]
    if match := _EQUAL.match(code):
        return match["source"], match["was"], None
    return None, None, None


# By the name of the artifact, or the kind of an event that is none.
READERS: dict[str, Reader] = {
    "recompile_reasons": read_reasons,
}
