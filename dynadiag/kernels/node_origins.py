"""Where each node of Dynamo's graph was made: the frames of its stack, and the modules that were being called.

The recorder writes both with the graph. A log that torch wrote has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Frame, Graph

_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ([^\n]*)')
_ROOT = re.compile(r"[LG]\['(\w+)'\]\.?")  # Dynamo's name of the variable that holds a model
_ITEM = re.compile(r"\[(\d+)\]|\._modules\['(\w+)'\]")  # `layers[0]` and `_modules['layers']` are `layers.0`


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """The frames on the way to a node, and the modules around it, the outermost first. Nodes of one line share them."""

    frames: tuple[Frame, ...] = ()
    modules: tuple[str, ...] = ()  # "transformer.h.0", "transformer.h.0.attn"


def read_origins(recording: Recording, graph: Graph) -> dict[str, NodeOrigin]:
    """Return the origin of each node by its name.

    It is empty for a graph of a later stage, whose nodes have none, and for a log that torch wrote.
    """
    if graph.stage != "dynamo":
        return {}
    events = [event.index for event in recording.events("dynadiag_graph", None, graph.compile_id)]
    before = [index for index in events if index < graph.event]
    return dict(_read(recording.payload(before[-1]))) if before else {}


def _read(text: str) -> Iterator[tuple[str, NodeOrigin]]:
    try:
        graph = orjson.loads(text)
        stacks = [_frames(str(stack)) for stack in graph["stacks"]]
        modules = [tuple(_short(str(path)) for path in paths) for paths in graph["modules"]]
        known: dict[tuple[Any, Any], NodeOrigin] = {}
        for node in graph["nodes"]:
            key = stack, module = node.get("stack"), node.get("modules")
            if key not in known:
                frames = stacks[stack] if isinstance(stack, int) else ()
                known[key] = NodeOrigin(frames, modules[module] if isinstance(module, int) else ())
            yield str(node["name"]), known[key]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return  # made by an older version, or damaged


def _frames(stack: str) -> tuple[Frame, ...]:
    return tuple(Frame(file, int(line), function) for file, line, function in _FRAME.findall(stack))


def _short(path: str) -> str:
    """``L['self'].blocks[0]`` as ``blocks.0``; a model itself by the name of its variable."""
    dotted = _ITEM.sub(lambda found: f".{found[1] or found[2]}", path)
    return _ROOT.sub("", dotted, count=1) or _ROOT.sub(r"\1", dotted, count=1)
