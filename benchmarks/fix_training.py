"""What `dynadiag fix` makes of a training script with six graph breaks and two recompiles (data/train_captioner.py).

    python benchmarks/fix_training.py [--backend inductor]

The patch is applied with `patch -p1` in a clean copy. Printed: the graphs before and after; whether both programs print
the same for 20 steps; the time of a step of each, as a ratio of runs in turn; trials and seconds of the search.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).with_name("data") / "train_captioner.py"
_RUNS = 3


def main() -> None:
    """Fix the script, apply the patch, compare both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="aot_eager")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        old, new = Path(scratch, "old"), Path(scratch, "new")
        for place in (old, new):
            place.mkdir()
            shutil.copy(SCRIPT, place)
        files = ["-o", "../fix.patch", "--json", "../fix.json", "--recording", "../fix.dynadiag"]
        command = [sys.executable, "-m", "dynadiag", "fix", *files, SCRIPT.name, "--backend", args.backend]
        subprocess.run(command, cwd=old, check=False)
        found = json.loads(Path(scratch, "fix.json").read_text())
        subprocess.run(["patch", "-p1", "-i", "../fix.patch"], cwd=new, check=True)
        same = _printed(old, args.backend) == _printed(new, args.backend)
        times = [[_step(place, args.backend) for place in (old, new)] for _ in range(_RUNS)]
    proved = [one["verdict"] for one in found["fixes"]]
    evidence = found["evidence"]
    print(f"{proved.count('proved')} of {len(proved)} causes, {found['trials']} trials, {found['seconds']:.0f} s")
    print(
        ", ".join(f"{name} {evidence[name][0]} -> {evidence[name][1]}" for name in ("breaks", "recompiles", "graphs"))
    )
    print(f"20 steps print {'the same' if same else 'something else'}")
    before, after = (min(each) for each in zip(*times, strict=True))
    print(f"a step: {before:.2f} -> {after:.2f} ms, {before / after:.2f} times as fast")


def _printed(folder: Path, backend: str, *more: str) -> str:
    command = [sys.executable, SCRIPT.name, "--backend", backend, *more]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def _step(folder: Path, backend: str) -> float:
    found = re.search(r"^a step ([\d.]+) ms", _printed(folder, backend, "--times"), re.M)
    assert found is not None
    return float(found[1])


if __name__ == "__main__":
    main()
