"""Two runs with Triton kernels: what `dynadiag diff` says of their kernels, and what `tritonparse diff` says.

    python benchmarks/diff_tritonparse.py [PAIR...] [--show]

Needs the extra "bench". There is no GPU: Triton's interpreter runs the kernels while dynadiag records, and they are
compiled for an H100 while tritonparse traces. So both read kernels of the same source. The pairs: one program twice, an
activation exchanged, and one operator more in a loss. Asked for of both: is a pair that is the same told to be, which
kernels are said to differ, and what that costs (CPU time of the command, with tritonparse's parsing of its traces told
apart).
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PROGRAM = """
import torch

import dynadiag.trial.triton_interpreter as triton_interpreter

triton_interpreter.install()
torch.manual_seed(0)
layer = torch.nn.TransformerEncoderLayer(
    32, 2, 64, dropout=0.0, activation="{activation}", batch_first=True, norm_first=True
)


@torch.compile
def step(x):
    return layer(x).square().mean(){more}


step(torch.randn(2, 8, 32, requires_grad=True)).backward()
"""
_BASE = {"activation": "gelu", "more": ""}
PAIRS = {"same": {}, "activation": {"activation": "relu"}, "one more operator": {"more": ".log()"}}
# Compiles each Triton kernel of a recording for an H100, with tritonparse listening.
_COMPILE = """
import sys
from pathlib import Path

import tritonparse.structured_logging

tritonparse.structured_logging.init(sys.argv[2])
import dynadiag
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.stages import StageJob
from dynadiag.trial.compile_stages import main

import msgspec

with dynadiag.open(sys.argv[1]) as recording:
    calls = {(each.stage, each.name): each for each in kernel_calls(recording) if each.language == "triton"}
for place, call in enumerate(calls.values()):
    folder = Path(sys.argv[2], f"job{place}")
    folder.mkdir()
    job = StageJob("triton", call.name, call.definition.source, "sm_90")
    (folder / "job.json").write_bytes(msgspec.json.encode(job))
    main(folder / "job.json", folder / "result.json")
print(len(calls))
"""


def made(folder: Path, values: dict[str, str]) -> tuple[Path, Path, int]:
    """The recording of a program, tritonparse's traces of its kernels, and how many there are."""
    folder.mkdir(parents=True)
    program, recording, traces = folder / "program.py", folder / "run.dynadiag", folder / "traces"
    program.write_text(_PROGRAM.format(**{**_BASE, **values}))
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    words = ["-m", "dynadiag", "record", "-o", recording, program]
    subprocess.run([sys.executable, *words], env={**environment, "TRITON_INTERPRET": "1"}, check=True, **_QUIET)
    traces.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE, recording, traces],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return recording, traces, int(done.stdout.splitlines()[-1])


_QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


def timed(words: Sequence[object]) -> tuple[float, str, int]:
    """The CPU seconds of a command, what it prints, and how it ends."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", *map(str, words)], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stdout + done.stderr, done.returncode


def parsed(traces: Path) -> tuple[float, Path]:
    """The CPU seconds of tritonparse's own reading of its traces, and the file that it makes for `diff`."""
    out = traces.with_name("parsed")
    seconds, told, code = timed(["tritonparse", "parse", traces, "--out", out, "--overwrite"])
    files = sorted(out.rglob("*.ndjson*")) or sorted(out.rglob("*.gz"))
    if code or not files:
        raise SystemExit(f"tritonparse parse ended with {code}: {told[-600:]}")
    return seconds, max(files, key=lambda file: file.stat().st_size)


def main() -> None:
    """Record, trace, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", metavar="PAIR", help=f"of {', '.join(PAIRS)}; by itself: all")
    parser.add_argument("--show", action="store_true", help="print the whole output of both")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        base = made(Path(name, "base"), {})
        first = parsed(base[1])
        for pair in args.pairs or PAIRS:
            other = made(Path(name, pair.replace(" ", "_")), PAIRS[pair])
            second = parsed(other[1])
            ours = timed(["dynadiag", "diff", "--stage", "kernel", base[0], other[0]])
            words = ["--trace", "--no-share", "--no-url", "-o", Path(name, "diff.ndjson")]
            theirs = timed(["tritonparse", "diff", first[1], second[1], *words])
            print(f"{pair}: {base[2]} and {other[2]} Triton kernels")
            for tool, (seconds, text, code) in (("dynadiag", ours), ("tritonparse", theirs)):
                named = sorted(set(re.findall(r"triton_\w+", text)))
                said = f"{len(text.splitlines())} lines, names {len(named)} kernels"
                print(f"  {tool}: exit {code}, {said}, CPU {seconds:.1f} s")
                if args.show:
                    print(text)
            print(f"  tritonparse parse before that: CPU {first[0] + second[0]:.1f} s", flush=True)


if __name__ == "__main__":
    main()
