"""The values of nodes on a page: a table for each recorded call."""

from __future__ import annotations

from dataclasses import dataclass

from dynadiag.explanation.formatting import count
from dynadiag.explanation.values import ValueTable
from dynadiag.recording.records import ValuesCall
from dynadiag.render.values import VALUE_HEADS, call_name, call_notes, history_line, value_row

VALUES_HEADS = (*VALUE_HEADS, "calls")
_MAX_ROWS = 5000  # nodes of a page


@dataclass(frozen=True, slots=True)
class ValuesCallView:
    """A recorded call. ``rows`` have a cell for each of `VALUES_HEADS`, and whether the value is wrong or a NaN.

    ``is_suspect`` says that a row is so.
    """

    title: str
    nodes: str
    notes: tuple[str, ...]
    rows: tuple[tuple[tuple[str, ...], bool], ...]
    more: int

    @property
    def is_suspect(self) -> bool:
        return any(suspect for _, suspect in self.rows)


def value_views(table: ValueTable | None, cwd: str | None) -> tuple[ValuesCallView, ...]:
    """Return the recorded calls, none where no values were recorded. The last of very many nodes are left out."""
    made, room = list[ValuesCallView](), _MAX_ROWS
    for call in table.calls if table is not None else ():
        if table is not None:
            made.append(_view(table, call, cwd, room))
            room -= len(made[-1].rows)
    return tuple(made)


def _view(table: ValueTable, call: ValuesCall, cwd: str | None, room: int) -> ValuesCallView:
    nodes = table.nodes_of(call)
    rows = []
    for node in nodes[:room]:
        stored = table.stored.get(node.index)
        suspect = bool(node.summary.nan) or (stored is not None and stored.wrong)
        rows.append(((*value_row(table, node, cwd), history_line(table.history(node))), suspect))
    more = len(nodes) - len(rows)
    return ValuesCallView(call_name(call), count(len(nodes), "node"), call_notes(call), tuple(rows), more)
