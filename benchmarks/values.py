"""What `dynadiag values` names of faults that are planted in the compiler, and what it costs.

    python benchmarks/values.py faults [--only TEXT]    30 faults: is the node that is wrong first named, and its line
    python benchmarks/values.py controls [--threads N]  10 sound programs of low precision: nothing may be accused
    python benchmarks/values.py pairs [--only TEXT]     20 differences of two runs: the node and its line
    python benchmarks/values.py devices [--device cpu]  3 programs on the CPU and on CUDA, sound and with a fault there
    python benchmarks/values.py cost                    GPT-2 of 12 layers: CPU time of a recorded call, and bytes

Each `--python OTHER` of `pairs` has another torch: one run of the pairs of releases is made in it. `devices --device
cpu` compares one thread with two, where there is no GPU.

Exit code: 0 if all faults and pairs are named, no control is accused, and the cost is within its limits.
"""

from __future__ import annotations

import argparse
import json
import linecache
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
LIMIT = 900  # seconds for one program
MAX_TIMES = 5.0  # the CPU time of the uncompiled call
MAX_BYTES = 2_000_000


def values_of(folder: Path, *program: str) -> dict[str, Any]:
    """The document of `dynadiag values` for a program."""
    document = folder / "values.json"
    command = [sys.executable, "-m", "dynadiag", "values", "--force", "-o", str(folder / "run.dynadiag")]
    done = subprocess.run(
        [*command, "--json", str(document), *program], cwd=HERE, capture_output=True, text=True, timeout=LIMIT
    )
    if not document.exists():
        raise SystemExit(f"{' '.join(program)}: {done.stderr}")
    return json.loads(document.read_text())


def faults(only: str) -> bool:
    """Plant each fault, and print what is named."""
    from value_faults import FAULTS

    named = lines = total = 0
    for name, fault in FAULTS.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = values_of(Path(folder), "value_models.py", fault.model, name)
        wrong = None if found["first_wrong"] is None else found["nodes"][found["first_wrong"]]
        text = "" if wrong is None else linecache.getline(wrong["file"] or "", wrong["line"] or 0).strip()
        is_line = wrong is not None and fault.text in text and bool(text)
        is_named = is_line and wrong is not None and wrong["graph"] == fault.graph
        total, named, lines = total + 1, named + is_named, lines + is_line
        told = (
            f"nothing, exit code {found['exit_code']}"
            if wrong is None
            else f"{wrong['graph']} {wrong['node']} ({found['kernel']}): {text}"
        )
        print(f"{'named' if is_named else 'MISSED':7} {name}: {told}", flush=True)
    print(f"\n{named} of {total} named, the line of {lines}")
    return named == total


_AUTOCAST = """n = Block(64)
def m(x):
    with torch.autocast('cpu', torch.bfloat16):
        return n(x)
args = (torch.randn(2, 16, 64),)"""
_UNET = "m = UNet().bfloat16(); args = (torch.randn(2, 3, 16, 16).bfloat16(), torch.tensor([.3, .7]).bfloat16())"
_NORM = "n = torch.nn.LayerNorm(128).half()\nm = lambda x: n(x * 40).softmax(-1)\nargs = (torch.randn(4, 128).half(),)"
_SUMS = "m = lambda x: (x.sum(-1), x.mean(), x.var(-1), x.cumsum(-1))\nargs = (torch.randn(16, 512).bfloat16(),)"
_DROPOUT = "m = lambda x: F.dropout((x * 8).round() / 8, 0.3).argmax(-1)\nargs = (torch.randn(16, 64).bfloat16(),)"
CONTROLS = {
    "bfloat16 block": "m = Block(64).bfloat16(); args = (torch.randn(2, 16, 64).bfloat16(),)",
    "float16 product": "m = torch.nn.Linear(256, 256).half(); args = (torch.randn(8, 256).half(),)",
    "autocast": _AUTOCAST,
    "bfloat16 ViT": "m = ViT().bfloat16(); args = (torch.randn(2, 3, 32, 32).bfloat16(),)",
    "bfloat16 UNet": _UNET,
    "bfloat16 Mamba": "m = Mamba().bfloat16(); args = (torch.randn(2, 16, 32).bfloat16(),)",
    "bfloat16 loop": "m = Loop().bfloat16(); args = (torch.randn(24, 48).bfloat16(),)",
    "float16 norm": _NORM,
    "bfloat16 reductions": _SUMS,
    "rounding and dropout": _DROPOUT,
}


