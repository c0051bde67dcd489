"""Programs whose CUDA graphs are skipped or recorded again: what `dynadiag explain` says, and what its advice does.

    python benchmarks/cuda_graphs.py [--only TEXT ...] [--jobs N]      # needs an NVIDIA GPU

Of each program: the kind of reason that is found, its line, and the launches of one warm call before and after the
cure that the advice names. A graph is one launch. Exit code: 0 if each reason is found at its line, and each cure ends
it with fewer launches, or without the work of the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

LIMIT = 600  # seconds for one program


@dataclass(frozen=True, slots=True)
class Case:
    """A program that defines ``call``, and the same with the cure. ``line`` is a text of the line that is blamed.

    ``says`` is what the report has to say as well: the operator around which code is split, or the input that moved.
    ``saves``: the cure saves launches, not only what the CPU does.
    """

    key: str  # of the remedy
    line: str
    program: str
    cured: str
    says: str = ""
    saves: bool = True


MEAN = """
@torch.compile(mode="reduce-overhead")
def update(mean, x):
    mean += (x.mean(0) - mean) * 0.1
    return torch.nn.functional.layer_norm(x - mean, (64,)), {returned}

mean, x = torch.zeros(64, device="cuda"), torch.randn(32, 64, device="cuda")
{before}

def call():
    {call}
"""
BUFFER = """
class Mean(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(64))

    def forward(self, x):
        self.mean += (x.mean(0) - self.mean) * 0.1
        return torch.nn.functional.layer_norm(x - self.mean, (64,))

update, x = torch.compile(Mean().cuda(), mode="reduce-overhead"), torch.randn(32, 64, device="cuda")

def call():
    update(x)
"""
TABLE = """
torch._inductor.config.graph_partition = False
TABLE = torch.arange(64.0{device})

@torch.compile(mode="reduce-overhead")
def scores(x, positions):
    return torch.softmax(torch.relu(x) @ x.t() + TABLE.to(x.device)[positions], -1)

x, positions = torch.randn(64, 64, device="cuda"), torch.arange(64, device="cuda")

def call():
    scores(x, positions)
"""
SIZES = """
{option}
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).cuda()
compiled = torch.compile(model, mode="reduce-overhead", dynamic=True)
sizes = iter(range(3, 1000))

def call():
    x = torch.randn({size}, 64, device="cuda")
    with torch.no_grad():
        compiled(x)
"""
MOVED = """
layer = torch.nn.Linear(64, 64).cuda()
compiled = torch.compile(lambda x: layer(layer(x).relu()), mode="reduce-overhead")
x, kept = torch.randn(8, 64, device="cuda"), []

def call():
    new = torch.randn(64, 64, device="cuda")
    kept.append(new)
    with torch.no_grad():
        {change}
        compiled(x)
"""
OVERWRITTEN = """
@torch.compile(mode="reduce-overhead")
def step(x):
    return torch.sin(x) * 2

x, history = torch.randn(16, device="cuda"), []

def call():
    history.append(step(x){copy})
    [each.sum() for each in history]
"""
SPLIT = """
{option}
@torch.compile(mode="reduce-overhead")
def scores(x, bias):
    y = torch.softmax(torch.relu(x) @ x.t(), -1)
    {middle}
    return torch.layer_norm(y @ x, (64,)).sigmoid() @ x.t()

x, bias = torch.randn(64, 64, device="cuda"), torch.randn(64{device})

def call():
    with torch.no_grad():
        scores(x, bias)
"""
OWN = """
@torch.library.custom_op("own::scaled", mutates_args=(){tags})
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@scaled.register_fake
def _(x):
    return torch.empty_like(x)
