"""Import of large logs, against tlparse on the same file in the same run.

    python benchmarks/import_log.py [--sizes 40 400] [--repeat 3]

The log is made from real compiles (a GPT-2 with its loss and a BERT, forward and backward, several lengths, Inductor)
under TORCH_TRACE, once, and kept in the temporary folder; then it is repeated to size with the frames renumbered, so
that each copy is compiles of its own. Every figure is of a fresh process: wall seconds, and the peak of its memory.
Importing and tlparse take turns, so that a drifting machine treats both alike; the ratio is of the medians.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(tempfile.gettempdir()) / "dynadiag-import-log"
PROGRAM = """
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=4, n_embd=128, vocab_size=500, n_positions=64))
compiled = torch.compile(gpt2)
for length in (16, 24, 32):
    tokens = torch.randint(0, 500, (2, length))
    compiled(tokens, labels=tokens).loss.backward()
bert = BertModel(BertConfig(num_hidden_layers=3, hidden_size=128, num_attention_heads=4, intermediate_size=256))
compiled = torch.compile(bert)
for length in (16, 24):
    compiled(torch.randint(0, 500, (2, length))).last_hidden_state.sum().backward()
"""
_FRAME = re.compile(rb'"frame_id": (\d+)')
_HEADER = re.compile(rb"(?m)^[VIWEC]\d{4} .*$")


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process cost: wall seconds, and its largest resident set in MB."""

    seconds: float
    megabytes: float


def base_log() -> Path:
    """A log of real compiles, made on first use."""
    log = CACHE / "base.log"
    if not log.exists():
        print("compiling the models (once; a minute or two) ...", flush=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            environment = {"TORCH_TRACE": folder, "TORCHINDUCTOR_CACHE_DIR": f"{folder}/cache"}
            subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | environment, check=True)
            (written,) = Path(folder).glob("*.log")
            shutil.copy(written, log)
    return log


def log_of(megabytes: int, base: Path) -> Path:
    """A log of about this size: copies of `base`, each with frames of its own."""
    log = CACHE / f"{megabytes}.log"
    if not log.exists():
        data = base.read_bytes()
        copies = max(1, round(megabytes * 1e6 / len(data)))
        with log.open("wb") as file:
            for copy in range(copies):
                file.writelines(renumbered(data, 1000 * copy))
    return log


def renumbered(data: bytes, by: int) -> Iterator[bytes]:
    """The log with every frame's number raised."""
    end = 0
    for header in _HEADER.finditer(data):
        yield data[end : header.start()]
        yield _FRAME.sub(lambda found: b'"frame_id": %d' % (int(found[1]) + by), header[0])
        end = header.end()
    yield data[end:]


def cost(command: list[str]) -> Cost:
    """Run `command` and measure it."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return Cost(time.perf_counter() - begin, usage.ru_maxrss / 1024)


def compare(log: Path, repeat: int) -> tuple[list[Cost], list[Cost]]:
    """Import and tlparse in turn: the costs of each."""
    ours, theirs = [], []
    tlparse = shutil.which("tlparse", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if tlparse is None:
        raise SystemExit("tlparse is not installed: pip install 'dynadiag[bench]'")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeat):
            pages, recording = f"{folder}/pages", f"{folder}/run.dynadiag"
            theirs.append(cost([tlparse, str(log), "-o", pages, "--overwrite", "--no-browser"]))
            shutil.rmtree(pages)
            ours.append(cost([sys.executable, "-m", "dynadiag", "import", "--force", "-o", recording, str(log)]))
    return ours, theirs


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[40, 400], help="MB of log")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    base = base_log()
    print("|     MB | import s | peak MB | tlparse s | peak MB | tlparse / import |")
    print("|-------:|---------:|--------:|----------:|--------:|-----------------:|")
    for size in options.sizes:
        log = log_of(size, base)
        ours, theirs = compare(log, options.repeat)
        seconds, other = (statistics.median(run.seconds for run in runs) for runs in (ours, theirs))
        peak, their_peak = (max(run.megabytes for run in runs) for runs in (ours, theirs))
        megabytes = log.stat().st_size / 1e6
        print(f"| {megabytes:6.1f} | {seconds:8.2f} | {peak:7.0f} | {other:9.2f} | {their_peak:7.0f} ", end="")
        print(f"| {other / seconds:16.1f} |", flush=True)


if __name__ == "__main__":
    main()
