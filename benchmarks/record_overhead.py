"""What recording costs: one program bare, under TORCH_TRACE, and under the recorder, in turn, with cold caches.

    python benchmarks/record_overhead.py [--runs N] [--program NAME] [--device cuda]
    python benchmarks/record_overhead.py --instructions [--program NAME] [--tree FOLDER]
    python benchmarks/record_overhead.py --python-calls [--program NAME] [--tree FOLDER]
    python benchmarks/record_overhead.py --caches [--instructions] [--program NAME]

The figure is the CPU time (user + system) of the program's own Python process, compilers that it starts left out, from
after `import torch` to the end of its first calls. Ratios are of the least of N runs: noise only adds. "recompiles" has
300 of them.

On a machine that others use too the least of many runs still moves by more than the figure. `--instructions` counts
those that the process executes in its first calls, with valgrind: that stays the same whatever else runs. (Kernels are
compiled for x86-64-v3 there: valgrind knows no AVX-512.) "kernels" is the least that Inductor compiles, forward and
backward, so what it costs to collect kernels and where they come from weighs most there.

`--caches` measures the probes that record what torch's caches were asked: their share of the CPU time of the first
calls, which takes seconds, or with `--instructions` their share of the instructions, in one run under callgrind that
counts those of the probes apart from all others.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAMS = {
    "transformer": """
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        model = torch.compile(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device))
        calls = [(torch.randn(n, 16, 64, device=device),) for n in (2, 3)]
    """,
    "kernels": """
        def mix(x, w):
            return (x.relu() + x.sigmoid()) @ w
        model = torch.compile(mix)
        calls = [(torch.randn(8, 16, requires_grad=True, device=device), torch.randn(16, 4, device=device))]
    """,
    "breaks": """
        def step(x, k):
            x = torch.relu(x)
            print(end="")
            return (x * k).sum().item() + k
        model = torch.compile(step, backend="aot_eager")
        calls = [(torch.randn(n, 8, requires_grad=True, device=device), k) for n in (2, 3, 4) for k in (1, 2, 3)]
    """,
    "recompiles": """
        torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 16
        def made(number):
            scope = {}
            exec(f"def scale{number}(x, name):\\n    return (x * len(name)).relu() + 1", scope)
            return torch.compile(scope[f"scale{number}"], backend="eager")
        functions = [made(number) for number in range(30)]
        def model(number, name):
            return functions[number](torch.ones(4, requires_grad=True, device=device), name)
        calls = [(number, f"name {n}") for number in range(30) for n in range(11)]
    """,
}
HARNESS = """
import os, resource, sys, torch
device, until = sys.argv[1:]
torch.zeros(1, device=device)
torch.manual_seed(0)
def spent():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
{program}
if until == "first calls":
    os._exit(0)
start = spent()
{before_calls}
for call in calls:
    out = model(*call)
    if torch.is_tensor(out):
        out.sum().backward()
first = spent() - start
if until == "warm calls":
    os._exit(0)
start = spent()
for _ in range(200):
    out = model(*calls[-1])
print(first, spent() - start)
"""
KINDS = ("bare", "TORCH_TRACE", "recorder")
TIME_PROBES = """
import atexit, time, torch
from dynadiag.capture import recorder
within = []
def timed(probe):
    def run(*words):
        began = time.thread_time()
        try:
            return probe(*words)
        finally:
            within.append(time.thread_time() - began)
    return run
for kind, probe in list(recorder._PROBES.items()):
    if probe in (recorder._probe_aot_lookup, recorder._probe_metrics):
        recorder._PROBES[kind] = timed(probe)
atexit.register(lambda: print(len(within), sum(within)))
"""
# Divides the instructions of the first calls into those of the probes and all others.
COUNT_PROBES = """
import ctypes, os, torch
from dynadiag.capture import recorder
counter = ctypes.CDLL(os.environ["COUNTER"])
def counted(probe):
    def run(*words):
        counter.ended(b"program")
        try:
            return probe(*words)
        finally:
            counter.ended(b"probes")
    return run
