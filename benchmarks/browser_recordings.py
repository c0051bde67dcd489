"""Makes the recordings on which the browser is judged: programs of every kind, whole, running and damaged.

Each is made by the command line that a user would type. Recordings that are there already are kept.

    python benchmarks/browser_recordings.py FOLDER [NAME...]       # all of them, or some
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from browser_programs import (
    COMPARED,
    DDP_AND_ANOTHER,
    DETECTION,
    EIGHT_RANKS,
    FAILS_IN_AOT,
    FAILS_IN_CPP,
    FAILS_IN_DYNAMO,
    FAILS_IN_FAKE_TENSORS,
    FAILS_IN_LOWERING,
    FAILS_WHEN_CALLED,
    GPT2,
    NAN_IN_THE_LOSS,
    OVERFLOWS,
    SLOW,
    THIRTY_BREAKS,
    THREE_FILES,
    TRANSFORMER,
    TWELVE_RECOMPILES,
    TWO_INPUTS,
    TWO_LAYERS,
    WRONG,
)

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"


def _run(*words: str | Path, folder: Path) -> None:
    """Run a command of dynadiag. The programs may fail: that is what some are for.

    Graphs come from no cache: what torch knows of one while it lowers it would be missing.
    """
    command = [sys.executable, "-m", "dynadiag", *map(str, words)]
    fresh = {**os.environ, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    ran = subprocess.run(command, cwd=folder, env=fresh, capture_output=True, text=True, timeout=900, check=False)
    if ran.returncode == 2:
        raise SystemExit(f"{' '.join(command)}: {ran.stderr}")


def _program(folder: Path, name: str, text: str) -> Path:
    """Write a program. Its name is none of a module: `bisect.py` would stand for the standard library's."""
    path = folder / "programs" / f"run_{name}.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.lstrip())
    return path


def _explained(text: str, *options: str) -> Callable[[Path, str], None]:
    def make(folder: Path, name: str) -> None:
        _run("record", *options, "-o", folder / f"{name}.dynadiag", _program(folder, name, text), folder=folder)

    return make


def _three_files(folder: Path, name: str) -> None:
    target, *_ = [_program(folder, file, text) for file, text in THREE_FILES.items()]
    for own in list(THREE_FILES)[1:]:
        (folder / "programs" / f"run_{own}.py").replace(folder / "programs" / f"{own}.py")
    _run("record", "-o", folder / f"{name}.dynadiag", target, folder=folder)


def _searched(command: str, text: str, *options: str) -> Callable[[Path, str], None]:
    def make(folder: Path, name: str) -> None:
        target = _program(folder, name, text)
        made = folder / f"{name}.dynadiag"
        repro = folder / "programs" / f"{name}_repro.py"
        output = ["-o", repro, "--recording", made] if command == "minify" else ["-o", made]
        _run(command, *output, *options, target, folder=folder)

    return make


def _samples(folder: Path, name: str) -> None:
    for sample in sorted(SAMPLES.glob("*.py")):
        made = folder / f"{name}-{sample.stem}.dynadiag"
        if not made.exists():
            _run("record", "-o", made, sample, folder=folder)


def _compared(folder: Path, name: str) -> None:
    target = _program(folder, name, COMPARED)
    _run("compare", "-o", folder / name, f"{target}:step_and_input", folder=folder)


def _ranks(folder: Path, name: str) -> None:
    job = folder / name
    job.mkdir()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=8", "--standalone"]
    _run("record", "-o", f"{job}/", "--", *torchrun, _program(folder, name, EIGHT_RANKS), folder=folder)


def _two_inputs(folder: Path, name: str) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone"]
    target = _program(folder, name, TWO_INPUTS)
    _run("record", "--values", "-o", f"{folder / name}/", "--", *torchrun, target, folder=folder)


def _being_written(folder: Path, name: str) -> None:
    """The journal of a program in the middle. It names process 1, which never ends, as the one that writes it."""
    target = _program(folder, name, SLOW)
    journal = folder / f"{name}.dynadiag"
    command = [sys.executable, "-m", "dynadiag", "record", "-o", str(journal), str(target)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        limit = time.monotonic() + 120
        while time.monotonic() < limit and not (journal.exists() and journal.stat().st_size > 100_000):
            time.sleep(0.2)
        text = journal.read_bytes()
        process.terminate()
    journal.unlink(missing_ok=True)
    (folder / f"{name}.log").write_bytes(re.sub(rb'("dynadiag_run":.*?"pid": ?)\d+', rb"\g<1>1", text, count=1))


def _damaged(folder: Path, name: str) -> None:
    """A recording of which half of the pages in the middle are lost."""
    whole = folder / "transformer.dynadiag"
    if not whole.exists():
        RECORDINGS["transformer"](folder, "transformer")
    data = bytearray(whole.read_bytes())
    for start in range(len(data) // 3 // 4096 * 4096, 2 * len(data) // 3, 8192):
        data[start : start + 4096] = bytes(4096)
    (folder / f"{name}.dynadiag").write_bytes(data)


RECORDINGS: dict[str, Callable[[Path, str], None]] = {
    "transformer": _explained(TRANSFORMER),
    "gpu": _explained(TRANSFORMER, "--target", "h100"),
    "thirty_breaks": _explained(THIRTY_BREAKS),
    "twelve_recompiles": _explained(TWELVE_RECOMPILES),
    "fails_in_dynamo": _explained(FAILS_IN_DYNAMO),
    "fails_in_fake_tensors": _explained(FAILS_IN_FAKE_TENSORS),
    "fails_in_aot": _explained(FAILS_IN_AOT),
    "fails_in_lowering": _explained(FAILS_IN_LOWERING),
    "fails_in_cpp": _explained(FAILS_IN_CPP),
    "fails_when_called": _explained(FAILS_WHEN_CALLED),
    "gpt2": _explained(GPT2),
    "two_layers": _explained(TWO_LAYERS),
    "three_files": _three_files,
    "detection": _explained(DETECTION),
    "ddp": _explained(DDP_AND_ANOTHER),
    "values_nan": _explained(NAN_IN_THE_LOSS.replace("RATE", "0.1"), "--values", "--calls", "0..3"),
    "values_rate": _explained(NAN_IN_THE_LOSS.replace("RATE", "0.2"), "--values", "--calls", "0..3"),
    "values_half": _explained(OVERFLOWS, "--values"),
    "values_wrong": _explained(WRONG, "--values"),
    "values_ranks": _two_inputs,
    "bisect": _searched("bisect", WRONG),
    "minify": _searched("minify", WRONG, "--accuracy"),
    "compare": _compared,
    "ranks": _ranks,
    "being_written": _being_written,
    "damaged": _damaged,
    "sample": _samples,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=" ".join(RECORDINGS))
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    folder = args.folder.resolve()
    for name in args.names or RECORDINGS:
        made = [folder / f"{name}.dynadiag", folder / f"{name}.log", folder / name]
        if not any(path.exists() for path in made):
            RECORDINGS[name](folder, name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
