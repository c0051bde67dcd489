"""Whether a kernel's source, compiled here without a GPU, becomes what an H200 was seen to run, stage by stage.

    python benchmarks/gpu_stages.py
    python benchmarks/gpu_stages.py --collect FILE RECORDING ...     # on what a GPU recorded

The sources, configurations and stages of `data/h200-stages.json.zst` are of `kernel_times.py`'s two programs. Each
source is compiled as `dynadiag kernels --stage` compiles it: for sm_90, in the first configuration that autotuning
tries. Stages are compared as text, without lines that name files, and PTX without its ``.version``, which follows the
assembler that Triton finds. The versions of torch and Triton have to be those of the recordings.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import zstandard

import dynadiag
from dynadiag.errors import DynadiagError
from dynadiag.kernels.isolated_job import run_isolated
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.stages import CompiledStages, StageJob
from dynadiag.kernels.triton_artifacts import read_stages

DATA = Path(__file__).resolve().parent / "data" / "h200-stages.json.zst"
STAGES = ("ttir", "ttgir", "ptx")
_LEFT_OUT = (".file", ".version", "//")


def collect(output: Path, recordings: list[str]) -> None:
    """Write the kernels of recordings that were made on a GPU."""
    kernels: dict[str, Any] = {}
    for path in recordings:
        with dynadiag.open(path) as recording:
            for call in kernel_calls(recording):
                if call.artifact and call.definition and call.language == "triton":
                    stages = {name: plain(stage.text) for name, stage in read_stages(recording, call.artifact).items()}
                    kernels[call.name] = {
                        "source": call.definition.source,
                        "configuration": dict(call.artifact.configuration),
                        "stages": {name: stages[name] for name in STAGES},
                    }
            torch = recording.run.torch
    packed = zstandard.ZstdCompressor(level=19).compress(json.dumps({"torch": torch, "kernels": kernels}).encode())
    output.write_bytes(packed)


def plain(text: str) -> str:
    """A stage without what says where it was made."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(_LEFT_OUT))


def compared(name: str, kernel: dict[str, Any]) -> list[str]:
    """A row: the kernel, whether the configuration is the same, whether each stage is."""
    job = StageJob("triton", name, kernel["source"], "sm_90")
    try:
        made = run_isolated("dynadiag.trial.compile_stages", job, CompiledStages, name)
    except DynadiagError as error:
        return [name, str(error), *("" for _ in STAGES)]
    first = dict(part.split(": ") for part in str(made.properties["configuration"]).split(", "))
    same = all(first.get(key) == value for key, value in kernel["configuration"].items())
    stages = [plain(made.stages[stage].text) == kernel["stages"][stage] for stage in STAGES]
    return [name, *("same" if one else "other" for one in (same, *stages))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", type=Path, metavar="FILE", help="write what recordings made on a GPU have")
    parser.add_argument("recordings", nargs="*", metavar="RECORDING")
    given = parser.parse_args()
    if given.collect:
        collect(given.collect, given.recordings)
        return
    data = json.loads(zstandard.ZstdDecompressor().decompress(DATA.read_bytes()))
    here = metadata.version("torch")
    if here.partition("+")[0] != data["torch"].partition("+")[0]:
        sys.exit(f"the H200's kernels are of torch {data['torch']}, and this is {here}: no comparison")
    rows = [compared(name, kernel) for name, kernel in data["kernels"].items()]
    print("| kernel | configuration | TTIR | TTGIR | PTX |\n|---|---|---|---|---|")
    for row in rows:
        print(f"| `{row[0]}` | " + " | ".join(row[1:]) + " |")
    configured = [row for row in rows if row[1] == "same"]
    equal = sum(row[2:] == ["same"] * len(STAGES) for row in configured)
    print(f"\n{len(configured)} of {len(rows)} in the chosen configuration, {equal} of them the same in all stages")


if __name__ == "__main__":
    main()
