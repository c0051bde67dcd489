"""The modules that the nodes of Dynamo's graph belong to, as the recorder wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Graph

__all__ = ["recorded_modules"]

_ROOT = re.compile(r"[LG]\['(\w+)'\]\.?")  # Dynamo's name of the variable that holds a model


def recorded_modules(recording: Recording, graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the modules that were being called at each node, the outermost first, by the node's name.

    It is empty for a graph of a later stage, whose nodes have no modules, and for a log that torch wrote.
    """
    if graph.stage != "dynamo":
        return {}
    events = [event.index for event in recording.events("dynadiag_graph", None, graph.compile_id)]
    before = [index for index in events if index < graph.event]
    return dict(_read(recording.payload(before[-1]))) if before else {}


def _read(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    try:
        graph = json.loads(text)
        modules: list[Any] = graph["modules"]
        for node in graph["nodes"]:
            if isinstance(number := node.get("modules"), int):
                yield str(node["name"]), tuple(_short(str(path)) for path in modules[number])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return  # made by an older version, or damaged


def _short(path: str) -> str:
    """``L['self'].blocks.0`` as ``blocks.0``; a model itself by the name of its variable."""
    return _ROOT.sub("", path, count=1) or _ROOT.sub(r"\1", path, count=1)
