"""How long `dynadiag --help` takes against `python -c pass`, in turn, and that it loads no torch.

    python benchmarks/startup.py [--runs N]

The ratio is of medians: a single run is mostly the noise of the machine. At most 8 is asked for.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "dynadiag --help": [str(Path(sys.executable).with_name("dynadiag")), "--help"],
    "dynadiag explain --help": [str(Path(sys.executable).with_name("dynadiag")), "explain", "--help"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each (default 20)")
    runs = parser.parse_args().runs
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, command in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            taken[name].append(time.perf_counter() - begin)
    base = statistics.median(taken["python -c pass"])
    for name, seconds in taken.items():
        middle = statistics.median(seconds)
        print(
            f"{name:<24} median {middle * 1000:6.0f} ms, least {min(seconds) * 1000:6.0f} ms: {middle / base:.1f} times"
        )


if __name__ == "__main__":
    main()
