"""Does `explain --coverage` count the operator calls that torch's profiler has? On the twelve models of `twelve.py`.

The reference knows nothing of how dynadiag counts. A backend adds up the nodes of its graphs at each of their calls. In
a profile of the same calls it counts the leaves inside the compiled model, without those inside a graph and without
those inside what torch itself marks as compiling (``dynamo_timed``). Each model has a process of its own.

    python benchmarks/explain_coverage.py                  # all of them, as a table; exit 1 if one differs
    python benchmarks/explain_coverage.py bert whisper     # some
"""

from __future__ import annotations

import twelve  # before transformers is loaded: it has that fetch nothing

# isort: split

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.fx import GraphModule

from dynadiag.capture.operator_counts import OperatorCounts

_CALL, _GRAPH, _COMPILING = "benchmark call", "benchmark graph", "(dynamo_timed)"
_OPERATORS = ("aten::", "c10d::")
Pair = tuple[int, int]


class Graphs:
    """A backend that counts the nodes that it is called for."""

    def __init__(self) -> None:
        self.nodes = 0

    def __call__(self, gm: GraphModule, _inputs: object) -> Callable[..., Any]:
        nodes = sum(node.op.startswith("call_") for node in gm.graph.nodes)

        def run(*args: Any) -> Any:
            self.nodes += nodes
            with record_function(_GRAPH):
                return gm.forward(*args)

        return run


def run(name: str, backend: Any, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Build a model anew and make all of its calls."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    compile_ = torch.compile
    torch.compile = lambda model, **_options: around(compile_(model, backend=backend))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call in twelve.MODELS[name]():
                call()
    finally:
        torch.compile = compile_


def by_the_profiler(name: str) -> Pair:
    """Calls in graphs and outside of them, by the reference."""
    graphs = Graphs()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(name, graphs, marked)
    return graphs.nodes, sum(map(_is_counted, profile.events()))


def marked(model: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        with record_function(_CALL):
            return model(*args, **kwargs)

    return called


def _is_counted(event: Any) -> bool:
    if not event.name.startswith(_OPERATORS) or any(child.name.startswith(_OPERATORS) for child in event.cpu_children):
        return False
    around = list(_names_around(event))
    return _CALL in around and _GRAPH not in around and not any(each.endswith(_COMPILING) for each in around)


def _names_around(event: Any) -> Iterator[str]:
    while (event := event.cpu_parent) is not None:
        yield event.name


def by_dynadiag(name: str) -> Pair:
    """The same as `explain --coverage` counts it. torch is changed for the rest of the process."""
    counts = OperatorCounts()
    counts.start()
    run(name, Graphs(), lambda model: model)
    rows = counts.stop()["functions"]
    return sum(row[3] for row in rows), sum(row[4] for row in rows)


def study(name: str) -> dict[str, Pair]:
    """Both counts of a model, made in a process of its own."""
    made = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=True)
    found: dict[str, Pair] = json.loads(made.stdout.splitlines()[-1])
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[[], *twelve.MODELS], help="some of the models")
    parser.add_argument("--one", choices=twelve.MODELS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps({"profiler": by_the_profiler(arguments.one), "dynadiag": by_dynadiag(arguments.one)}))
        return 0
    wrong = 0
    print(f"{'model':<24} {'in graphs':>20} {'uncompiled':>20}   (profiler, dynadiag)")
    for name in arguments.models or twelve.MODELS:
        found = study(name)
        pairs = list(zip(found["profiler"], found["dynadiag"], strict=True))
        differs = any(one != other for one, other in pairs)
        wrong += differs
        cells = " ".join(f"{f'{one}, {other}':>20}" for one, other in pairs)
        print(f"{name:<24} {cells}{'   DIFFERS' if differs else ''}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
