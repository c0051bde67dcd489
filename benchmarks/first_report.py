"""How long the first report of a program takes with and without code generation, in turn, with empty caches.

    python benchmarks/first_report.py [--runs N]

Breaks and recompiles do not need the generated code: `explain --no-codegen` runs the graphs as AOTAutograd leaves them.
The time is that of the whole command, with the import of torch and the program's own work; CPU time is that of all its
processes, which a busy machine changes less. Both reports have to count the same graphs, breaks and recompiles. At most
half is asked for.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_HEAD = "import torch\nfrom torch import nn\n\ntorch.manual_seed(0)\n"
_TRAIN = """
model = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(3):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_ENCODER = "nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)"
_STEP = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        for _ in range(4):
            x = self.outer(self.inner(x).tanh()) + x
        print("norm", [1])
        return x.layer_norm(x.shape[-1:]) if hasattr(x, "layer_norm") else x.softmax(-1)


model, x = Cell(), torch.randn(4, 8)
"""
_SIZES = """
@torch.compile
def attend(q, k, v):
    scores = (q @ k.transpose(-1, -2)) / q.shape[-1] ** 0.5
    return (scores.softmax(-1) @ v).relu().sum(-1).cumsum(0)


for length in (8, 12, 16, 20):
    attend(*(torch.randn(length, 16) for _ in range(3)))
"""
PROGRAMS = {
    "mlp": f"model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4))\nx = torch.randn(8, 16)\n{_TRAIN}",
    "convnet": "model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2))\n"
    f"x = torch.randn(2, 3, 10, 10)\n{_TRAIN}",
    "encoder": f"model = nn.Sequential({_ENCODER}, {_ENCODER})\nx = torch.randn(2, 7, 32)\n{_TRAIN}",
    "cell_with_a_break": f"{_STEP}{_TRAIN}",
    "sizes": _SIZES,
}
COUNTS = ("graph_count", "break_count", "recompile_count")


def explain(program: str, *options: str) -> tuple[float, float, tuple[int, ...]]:
    """The seconds of one report, its CPU seconds, and what it counts."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["explain", "--fresh", "--json", f"{folder}/report.json", "-o", f"{folder}/run.dynadiag", *options]
        file = Path(folder, f"{program}.py")
        file.write_text(_HEAD + PROGRAMS[program])
        command = [str(Path(sys.executable).with_name("dynadiag")), *words, str(file)]
        begin, before = time.perf_counter(), cpu_seconds()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        taken, worked = time.perf_counter() - begin, cpu_seconds() - before
        document = json.loads(Path(folder, "report.json").read_text())
    return taken, worked, tuple(document[name] for name in COUNTS)


def cpu_seconds() -> float:
    """The CPU time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="runs of each (default 1)")
    runs, ratios, differing = parser.parse_args().runs, ([], []), 0
    for program in PROGRAMS:
        pairs = [(explain(program), explain(program, "--no-codegen")) for _ in range(runs)]
        same = all(first[2] == second[2] for first, second in pairs)
        differing += not same
        shown = []
        for figure in (0, 1):
            whole, short = (statistics.median(pair[kind][figure] for pair in pairs) for kind in (0, 1))
            ratios[figure].append(short / whole)
            shown.append(f"{whole:6.1f} s, without {short:6.1f} s: {short / whole:.2f}")
        counted = "same counts" if same else f"counts differ: {pairs[0][0][2]} and {pairs[0][1][2]}"
        print(f"{program:<20} {shown[0]}; CPU {shown[1]}; {counted}", flush=True)
    print(f"median ratio {statistics.median(ratios[0]):.2f}; CPU {statistics.median(ratios[1]):.2f}")
    return differing


if __name__ == "__main__":
    sys.exit(main())
