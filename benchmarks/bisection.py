"""dynadiag's bisection against torch's CompilerBisector: the same planted faults, in the same run.

    python benchmarks/bisection.py [faults] [--only NAME] [--run] [--rounds N] [--limit S] [--json FILE]
    python benchmarks/bisection.py trials [--rounds N]

`faults`: each is planted in three blocks of a transformer (layer norm, attention, an MLP with relu, sigmoid, tanh). For
both tools: what they name, how many times the program ran, wall time, and the CPU time of everything they started (a
machine that does other things too stretches the first, hardly the second). CompilerBisector in process (`do_bisect`)
and, with `--run`, by `python -m torch._inductor.compiler_bisector run`. Each begins with a copy of the compiler caches
that one run of the program leaves, since whoever bisects has seen it fail. A tool that takes longer than the limit is
ended, and no ratio is given for it.

`trials`: what a trial costs. A tiny graph compiled by Inductor in a forked trial against the same in a process that
has it all loaded, and at the rung aot_eager in a forked trial against a fresh interpreter, in turn.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

_GRACE = 20.0  # seconds for a tool to end after it was asked to
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>: what a tool leaves behind is ours to wait for, and to count

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
wrong = []
inner = cpp.CppScheduling.codegen_node
def codegen_node(self, node):
    parts = node.get_nodes()
    names = {n.name for part in parts for n in part.node.get_origins()}
    wrong.append(len(parts) > 1 and {"var_mean_3", "rsqrt_3"} <= names)
    try:
        return inner(self, node)
    finally:
        wrong.pop()
cpp.CppScheduling.codegen_node = codegen_node
for overrides, factor in ((cpp.CppOverrides, "1.5f"), (cpp.CppVecOverrides, "at::vec::Vectorized<float>(1.5f)")):
    def rsqrt(x, inner=overrides.rsqrt, factor=factor):
        return f"({inner(x)} * {factor})" if wrong and wrong[-1] else inner(x)
    overrides.rsqrt = staticmethod(rsqrt)
""",
    "a lowering that raises": """
def raises(out):
    raise RuntimeError("planted")
plant(aten.tanh.default, "tanh_2", raises)
""",
}


@dataclass(frozen=True, slots=True)
class Result:
    """What one tool did with one fault. ``runs`` counts the program's runs; below the ladder in ``below``.

    ``finished`` is false where the limit ended it, and its times are no more than that.
    """

    fault: str
    tool: str
    names: str
    runs: int | None
    below: int | None
    seconds: float
    cpu: float
    finished: bool = True


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: what it printed, what it took. ``finished`` is false where its limit ended it."""

    text: str
    seconds: float
    cpu: float
    finished: bool = True

    def unnamed(self, fault: str, tool: str) -> Result:
        """The result of a tool that gave no answer, with why."""
        why = f"failed: {self.text[-200:]}" if self.finished else f"did not finish in {self.seconds:.0f} s"
        return Result(fault, tool, why, None, None, self.seconds, self.cpu, self.finished)


@dataclass(frozen=True, slots=True)
class Task:
    """One fault for one tool: the program, a copy of the caches, and the most seconds it may take."""

    fault: str
    program: Path
    cache: Path
    limit: float

    def run(self, command: list[str]) -> Ended:
        return _timed(command, self.program.parent, self.cache, self.limit)


def _timed(command: list[str], folder: Path, cache: Path, limit: float) -> Ended:
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache / "triton")}
    began, used = time.perf_counter(), _cpu()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **pipes)
    finished = True
    try:
        text = process.communicate(timeout=limit)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)  # a search that is asked to stop ends the trials that it started
        text, finished = _last_words(process), False
    seconds = time.perf_counter() - began
    _reap()
    return Ended(text, seconds, _cpu() - used, finished)


def _last_words(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=_GRACE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def _reap() -> None:
    """Waits for what the command left behind: it is ours now, and its time counts when it is waited for."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _cpu() -> float:
    times = os.times()
    return times.children_user + times.children_system


def ours(task: Task) -> Result:
    """dynadiag, from the command line, all of it counted."""
    document, recording = task.program.with_suffix(".json"), task.program.with_suffix(".dynadiag")
    document.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-m", "dynadiag", "bisect", "--force", "--json", str(document)]
    done = task.run([*command, "-o", str(recording), str(task.program)])
    if not document.exists():
        return done.unnamed(task.fault, "dynadiag")
    verdict = json.loads(document.read_text())
    names = ", ".join(f"{c['class']} {c['name']}" for c in verdict["culprits"]) or verdict["verdict"]
    return Result(task.fault, "dynadiag", names, verdict["trials"], _below(recording), done.seconds, done.cpu)


def _below(recording: Path) -> int:
    """Trials of the descent: those that switch something, and the one that compares values."""
    from dynadiag.recording.opening import open_recording

    signs = ('"switches":[{', '"record":["intermediates"]')
    with open_recording(recording) as search:
        return sum(any(sign in trial.candidate for sign in signs) for trial in search.trials())


def theirs(task: Task) -> Result:
    """CompilerBisector in one process."""
    done = task.run([sys.executable, str(task.program), "--bisector"])
    line = next((line for line in done.text.splitlines() if line.startswith("RESULT")), None)
    if line is None:
        return done.unnamed(task.fault, "do_bisect")
    _, runs, names = line.split(" ", 2)
    return Result(task.fault, "do_bisect", names, int(runs), None, done.seconds, done.cpu)


