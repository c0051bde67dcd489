"""Reads everything that a recording has, as its users do."""

from __future__ import annotations

from pathlib import Path

from dynadiag.recording.reader import Recording


def read_all(path: Path) -> int:
    """Call every method of a recording; the number of events."""
    with Recording(path) as recording:
        tables = ("compiles", "breaks", "recompiles", "skipped", "graphs", "guards", "symbols", "kernels", "trials")
        for table in tables:
            getattr(recording, table)()
        for graph in recording.graphs():
            recording.nodes(graph.index)
        recording.counts()
        recording.source("nothing.py")
        found = list(recording.events())
        for event in found:
            recording.metadata(event.index)
            recording.payload(event.index)
        return len(found)