for kind, probe in list(recorder._PROBES.items()):
    if probe in (recorder._probe_aot_lookup, recorder._probe_metrics):
        recorder._PROBES[kind] = counted(probe)
"""
COUNT_CALLS = """
import sys
made = {"dynadiag": 0, "all": 0}
def count(frame, event, argument):
    if "call" in event:
        made["all"] += 1
        made["dynadiag"] += frame.f_globals.get("__name__", "").startswith("dynadiag")
def spent():
    sys.setprofile(count)
    return made["all"]
start = spent()
"""
COUNTER = """
#include <valgrind/callgrind.h>
void begin(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void ended(const char *part) { CALLGRIND_DUMP_STATS_AT(part); }
"""
_VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
_CALLGRIND = ("valgrind", "--tool=callgrind", "--instr-atstart=no", "--combine-dumps=no")


def execute(
    kind: str, program: Path, device: str, until: str, under: Sequence[str] = (), counter: str = ""
) -> tuple[str, str]:
    """What the program prints on stdout and stderr, with cold caches."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "COUNTER": counter,
        }
        if kind == "TORCH_TRACE":
            environment["TORCH_TRACE"] = f"{folder}/trace"
        elif kind != "bare":
            environment["DYNADIAG_RECORD"] = f"{folder}/record"
        if kind not in KINDS:
            environment["PYTHONPATH"] = kind
        if under:
            environment["CXX"] = str(compiler(Path(folder)))
        command = [*under, sys.executable, program, device, until]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def compiler(folder: Path) -> Path:
    """A C++ compiler whose code valgrind can run."""
    path = folder / "c++"
    path.write_text('#!/bin/sh\nexec g++ "$@" -march=x86-64-v3\n')
    path.chmod(0o755)
    return path


def run(kind: str, program: Path, device: str) -> tuple[float, float]:
    """CPU seconds of the first calls, and of 200 warm ones."""
    first, warm = map(float, execute(kind, program, device, "the end")[0].split())
    return first, warm