def controls(threads: int | None) -> bool:
    """Run sound programs, and print what is accused. One without stored values in each of its graphs proves nothing."""
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    accused = failed = 0
    for name, source in CONTROLS.items():
        text = (
            "import torch, torch.nn.functional as F\nfrom value_models import *\ntorch.manual_seed(0)\n"
            f"{source}\nout = torch.compile(m)(*args)\n"
            "out = [each for each in (out if isinstance(out, tuple) else (out,)) if each.requires_grad]\n"
            "sum(each.float().sum() for each in out).backward() if out else None\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "program.py")
            program.write_text(f"import sys; sys.path.insert(0, {str(HERE)!r})\n{text}")
            found = values_of(Path(folder), str(program))
        wrong = None if found["first_wrong"] is None else found["nodes"][found["first_wrong"]]
        accused += wrong is not None
        stored = Counter(each["graph"] for each in found["nodes"] if each["stored"] is not None)
        is_whole = found["exit_code"] == 0 and set(stored) in ({"inference"}, {"forward", "backward"})
        failed += not is_whole
        told = "" if wrong is None else f", {wrong['graph']} {wrong['node']}, {wrong['op']}, {found['kernel']}"
        verdict = "ACCUSED" if wrong else "sound" if is_whole else "FAILED"
        counts = ", ".join(f"{number} {graph}" for graph, number in stored.items())
        print(
            f"{verdict:7} {name}: stored values of {len(found['nodes'])}: {counts}{told}", *found["notes"], flush=True
        )
    print(f"\n{accused} of {len(CONTROLS)} accused, {failed} without stored values of each graph")
    return not accused + failed


def record(
    folder: Path, name: str, python: str, *words: str, ranks: bool = False, threads: str | None = None
) -> list[Path]:
    """Record a run of `value_pairs.py` with its values. Returns its recordings, by rank.

    With ``threads`` it is a run of `devices`, where no code is generated: the nodes are compared, and a machine that
    has a GPU may take minutes to compile for its CPU.
    """
    made = folder / (f"{name}/" if ranks else f"{name}.dynadiag")
    program = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if ranks else []
    kind = ["record"] if threads is None else ["explain", "--no-codegen"]
    command = [python, "-m", "dynadiag", *kind, "--values", "-o", f"{made}/" if ranks else str(made)]
    command += ["-m", *program, "value_pairs.py", *words] if ranks else ["value_pairs.py", *words]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = threads
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr}")
    return sorted(made.glob("*-rank*.dynadiag")) if ranks else [made]


def difference(before: Path, after: Path) -> tuple[bool, list[dict[str, Any]]]:
    """Whether `dynadiag diff` calls two recordings the same, and what differs in their values."""
    command = [sys.executable, "-m", "dynadiag", "diff", "--json", "-", str(before), str(after)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, timeout=LIMIT)
    found = json.loads(done.stdout)
    return found["same"] and done.returncode == 0, [each for each in found["differences"] if each["stage"] == "values"]


def pairs(only: str, others: list[str]) -> bool:
    """Record two runs that differ in one thing, and print the node that `dynadiag diff` names."""
    from value_pairs import PAIRS

    named = total = 0
    recorded: dict[tuple[str, ...], Path] = {}
    options = {"seeds": ("dropout",), "dtypes": ("bfloat16",)}
    with tempfile.TemporaryDirectory() as made:
        for number, pair in enumerate(PAIRS):
            if only not in f"{pair.kind} {pair.model} {pair.change}":
                continue
            folder = Path(made)
            words = pair.model, pair.change, *options.get(pair.kind, ())
            if pair.kind == "ranks":
                before, after = record(folder, str(number), sys.executable, *words, ranks=True)
            else:
                python = others[number % len(others)] if others and pair.kind == "releases" else sys.executable
                plain = pair.model, "", *(("dropout",) if pair.kind == "seeds" else ())
                if plain not in recorded:
                    recorded[plain] = record(folder, "-".join(plain), sys.executable, *plain)[0]
                before, after = recorded[plain], record(folder, str(number), python, *words)[0]
            _, found = difference(before, after)
            told = next((each for each in found if each["text"].count("random numbers") == 0), None)
            line = "" if told is None else linecache.getline(told["file"], told["line"]).strip()
            is_seed_first = bool(found) and "random numbers" in found[0]["text"]
            is_named = pair.text in line and is_seed_first == (pair.kind == "seeds")
            total, named = total + 1, named + is_named
            name = f"{pair.kind}: {pair.model}, {pair.change}"
            text = "nothing" if told is None else f"{told['text']}: {line}"
            print(f"{'named' if is_named else 'MISSED':7} {name}: {text}", flush=True)
        again = [record(Path(made), f"again{number}", sys.executable, "gpt2", "")[0] for number in range(2)]
        is_same, _ = difference(*again)
    print(f"\n{named} of {total} named; the same run twice: {'same' if is_same else 'DIFFERENT'}")
    return named == total and is_same


