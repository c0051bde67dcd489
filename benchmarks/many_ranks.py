"""A job of many ranks: is the one that differs found, in which time and memory, and how large is the packed job?

    python benchmarks/many_ranks.py [--ranks 1024] [--noise]

One program is recorded with two ranks. Every further rank is one of these recordings with a rank, a process id and
times of its own; in one rank the value of a guard is another. With --noise the job also has ranks that were restarted,
ranks without a recording, and ranks whose recording is cut short. `explain --json` reads the folder, then the packed
job. Exit code 1 if the rank is not found, or if it takes more than 60 s or 2 GB (the goals for 1,024 ranks).
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

from dynadiag.recording.fold import fold
from dynadiag.recording.import_export import export_log
from dynadiag.recording.opening import fold_in_place

PROGRAM = """
import os
import torch
import torch.distributed as dist

class Block(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.linear(x)) * self.scale

dist.init_process_group("gloo")
model = torch.compile(torch.nn.Sequential(*(Block(7.0) for _ in range(4))), backend="aot_eager")
loss = model(torch.ones(4, 16)).sum()
loss.backward()
dist.all_reduce(loss.detach())
dist.destroy_process_group()
"""
ODD = 700  # the rank whose guard differs
MAX_SECONDS = 60
MAX_BYTES = 2 << 30
_TIME = re.compile(rb"^(V\d{4} \d\d:\d\d:\d\d\.)\d{6}", re.MULTILINE)


def main() -> int:
    """Run the benchmark and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024, help="how many ranks (default: 1024)")
    parser.add_argument("--noise", action="store_true", help="restarted, missing and truncated ranks")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dynadiag-ranks-") as name:
        folder = Path(name)
        odd = min(ODD, args.ranks - 2)
        job = make_job(folder, args.ranks, odd, noise=args.noise)
        ok = measure("folder", job, odd)
        packed = folder / "job.dynadiag"
        seconds, peak = run("pack", "-o", str(packed), str(job))
        whole = sum(path.stat().st_size for path in job.iterdir())
        print(f"pack: {seconds:.1f} s, {peak >> 20} MB; {whole >> 10} kB become {packed.stat().st_size >> 10} kB")
        return 0 if measure("packed", packed, odd) and ok else 1


def make_job(folder: Path, ranks: int, odd: int, *, noise: bool) -> Path:
    """Record two ranks, and write the recordings of all."""
    (folder / "train.py").write_text(PROGRAM)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29411"]
    real = folder / "real"
    subprocess.run(
        [*torchrun, str(folder / "train.py")], env={**os.environ, "DYNADIAG_RECORD": str(real)}, check=True,
        capture_output=True,
    )  # fmt: skip
    logs = []
    for path in sorted(real.glob("*rank*.dynadiag")):
        fold_in_place(path)
        export_log(path, path.with_suffix(".log"))
        logs.append(path.with_suffix(".log").read_bytes())
    job = folder / "job"
    job.mkdir()
    for rank in range(ranks):
        write_rank(job, logs[rank % len(logs)], rank, ranks, odd=rank == odd)
        if noise and rank % 100 == 3:
            write_rank(job, logs[rank % len(logs)], rank, ranks, odd=False, restart=1)
        elif noise and rank % 100 == 4:
            (job / f"a-rank{rank}.dynadiag").unlink()
        elif noise and rank % 100 == 5:
            path = job / f"a-rank{rank}.dynadiag"
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return job


def write_rank(job: Path, log: bytes, rank: int, ranks: int, *, odd: bool, restart: int = 0) -> None:
    """Write the recording of one rank."""
    text = re.sub(rb'"rank": ?[01]\b', b'"rank": %d' % rank, log)
    text = re.sub(rb'"world_size": ?2\b', b'"world_size": %d' % ranks, text)
    text = re.sub(rb'"size": ?2, "rank"', b'"size": %d, "rank"' % ranks, text)
    text = re.sub(rb'"restart": ?0\b', b'"restart": %d' % restart, text)
    text = re.sub(rb'"pid": ?\d+', b'"pid": %d' % ((1 << 22) + rank + restart * ranks), text)
    text = _TIME.sub(lambda found: found[1] + b"%06d" % (rank * 7 % 1_000_000), text)
    if odd:
        if b"== 7.0" not in text:
            raise SystemExit("the recording has no guard `== 7.0`: nothing to vary")
        text = text.replace(b"== 7.0", b"== 9.0")
    source = job / "rank.log"
    source.write_bytes(text)
    again = f"-restart{restart}" if restart else ""
    fold(source, job / f"a-rank{rank}{again}.dynadiag")
    source.unlink()


def measure(what: str, job: Path, odd: int) -> bool:
    """Explain a job and print what was found, in which time and memory."""
    document = job.parent / f"{what}.json"
    seconds, peak = run("explain", "--json", str(document), str(job))
    found = json.loads(document.read_bytes())["divergence"]
    right = found is not None and found["ranks"] == [odd]
    print(f"{what}: {seconds:.1f} s, {peak >> 20} MB; {found['text'] if found else 'no divergence'}")
    return right and seconds <= MAX_SECONDS and peak <= MAX_BYTES


def run(*words: str) -> tuple[float, int]:
    """Run dynadiag and return the seconds it took and the largest memory of its process in bytes."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "dynadiag", *words], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"dynadiag {words[0]} ended with {process.returncode}")
    return time.perf_counter() - began, usage.ru_maxrss * 1024


if __name__ == "__main__":
    sys.exit(main())