def theirs_run(task: Task) -> Result:
    """CompilerBisector's ``run_program``: an interpreter a step, each with a cache folder of its own."""
    command = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", sys.executable, str(task.program)]
    done = task.run(command)
    if not done.finished:
        return done.unnamed(task.fault, "run")
    last = "".join(done.text.strip().splitlines()[-1:])
    return Result(task.fault, "run", last[:200], None, None, done.seconds, done.cpu)


Tool = Callable[[Task], Result]


def compare_faults(args: argparse.Namespace) -> int:
    """Each fault with each tool, in turn."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    tools: tuple[Tool, ...] = (ours, theirs, *([theirs_run] if args.run else []))
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        for fault in (name for name in FAULTS if args.only is None or args.only in name):
            program = Path(folder, fault.replace(" ", "_") + ".py")
            program.write_text(_MODEL + FAULTS[fault] + _RUN)
            cache = program.with_suffix(".cache")  # its own: the FX graph cache knows nothing of what was planted
            _timed([sys.executable, str(program)], program.parent, cache, args.limit)
            for _ in range(args.rounds):
                for tool in tools:
                    copy = Path(shutil.copytree(cache, Path(folder, "copy")))
                    results.append(tool(Task(fault, program, copy, args.limit)))
                    print(_line(results[-1]), flush=True)
                    shutil.rmtree(copy, ignore_errors=True)
            _print_ratios([r for r in results if r.fault == fault])
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=2))
    return 0


def _line(result: Result) -> str:
    runs = "?" if result.runs is None else str(result.runs)
    below = "" if result.below is None else f" ({result.below} below the ladder)"
    times = f"{result.seconds:6.1f} s {result.cpu:6.1f} s CPU"
    return f"{result.fault:24} {result.tool:10} {runs + ' runs' + below:32} {times}  {result.names}"


def _print_ratios(results: list[Result]) -> None:
    """Ours over each of theirs, medians of the rounds; nothing of what was not finished, or gave no answer."""
    unfinished = {r.tool for r in results if not r.finished or r.names.startswith("failed")}
    median = lambda tool, what: statistics.median(getattr(r, what) for r in results if r.tool == tool)  # noqa: E731
    for tool in dict.fromkeys(r.tool for r in results if r.tool != "dynadiag"):
        if {tool, "dynadiag"} & unfinished:
            continue
        wall, cpu = (median("dynadiag", what) / median(tool, what) for what in ("seconds", "cpu"))
        print(f"  dynadiag / {tool}: {wall:.2f} of the wall time, {cpu:.2f} of the CPU time", flush=True)


_TINY = """
import torch

def f(x):
    return (x.sin() * 2).sum()

def tiny():
    return f, (torch.ones(64),)
"""


def compare_trials(args: argparse.Namespace) -> int:
    """A trial against what it stands for, in turn."""
    from dynadiag.bisection.bisector import HOOKS
    from dynadiag.trial.plan import Plan
    from dynadiag.trial.program import Program
    from dynadiag.trial.runner import Runner

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tiny.py")
        file.write_text(_TINY)
        with Runner(Program.parse(f"{file}:tiny"), HOOKS) as runner:
            refused = runner.start_forks(threads=len(os.sched_getaffinity(0)))
            if refused:
                print(f"no forks: {refused}")
                return 1
            inductor, aot = Plan("inductor", caches=False), Plan("aot_eager", caches=False)
            here = _compiled_here()
            ways: dict[str, Callable[[], object]] = {
                "Inductor, forked trial": lambda: runner.run(inductor),
                "Inductor, in process": here,
                "aot_eager, forked trial": lambda: runner.run(aot),
                "aot_eager, fresh interpreter": lambda: runner.run_fresh(aot),
            }
            _print_trials(_in_turn(ways, args.rounds))
    return 0


def _compiled_here() -> Callable[[], None]:
    """The same compile in this process, with no compiler cache but that of C++ code, as the trials have it."""
    import torch

    from dynadiag.torch_private.trial import bypass_caches, reset

    space: dict[str, Callable[[], tuple[Callable[..., object], tuple[object, ...]]]] = {}
    exec(_TINY, space)  # noqa: S102 - the text above
    bypass_caches()

    def once() -> None:
        reset()
        fn, arguments = space["tiny"]()
        torch.compile(fn)(*arguments)

    return once


def _in_turn(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if number:  # the first of each is warm-up
                times[name].append(time.perf_counter() - began)
    return times


def _print_trials(times: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:30} {medians[name]:6.2f} s  ({min(values):.2f} to {max(values):.2f})")
    forked, here, aot, fresh = medians.values()
    print(f"Inductor: a trial is {forked / here:.2f} of the compile; aot_eager: {aot / fresh:.3f} of an interpreter")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("faults", "trials"), default="faults")
    parser.add_argument("--only", help="faults whose name holds this")
    parser.add_argument("--run", action="store_true", help="CompilerBisector's `run_program` too: minutes a fault")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1800.0, metavar="S", help="seconds for one tool and one fault")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    return compare_trials(args) if args.what == "trials" else compare_faults(args)


if __name__ == "__main__":
    sys.exit(main())