def devices(device: str, only: str) -> bool:
    """Compare runs on the CPU with sound and faulty ones on another device, and print what `dynadiag diff` names."""
    from value_pairs import DEVICES

    good = []
    for pair in DEVICES:
        if only not in pair.model:
            continue
        with tempfile.TemporaryDirectory() as made:
            folder, words = Path(made), ("cuda",) if device == "cuda" else ()
            before = record(folder, "before", sys.executable, pair.model, "", threads="1")[0]
            for change in ("", pair.change):
                after = record(folder, f"after{change}", sys.executable, pair.model, change, *words, threads="2")[0]
                _, found = difference(before, after)
                told = [(each["text"], linecache.getline(each["file"] or "", each["line"] or 0)) for each in found]
                beyond = [(text, line) for text, line in told if "rounding" not in text]
                good.append(bool(beyond and pair.text in beyond[0][1]) if change else not beyond)
                verdict = "MISSED" if not good[-1] else "named" if change else "same"
                shown = "; ".join(f"{text}: {line.strip()}" for text, line in told[:2]) or "nothing"
                print(f"{verdict:7} {pair.model}, {change or 'sound'}: {shown}", flush=True)
    print(f"\n{sum(good)} of {len(good)} as they must be")
    return all(good)


_COST = """
import os, torch
from value_models import GPT2
torch.manual_seed(0)
m, x = GPT2({width}, 12, {words}, {length}), torch.randint(0, {words}, ({batch}, {length}))

def used(call, times):  # the CPU time of a call, with that of the processes that it waits for
    before = os.times()
    for _ in range(times):
        call(x)
    return sum(after - one for after, one in zip(os.times()[:4], before)) / times

with torch.no_grad():
    compiled = torch.compile(m)
    m(x), compiled(x)
    for _ in range(3):  # in turn
        print(used(m, 5), used(compiled, 1))
"""
_SIZES = (  # the first is ours, the second that of GPT-2
    {"width": 128, "words": 512, "batch": 4, "length": 128},
    {"width": 768, "words": 50257, "batch": 2, "length": 256},
)


def cost() -> bool:
    """Measure recorded calls of GPT-2 of 12 layers against uncompiled calls, on one thread, and print the bytes."""
    good = [_cost(size) for size in _SIZES]  # both are printed
    return all(good)


def _cost(size: dict[str, int]) -> bool:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE}:{HERE.parent}"}
    command = [sys.executable, "-m", "dynadiag", "record", "--force"]
    grown, done = list[int](), None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "program.py")
        file.write_text(_COST.format(**size))
        for options in ((), ("--values", "--calls", "1..3")):
            recording = Path(folder, f"run{len(options)}.dynadiag")
            whole = [*command, *options, "-o", str(recording), str(file)]
            done = subprocess.run(whole, env=environment, capture_output=True, text=True)
            grown.append(recording.stat().st_size)
    assert done is not None
    turns = [tuple(map(float, line.split())) for line in done.stdout.splitlines() if line.count(" ") == 1]
    times, size_of_call = median(values / own for own, values in turns), (grown[1] - grown[0]) / len(turns)
    own, values = turns[-1]
    print(f"width {size['width']}: {own:.3f} s uncompiled, {values:.2f} s with values: {times:.1f} times", end="; ")
    print(f"{size_of_call / 1e6:.2f} MB for a call", flush=True)
    return times <= MAX_TIMES and size_of_call <= MAX_BYTES


def main() -> None:
    """Run one of the five."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("faults", "controls", "pairs", "devices", "cost"))
    parser.add_argument("--only", default="", help="faults or pairs whose name contains this")
    parser.add_argument("--python", action="append", default=[], help="a Python with another torch, for `pairs`")
    parser.add_argument("--device", default="cuda", help="of the other run of `devices`")
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the controls")
    args = parser.parse_args()
    began = time.perf_counter()
    run = {
        "faults": lambda: faults(args.only),
        "controls": lambda: controls(args.threads),
        "pairs": lambda: pairs(args.only, args.python),
        "devices": lambda: devices(args.device, args.only),
        "cost": cost,
    }
    good = run[args.what]()
    print(f"{time.perf_counter() - began:.0f} s")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
