"""What `dynadiag fix` proves in a folder of programs: for each cause the change, or the reason why there is none.

    python benchmarks/fix.py FOLDER_OR_FILE... [--markdown]

Each program is copied to a scratch folder and fixed there by the command, one after the other. A line for each cause:
program, cause, verdict, change or reason; then seconds, and the share of causes with a proved change. With --markdown
the lines are a table as in docs/fix.md.
"""

from __future__ import annotations

import _paths  # noqa: F401 - for what it does to sys.path

# isort: split

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Cause:
    """One cause in one program. ``verdict`` is the command's, or what ended the program."""

    program: str
    cause: str
    verdict: str
    text: str
    seconds: float


def causes_of(program: Path) -> Iterator[Cause]:
    """Run the command on a copy of the program."""
    with tempfile.TemporaryDirectory() as scratch:
        copy, document = Path(scratch, program.name), Path(scratch, "fix.json")
        shutil.copy(program, copy)
        command = [sys.executable, "-m", "dynadiag", "fix", "--json", str(document), "--recording", f"{scratch}/r"]
        ended = subprocess.run([*command, str(copy)], cwd=scratch, capture_output=True, text=True)
        if not document.exists():
            yield Cause(program.stem, "", "failed", ended.stderr[-100:], 0.0)
            return
        found = json.loads(document.read_text())
    first = {4: "fails uncompiled", 3: "nothing to fix"}.get(ended.returncode)
    if first is not None:
        yield Cause(program.stem, "", first, "", found["seconds"])
    for entry in found["fixes"]:
        yield _cause(program, entry, found["seconds"])


def _cause(program: Path, entry: dict[str, Any], seconds: float) -> Cause:
    problem = entry["for"]
    what = problem["gb_id"] or problem["kind"]
    text = entry["title"]
    if entry["verdict"] == "rejected":
        text = "; ".join(f"{one['title']}: {one['why']}" for one in entry["rejected"])
    elif entry["verdict"] == "none":
        text = f"{entry['why']}: {entry['title']}"
    return Cause(program.stem, f"{what} line {problem['line']}", entry["verdict"], " ".join(text.split()), seconds)


def _programs(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        yield from sorted(place.glob("*.py")) if place.is_dir() else [place]


def main() -> None:
    """Fix every program, print each cause and the share that is proved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs="+", type=Path)
    parser.add_argument("--markdown", action="store_true")
    args = parser.parse_args()
    found: list[Cause] = []
    for program in _programs(args.places):
        for one in causes_of(program):
            found.append(one)
            cells = (one.program, one.cause, one.verdict, one.text.replace("|", "\\|"))
            print(f"| {' | '.join(cells)} |" if args.markdown else "  ".join(cells), flush=True)
    real = [one for one in found if one.cause]
    proved = sum(one.verdict == "proved" for one in real)
    seconds = {one.program: one.seconds for one in found}
    worst = max(seconds.values(), default=0.0)
    print(f"{proved} of {len(real)} causes have a proved change; {len(seconds)} programs, {worst:.0f} s at most")


if __name__ == "__main__":
    main()
