"""Recordings of the ranks of a job, made by hand without torch."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.tui import build
from tests.tui.build import FILE, Events

__all__ = ["FILE", "Events", "collective", "compiled", "graph", "group", "guards", "rank", "stood", "stopped", "unseen"]

NODE = '        # File: {file}:{line} in f, code: ...\n        {name}: "{type}" = {call}\n'
REDUCE = "torch.ops._c10d_functional.all_reduce({0}, 'sum', '{1}')"
HOST = "a"
BEGAN = 1.0e9


def graph(*nodes: tuple[str, str, int], type_: str = "f32[4][1]cpu") -> str:
    """A graph of Dynamo's. Each node is (call, type, line); the input is ``l_x_``, nodes are ``n0``, ``n1``, ..."""
    lines = [f'class GraphModule(torch.nn.Module):\n    def forward(self, L_x_: "{type_}"):\n        l_x_ = L_x_\n']
    for number, (call, kind, line) in enumerate(nodes):
        lines.append(NODE.format(file=FILE, line=line, name=f"n{number}", type=kind, call=call))
    return "\n".join([*lines, f"        return (n{len(nodes) - 1},)\n"])


def guards(*expressions: tuple[str, str]) -> str:
    """Guards on (source, expression), each for line 6."""
    lines = ["", "TREE_GUARD_MANAGER:", "+- RootGuardManager"]
    for source, expression in expressions:
        lines.append(f"| +- GuardManager: source={source}, accessed_by=x")
        lines.append(f"| | +- EQUALS_MATCH: {expression}  # y = x.sin()  # prog.py:6 in f")
    return "\n".join(lines) + "\n"


def compiled(
    id_: str = "0/0",
    graph: str = build.DYNAMO,
    *,
    guards: str = build.GUARDS,
    cache: str | None = None,
    seconds: float = 1.0,
    again: tuple[str, str] | None = None,
    breaks: bool = False,
) -> Events:
    """One compile; ``again`` are the old and the new size of a recompile."""
    events = build.recompile_events(id_, *again) if again else []
    events += build.break_events(id_) if breaks else []
    for metadata, payload in build.compile_events(id_, seconds=seconds, graph=graph, module=""):
        if "dynamo_cpp_guards_str" in metadata:
            payload = guards
            if cache is not None:
                events.append(({"artifact": {"name": f"fx_graph_cache_{cache}"}, **build.at(id_)}, "{}"))
        events.append((metadata, payload))
    return events


def collective(op: str = "allreduce", line: int = 20, sizes: tuple[int, ...] = (4,), **more: Any) -> Events:
    """One collective of the program's own."""
    data = {"op": op, "group": "0", "sizes": [list(sizes)], "dtypes": ["float32"], "file": FILE, "line": line}
    return [({"dynadiag_collective": {**data, "function": "main", "number": 1, "async": False, **more}}, None)]


def unseen(count: int, before: int = 9, name: str = "0") -> Events:
    """So many collectives of compiled code or C++, before the collective of a number."""
    return [({"dynadiag_unseen": {"group": name, "count": count, "before": before}}, None)]


def stood(line: int, after: int = 1) -> Events:
    """A standstill after the collective of a number."""
    data = {"after": after, "since": BEGAN, "at": BEGAN + 4, "file": FILE, "line": line, "function": "wait_for"}
    return [({"dynadiag_standstill": data}, None)]


def group(number: int, world: int, name: str = "0", backend: str = "gloo") -> Events:
    """A process group that the rank joins."""
    data = {"name": name, "size": world, "rank": number, "ranks": None, "backend": backend, "timeout": 20.0}
    return [({"dynadiag_group": data, "rank": number}, None)]


def stopped(
    message: str | None = None, line: int = 30, type_: str = "builtins.RuntimeError", ended: float = BEGAN + 9
) -> Events:
    """The end of the process, with an exception if there is a message."""
    stack = [] if message is None else [{"file": FILE, "line": line, "function": "main"}]
    data = {"uncaught": None if message is None else type_, "message": message, "stack": stack, "ended": ended}
    return [({"dynadiag_end": {"seconds": 2.5, **data}}, None)]


def rank(
    folder: Path,
    number: int,
    *steps: Events,
    world: int = 2,
    end: Events | None = None,
    restart: int = 0,
    host: str = HOST,
    parent: int = 1,
) -> Path:
    """The journal of one rank. ``end`` is how it ended: by itself without it, killed if it is empty."""
    head = copy.deepcopy(build.run_events("train.py"))
    place = {"rank": number, "world_size": world, "restart": restart}
    head[0][0]["dynadiag_run"].update(
        rank=number, job=place, host=host, pid=(1 << 22) + number, parent=parent, started=BEGAN + restart
    )
    events: Iterable[Any] = [
        *head, *group(number, world), *build.source_events(),
        *(event for step in steps for event in step), *(stopped() if end is None else end),
    ]  # fmt: skip
    again = f"-restart{restart}" if restart else ""
    return build.journal(folder / f"{host}-rank{number}{again}.dynadiag", events)
