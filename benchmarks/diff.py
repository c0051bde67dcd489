"""What `dynadiag diff` costs on a large pair: two recordings of a 12-layer GPT-2 in training, forward and backward.

    python benchmarks/diff.py [--backend inductor] [--layers 12] [--runs 3] [--keep FOLDER]
    python benchmarks/diff.py --logs 40 400        # MB of log: import of two logs, and their diff

The program is recorded twice, the second time with one operator more in the loss, each with compiler caches of its own.
Then `dynadiag diff` compares the recordings in a process of its own, `--runs` times: the least wall-clock time, the CPU
time, and the peak of its memory. A first `diff` opens (folds) the recordings and is told by itself.

`--logs` makes two logs of each size from the logs of these recordings, repeated with the frames renumbered, so that
each copy is compiles of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from import_log import renumbered

_PROGRAM = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(n_layer={layers}, n_embd=64, n_head=4, n_positions=64, vocab_size=256)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


@torch.compile(backend="{backend}")
def loss_of(tokens):
    logits = model(tokens).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()){changed}


for _ in range(2):
    optimizer.zero_grad()
    loss_of(torch.randint(0, 256, (2, 32))).backward()
    optimizer.step()
"""


def record(folder: Path, name: str, changed: str, args: argparse.Namespace) -> Path:
    """Record the program; returns its recording."""
    program, recording = folder / f"{name}.py", folder / f"{name}.dynadiag"
    if not recording.exists():
        program.write_text(_PROGRAM.format(layers=args.layers, backend=args.backend, changed=changed))
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(folder / f"cache-{name}")}
        command = [sys.executable, "-m", "dynadiag", "record", "-o", recording, program]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return recording


def compare(recordings: list[Path]) -> tuple[float, float, float]:
    """The cost of one `diff`."""
    return cost("diff", "--json", os.devnull, *recordings)


def cost(*words: str | Path) -> tuple[float, float, float]:
    """Seconds of wall clock and of CPU of a command of ours, and the peak of its memory in MB."""
    command = [sys.executable, "-m", "dynadiag", *words]
    began = time.monotonic()
    with Path(os.devnull).open("w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
        _, status, usage = os.wait4(process.pid, 0)
    assert os.waitstatus_to_exitcode(status) in (0, 1), f"{words[0]} failed"
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def compare_logs(recordings: list[Path], megabytes: int, folder: Path) -> None:
    """Import two logs of this size, compare them, and print what each step costs."""
    made = []
    for recording in recordings:
        base, log = folder / "base.log", folder / f"{recording.stem}.log"
        subprocess.run([sys.executable, "-m", "dynadiag", "export", "--force", "-o", base, recording], check=True)
        data = base.read_bytes()
        with log.open("wb") as file:
            for copy in range(max(1, round(megabytes * 1e6 / len(data)))):
                file.writelines(renumbered(data, 1000 * copy))
        made.append(folder / f"{recording.stem}-{megabytes}.dynadiag")
        seconds, cpu, peak = cost("import", "--force", "-o", made[-1], log)
        size = log.stat().st_size / 1e6
        print(f"import of {size:.0f} MB: {seconds:.1f} s, CPU {cpu:.1f} s, {peak:.0f} MB", flush=True)
        log.unlink()
    seconds, cpu, peak = compare(made)
    print(f"diff of the two: {seconds:.1f} s, CPU {cpu:.1f} s, {peak:.0f} MB", flush=True)


def main() -> None:
    """Record, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="keep the recordings here, and use those that are there")
    parser.add_argument("--logs", type=int, nargs="+", metavar="MB", help="import and compare two logs of each size")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        recordings = [record(folder, name, changed, args) for name, changed in (("a", ""), ("b", " * 2"))]
        sizes = ", ".join(f"{path.stat().st_size / 1e6:.1f} MB" for path in recordings)
        print(f"GPT-2 of {args.layers} layers in training, {args.backend}: recordings of {sizes}")
        if args.logs:
            for megabytes in args.logs:
                compare_logs(recordings, megabytes, Path(scratch))
            return
        first, *more = [compare(recordings) for _ in range(args.runs + 1)]
        print(f"first diff: {first[0]:.1f} s, CPU {first[1]:.1f} s, {first[2]:.0f} MB")
        print(
            f"least of {args.runs}: {min(m[0] for m in more):.1f} s, CPU {min(m[1] for m in more):.1f} s, "
            f"{max(m[2] for m in more):.0f} MB"
        )


if __name__ == "__main__":
    main()
