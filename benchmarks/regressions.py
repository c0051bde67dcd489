"""Ten programs that became slower, or larger, by one change: does `dynadiag compare A B` name what explains it?

    python benchmarks/regressions.py [--only TEXT] [--python OTHER]

Each program is measured as it was and with its change, by `dynadiag compare PROGRAM.py:make`; then the two recordings
are compared. Of each: the stage that stands first, and what it says. ``--python`` is the interpreter of another
environment, in which B is measured too: another release of torch. Exit code: 0 if at least nine are named.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

LIMIT = 600  # seconds for one command
GOAL = 9

LAYERS = """
model = torch.nn.Sequential(*[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()) for _ in range(6)]).eval()

def step(x):
    for layer in model:
        x = layer(x)
        {inside}
    return x.softmax(-1)

def make():
    return step, (torch.randn(32, 64),)
"""
POINTWISE = """
def step(x):
    y = x.sin() * x.cos() + x.exp()
    return (y * 2).tanh() + y.sigmoid() - y.relu().sqrt() + torch.erf(y)

def make():
    return step, (torch.rand(512, 512),)
"""
ATTENTION = """
def step(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) / 8.0, -1) @ v

def make():
    return step, tuple(torch.randn(2, 8, 256, 64) for _ in range(3))
"""
TRAINED = """
layers = torch.nn.ModuleList([torch.nn.Linear(128, 128) for _ in range(6)])

def step(x):
    for layer in layers:
        x = torch.nn.functional.gelu(layer(x)).sin()
    return x.sum()

def make():
    return step, (torch.randn(256, 128, requires_grad=True),)
"""
FALLBACK = """
from torch._inductor import lowering
for overload in (torch.ops.aten.erf.default, torch.ops.aten.erf):
    lowering.lowerings.pop(overload, None)
lowering.make_fallback(torch.ops.aten.erf.default)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A program, its change (what is put in front of it, or a replaced piece), and the stage and a word of its text."""

    program: str
    stage: str
    says: str
    head: str = ""
    replaced: tuple[str, str] = ("", "")
    options: tuple[str, ...] = ()

    def texts(self) -> tuple[str, str]:
        """The program before and after."""
        before, after = f"import torch\n{self.program}", f"import torch\n{self.head}{self.program}"
        return before.replace("{inside}", "pass"), after.replace(*self.replaced).replace("{inside}", "pass")


CASES = {
    "a print in the loop over the layers": Case(LAYERS, "break", "print", replaced=("{inside}", "print(end='')")),
    "a number read from a tensor": Case(
        LAYERS, "break", "x.max().item()", replaced=("{inside}", "x = x * x.max().item()")
    ),
    "a part that is disabled": Case(
        LAYERS, "break", "disable", replaced=("x = layer(x)", "x = torch.compiler.disable(layer)(x)")
    ),
    "sizes are symbols": Case(
        POINTWISE, "guard", "size [any, any]", head="torch._dynamo.config.assume_static_by_default = False\n"
    ),
    "a cast to float64": Case(POINTWISE, "dynamo", "double", replaced=("x.exp()", "x.double().exp().float()")),
    "attention is no longer one operator": Case(
        ATTENTION,
        "post_grad",
        "scaled_dot_product",
        head="import torch._inductor.config as c\nc.pattern_matcher = False\n",
    ),
    "operators are not fused": Case(
        POINTWISE,
        "kernel",
        "loops",
        head="import torch._inductor.config as c\nc.max_fusion_size = 1\n"
        "c.realize_opcount_threshold = 0\nc.realize_reads_threshold = 0\n",
    ),
    "a lowering is gone": Case(POINTWISE, "kernel", "erf", head=FALLBACK),
    "loops without vectors": Case(
        POINTWISE, "kernel", "0 vector operations", head="import torch._inductor.config as c\nc.cpp.simdlen = 1\n"
    ),
    "backward computes all again": Case(
        TRAINED,
        "aot",
        "computes the rest again",
        head="import torch._functorch.config\ntorch._functorch.config.activation_memory_budget = 0.0\n",
        options=("--train",),
    ),
}


def main() -> None:
    """Measure and compare each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--python", default=sys.executable, help="the interpreter for B")
    given = parser.parse_args()
    named = [_named(name, case, given.python) for name, case in CASES.items() if given.only in name]
    print(f"{sum(named)} of {len(named)} named (at least {GOAL} of {len(CASES)} are wanted)")
    sys.exit(sum(named) < (GOAL if len(named) == len(CASES) else len(named)))


def _named(name: str, case: Case, python: str) -> bool:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        first, second = (
            _measured(interpreter, folder / side, program, case.options)
            for side, interpreter, program in zip(
                ("before", "after"), (sys.executable, python), case.texts(), strict=True
            )
        )
        document = folder / "compared.json"
        _run(sys.executable, "compare", str(first), str(second), "--json", str(document))
        compared = json.loads(document.read_text())
    told = compared["explained_by"][0] if compared["explained_by"] else {"stage": "none", "text": ""}
    ok = told["stage"] == case.stage and case.says in told["text"] and not compared["unknown"]
    ratios = ", ".join(f"{each['name']} {each['ratio'] or 0:.2f}" for each in compared["figures"])
    print(f"{'ok   ' if ok else 'WRONG'} {name}: {told['stage']}: {told['text'][:200]} ({ratios})", flush=True)
    return ok


def _measured(python: str, folder: Path, program: str, options: tuple[str, ...]) -> Path:
    """The recording of a program's compiled variant, with its step times."""
    folder.mkdir()
    file = folder / "program.py"
    file.write_text(program)
    _run(
        python,
        "compare",
        "--fresh",
        "--modes",
        "default",
        "--repeat",
        "3",
        *options,
        "-o",
        str(folder / "out"),
        f"{file}:make",
    )
    return folder / "out" / "01-make-default.dynadiag"


def _run(python: str, *words: str) -> None:
    done = subprocess.run(
        [python, "-m", "dynadiag", *words],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        sys.exit(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
