"""A pass over the FX graph, in a custom backend that calls Inductor: a right version and a wrong one.

Both are meant to combine two multiplications: `x * 2 * 3` is `x * 6`. The wrong one makes common mistakes: it takes any
arguments that a node has, adds instead of multiplying (even Nodes, which raises), and swallows every exception. The
graph stays valid and nothing is reported, but the numbers are wrong. The program prints the graph before and after its
pass, side by side, and fails if the compiled result differs from the uncompiled one.

    python samples/constant_fold_pass.py
    dynadiag bisect samples/constant_fold_pass.py wrong
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable
from itertools import zip_longest

import torch
from torch._inductor.compile_fx import compile_fx
from torch.fx import GraphModule, Node

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def is_scaling(value: object) -> bool:
    """Whether a node multiplies a tensor by a constant."""
    return (
        isinstance(value, Node)
        and value.target in (operator.mul, torch.mul)
        and len(value.args) == 2
        and isinstance(value.args[1], (int, float))
    )


def fold_scalings(gm: GraphModule) -> GraphModule:
    """Replace `x * 2 * 3` by `x * 6` if nothing else uses `x * 2`."""
    for node in list(gm.graph.nodes):
        inner = node.args[0] if is_scaling(node) else None
        if isinstance(inner, Node) and is_scaling(inner) and len(inner.users) == 1:
            node.args = (inner.args[0], inner.args[1] * node.args[1])
            gm.graph.erase_node(inner)
    gm.recompile()
    return gm


def fold_scalings_wrongly(gm: GraphModule) -> GraphModule:
    """The same with mistakes: any node, a sum instead of a product, and no error is reported."""
    for node in list(gm.graph.nodes):
        try:
            inner, factor = node.args
            node.args = (inner.args[0], inner.args[1] + factor)
        except Exception:  # noqa: BLE001 - this is the mistake
            pass
    gm.graph.eliminate_dead_code()
    gm.recompile()
    return gm


def table(gm: GraphModule) -> list[str]:
    """Return a line for each node."""
    return [f"{node.name:7} {getattr(node.target, '__name__', node.target):7} {node.args}" for node in gm.graph.nodes]


def show(before: list[str], after: list[str]) -> None:
    room = max(map(len, before))
    print(f"{'before':{room}} | after")
    for left, right in zip_longest(before, after, fillvalue=""):
        print(f"{left:{room}} | {right}".rstrip())


def right(gm: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
    """The backend with the right pass."""
    before = table(gm)
    folded = fold_scalings(gm)
    show(before, table(folded))
    return compile_fx(folded, inputs)


def wrong(gm: GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
    """The backend with the wrong pass."""
    before = table(gm)
    folded = fold_scalings_wrongly(gm)
    show(before, table(folded))
    return compile_fx(folded, inputs)


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.relu(x * 2 * 3 + y)


def main(which: str = "right") -> None:
    torch.manual_seed(0)
    x, y = torch.randn(4, 8, device=DEVICE), torch.randn(4, 8, device=DEVICE)
    expected = scaled(x, y)
    result = torch.compile(scaled, backend={"right": right, "wrong": wrong}[which])(x, y)
    torch.testing.assert_close(result, expected)
    print("as without compiling")
    print("result", hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main(*sys.argv[1:])
