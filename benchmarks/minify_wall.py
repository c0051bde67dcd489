"""Wall time of `dynadiag minify` against torch's own minifier, isolated, on one bad relu in a transformer.

    python benchmarks/minify_wall.py            # ten minutes or so, nearly all of them torch's
    python benchmarks/minify_wall.py --layers 1 --limit 3600

Both try each candidate in a process of its own, so that a crash is an answer. Torch's is a program that it writes
(``minifier_launcher.py``, with TORCHDYNAMO_REPRO_AFTER=aot) and that is then run: that run is timed. Of ours two
times are told: the reduction, from the caught graph to the reduced text, which is what torch's run does too; and the
whole command, which finds the rung before it and proves the repro behind it in a fresh process. Each runs with a
cache folder of its own, in turn, in one run. Torch's is given 21 times as long as our reduction took, or ``--limit``
seconds; where it is not done by then, the ratio is a lower bound, and said to be one. Exits with 1 below 20 times.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROGRAM = """
import torch
import torch._inductor.config
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
model = torch.nn.TransformerEncoder(layer, LAYERS).train()
torch.compile(model)(torch.randn(2, 10, 32))
"""
_WANTED, _ENOUGH = 20.0, 21.0  # times as long as ours: what is to be shown, and when it is
_BEGIN, _END = "the failing graph has", ": text uncompiled"


@dataclass(frozen=True)
class Run:
    code: int | None  # None: cut short
    seconds: float
    lines: tuple[tuple[float, str], ...]  # what was printed, each line with when


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=float, help="seconds for torch's minifier")
    parser.add_argument("--layers", type=int, default=12, help="of the transformer")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "train.py")
        program.write_text(PROGRAM.replace("LAYERS", str(options.layers)))
        mine, document = ours(program)
        times = [seconds for seconds, line in mine.lines if _BEGIN in line or _END in line]
        reduction = times[-1] - times[0]
        sizes = f"{document['nodes_before']} -> {document['nodes_after']} operations"
        print(f"dynadiag minify: {mine.seconds:.0f} s, of which the reduction {reduction:.1f} s")
        print(f"  {sizes}, {document['trials']} trials, proved: {document['proved']}", flush=True)
        other = theirs(program, options.limit or _ENOUGH * reduction)
    ratio, whole = other.seconds / reduction, other.seconds / mine.seconds
    more = "" if other.code is not None else "more than "
    print(f"torch's minifier, isolated: {more}{other.seconds:.0f} s")
    print(f"{more}{ratio:.1f} times as long as the reduction, {more}{whole:.1f} times as long as the whole command")
    return 0 if ratio >= _WANTED else 1


def ours(program: Path) -> tuple[Run, dict[str, object]]:
    folder = program.parent
    words = ["-o", folder / "repro.py", "--recording", folder / "m.dynadiag", "--json", folder / "m.json"]
    run = timed([sys.executable, "-m", "dynadiag", "minify", *map(str, words), str(program)], folder, {}, 1200)
    return run, json.loads((folder / "m.json").read_text())


def theirs(program: Path, limit: float) -> Run:
    """The time of the launcher that torch writes when the program fails."""
    folder = program.parent
    debug = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": "2", "TORCH_COMPILE_DEBUG_DIR": str(folder)}
    timed([sys.executable, str(program)], folder, debug, 300)
    launchers = sorted(folder.rglob("minifier_launcher.py"))
    if not launchers:
        raise SystemExit("torch wrote no minifier_launcher.py")
    return timed([sys.executable, str(launchers[-1])], folder, {"TORCH_COMPILE_DEBUG_DIR": str(folder)}, limit)


def timed(command: list[str], folder: Path, environment: dict[str, str], limit: float) -> Run:
    with tempfile.TemporaryDirectory() as caches:
        began = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, **environment, "TORCHINDUCTOR_CACHE_DIR": caches},
        )
        signal.signal(signal.SIGALRM, lambda *_: os.killpg(process.pid, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, limit)
        assert process.stdout is not None
        lines = tuple((time.monotonic(), line) for line in process.stdout)
        code = process.wait()
        signal.setitimer(signal.ITIMER_REAL, 0)
        seconds = time.monotonic() - began
    return Run(None if code == -signal.SIGKILL else code, seconds, lines)


if __name__ == "__main__":
    raise SystemExit(main())
