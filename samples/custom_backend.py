"""A custom backend: it prints the FX graph that Dynamo passes to it, and runs the graph uncompiled.

The recording has the same graph, node for node. It is recorded before the backend is called, so the backend cannot
change it there.

    dynadiag explain samples/custom_backend.py
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def print_graph(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., object]:
    """The backend. Dynamo calls it once for each graph, with example inputs (fake tensors)."""
    print(f"a graph with {len(example_inputs)} inputs")
    rows = [("op", "name", "target", "arguments")]
    rows += [(node.op, node.name, _name(node.target), str(node.args)) for node in gm.graph.nodes]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  " + "  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=True)).rstrip())
    return gm.forward


def _name(target: object) -> str:
    return str(getattr(target, "__name__", target))


def gelu_by_hand(x: torch.Tensor) -> torch.Tensor:
    inner = 0.7978845608 * (x + 0.044715 * x.pow(3))
    return 0.5 * x * (1 + torch.tanh(inner))


def main() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 4, device=DEVICE)
    print("backends that torch knows by name:", ", ".join(torch.compiler.list_backends()))
    compiled = torch.compile(gelu_by_hand, backend=print_graph)
    result = compiled(x)
    assert torch.equal(result, gelu_by_hand(x))
    print("result", hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    main()
