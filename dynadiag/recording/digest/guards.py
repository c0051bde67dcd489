"""Guards: the tree that torch prints, and the user's lines that the recorder found for them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from dynadiag.recording.digest.context import Context, integer, is_torch
from dynadiag.recording.records import Event, Guard

_LEAF = re.compile(r"^((?:\| )*)\+- (\w+)(?:: (.*))?$")
_SOURCE = re.compile(r"source=(.*?), (?:accessed_by|type)=")  # keys and values of a dict are not accessed by anything
_COMMENT = re.compile(r"  # (?:[^\n]*  # )?(\S+):(\d+) in (\S+)")
_MANAGERS = (
    "GuardManager",
    "RootGuardManager",
    "DictGuardManager",
    "KeyManager",
    "ValueManager",
    "DictSubclassGuardManager",
)

Places = dict[str, tuple[str, int | None]]


def read(context: Context, event: Event, _metadata: dict[str, Any], payload: Callable[[], str]) -> Iterator[Guard]:
    """The leaves of the guard tree. A second attempt of a compile replaces the first one's count."""
    places = _places(context.take("guards", event.compile_id))
    for source, (file, line) in places.items():
        context.seen(file)
        context.guarded(event.compile_id, source, file, line)
    context.guards[event.compile_id] = 0
    for kind, source, expression in leaves(payload()):
        found, line = places.get(source) or _place(context, event.compile_id, source, expression)
        context.guards[event.compile_id] += 1
        yield Guard(
            index=context.number("guard"),
            compile_id=event.compile_id,
            kind=kind,
            source=source,
            expression=expression.partition("  # ")[0].strip(),
            file=found,
            line=line,
        )


def _places(data: Any) -> Places:
    """Source -> the innermost line of the user's."""
    found: Places = {}
    for place in data.get("places", ()) if isinstance(data, dict) else ():
        if isinstance(place, list) and len(place) == 5 and isinstance(place[1], str) and isinstance(place[2], str):
            found.setdefault(place[1], (place[2], integer(place[3])))
    return found


def _place(context: Context, compile_id: str, source: str, expression: str) -> tuple[str | None, int | None]:
    """The line that torch's comment names, where its file is the user's and can be told from its shortened name;
    otherwise that of the guard on what ``source`` is a part of."""
    match = _COMMENT.search(expression)
    file = context.full_name(match[1]) if match else None
    if match and file and not is_torch(file):
        return file, int(match[2])
    place = context.guard_place(compile_id, source)
    return place if place[0] or not (match and file) else (file, int(match[2]))


def leaves(tree: str) -> Iterator[tuple[str, str, str]]:
    """``(kind, source, expression with comment)`` of each leaf of the printed tree.

    A leaf guards the source of the manager that it hangs under; ``""`` is the root.
    """
    sources: dict[int, str] = {}
    for line in tree.split("\n"):
        match = _LEAF.match(line)
        if match is None:
            continue
        depth, kind, rest = len(match[1]) // 2, match[2], match[3] or ""
        if kind.endswith(("GuardManager", "Manager")) or kind in _MANAGERS:
            named = _SOURCE.search(rest)
            sources[depth] = named[1] if named else ""
        else:
            yield kind, sources.get(depth - 1, ""), rest
