"""What `dynadiag caches` says of a server's start: many graphs, a custom pass of its own, two graphs that bypass.

    python benchmarks/cold_start.py [--graphs N]

The program compiles N blocks of different widths (default 40) under a post-grad pass with a ``uuid()``. One block calls
a function that is allowed in the graph, another one a ``torch.autograd.Function``: neither can be cached. It is asked
for: both are named with their line and their share of the second start, and the cure is measured by a start of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files


class CountProducts(CustomGraphPass):
    def __call__(self, graph):
        self.products = sum(node.target is torch.ops.aten.mm.default for node in graph.nodes)

    def uuid(self):
        return get_hash_for_files((__file__,))


torch._inductor.config.post_grad_custom_post_pass = CountProducts()


def rotate(x):
    return torch.cat((-x[..., 1::2], x[..., ::2]), dim=-1)


torch.compiler.allow_in_graph(rotate)


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Block(torch.nn.Module):
    def __init__(self, width, number):
        super().__init__()
        self.number = number
        self.weight = torch.nn.Parameter(torch.ones(width, width))

    def forward(self, x):
        h = torch.nn.functional.silu(x @ self.weight) + x.mean(dim=-1, keepdim=True)
        if self.number == 3:
            h = rotate(h)
        if self.number == 5:
            h = Gate.apply(h)
        return h / (1 + h.abs().amax(dim=-1, keepdim=True))


blocks = [Block(16 + 2 * number, number).requires_grad_(number == 5) for number in range({graphs})]
for block in blocks:
    torch._dynamo.reset()
    out = torch.compile(block)(torch.ones(4, block.weight.shape[0])).sum()
    if out.requires_grad:
        out.backward()  # torch stores the graph of a training step only after that
"""
LINES = {"rotate": "torch.compiler.allow_in_graph(rotate)", "torch.autograd.Function": "Gate.apply(h)"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=40)
    graphs = parser.parse_args().graphs
    with tempfile.TemporaryDirectory() as folder:
        program, document = Path(folder, "serve.py"), Path(folder, "caches.json")
        program.write_text(PROGRAM.replace("{graphs}", str(graphs)))
        command = [Path(sys.executable).with_name("dynadiag"), "caches", "--json", document]
        done = subprocess.run([*command, program], stdout=subprocess.PIPE, text=True, check=True)
        return _judged(json.loads(document.read_text()), done.stdout)


def _judged(found: dict[str, list[dict[str, object]]], report: str) -> int:
    """Print the report and what of it was asked for. Returns the exit code."""
    lines = PROGRAM.splitlines()
    bypassed = [each for each in found["entries"] if each["run"] == 1 and each["outcome"] == "bypass"]
    compiles = {each["compile_id"] for each in bypassed}
    print(report)
    missed = 0
    for name, text in LINES.items():
        line = next(number for number, each in enumerate(lines, 1) if text in each)
        told = any(name in str(each["cause"]) and each["line"] == line for each in bypassed)
        missed += not told
        print(f"{name}, line {line}: {'told' if told else 'NOT TOLD'}")
    tried = "then compiles 0 graphs" in " ".join(report.split())
    print(f"compiles that bypass: {len(compiles)}; the cure is tried and leaves none: {tried}")
    return int(missed > 0 or not tried)


if __name__ == "__main__":
    sys.exit(main())
