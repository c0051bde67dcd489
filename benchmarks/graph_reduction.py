"""Compare `minifier.reduce_graph` with `torch._functorch.fx_minifier`: the same graphs, the same oracle, one run.

    python benchmarks/graph_reduction.py                      # two to four minutes
    python benchmarks/graph_reduction.py --seeds 10 --patience 10 --seconds 600

torch's minifier gets `--patience` times the oracle calls that ours took, and `--seconds` of CPU time a case; where it
is not done by then, the table says at how many calls, and how many nodes it had left. Exits with 1 where ours leaves
more nodes, takes more calls, or is above the ceiling for its size.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import fx
from torch._functorch.fx_minifier import minifier as torch_minifier

from minifier import reduce_graph

Fails = Callable[[fx.GraphModule, Sequence[Any]], bool]
# (nodes, culprits, connected) -> most calls allowed
CEILINGS = {
    (1000, 1, False): 20,
    (1000, 2, False): 25,
    (1000, 5, False): 60,
    (5000, 5, False): 75,
    (1000, 2, True): 30,
    (1000, 5, True): 150,
}
_ONE = (torch.relu, torch.sin, torch.tanh, torch.sigmoid)
_TWO = (torch.add, torch.mul, torch.maximum)


class OutOfPatience(BaseException):
    """Ends torch's minifier, which has no budget. Not an Exception: it must get through whatever catches those."""


@dataclass
class Tally:
    """Counts the calls of an oracle and the sizes of what it is given, and remembers the smallest that failed."""

    fails: Fails
    limit: int | None = None
    until: float | None = None
    calls: int = 0
    sizes: int = 0
    best: int | None = None
    start: float = field(default_factory=time.process_time)

    def __call__(self, module: fx.GraphModule, inputs: Sequence[Any]) -> bool:
        spent = time.process_time() - self.start
        if (self.limit is not None and self.calls >= self.limit) or (self.until is not None and spent > self.until):
            raise OutOfPatience
        self.calls += 1
        count = len(operations(module))
        self.sizes += count
        failed = self.fails(module, inputs)
        if failed:
            self.best = count if self.best is None else min(self.best, count)
        return failed


@dataclass(frozen=True)
class Score:
    calls: int
    nodes: int
    sizes: int
    seconds: float
    done: bool


def operations(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op not in ("placeholder", "output", "get_attr")]


def dag(size: int, seed: int) -> tuple[fx.GraphModule, list[Any]]:
    """Random unary and binary operations; half of the arguments from the last 20 values, half from anywhere."""
    draw = random.Random(seed)
    graph = fx.Graph()
    pool = [graph.placeholder(f"x{i}") for i in range(4)]
    for _ in range(size):
        target = draw.choice(_ONE + _TWO)
        arguments = [
            draw.choice(pool[-20:] if draw.random() < 0.5 else pool) for _ in range(2 if target in _TWO else 1)
        ]
        pool.append(graph.call_function(target, tuple(arguments)))
    graph.output(tuple(node for node in pool if not node.users and node.op != "placeholder"))
    return fx.GraphModule({}, graph), [torch.randn(4) for _ in range(4)]


def chain(size: int, seed: int) -> tuple[fx.GraphModule, list[Any]]:
    draw = random.Random(seed)
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(size):
        node = graph.call_function(draw.choice(_ONE), (node,))
    graph.output((node,))
    return fx.GraphModule({}, graph), [torch.randn(4)]