def instructions(kind: str, program: Path, until: str) -> int:
    """How many the program's process executes until its first calls, or until its warm calls."""
    under = ["env", "PYTHONHASHSEED=0", "OMP_NUM_THREADS=1", *_VALGRIND]
    told = execute(kind, program, "cpu", until, under)[1]
    found = re.findall(r"I +refs: +([\d,]+)", told)
    if not found:
        raise SystemExit(f"valgrind gave no count: {told[-500:]}")
    return int(found[-1].replace(",", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="runs of each kind (default 5)")
    parser.add_argument("--program", choices=PROGRAMS, action="append", help="by itself: all")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--instructions", action="store_true", help="count them, on the CPU: minutes a program")
    parser.add_argument("--python-calls", action="store_true", help="count calls of functions, on the CPU")
    parser.add_argument("--tree", action="append", default=[], help="another checkout, whose recorder is counted too")
    parser.add_argument("--caches", action="store_true", help="measure the probes of caches")
    args = parser.parse_args()
    if args.instructions and shutil.which("valgrind") is None:
        parser.error("--instructions needs valgrind, which is not installed")
    kinds = (*KINDS, *map(os.path.abspath, args.tree))
    for name in args.program or PROGRAMS:
        if args.python_calls:
            count_calls(name, kinds)
        elif args.instructions and args.caches:
            count_probes(name)
        elif args.instructions:
            count(name, kinds)
        elif args.caches:
            measure_probes(name, args.runs, args.device)
        else:
            measure(name, args.runs, args.device)


def written(name: str, folder: str, before: str = "", before_calls: str = "") -> Path:
    """The program as a file, with code that comes first, and before its first calls."""
    program = Path(folder, f"{name}{'_changed' * bool(before)}.py")
    lines = [line.removeprefix("        ") for line in PROGRAMS[name].strip("\n").splitlines()]
    program.write_text(before + HARNESS.format(program="\n".join(lines), before_calls=before_calls))
    return program


def count(name: str, kinds: Sequence[str]) -> None:
    """Side by side, since it makes no difference to the counts."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        program = written(name, folder)
        tasks = [(kind, until) for kind in kinds for until in ("first calls", "warm calls")]
        counts = list(pool.map(lambda task: instructions(task[0], program, task[1]), tasks))
    first = [after - before for before, after in zip(counts[::2], counts[1::2], strict=True)]
    print(f"{name}: instructions of the first calls, in millions")
    for kind, executed in zip(kinds, first, strict=True):
        print(f"{kind:<24} {executed / 1e6:>12,.0f} {executed / first[0] - 1:>8.2%}")


def count_calls(name: str, kinds: Sequence[str]) -> None:
    """Print the calls of functions in the main thread, those that the recorder makes among them."""
    print(f"{name}: calls of functions in the first calls, and in 200 warm ones")
    with tempfile.TemporaryDirectory() as folder:
        program = written(name, folder, before_calls=COUNT_CALLS)
        program.write_text(f"{program.read_text()}sys.setprofile(None)\nprint(made['dynadiag'])\n")
        for kind in kinds:
            counts, own = execute(kind, program, "cpu", "the end", ("env", "PYTHONHASHSEED=0"))[0].splitlines()
            first, warm = map(int, counts.split())
            print(f"{kind:<24} {first:>12,} {warm:>12,}, {int(own):,} of them by dynadiag", flush=True)


def count_probes(name: str) -> None:
    """Print the share of the probes of caches in the instructions of the first calls under the recorder."""
    with tempfile.TemporaryDirectory() as folder:
        library, counts = Path(folder, "counter.so"), Path(folder, "counts")
        command = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library]
        subprocess.run(command, input=COUNTER, text=True, check=True)
        program = written(name, folder, COUNT_PROBES, "counter.begin()")
        under = ("env", "PYTHONHASHSEED=0", "OMP_NUM_THREADS=1", *_CALLGRIND, f"--callgrind-out-file={counts}")
        execute("recorder", program, "cpu", "warm calls", under, str(library))
        parts = {"program": 0, "probes": 0}
        for dump in Path(folder).glob("counts*"):
            text = dump.read_text()
            part = re.search(r"^desc: Trigger: Client Request: (\w+)", text, re.M)
            parts[part[1] if part else "program"] += int(re.findall(r"^(?:totals|summary): (\d+)", text, re.M)[-1])
    whole = sum(parts.values())
    print(
        f"{name}: {parts['probes'] / whole:.2%} of {whole / 1e6:,.0f} million instructions are of the probes of caches"
    )


def measure_probes(name: str, runs: int, device: str) -> None:
    """Print the share of the probes of caches in the CPU time of the first calls."""
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        program = written(name, folder, TIME_PROBES)
        for _ in range(runs):
            calls, probes = execute("recorder", program, device, "the end")[0].splitlines()
            number, within = probes.split()
            shares.append(float(within) / float(calls.split()[0]))
    shown = ", ".join(f"{share:.2%}" for share in shares)
    print(f"{name}: the {number} probes of caches take {shown} of the CPU time of the first calls")


def measure(name: str, runs: int, device: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = written(name, folder)
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for _ in range(runs):
            for kind in KINDS:
                found[kind].append(run(kind, program, device))
    print(f"{name} on {device}, {runs} runs of each in turn; CPU seconds of the Python process")
    print(
        f"{'':<12} {'first calls':>12} {'median':>8} {'against bare':>13} {'200 warm calls':>15} {'against bare':>13}"
    )
    bare = [min(column) for column in zip(*found["bare"], strict=True)]
    for kind in KINDS:
        first, warm = ([one[i] for one in found[kind]] for i in (0, 1))
        print(
            f"{kind:<12} {min(first):>12.3f} {statistics.median(first):>8.3f} {min(first) / bare[0] - 1:>12.1%} "
            f"{min(warm):>15.4f} {min(warm) / bare[1] - 1:>12.1%}"
        )


if __name__ == "__main__":
    main()
