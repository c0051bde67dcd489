"""Makes the recordings on which the browser is judged: programs of every kind, whole, running and damaged.

Each is made by the command line that a user would type. Recordings that are there already are kept.

    python benchmarks/browser_recordings.py FOLDER [NAME...]       # all of them, or some
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
TRANSFORMER = """
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.first, self.second = Layer(width, heads), Layer(width, heads)

    def forward(self, x):
        return self.second(self.first(x))


device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
model = torch.compile(Transformer().to(device))
loss = model(torch.randn(2, 32, 64, device=device)).square().mean()
loss.backward()
"""
GPT2 = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer=6, n_head=4, n_embd=128, vocab_size=512, n_positions=64, use_cache=False)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
forward = torch.compile(model)
for step in range(2):
    ids = torch.randint(512, (2, 32))
    loss = forward(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
THIRTY_BREAKS = """
import logging
import random
import time

import torch

log = logging.getLogger("train")


@torch.compile(backend="aot_eager")
def step(x):
{body}
    return x.sum()


step(torch.randn(8, 8))
"""
BREAKING = (
    'print("mean", x.shape)',
    "if x.sum() > 0: x = x + 1",
    "scale = x.max().item(); x = x / (1 + abs(scale))",
    "torch._dynamo.graph_break()",
    "started = time.time(); x = x + 0 * (started > 0)",
)
TWELVE_RECOMPILES = """
import torch

torch._dynamo.config.recompile_limit = 16


@torch.compile(backend="aot_eager", dynamic=False)
def activate(x, mode, scale):
    if mode == "relu":
        return x.relu() * scale
    return x.tanh() * scale


for size in range(2, 15):
    activate(torch.randn(size, 4), "relu" if size % 2 else "tanh", 2)
"""
FAILS_IN_DYNAMO = """
import torch


@torch.compile(fullgraph=True)
def forward(x):
    y = x.sin()
    print("mean", y.mean())
    return y.relu()


forward(torch.randn(8))
"""
FAILS_IN_FAKE_TENSORS = """
import torch


@torch.compile
def forward(x, weight):
    hidden = x.relu()
    return hidden @ weight


forward(torch.randn(4, 8), torch.randn(7, 3))
"""
FAILS_IN_AOT = """
import torch


@torch.library.custom_op("demo::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.compile
def forward(x):
    return twice(x.sin()).cos()


forward(torch.randn(4, requires_grad=True))
"""
FAILS_IN_LOWERING = """
import torch
from torch._inductor import lowering


def no_lowering(*args, **options):
    raise AssertionError("this lowering does not know the layout")


for key in list(lowering.lowerings):
    if str(key).startswith("aten.relu"):
        lowering.lowerings[key] = no_lowering


@torch.compile
def forward(x):
    hidden = x.sin()
    return torch.relu(hidden) + 1


forward(torch.randn(8, 8))
"""
FAILS_IN_CPP = """
import torch
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

for overrides in (CppOverrides, CppVecOverrides):
    overrides.relu = staticmethod(lambda x: f"not_a_function({x})")


@torch.compile
def forward(x):
    hidden = x.sin()
    return torch.relu(hidden) + 1


forward(torch.randn(64, 64))
"""
FAILS_WHEN_CALLED = """
import torch


@torch.library.custom_op("demo::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("the values are out of range")


@checked.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compile
def forward(x):
    return checked(x.sin()) + 1


forward(torch.randn(8))
"""
WRONG = """
import torch
from torch._inductor.codegen.cpp import CppOverrides, CppVecOverrides

for overrides, zero in ((CppOverrides, "decltype({x})(0.125)"), (CppVecOverrides, "decltype({x})(0.125)")):
    overrides.relu = staticmethod(lambda x, zero=zero: f"at::vec::clamp_min({x}, {zero.format(x=x)})")
CppOverrides.relu = staticmethod(lambda x: f"std::max({x}, decltype({x})(0.125))")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 2)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)).cos())


torch.manual_seed(0)
net = Net()
compiled = torch.compile(net)
x = torch.randn(4, 8)
with torch.no_grad():
    torch.testing.assert_close(compiled(x), net(x))
"""
COMPARED = """
import torch


def step(x):
    y = x.sin()
    print("mean", y.mean())
    return torch.relu(y) + 1


def step_and_input():
    return step, (torch.randn(64, 64),)
"""
EIGHT_RANKS = """
import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()


@torch.compile(backend="aot_eager")
def step(x, scale):
    total = (x.sin() * scale).sum()  # ranks that reduce tensors of other sizes may wait for ever
    dist.all_reduce(total)
    return total


for _ in range(2):
    step(torch.ones(4 if rank != 5 else 5 * (_ + 1)), 2.0)
dist.barrier()
dist.destroy_process_group()
"""
SLOW = """
import time
import torch


