"""dynadiag's bisection against torch's CompilerBisector: the same planted faults, in the same run.

    python benchmarks/bisect.py [--only NAME] [--json FILE]

Each fault is planted in a block of a transformer (layer norm, attention, an MLP with relu, sigmoid, tanh). For both
tools: what they name, how many times the program ran, and the wall time; for CompilerBisector in process
(`do_bisect`) and, with `--cli`, by `python -m torch._inductor.compiler_bisector run`. It needs a machine that
does nothing else.
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

_MODEL = '''
import sys, torch
import torch._inductor.lowering as L
from torch._inductor.virtualized import V
aten = torch.ops.aten
torch.manual_seed(0)

class Block(torch.nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.n1, self.n2 = torch.nn.LayerNorm(d), torch.nn.LayerNorm(d)
        self.qkv, self.a, self.b = torch.nn.Linear(d, 3 * d), torch.nn.Linear(d, d), torch.nn.Linear(d, d)

    def forward(self, x):
        q, k, v = self.qkv(self.n1(x)).chunk(3, -1)
        x = x + torch.softmax(q @ k.transpose(-1, -2) / 5.7, -1) @ v
        h = torch.relu(self.a(self.n2(x)))
        return x + torch.tanh(torch.sigmoid(self.b(h)) + h)

def plant(op, name, change):
    """The lowering of ``op`` goes wrong at the FX node ``name``."""
    inner = L.lowerings[op]
    def lowering(*args, **kwargs):
        out = inner(*args, **kwargs)
        return change(out) if V.current_node.name == name else out
    L.lowerings[op] = lowering

times = lambda factor: lambda out: L.lowerings[aten.mul.Tensor](out, factor)
'''

_RUN = """
model = torch.nn.Sequential(Block(), Block(), Block()).eval()
x = torch.randn(2, 8, 32)

def test():
    torch._dynamo.reset()
    with torch.no_grad():
        want, got = model(x), torch.compile(model)(x)
    return torch.allclose(got, want, rtol=1e-3, atol=1e-3)

if "--bisector" in sys.argv:
    from torch._inductor.compiler_bisector import CompilerBisector
    runs = []
    def counted():
        runs.append(None)
        return test()
    result = CompilerBisector.do_bisect(counted)
    print("RESULT", len(runs), result)
else:
    assert test()
"""

FAULTS = {
    "one lowering": "plant(aten.relu.default, 'relu_1', times(1.5))",
    "two lowerings": """
state = {}
def first(out):
    state[id(V.graph)] = True
    return out
def second(out):
    return times(1.5)(out) if state.get(id(V.graph)) else out
plant(aten.sigmoid.default, "sigmoid_1", first)
plant(aten.tanh.default, "tanh_1", second)
""",
    "a fusion": """
from torch._inductor.codegen import cpp
inner = cpp.KernelGroup.finalize_kernel
def finalize_kernel(self, kernel, nodes):
    out = inner(self, kernel, nodes)
    names = {n.name for s in nodes for n in s.node.get_origins()}
    if len(nodes) > 1 and {"var_mean_3", "rsqrt_3"} <= names:
        lines = self.loops_code._lines
        for i, line in enumerate(lines):
            if isinstance(line, str):
                lines[i] = line.replace(".rsqrt()", ".rsqrt() * 1.5").replace("/ std::sqrt(", "* 1.5 / std::sqrt(")
    return out
cpp.KernelGroup.finalize_kernel = finalize_kernel
""",
    "a lowering that raises": """
def raises(out):
    raise RuntimeError("planted")
plant(aten.tanh.default, "tanh_2", raises)
""",
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one tool did with one fault. ``runs`` counts the program's runs; below the ladder in ``below``."""

    fault: str
    tool: str
    names: str
    runs: int | None
    below: int | None
    seconds: float


def _timed(command: list[str], folder: Path) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=3600, check=False)
    return done, time.perf_counter() - began


def ours(fault: str, program: Path) -> Result:
    """dynadiag, from the command line, all of it counted."""
    document = program.with_suffix(".json")
    recording = program.with_suffix(".dynadiag")
    command = [sys.executable, "-P", "-m", "dynadiag", "bisect", "--force", "--json", str(document)]
    done, seconds = _timed([*command, "-o", str(recording), str(program)], program.parent)
    if not document.exists():
        return Result(fault, "dynadiag", f"failed: {done.stderr[-200:]}", None, None, seconds)
    verdict = json.loads(document.read_text())
    names = ", ".join(f"{c['class']} {c['name']}" for c in verdict["culprits"]) or verdict["verdict"]
    return Result(fault, "dynadiag", names, verdict["trials"], _below(recording), seconds)


def _below(recording: Path) -> int:
    """Trials of the descent: those that switch something."""
    from dynadiag import recording as recordings

    with recordings.open(recording) as search:
        return sum('"switches":[{' in trial.candidate for trial in search.trials())


def theirs(fault: str, program: Path) -> Result:
    """CompilerBisector in one process."""
    done, seconds = _timed([sys.executable, str(program), "--bisector"], program.parent)
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT")), None)
    if line is None:
        return Result(fault, "CompilerBisector", f"failed: {done.stderr[-200:]}", None, None, seconds)
    _, runs, names = line.split(" ", 2)
    return Result(fault, "CompilerBisector", names, int(runs), None, seconds)


def theirs_cli(fault: str, program: Path) -> Result:
    """CompilerBisector's ``run``: an interpreter a step. It deletes Inductor's cache, so it gets one of its own."""
    command = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", sys.executable, str(program)]
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        try:
            done, seconds = _timed(command, program.parent)
        finally:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
    last = (done.stdout + done.stderr).strip().splitlines()[-1:]
    return Result(fault, "CompilerBisector run", "".join(last)[:200], None, None, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="faults whose name holds this")
    parser.add_argument("--cli", action="store_true", help="CompilerBisector's `run` too: minutes a fault")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for fault in (name for name in FAULTS if args.only is None or args.only in name):
            program = Path(folder, fault.replace(" ", "_") + ".py")
            program.write_text(_MODEL + FAULTS[fault] + _RUN)
            for tool in (ours, theirs, *([theirs_cli] if args.cli else [])):
                result = tool(fault, program)
                results.append(result)
                print(_line(result), flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=2))
    return 0


def _line(result: Result) -> str:
    runs = "?" if result.runs is None else str(result.runs)
    below = "" if result.below is None else f" ({result.below} below the ladder)"
    return f"{result.fault:24} {result.tool:22} {runs + ' runs' + below:32} {result.seconds:6.1f} s  {result.names}"


if __name__ == "__main__":
    sys.exit(main())
