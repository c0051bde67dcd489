"""`dynadiag triage` on failing programs, and then each command that their issues tell a maintainer to run.

    python benchmarks/triage_cases.py PROGRAM... [--output FOLDER] [--budget 300] [--accuracy]

Each program gets a folder. The commands of its issue.md run as they stand, in the folder that the issue names, with
this environment first on the path. A command without compilation must pass, `dynadiag bisect` must find what is at
fault, and every other one must fail. Exits with 1 where a program has no verdict, no proved repro, or a command that
does otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
ENVIRONMENT = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
UNCOMPILED = re.compile(r"^TORCH\w+=\S+ python ")
HEAD = ("program", "code", "seconds", "rung", "at fault", "repro", "size", "report MB", "commands")
ROW = "{:<28} {:>4} {:>7} {:<10} {:<24} {:<10} {:>7} {:>9}  {}"


def commands_of(issue: str) -> list[str]:
    """The commands that the issue tells its reader to run."""
    return [
        line
        for block in re.findall(r"^```sh\n(.*?)^```$", issue, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]


def behaves(command: str, folder: Path, limit: float) -> str:
    """How a command of an issue ended: "as told", or what else it did."""
    try:
        done = subprocess.run(command, shell=True, cwd=folder, env=ENVIRONMENT, capture_output=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"did not end in {limit:.0f} s"
    passes = command.startswith("dynadiag ") or UNCOMPILED.match(command) is not None
    return "as told" if (done.returncode == 0) == passes else f"exit code {done.returncode}"


def triage(program: Path, folder: Path, options: argparse.Namespace) -> tuple[int, float]:
    """Run the command. Returns its exit code and its seconds."""
    accuracy = ["--accuracy"] * options.accuracy
    command = [BIN / "dynadiag", "triage", "-o", folder, "--force", "--budget", str(options.budget), *accuracy, program]
    began = time.monotonic()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, cwd=program.parent)
    (folder.with_suffix(".log")).write_text(done.stderr + done.stdout)
    return done.returncode, time.monotonic() - began


def measure(program: Path, folder: Path, options: argparse.Namespace) -> bool:
    """Triage a program, run the commands of its issue, and print the row. Returns whether all is as it must be."""
    code, seconds = triage(program, folder, options)
    document = json.loads((folder / "triage.json").read_bytes())
    bisect, minify = document["bisect"] or {}, document["minify"] or {}
    issue = (folder / "issue.md").read_text()
    where = folder if "In the folder of this issue" in issue else program.parent
    ended = {command: behaves(command, where, options.budget) for command in commands_of(issue)}
    wrong = [f"{command}: {how}" for command, how in ended.items() if how != "as told"]
    repro = "none" if not minify.get("repro") else "proved" if minify["proved"] else "not proved"
    culprits = [f"{each['class']} {each['name']}" for each in bisect.get("culprits", ())]
    size = minify.get("nodes_after") or minify.get("lines_after") or "-"
    row = (program.stem, code, f"{seconds:.0f}", bisect.get("rung") or "-", ", ".join(culprits)[:24], repro, size)
    page = folder / "report.html"
    megabytes = f"{page.stat().st_size / 1e6:.1f}" if page.exists() else "none"
    print(ROW.format(*row, megabytes, f"{len(ended) - len(wrong)} of {len(ended)}"), flush=True)
    print(*(f"    {each}" for each in wrong), sep="\n", end="\n" * bool(wrong), flush=True)
    return code == 0 and repro == "proved" and page.exists() and bool(ended) and not wrong


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, nargs="+", metavar="PROGRAM")
    parser.add_argument("--output", type=Path, help="keep the folders here")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds of each triage")
    parser.add_argument("--accuracy", action="store_true", help="as triage --accuracy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dynadiag-triage-") as name:
        base = options.output or Path(name)
        base.mkdir(exist_ok=True, parents=True)
        print(ROW.format(*HEAD))
        done = [measure(each.resolve(), base.resolve() / each.stem, options) for each in options.programs]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
