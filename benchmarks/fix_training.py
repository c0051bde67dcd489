"""What `dynadiag fix` makes of a training script, and how long a step takes before and after.

    python benchmarks/fix_training.py [--backend inductor]                # six graph breaks and two recompiles
    python benchmarks/fix_training.py train_mixture.py --backend inductor # 8 experts, of which each token takes 2

The scripts are in `data/`. The patch is applied with `patch -p1` in a clean copy. Printed: the graphs before and after;
whether both programs print the same numbers, to a part in a thousand; the time of a step of each, as a ratio of runs in
turn; trials and seconds of the search.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from math import isclose
from pathlib import Path

DATA = Path(__file__).with_name("data")
_RUNS = 3


def main() -> None:
    """Fix the script, apply the patch, compare both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", nargs="?", default="train_captioner.py")
    parser.add_argument("--backend", default="aot_eager")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        old, new = Path(scratch, "old"), Path(scratch, "new")
        for place in (old, new):
            place.mkdir()
            shutil.copy(DATA / args.script, place)
        files = ["-o", "../fix.patch", "--json", "../fix.json", "--recording", "../fix.dynadiag"]
        command = [sys.executable, "-m", "dynadiag", "fix", *files, args.script, "--backend", args.backend]
        subprocess.run(command, cwd=old, check=False)
        found = json.loads(Path(scratch, "fix.json").read_text())
        if not Path(scratch, "fix.patch").exists():
            sys.exit("no change was proved")
        subprocess.run(["patch", "-p1", "-i", "../fix.patch"], cwd=new, check=True)
        same = _same(*(_printed(place / args.script, args.backend) for place in (old, new)))
        times = [[_step(place / args.script, args.backend) for place in (old, new)] for _ in range(_RUNS)]
    proved = [one["verdict"] for one in found["fixes"]]
    evidence = found["evidence"]
    print(f"{proved.count('proved')} of {len(proved)} causes, {found['trials']} trials, {found['seconds']:.0f} s")
    print(
        ", ".join(f"{name} {evidence[name][0]} -> {evidence[name][1]}" for name in ("breaks", "recompiles", "graphs"))
    )
    print(f"the steps print {'the same' if same else 'something else'}")
    before, after = (min(each) for each in zip(*times, strict=True))
    print(f"a step: {before:.2f} -> {after:.2f} ms, {before / after:.2f} times as fast")


def _printed(script: Path, backend: str, *more: str) -> str:
    command = [sys.executable, script.name, "--backend", backend, *more]
    return subprocess.run(command, cwd=script.parent, check=True, capture_output=True, text=True).stdout


def _same(*texts: str) -> bool:
    old, new = ([float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", text)] for text in texts)
    return len(old) == len(new) and all(isclose(*pair, rel_tol=1e-3) for pair in zip(old, new, strict=True))


def _step(script: Path, backend: str) -> float:
    found = re.search(r"^a step ([\d.]+) ms", _printed(script, backend, "--times"), re.M)
    assert found is not None
    return float(found[1])


if __name__ == "__main__":
    main()
