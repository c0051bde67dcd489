"""How much of the generated code leads to a user's line, and how much of the user's code leads to a kernel.

    python benchmarks/kernel_links.py [--keep FOLDER]

Records `fused_ops`, the training step of `vit_amp`, and a transformer block forward and backward, by C++ and, without a
GPU, by Inductor's Triton code generator, and counts on what is in the recording.

- *lines*: those of generated kernels that assign a value or store one, told from the text alone; *led*: that lead to a
  node, and on to a line of the user's. *sharp*: led to one node.
- *nodes*: of Dynamo's graphs, that compute; *reached*: from whose line a kernel or a library's call is reached.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.recording.opening import open_recording

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from tests.kernels.link_index import LinkIndex  # noqa: E402 - found by the line above

BLOCK = f"""
import sys

import torch

sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from block import Block

torch.manual_seed(0)
block = torch.compile(Block(64, 4))
block(torch.randn(2, 16, 64, requires_grad=True)).square().mean().backward()
"""
TRITON = """
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from dynadiag.torch_private.interpreter_patches import generate_triton_for_cpu

generate_triton_for_cpu()
CachingAutotuner.run = lambda self, *args, **kwargs: None  # generated, not run: there is nothing to run it on
CachingAutotuner.precompile = lambda self, *args, **kwargs: None
"""
_COMPUTING = re.compile(r"^\s*(?:auto )?\w*tmp\w*(?:, \w*tmp\w*)*,? = |\.store\(|\batomic_\w+[<(]|^\s*\w+_ptr\d+\[")


@dataclass(frozen=True, slots=True)
class Count:
    """What was counted in one recording."""

    kernels: int = 0
    lines: int = 0
    led: int = 0
    sharp: int = 0
    nodes: int = 0
    reached: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


def count(path: Path) -> Count:
    """Count one recording."""
    with open_recording(path) as recording:
        found = generated_modules(recording)
        indexes = [LinkIndex(unit) for unit in found]
    parts = [_count(unit, index) for unit, index in zip(found, indexes, strict=True)]
    return sum(parts, _reached(found, indexes))


def _count(unit: GeneratedModule, index: LinkIndex) -> Count:
    found = Count()
    for definition in unit.parsed.definitions.values():
        if not any(call.kernel == definition.name for call in unit.parsed.calls):
            continue
        found += Count(kernels=1)
        for number, line in enumerate(definition.source.splitlines(), definition.first_line):
            if _COMPUTING.search(line):
                led = bool(index.source_lines("module", number))
                sharp = led and len(index.nodes("module", number)) == 1
                found += Count(lines=1, led=led, sharp=sharp)
    return found


def _reached(found: tuple[GeneratedModule, ...], indexes: list[LinkIndex]) -> Count:
    """Dynamo's nodes, each once however many modules (forward and backward) were made of its graph."""
    computing: dict[tuple[str, str], bool] = {}
    for unit, index in zip(found, indexes, strict=True):
        for node in unit.dynamo.nodes.values():
            if node.computes and node.source_line:
                lines = index.module_lines("source", node.source_line.line, node.source_line.file)
                key = unit.compile_id, node.name
                computing[key] = computing.get(key, False) or bool(lines)
    return Count(nodes=len(computing), reached=sum(computing.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="a folder for the recordings; those that are there are not made anew")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{'program':16} {'kernels':>7} {'lines':>6} {'led':>13} {'sharp':>13} {'nodes':>6} {'reached':>13}")
        for name, command in _programs(folder):
            print(_row(name, count(_recorded(folder / f"{name}.dynadiag", command))), flush=True)


def _programs(folder: Path) -> list[tuple[str, list[str]]]:
    for name, text in (("block", BLOCK), ("block-triton", TRITON + BLOCK)):
        Path(folder, f"{name}.py").write_text(text)
    samples = ROOT / "samples"
    return [
        ("fused_ops", [str(samples / "fused_ops.py")]),
        ("block", [str(folder / "block.py")]),
        ("block-triton", [str(folder / "block-triton.py")]),
        ("vit_amp", [str(samples / "vit_amp.py"), "inductor"]),
    ]


def _recorded(recording: Path, command: list[str]) -> Path:
    if not recording.exists():
        dynadiag = [sys.executable, "-m", "dynadiag", "explain", "-o", str(recording), *command]
        off = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        done = subprocess.run(dynadiag, env=off, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return recording


def _row(name: str, found: Count) -> str:
    def share(part: int, whole: int) -> str:
        return f"{part} ({part / whole:.1%})" if whole else "-"

    return (
        f"{name:16} {found.kernels:7} {found.lines:6} {share(found.led, found.lines):>13} "
        f"{share(found.sharp, found.lines):>13} {found.nodes:6} {share(found.reached, found.nodes):>13}"
    )


if __name__ == "__main__":
    main()
