"""Where the nodes of a graph were made: module, source line and call chain; and what a line of source became."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from dynadiag.explanation.formatting import count, list_some
from dynadiag.kernels.document_links import NodeOrigin, read_origins
from dynadiag.kernels.graph_parser import graph_lines
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile, Frame, Graph
from tui.documents import Document
from tui.line_links import LineKey, LineLinks
from tui.location import Location
from tui.styled_text import Fragment, Line, line, one_line

_MAX_MODULES = 200  # modules listed of what a line became
_MAX_OPERATORS = 4  # operators named of each
_OPERATOR = re.compile(r" = .*?([A-Za-z_]\w*)\(| = [^ ]+ (\S+) ")  # of a node in the readable form: a call, or a sign
_MAX_NAMED = 3  # modules named of a node that may be of several


def node_origins(
    node: str, sources: Mapping[str, Sequence[str]] | None, origins: Mapping[str, NodeOrigin]
) -> tuple[NodeOrigin, ...]:
    """Return the origins of a node, each once. `sources` are Dynamo's nodes of a later graph's nodes."""
    names = (node,) if sources is None else sources.get(node, ())
    return tuple(dict.fromkeys(origins[name] for name in names if name in origins))


def short_place(frame: Frame) -> str:
    """Return ``net.py:12``."""
    return f"{one_line(frame.file.rpartition('/')[2])}:{frame.line}"


def short_chain(frames: Sequence[Frame]) -> str:
    """Return the user's frames, the innermost first: ``layers.py:9 < net.py:20 < train.py:31``."""
    own = [frame for frame in frames if is_user_file(frame.file)] or frames
    return " < ".join(map(short_place, reversed(own)))


def origin_lines(origins: Sequence[NodeOrigin], callers: Sequence[Frame], compile_id: str | None) -> list[Line]:
    """Return the module of a node and its source line, and a line for each frame, the innermost first."""
    if not origins:
        return []
    modules = list(dict.fromkeys(one_line(origin.modules[-1]) for origin in origins if origin.modules))
    frames = [*callers, *origins[0].frames]
    own = [frame for frame in frames if is_user_file(frame.file)] or frames
    named: list[str | Fragment] = [("of     ", "dim"), (list_some(modules, _MAX_NAMED), "key"), "  "] if modules else []
    head = line(*(named or [("at     ", "dim")]), short_chain(own), to=_at(own[-1], compile_id) if own else None)
    called = [_frame_line(frame, compile_id) for frame in reversed(frames) if frame.line is not None]
    return [head, *called]


def _frame_line(frame: Frame, compile_id: str | None) -> Line:
    function = (f"  in {one_line(frame.function)}", "dim")
    return line(("called ", "dim"), short_place(frame), function, to=_at(frame, compile_id))


def _at(frame: Frame, compile_id: str | None) -> Location:
    return Location("code", compile_id, document=f"source:{frame.file}", line=frame.line)


def called_lines(
    keys: Set[LineKey],
    document: Document,
    links: LineLinks,
    compile_id: str,
    sources: Mapping[str, Sequence[str]] | None,
    origins: Mapping[str, NodeOrigin],
) -> list[Line]:
    """Return what source lines became by what they call, a line for each module, in the order of the graph.

    There are none where the lines called nothing that became a node.
    """
    rows = links.called_from(keys)
    if set(rows) <= set(links.lines_of(keys)):
        return []
    names = links.names
    groups: dict[str, list[int]] = {}
    for row in rows:
        if row in names and _OPERATOR.search(document.lines[row]):  # neither an input nor an attribute
            groups.setdefault(_group(names[row], row, links, sources, origins), []).append(row)
    if not groups:
        return []
    made = [line((f"{count(sum(map(len, groups.values())), 'node')} made by this call", "strong"))]
    made += _module_lines(groups, document, compile_id)
    if len(groups) > _MAX_MODULES:
        made.append(line((f"and {len(groups) - _MAX_MODULES:,} more modules", "dim")))
    return made


def _group(
    node: str,
    row: int,
    links: LineLinks,
    sources: Mapping[str, Sequence[str]] | None,
    origins: Mapping[str, NodeOrigin],
) -> str:
    """The innermost module of a node; without one, its source line."""
    known = node_origins(node, sources, origins)
    modules = list(dict.fromkeys(origin.modules[-1] for origin in known if origin.modules))
    if modules:
        return list_some(list(map(one_line, modules)), _MAX_NAMED)
    places = (short_chain(origin.frames[-1:]) for origin in known if origin.frames)
    return next(places, None) or next((f"{file.rpartition('/')[2]}:{at}" for file, at in links.keys_of(row)), "-")


def _module_lines(groups: Mapping[str, Sequence[int]], document: Document, compile_id: str) -> Iterator[Line]:
    width = max(map(len, groups))
    for module, rows in list(groups.items())[:_MAX_MODULES]:
        target = Location("code", compile_id, document=document.ref.key, line=document.row_of(rows[0]) + 1)
        calls = (found for row in rows if (found := _OPERATOR.search(document.lines[row])))
        operators = Counter(call[1] or call[2] for call in calls)
        named = [f"{one_line(name)}{f' x {times}' if times > 1 else ''}" for name, times in operators.items()]
        parts: list[str | Fragment] = [(f"{module:<{width}}  ", "key"), f"{count(len(rows), 'node'):<9} "]
        yield line(*parts, (list_some(named, _MAX_OPERATORS), "dim"), to=target)


class CompiledLines:
    """An index of the source lines of a recording. To make it, every graph of Dynamo's is read once."""

    def __init__(self, recording: Recording, compiles: Iterable[Compile], graphs: Iterable[Graph]) -> None:
        self._compiles = [item for item in compiles if item.file]
        lines: dict[LineKey, dict[str, None]] = {}
        for graph in graphs:
            for key in frozenset(_lines_of(recording, graph)):
                lines.setdefault(key, {})[graph.compile_id] = None
        for item in self._compiles:
            for frame in item.callers:
                if frame.line is not None and is_user_file(frame.file):
                    lines.setdefault((frame.file, frame.line), {})[item.compile_id] = None
        self._lines: Mapping[LineKey, tuple[str, ...]] = {key: tuple(ids) for key, ids in lines.items()}

    def of(self, file: str, line: int) -> tuple[str, ...]:
        """Return the ids of the compiles that made something of a line: those of its function first, each in order."""
        return self._lines.get((file, line), ())

    def lines_of_file(self, file: str) -> dict[int, tuple[str, ...]]:
        """Return the lines of a file that something was made of, from 0, with the compiles."""
        return {line - 1: ids for (name, line), ids in self._lines.items() if name == file}

    def nearest(self, file: str, line: int) -> str | None:
        """Return a compile of the line, else of the last function of the file that begins above it, else of the file.

        ``None`` if no compiled function is in the file.
        """
        if ids := self.of(file, line):
            return ids[0]
        here = [item for item in self._compiles if item.file == file]
        above = [item for item in here if item.line is not None and item.line <= line]
        best = max(above, key=lambda item: item.line or 0) if above else next(iter(here), None)
        return best.compile_id if best is not None else None


def _lines_of(recording: Recording, graph: Graph) -> Iterator[LineKey]:
    """The lines of all frames of a graph's nodes; of a log that torch wrote, the lines in the comments of its text."""
    origins = read_origins(recording, graph)
    for origin in set(origins.values()):
        yield from ((frame.file, frame.line) for frame in origin.frames if frame.line is not None)
    if not origins:
        named = (item.source_line for item in graph_lines(recording.payload(graph.event)) if item.kind == "comment")
        yield from ((place.file, place.line) for place in named if place is not None)
