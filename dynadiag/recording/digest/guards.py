"""Guards: the tree that torch prints, and the user's lines that the recorder found for them; and symbolic sizes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from dynadiag.recording.code_origin import is_user_file, user_frames
from dynadiag.recording.digest.context import DigestContext, Payload, Reader
from dynadiag.recording.json_values import int_or_none, list_or_empty, text_or_none
from dynadiag.recording.records import EXPORT, Event, Guard, Symbol

_LEAF = re.compile(r"^((?:\| )*)\+- (\w+)(?:: (.*))?$")
_SOURCE = re.compile(r"source=(.*?), (?:accessed_by|type)=")  # keys and values of a dict have no `accessed_by`
_COMMENT = re.compile(r"  # (?:[^\n]*  # )?(\S+):(\d+) in (\S+)")

_Locations = dict[str, tuple[str, int | None]]
_VALUES = ("val", "value", "result")
_WRAPS_INPUT = "wrap_to_fake_tensor_and_record"  # Dynamo's builder.py: a size of what a compiled function is given
_KINDS = {
    "create_symbol": "created",
    "create_unbacked_symbol": "unbacked",
    "guard_added_fast": "guarded",
    "symbolic_shape_specialization": "specialized",
    "propagate_real_tensors_provenance": "assumed",
}


def read_guards(context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Payload) -> Iterator[Guard]:
    """Yield the leaves of the guard tree. The count of a later attempt replaces that of an earlier one."""
    rows = _rows(context.take("guards", event.compile_id))
    places = _locations(rows)
    for source, (file, line) in places.items():
        context.add_file(file)
        context.guard_locations.add(event.compile_id, source, file, line)
    context.guarded_names |= {(event.compile_id, source): name for source, name in _code_names(rows)}
    context.guards[event.compile_id] = 0
    for kind, source, expression in leaf_guards(payload()):
        found, line = places.get(source) or _locate(context, event.compile_id, source, expression)
        context.guards[event.compile_id] += 1
        yield Guard(
            index=context.next_index("guard"),
            compile_id=event.compile_id,
            kind=kind,
            source=source,
            expression=expression.partition("  # ")[0].strip(),
            file=found,
            line=line,
        )


def _rows(data: Any) -> list[list[Any]]:
    """What the recorder wrote of each guard: kind, source, file, line, function, and perhaps the name of code."""
    rows = list_or_empty(data.get("places")) if isinstance(data, dict) else []
    return [row for row in rows if isinstance(row, list) and len(row) in (5, 6) and isinstance(row[1], str)]


def _locations(rows: Iterable[list[Any]]) -> _Locations:
    """Map each guard's source to the innermost line of the user's."""
    found: _Locations = {}
    for _, source, file, line, *_ in rows:
        if isinstance(file, str):
            found.setdefault(source, (file, int_or_none(line)))
    return found


def _code_names(rows: Iterable[list[Any]]) -> Iterator[tuple[str, str]]:
    """The source and the name of each function's code, and of what else a guard names nothing of."""
    for row in rows:
        if len(row) == 6 and isinstance(row[5], str):
            yield f"{row[1]}.__code__" if row[0] == "CLOSURE_MATCH" else row[1], row[5]


def _locate(context: DigestContext, compile_id: str, source: str, expression: str) -> tuple[str | None, int | None]:
    """The line that torch's comment names, if its shortened file name resolves to a file of the user's.

    Otherwise the line of the guard on what ``source`` is part of.
    """
    match = _COMMENT.search(expression)
    file = context.full_name(match[1]) if match else None
    if match and file and is_user_file(file):
        return file, int(match[2])
    place = context.guard_location(compile_id, source)
    return place if place[0] or not (match and file) else (file, int(match[2]))


def leaf_guards(tree: str) -> Iterator[tuple[str, str, str]]:
    """Yield ``(kind, source, expression with comment)`` for each leaf of the printed tree.

    A leaf guards the source of its manager. ``""`` is the root.
    """
    sources: dict[int, str] = {}
    for line in tree.split("\n"):
        match = _LEAF.match(line)
        if match is None:
            continue
        depth, kind, rest = len(match[1]) // 2, match[2], match[3] or ""
        if kind.endswith("Manager"):
            named = _SOURCE.search(rest)
            sources[depth] = named[1] if named else ""
        else:
            yield kind, sources.get(depth - 1, ""), rest


def read_symbol(context: DigestContext, event: Event, metadata: dict[str, Any], _payload: Payload) -> Iterator[Symbol]:
    """Yield one symbol that was created, guarded on or specialized."""
    data = metadata.get(event.kind)
    if not isinstance(data, dict):
        return
    sources = data.get("sources")
    is_exports = context.export is not None and event.compile_id not in context.stacks  # strict export counts from 0/0
    id_ = context.export if is_exports and context.export is not None else event.compile_id
    value = next((text for key in _VALUES if (text := text_or_none(data.get(key)))), None)
    source = text_or_none(data.get("source")) or (str(sources[0]) if isinstance(sources, list) and sources else None)
    if event.kind == "create_symbol" and value is not None and source is not None:
        context.symbol_values[id_, source] = value
    operands = context.take("operands", event.compile_id) if event.kind == "symbolic_shape_specialization" else None
    yield Symbol(
        compile_id=id_,
        name=str(data.get("symbol", "")),
        value=value,
        source=source and context.variables_of(id_).get(source, source),
        event=_kind(context, event, data),
        expression=_operation(operands) or text_or_none(data.get("expr")) or text_or_none(data.get("vr")),
        user_stack=user_frames(context.parse_stack(_stack_of(id_, metadata, data))),
    )


def _kind(context: DigestContext, event: Event, data: dict[str, Any]) -> str:
    """What became of a symbol; a size without a value is "marked" where it is one of an input, and no operator's."""
    kind = _KINDS[event.kind]
    is_given = kind == "unbacked" and any(
        frame.function == _WRAPS_INPUT for frame in context.parse_stack(data.get("stack"))
    )
    return "marked" if is_given else kind


def _operation(data: Any) -> str | None:
    """The operator that made a size constant, with what it was given: ``aten.view.default of (s0, 4), [8, -1]``."""
    if not isinstance(data, dict) or not data.get("operator"):
        return None
    return f"{data['operator']} of {', '.join(map(str, list_or_empty(data.get('operands'))))}"


def _stack_of(id_: str, metadata: dict[str, Any], data: dict[str, Any]) -> Any:
    """The stack of the program's code: Python's own where non-strict export runs it."""
    own = data.get("user_stack")
    return own if own or not id_.startswith(EXPORT) else data.get("stack") or metadata.get("stack")


# By the name of the artifact, or the kind of an event that is none.
READERS: dict[str, Reader] = {
    "dynamo_cpp_guards_str": read_guards,
    "create_symbol": read_symbol,
    "create_unbacked_symbol": read_symbol,
    "guard_added_fast": read_symbol,
    "symbolic_shape_specialization": read_symbol,
    "propagate_real_tensors_provenance": read_symbol,
}
