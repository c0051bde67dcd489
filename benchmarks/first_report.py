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

PROGRAMS = ("fused_ops", "vit_amp", "distillation_loss", "dynamic_shapes", "kfold_regression")
SAMPLES = Path(__file__).parent.parent / "samples"
COUNTS = ("graph_count", "break_count", "recompile_count")


def explain(program: str, *options: str) -> tuple[float, float, tuple[int, ...]]:
    """The seconds of one report, its CPU seconds, and what it counts."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["explain", "--fresh", "--json", f"{folder}/report.json", "-o", f"{folder}/run.dynadiag", *options]
        command = [str(Path(sys.executable).with_name("dynadiag")), *words, str(SAMPLES / f"{program}.py")]
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
