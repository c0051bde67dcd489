"""Times whole commands against one failing run of the program, in turn with another checkout.

    python benchmarks/whole_commands.py PROGRAM... [--against FOLDER] [--commands bisect minify fix] [--rounds 1]

A ratio is the time of the command divided by that of `python PROGRAM` just before it: seconds on the clock, and CPU
seconds of all its processes, also of those that their parents did not wait for. On a machine that others use the clock
says little; the CPU seconds say what was done, and so does the number of trials.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_FILES = {"minify": ["-o", "repro.py"], "fix": ["--overlay", "overlay.py"]}  # what a command writes beside its document
HERE = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command: seconds on the clock and of CPU, how it ended, and the trials of its document."""

    seconds: float
    cpu: float
    code: int
    trials: int | None = None


def timed(words: list[str], checkout: Path, state: Path) -> Run:
    """Run a command with the packages of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "XDG_STATE_HOME": str(state)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(words, env=environment, cwd=state, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    seconds = time.monotonic() - began
    with suppress(ChildProcessError):  # a server's forks count once somebody has waited for them
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    document = state / "out.json"
    trials = json.loads(document.read_text())["trials"] if document.exists() else None
    return Run(seconds, cpu, done.returncode, trials)


def measured(program: str, command: str, checkout: Path) -> tuple[Run, Run]:
    """One failing run of the program, and then the command on it."""
    with tempfile.TemporaryDirectory(prefix="whole-commands-") as folder:
        plain = timed([sys.executable, program], checkout, Path(folder))
        output = ["--json", "out.json", *_FILES.get(command, [])]
        return plain, timed([sys.executable, "-m", "dynadiag", command, *output, program], checkout, Path(folder))


def main() -> None:
    """Print a row for each program and command, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--commands", nargs="+", default=["bisect", "minify"], choices=["bisect", "minify", "fix"])
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    checkouts = {"here": HERE} | ({"there": args.against} if args.against else {})
    heads = [f"{name}: clock | {name}: CPU | {name}: trials | {name}: exit" for name in checkouts]
    print(f"| program | command | one run | {' | '.join(heads)} |\n|{' --- |' * (3 + 4 * len(checkouts))}")
    ratios: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for program in map(os.path.abspath, args.programs):
        for command in args.commands:
            runs: dict[str, list[tuple[Run, Run]]] = {name: [] for name in checkouts}
            for _ in range(args.rounds):
                for name, checkout in checkouts.items():
                    runs[name].append(measured(program, command, checkout))
            cells = []
            for name, pairs in runs.items():
                clock = statistics.median(whole.seconds / plain.seconds for plain, whole in pairs)
                cpu = statistics.median(whole.cpu / plain.cpu for plain, whole in pairs)
                ratios.setdefault((command, name), []).append((clock, cpu))
                cells.append(f"{clock:.1f} | {cpu:.1f} | {pairs[-1][1].trials} | {pairs[-1][1].code}")
            one = statistics.median(plain.seconds for pairs in runs.values() for plain, _ in pairs)
            print(f"| {Path(program).name} | {command} | {one:.1f} s | {' | '.join(cells)} |", flush=True)
    for (command, name), found in ratios.items():
        clock, cpu = (statistics.median(values) for values in zip(*found, strict=True))
        print(f"{command}, {name}: median {clock:.1f} of the clock, {cpu:.1f} of the CPU")


if __name__ == "__main__":
    main()