"""
_PLAIN = MEAN.format(returned="None", before="", call="update(torch.zeros(64, device='cuda'), x)")
CASES = {
    "a mean that is written to": Case(
        "cuda_graph.return",
        "mean +=",
        _PLAIN,
        MEAN.replace("mean += ", "mean = mean + ").format(
            returned="mean", before="", call="mean.copy_(update(mean, x)[1])"
        ),
    ),
    "a mean that stays where it is": Case(
        "cuda_graph.static_address",
        "mean +=",
        MEAN.format(returned="None", before="", call="update(mean, x)"),
        MEAN.format(
            returned="None", before="torch._dynamo.mark_static_address(mean, guard=True)", call="update(mean, x)"
        ),
    ),
    "a mean that is made a buffer": Case("cuda_graph.static_address", "mean +=", _PLAIN, BUFFER),
    "a table on the CPU": Case(
        "cuda_graph.device", "TABLE.to", TABLE.format(device=""), TABLE.format(device=", device='cuda'")
    ),
    "a bias on the CPU in split code": Case(
        "cuda_graph.device",
        "bias.to",
        SPLIT.format(option="", middle="y = y + bias.to(y.device)", device=""),
        SPLIT.format(option="", middle="y = y + bias.to(y.device)", device=", device='cuda'"),
        "it copies between the CPU and the GPU",
        saves=False,
    ),
    "an operator with a tag": Case(
        "cuda_graph.tag",
        "own.scaled",
        SPLIT.format(
            option=OWN.format(tags=", tags=(torch.Tag.cudagraph_unsafe,)"),
            middle="y = torch.ops.own.scaled(y)",
            device=", device='cuda'",
        ),
        SPLIT.format(option=OWN.format(tags=""), middle="y = torch.ops.own.scaled(y)", device=", device='cuda'"),
        "is split around `own.scaled`",
    ),
    "a branch that a tensor decides": Case(
        "cuda_graph.where",
        "torch.cond",
        SPLIT.format(
            option="",
            middle="y = torch.cond(y.sum() > 0, lambda y: y + 1, lambda y: y * 2, (y,))",
            device=", device='cuda'",
        ),
        SPLIT.format(option="", middle="y = torch.where(y.sum() > 0, y + 1, y * 2)", device=", device='cuda'"),
        "is split around `cond`",
    ),
    "rows of a mask": Case(
        "cuda_graph.mask",
        "y[bias > 0]",
        SPLIT.format(
            option="torch._dynamo.config.capture_dynamic_output_shape_ops = True",
            middle="y = y + y[bias > 0].sum(0)",
            device=", device='cuda'",
        ),
        SPLIT.format(
            option="", middle="y = y + torch.where((bias > 0)[:, None], y, 0).sum(0)", device=", device='cuda'"
        ),
        "is split around `aten.",
    ),
    "many sizes": Case(
        "cuda_graph.pad",
        "compiled(x)",
        SIZES.format(option="", size="next(sizes)"),
        SIZES.format(option="", size="-(-next(sizes) // 64) * 64"),
    ),
    "many sizes without CUDA graphs": Case(
        "cuda_graph.skip_dynamic",
        "compiled(x)",
        SIZES.format(option="", size="next(sizes)"),
        SIZES.format(option="torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True", size="next(sizes)"),
    ),
    "weights that move": Case(
        "cuda_graph.copy",
        "compiled = torch.compile(lambda",
        MOVED.format(change="layer.weight.data = new"),
        MOVED.format(change="layer.weight.copy_(new)"),
        "moved: `layer.weight`",
    ),
    "outputs that are kept": Case(
        "cuda_graph.clone", "[each.sum()", OVERWRITTEN.format(copy=""), OVERWRITTEN.format(copy=".clone()")
    ),
}
_COUNT = """
from torch.profiler import ProfilerActivity, profile
for _ in range({warm}):
    call()
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as measured:
    call()
    torch.cuda.synchronize()
names = [event.name for event in measured.events()]
print("LAUNCHES", sum("Launch" in name and name.startswith("cu") for name in names))
"""


def main() -> None:
    """Run each program and its cure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="texts, of which one is in the name of the program")
    parser.add_argument("--jobs", type=int, default=1, help="programs at a time: launches are counted, not timed")
    given = parser.parse_args()
    chosen = {name: case for name, case in CASES.items() if any(text in name for text in given.only)}
    with ThreadPoolExecutor(given.jobs) as pool:
        good = list(pool.map(_shown, chosen, chosen.values()))
    print(f"{sum(good)} of {len(good)}")
    sys.exit(not all(good))


def _shown(name: str, case: Case) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        before, launches, report = _explained(Path(folder, "before.py"), case, case.program)
        after, fewer, _ = _explained(Path(folder, "after.py"), case, case.cured)
        found = [item for item in before if case.key in item[1]]
        lines = Path(folder, "before.py").read_text().splitlines()
    place = lines[found[0][0] - 1].strip() if found and found[0][0] else ""
    gone = not any(case.key in item[1] for item in after)
    less = launches is not None and fewer is not None and fewer < launches + (not case.saves)
    ok = bool(found) and case.line in place and gone and less and case.says in " ".join(report.split())
    text = f"{'ok   ' if ok else 'WRONG'} {name}: {case.key} at {place!r}; launches {launches} -> {fewer}"
    failed = "" if ok else f"\n      before {before}, after {after}, to be said: {case.says!r}\n{report[-3000:]}"
    print(text + failed, flush=True)
    return ok


def _explained(path: Path, case: Case, program: str) -> tuple[list[tuple[int | None, list[str]]], int | None, str]:
    """The program's line and the advice of each finding on CUDA graphs, the launches of one warm call, the report."""
    warm = 200 if case.key == "cuda_graph.copy" else 24
    path.write_text(f"import torch\n{program}{_COUNT.format(warm=warm)}")
    document = path.with_suffix(".json")
    command = [sys.executable, "-m", "dynadiag", "explain", "-o", str(path.with_suffix(".dynadiag"))]
    done = subprocess.run(
        [*command, "--json", str(document), str(path)],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(path.with_suffix(".cache"))},
    )
    launches = re.search(r"LAUNCHES (\d+)", done.stdout)
    findings = json.loads(document.read_text())["findings"] if document.exists() else []
    told = [item for item in findings if any(each["key"].startswith("cuda_graph.") for each in item["advice"])]
    own = [(item["entry"] or item, [each["key"] for each in item["advice"]]) for item in told]
    return (
        [(place["line"] if place["file"] == str(path) else None, keys) for place, keys in own],
        int(launches[1]) if launches else None,
        done.stdout,
    )


if __name__ == "__main__":
    main()