def transformer(layers: int, seed: int) -> tuple[fx.GraphModule, list[Any]]:
    """Attention and a feed-forward layer with residuals, as functions: shapes change on the way."""
    draw = random.Random(seed)
    width, heads = 32, 4
    inputs: list[Any] = [torch.randn(2, 8, width)]
    graph = fx.Graph()
    x = graph.placeholder("x")

    def weight(*shape: int) -> fx.Node:
        inputs.append(torch.randn(*shape) * 0.1)
        return graph.placeholder(f"w{len(inputs)}")

    def call(target: Callable[..., Any], *args: Any, **kwargs: Any) -> fx.Node:
        return graph.call_function(target, args, kwargs)

    weights = [
        [weight(width, width) for _ in range(4)] + [weight(4 * width, width), weight(width, 4 * width)]
        for _ in range(layers)
    ]
    functional = torch.nn.functional
    for query, key, value, out, up, down in weights:
        normed = call(functional.layer_norm, x, (width,))
        split = [
            graph.call_method(
                "transpose",
                (graph.call_method("view", (call(functional.linear, normed, w), 2, 8, heads, width // heads)), 1, 2),
            )
            for w in (query, key, value)
        ]
        scores = call(
            torch.softmax, call(torch.matmul, split[0], graph.call_method("transpose", (split[1], 2, 3))), dim=-1
        )
        mixed = graph.call_method("transpose", (call(torch.matmul, scores, split[2]), 1, 2))
        x = call(torch.add, x, call(functional.linear, graph.call_method("reshape", (mixed, 2, 8, width)), out))
        hidden = call(
            draw.choice((functional.gelu, torch.relu)),
            call(functional.linear, call(functional.layer_norm, x, (width,)), up),
        )
        x = call(torch.add, x, call(functional.linear, hidden, down))
    graph.output((x,))
    return fx.GraphModule({}, graph), inputs


def ancestors(node: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        other = pending.pop()
        if other not in found and other.op != "placeholder":
            found.add(other)
            pending.extend(other.all_input_nodes)
    return found


def culprits(module: fx.GraphModule, count: int, together: bool, draw: random.Random) -> list[str]:
    if not together:
        return [node.name for node in draw.sample(operations(module), count)]
    while True:
        path = [draw.choice(operations(module))]
        while len(path) < count and (above := ancestors(path[-1])):
            path.append(draw.choice(sorted(above, key=lambda node: node.name)))
        if len(path) == count:
            return [node.name for node in reversed(path)]


def oracle(names: Sequence[str], together: bool) -> Fails:
    """Loose: all are there. Connected: and each leads to the next through dataflow."""

    def fails(module: fx.GraphModule, _: Sequence[Any]) -> bool:
        by_name = {node.name: node for node in operations(module)}
        if not set(names) <= set(by_name):
            return False
        return not together or all(by_name[a] in ancestors(by_name[b]) for a, b in pairwise(names))

    return fails


def ours(module: fx.GraphModule, inputs: list[Any], fails: Fails) -> Score:
    tally = Tally(fails)
    reduction = reduce_graph(module, inputs, tally, simplify_inputs=False)
    seconds = time.process_time() - tally.start
    return Score(tally.calls, len(operations(reduction.graph_module)), tally.sizes, seconds, reduction.minimal)


def theirs(module: fx.GraphModule, inputs: list[Any], fails: Fails, limit: int, seconds: float) -> Score:
    tally = Tally(fails, limit, seconds)
    done = True
    nodes = len(operations(module))
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            small, _ = torch_minifier(module, inputs, tally, dump_state=lambda *_: None)
            nodes = len(operations(small))
        except OutOfPatience:
            done, nodes = False, tally.best or nodes
    return Score(tally.calls, nodes, tally.sizes, time.process_time() - tally.start, done)


def cases(seeds: int) -> Iterator[tuple[str, int, int, bool, Callable[[int], tuple[fx.GraphModule, list[Any]]], range]]:
    for size in (100, 1000, 5000):
        few = range(seeds if size < 5000 else min(seeds, 2))
        for count, together in ((1, False), (2, False), (5, False), (2, True), (5, True)):
            yield "dag", size, count, together, lambda seed, size=size: dag(size, seed), few
    for size in (100, 1000):
        for count, together in ((1, False), (2, True), (5, True)):
            yield "chain", size, count, together, lambda seed, size=size: chain(size, seed), range(seeds)
    for layers in (1, 12):
        for count, together in ((1, False), (2, False), (2, True), (5, True)):
            yield "transformer", layers, count, together, lambda seed, n=layers: transformer(n, seed), range(seeds)


def spread(values: Sequence[int]) -> str:
    return str(values[0]) if min(values) == max(values) else f"{min(values)}-{max(values)}"


def row(scores: Sequence[Score]) -> str:
    unfinished = sum(not score.done for score in scores)
    calls = spread([score.calls for score in scores]) + (f" ({unfinished} not done)" if unfinished else "")
    sizes = sum(score.sizes for score in scores) // len(scores)
    seconds = sum(score.seconds for score in scores) / len(scores)
    return f"{calls:>24} {spread([score.nodes for score in scores]):>9} {sizes:>9} {seconds:>7.1f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--patience", type=float, default=1.5, help="oracle calls for torch's, as a multiple of ours")
    parser.add_argument("--seconds", type=float, default=4.0, help="CPU seconds for torch's, for each graph")
    parser.add_argument("--only", help="dag, chain or transformer")
    parser.add_argument("--largest", type=int, default=5000, help="leave out graphs of more nodes")
    options = parser.parse_args()
    torch.manual_seed(0)
    head = f"{'calls':>24} {'nodes':>9} {'sizes':>9} {'CPU s':>7}"
    print(f"{'graph':<11} {'size':>5} {'k':>2} {'':<9} | {'ours':<52} | torch's\n{'':<31}| {head} | {head}")
    wrong = 0
    for kind, size, count, together, make, seeds in cases(options.seeds):
        if (options.only and kind != options.only) or size > options.largest:
            continue
        mine, other = [], []
        for seed in seeds:
            module, inputs = make(seed)
            names = culprits(module, count, together, random.Random(1000 * seed + count))
            fails = oracle(names, together)
            mine.append(ours(module, inputs, fails))
            limit = int(mine[-1].calls * options.patience) + 1
            other.append(theirs(module, inputs, fails, limit, options.seconds))
        ceiling = CEILINGS.get((size, count, together), sys.maxsize) if kind == "dag" else sys.maxsize
        worse = sum(
            a.nodes > b.nodes or (b.done and a.calls > b.calls) or a.calls > ceiling or not a.done
            for a, b in zip(mine, other, strict=True)
        )
        wrong += worse
        label = "connected" if together else "loose"
        print(f"{kind:<11} {size:>5} {count:>2} {label:<9} | {row(mine)} | {row(other)}{'  WORSE' * worse}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
