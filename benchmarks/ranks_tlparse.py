"""What differs between the ranks of a job: `dynadiag explain` and `tlparse --all-ranks-html`, in turn on the same logs.

    python benchmarks/ranks_tlparse.py PROGRAM... [--ranks 2] [--runs 3]

Each program runs once under torchrun, with TORCH_TRACE and under the recorder. Then tlparse and dynadiag read the logs
of TORCH_TRACE in turn, and dynadiag reads its own recordings, which also have the collectives outside of graphs.
Prints for each what it says, the least seconds, and the size of what it writes. The programs use gloo.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from pathlib import Path

_WARNING = re.compile(
    r"<strong>Warning:</strong>(.*?)</p>|(Ranks exhibit divergent[^<:]*|Ranks have different[^<]*)", re.S
)
_TAG = re.compile(r"<[^>]*>|\s+")
_JOB_SECONDS = 120.0  # a job that hangs is ended after these


@dataclass(frozen=True, slots=True)
class Reading:
    """What a tool says of a job, the least seconds it took, and the bytes and files of what it wrote."""

    says: str
    seconds: float
    size: int
    files: int

    def row(self, name: str) -> str:
        """The reading as a line."""
        written = f"{self.size / 1e3:.0f} kB in {self.files} files" if self.files > 1 else f"{self.size / 1e3:.0f} kB"
        return f"  {name:<24} {self.seconds:5.1f} s, {written}: {self.says}"


def main() -> None:
    """Run the programs and print what each tool says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", type=Path, metavar="PROGRAM")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    tlparse = shutil.which("tlparse", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if tlparse is None:
        parser.error("tlparse is not installed: pip install 'dynadiag[bench]'")
    for program in args.programs:
        with tempfile.TemporaryDirectory(prefix="dynadiag-ranks-") as name:
            folder = Path(name)
            run_job(program.resolve(), folder, args.ranks)
            readings: dict[str, list[Reading]] = {}
            for _ in range(args.runs):
                readings.setdefault("tlparse", []).append(with_tlparse(tlparse, folder))
                readings.setdefault("dynadiag, same logs", []).append(with_dynadiag(folder / "logs", folder))
                readings.setdefault("dynadiag, recordings", []).append(with_dynadiag(folder / "recordings", folder))
        print(program.name)
        for tool, found in readings.items():
            print(min(found, key=lambda each: each.seconds).row(tool), flush=True)


def run_job(program: Path, folder: Path, ranks: int) -> None:
    """Run a program under torchrun, traced and recorded."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), program]
    environment = {**os.environ, "TORCH_TRACE": str(folder / "logs"), "DYNADIAG_RECORD": str(folder / "recordings")}
    environment |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    with subprocess.Popen(
        command, cwd=program.parent, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as job:
        try:
            job.wait(_JOB_SECONDS)
        except subprocess.TimeoutExpired:
            job.terminate()


def with_tlparse(tlparse: str, folder: Path) -> Reading:
    """What tlparse's page for all ranks warns of."""
    pages = folder / "pages"
    seconds = timed([tlparse, folder / "logs", "--all-ranks-html", "-o", pages, "--overwrite", "--no-browser"])
    index = pages / "index.html"
    text = index.read_text() if index.exists() else ""
    warnings = [_TAG.sub(" ", unescape(one or two)).strip() for one, two in _WARNING.findall(text)]
    files = [path for path in pages.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return Reading(" / ".join(warnings) or ("no warning" if text else "no page"), seconds, size, len(files))


def with_dynadiag(job: Path, folder: Path) -> Reading:
    """The divergence that `explain` finds."""
    document = folder / "explain.json"
    document.unlink(missing_ok=True)
    seconds = timed([sys.executable, "-m", "dynadiag", "explain", "--json", document, job])
    if not document.exists():
        return Reading("no report", seconds, 0, 1)
    found = json.loads(document.read_bytes()).get("divergence")  # of one process there is none
    says = "no divergence"
    if found is not None:
        place = f"{Path(found['file'] or '?').name}:{found['line']}"
        says = f"{found['kind']}, rank {', '.join(map(str, found['ranks']))}, {place}: {found['text']}"
    return Reading(says, seconds, document.stat().st_size, 1)


def timed(command: Sequence[str | Path]) -> float:
    """The seconds of a command."""
    began = time.monotonic()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
