"""Which compiles made something of a source line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dynadiag.kernels.document_links import read_origins
from dynadiag.kernels.graph_parser import graph_lines
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Compile, Graph

LineKey = tuple[str, int]  # file, line


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
