"""Recompiles: why no cache entry matched."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import permutations
from typing import Any

from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import Event, GuardFailure, Record
from dynadiag.recording.torch_text.guards import completed, read_failure
from dynadiag.recording.torch_text.sources import local_name, source_text, with_variable

_REASON = re.compile(r"^(?P<against>[!\d/]+): (?P<reason>.*)$", re.DOTALL)
_COMMENT = re.compile(r"(\S+):(\d+) in (\S+)")
_TORCH_FRAME = re.compile(r" \([^()\s]+:\d+ in [^()]*\)")  # torch's frame after the user's, in a shape guard's comment
_SHORT_NAME = re.compile(r"^(?![LG]\[)([A-Za-z_]\w*)(?!\w*\()")  # torch's messages say x for L['x']
_STACK_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in')
_TEXTS = [field.name for field in fields(GuardFailure) if field.type in ("str", "str | None") and field.name != "file"]


def read_reasons(context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Payload) -> Iterator[Record]:
    """Hold the reasons until `CompileCollector` knows whether the frame was compiled again or given up."""
    text = payload()
    data = context.take("recompile", event.compile_id) or {}
    reported = [failure for line in _reason_texts(text) for failure in _parse_reason(context, line)]
    known = [
        _recorded_failure(context, item, data) for item in list_or_empty(data.get("failures")) if isinstance(item, dict)
    ]
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


def _recorded_failure(context: DigestContext, item: dict[str, Any], call: dict[str, Any]) -> GuardFailure:
    """A failure as the recorder wrote it, with the facts of the call that it was met in."""
    texts: dict[str, Any] = {name: text for name in _TEXTS if (text := text_or_none(item.get(name))) is not None}
    made = GuardFailure(
        **{"guard": "", "source": None, "was": None, "now": None, "against": ""} | texts, file=None, line=None
    )
    file, line = _user_line(context, str(item.get("comment", "")), made.against, made.source)
    terms = tuple(term for term in list_or_empty(item.get("terms")) if isinstance(term, str))
    if "part" not in texts:
        made = completed(made)
    made = replace(made, terms=terms or made.terms)
    if made.part == "shape":
        made = _changed_term(context, made, list_or_empty(item.get("nows")))
    elif made.was is None and made.part in ("identity", "value"):
        made = replace(made, was=context.guarded_names.get((context.unique_id(made.against), made.source or "")))
    return replace(
        _with_variable(context, made, str(item.get("comment", ""))),
        file=text_or_none(item.get("file")) or file,
        line=int_or_none(item.get("line")) or line,
        owner_was=_owner(context.objects.get(context.unique_id(made.against)), made),
        owner_now=_owner(call.get("objects"), made),
        dynamic=text_or_none(call.get("dynamic")),
    )


def _changed_term(context: DigestContext, failure: GuardFailure, values: list[Any]) -> GuardFailure:
    """The failure of an expression, told of the first term that changed, with the value that its code was made with.

    torch has one symbol for terms that are equal, which names one of them.
    """
    entry = context.unique_id(failure.against)
    old = {term: context.symbol_values.get((entry, term)) for term in failure.terms}
    if failure.guard in (" == ".join(pair) for pair in permutations(failure.terms, 2)):
        old = dict.fromkeys(old, next((value for value in old.values() if value is not None), None))
    new = dict(zip(failure.terms, map(str, values), strict=False))
    changed = next((term for term in new if old[term] not in (None, new[term])), None)
    if changed is not None:
        return replace(failure, source=changed, was=old[changed], now=new[changed])
    return replace(failure, was=old.get(failure.source or ""))


def _owner(objects: Any, failure: GuardFailure) -> int | None:
    """The number of the object that the local is which a source begins with."""
    return int_or_none(objects.get(local_name(failure.source))) if isinstance(objects, dict) else None


def _user_line(context: DigestContext, comment: str, against: str, source: str | None) -> tuple[str | None, int | None]:
    """The user's line: the last that the comment names, or that of the entry's guard on the same source."""
    for short, line, _ in reversed(_COMMENT.findall(_TORCH_FRAME.sub("", comment))):
        file = context.full_name(short)
        if file and is_user_file(file):
            return file, int(line)
    return context.guard_location(context.unique_id(against), source)


def _parse_reason(context: DigestContext, text: str) -> tuple[GuardFailure, ...]:
    """Parse one of torch's messages, ``0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5``."""
    match = _REASON.match(text.strip())
    if match is None:
        return ()
    reason, _, stack = match["reason"].partition("\nUser stack trace:")
    frames = _STACK_FRAME.findall(stack)
    failures = read_failure(reason, match["against"])
    source = failures[0].subject
    full = _SHORT_NAME.sub(r"L['\1']", source) if source else None
    comment = reason.partition("  # ")[2]
    file, line = (frames[-1][0], int(frames[-1][1])) if frames else _user_line(context, comment, match["against"], full)
    return tuple(replace(_with_variable(context, each, comment), file=file, line=line) for each in failures)


def _with_variable(context: DigestContext, failure: GuardFailure, comment: str) -> GuardFailure:
    """The failure, with the name of the variable that a function closes over.

    torch's comment on a condition has no name. One of the guards that failed before may have it.
    """
    known = context.variables_of(failure.against)
    if failure.part == "shape":
        guard = failure.guard
        for cell, named in known.items():
            guard = guard.replace(cell, source_text(named))
        source, subject, *terms = (
            known.get(each or "", each) for each in (failure.source, failure.subject, *failure.terms)
        )
        return replace(failure, guard=guard, source=source, subject=subject, terms=tuple(filter(None, terms)))
    source, subject = (name and with_variable(name, comment) for name in (failure.source, failure.subject))
    if failure.source and source and failure.source != source:
        known[failure.source] = source
    return replace(failure, source=source, subject=subject)


# By the name of the artifact, or the kind of an event that is none.
READERS: dict[str, Reader] = {
    "recompile_reasons": read_reasons,
}