@torch.compile(backend="aot_eager")
def step(x):
    print("step")
    return x.sin() + 1


for size in range(2, 1000):
    step(torch.ones(size))
    time.sleep(1)
"""


def _run(*words: str | Path, folder: Path) -> None:
    """Run a command of dynadiag. The programs may fail: that is what some are for."""
    command = [sys.executable, "-m", "dynadiag", *map(str, words)]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
    if ran.returncode == 2:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr}")


def _program(folder: Path, name: str, text: str) -> Path:
    """Write a program. Its name is none of a module: `bisect.py` would stand for the standard library's."""
    path = folder / "programs" / f"run_{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.lstrip())
    return path


def _explained(text: str, *options: str) -> Callable[[Path, str], None]:
    def make(folder: Path, name: str) -> None:
        _run("record", *options, "-o", folder / f"{name}.dynadiag", _program(folder, name, text), folder=folder)

    return make


def _searched(command: str, text: str, *options: str) -> Callable[[Path, str], None]:
    def make(folder: Path, name: str) -> None:
        target = _program(folder, name, text)
        made = folder / f"{name}.dynadiag"
        repro = folder / "programs" / f"{name}_repro.py"
        output = ["-o", repro, "--recording", made] if command == "minify" else ["-o", made]
        _run(command, *output, *options, target, folder=folder)

    return make


def _samples(folder: Path, name: str) -> None:
    for sample in sorted(SAMPLES.glob("*.py")):
        made = folder / f"{name}-{sample.stem}.dynadiag"
        if not made.exists():
            _run("record", "-o", made, sample, folder=folder)


def _compared(folder: Path, name: str) -> None:
    target = _program(folder, name, COMPARED)
    _run("compare", "-o", folder / name, f"{target}:step_and_input", folder=folder)


def _ranks(folder: Path, name: str) -> None:
    job = folder / name
    job.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=8", "--standalone"]
    _run("record", "-o", f"{job}/", "--", *torchrun, _program(folder, name, EIGHT_RANKS), folder=folder)


def _being_written(folder: Path, name: str) -> None:
    """The journal of a program in the middle. It names process 1, which never ends, as the one that writes it."""
    target = _program(folder, name, SLOW)
    journal = folder / f"{name}.dynadiag"
    command = [sys.executable, "-m", "dynadiag", "record", "-o", str(journal), str(target)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        limit = time.monotonic() + 120
        while time.monotonic() < limit and not (journal.exists() and journal.stat().st_size > 100_000):
            time.sleep(0.2)
        text = journal.read_bytes()
        process.terminate()
    journal.unlink(missing_ok=True)
    (folder / f"{name}.log").write_bytes(re.sub(rb'("dynadiag_run":.*?"pid": ?)\d+', rb"\g<1>1", text, count=1))


def _damaged(folder: Path, name: str) -> None:
    """A recording of which half of the pages in the middle are lost."""
    whole = folder / "transformer.dynadiag"
    if not whole.exists():
        RECORDINGS["transformer"](folder, "transformer")
    data = bytearray(whole.read_bytes())
    for start in range(len(data) // 3 // 4096 * 4096, 2 * len(data) // 3, 8192):
        data[start : start + 4096] = bytes(4096)
    (folder / f"{name}.dynadiag").write_bytes(data)


def _breaks(count: int) -> str:
    return "\n".join(f"    {BREAKING[number % len(BREAKING)]}\n    x = x.sin()" for number in range(count))


RECORDINGS: dict[str, Callable[[Path, str], None]] = {
    "transformer": _explained(TRANSFORMER),
    "gpu": _explained(TRANSFORMER, "--target", "h100"),
    "thirty_breaks": _explained(THIRTY_BREAKS.format(body=_breaks(30))),
    "twelve_recompiles": _explained(TWELVE_RECOMPILES),
    "fails_in_dynamo": _explained(FAILS_IN_DYNAMO),
    "fails_in_fake_tensors": _explained(FAILS_IN_FAKE_TENSORS),
    "fails_in_aot": _explained(FAILS_IN_AOT),
    "fails_in_lowering": _explained(FAILS_IN_LOWERING),
    "fails_in_cpp": _explained(FAILS_IN_CPP),
    "fails_when_called": _explained(FAILS_WHEN_CALLED),
    "gpt2": _explained(GPT2),
    "bisect": _searched("bisect", WRONG),
    "minify": _searched("minify", WRONG, "--accuracy"),
    "compare": _compared,
    "ranks": _ranks,
    "being_written": _being_written,
    "damaged": _damaged,
    "sample": _samples,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=" ".join(RECORDINGS))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    folder = args.folder.resolve()
    for name in args.names or RECORDINGS:
        made = [folder / f"{name}.dynadiag", folder / f"{name}.log", folder / name]
        if not any(path.exists() for path in made):
            RECORDINGS[name](folder, name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
