"""Symbolic sizes, and the guards and specializations on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dynadiag.recording.digest.context import DigestContext, text_or_none, user_frames
from dynadiag.recording.records import Event, Symbol

_KINDS = {
    "create_symbol": "created",
    "create_unbacked_symbol": "unbacked",
    "guard_added_fast": "guarded",
    "symbolic_shape_specialization": "specialized",
}


def read_symbol(
    context: DigestContext, event: Event, metadata: dict[str, Any], _payload: Callable[[], str]
) -> Iterator[Symbol]:
    """Yield one symbol that was created, guarded on or specialized."""
    data = metadata.get(event.kind)
    if not isinstance(data, dict):
        return
    sources = data.get("sources")
    yield Symbol(
        compile_id=event.compile_id,
        name=str(data.get("symbol", "")),
        value=text_or_none(data.get("val")) or text_or_none(data.get("value")),
        source=text_or_none(data.get("source")) or (str(sources[0]) if isinstance(sources, list) and sources else None),
        event=_KINDS[event.kind],
        expression=text_or_none(data.get("expr")) or text_or_none(data.get("vr")),
        user_stack=user_frames(context.parse_stack(data.get("user_stack"))),
    )
