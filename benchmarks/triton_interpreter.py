"""Inductor's Triton kernels of two programs on a machine without a GPU: run by Triton's interpreter, compiled for one.

For each program: the results and gradients of its kernels as Triton's interpreter runs them, against eager; and for
each kernel how often it was launched, its PTX and its SASS for the target, with the registers that it takes there.

    python benchmarks/triton_interpreter.py                          # fused_ops and a transformer block
    python benchmarks/triton_interpreter.py fused_ops --target sm_80
    python benchmarks/triton_interpreter.py --json -

Exit code 1 where a result is off by more than the tolerance, or a kernel has no PTX or SASS.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
TOLERANCE = 1e-5  # of the largest value of each tensor: float32 sums in another order
STAGES = ("ptx", "sass")


def fused_ops() -> tuple[Callable[..., Any], list[Any]]:
    """The sample's function, on its input."""
    import torch

    sys.path.insert(0, str(SAMPLES))
    import fused_ops as sample

    torch.manual_seed(0)
    return sample.mix, [torch.randn(64, 64)]


def transformer_block() -> tuple[Callable[..., Any], list[Any]]:
    """A block of four heads with layer norms before attention and network, called with gradients."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return block, [torch.randn(4, 16, 64, requires_grad=True)]


PROGRAMS = {"fused_ops": fused_ops, "transformer_block": transformer_block}


def run(name: str, recording: Path) -> dict[str, Any]:
    """The program in this process, its kernels interpreted: how far its results are off, and what was launched."""
    import torch

    import dynadiag
    from dynadiag.torch_private import interpreter_patches
    from dynadiag.trial import triton_interpreter

    triton_interpreter.install()
    launches: list[str] = []
    interpreter_patches.watch_launches(launches.append)
    function, arguments = PROGRAMS[name]()
    expected = results(function, function, arguments)
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    with dynadiag.record(recording):
        began = time.perf_counter()
        actual = results(function, torch.compile(function), arguments)
        seconds = time.perf_counter() - began
    errors = {key: off(actual[key], value) for key, value in expected.items()}
    return {"errors": errors, "launches": dict(Counter(launches)), "seconds": seconds, "torch": torch.__version__}


def results(function: Any, called: Callable[..., Any], arguments: list[Any]) -> dict[str, Any]:
    """Its result, and where it can be differentiated the gradient of each argument and parameter."""
    import torch

    leaves = dict(function.named_parameters()) if isinstance(function, torch.nn.Module) else {}
    leaves |= {f"argument {i}": t for i, t in enumerate(arguments)}
    out = called(*arguments)
    found = {"result": out.detach().clone()}
    if out.requires_grad:
        names = [name for name, leaf in leaves.items() if leaf.requires_grad]
        gradients = torch.autograd.grad(out.square().sum(), [leaves[name] for name in names])
        found |= {f"gradient of {name}": g for name, g in zip(names, gradients, strict=True)}
    return found


def off(actual: Any, expected: Any) -> float:
    """The largest difference, in parts of the largest value."""
    return float((actual - expected).abs().max() / expected.abs().max())


def study(name: str, target: str, folder: Path) -> dict[str, Any]:
    """What `run` says, in a process of its own, and the stages of each of its kernels."""
    recording = folder / f"{name}.dynadiag"
    command = [sys.executable, __file__, "--run", name, "--recording", str(recording)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}: the process that interprets its kernels ended with {done.returncode}\n{done.stderr}")
    return {**json.loads(done.stdout.splitlines()[-1]), "kernels": kernels(recording, target)}


def kernels(recording: Path, target: str) -> list[dict[str, Any]]:
    """Each generated kernel of a recording once, with the lines of its stages for the target."""
    import dynadiag
    from dynadiag.kernels.read_modules import kernel_calls
    from dynadiag.kernels.stages import make_stages

    found = []
    with dynadiag.open(recording) as opened:
        calls = {(call.stage, call.name): call for call in kernel_calls(opened) if call.language == "triton"}
        for (graph, name), call in calls.items():
            stages = make_stages(opened, call, target, trusted=True)
            lines = {stage: len(stages.stages[stage].text.splitlines()) for stage in STAGES if stage in stages.stages}
            found.append({"name": name, "graph": graph, **lines, "registers": stages.properties.get("registers")})
    return found


def table(studied: dict[str, dict[str, Any]], target: str) -> str:
    """As Markdown."""
    lines = []
    for name, found in studied.items():
        worst = max(found["errors"], key=found["errors"].__getitem__)
        launched = sum(found["launches"].values())
        lines += [
            f"{name}, torch {found['torch']}: {launched} launches in Triton's interpreter; of {len(found['errors'])} "
            f"tensors the farthest from eager is the {worst}, by {found['errors'][worst]:.1e} of its largest value",
            "",
            f"| # | graph | launches | PTX lines | SASS lines | registers ({target}) |",
            "|---|---|---:|---:|---:|---:|",
        ]
        for number, kernel in enumerate(found["kernels"], 1):
            cells = (kernel.get("ptx", "none"), kernel.get("sass", "none"), kernel["registers"])
            count = found["launches"].get(kernel["name"], 0)
            lines.append(f"| {number} | {kernel['graph']} | {count} | {' | '.join(map(str, cells))} |")
        names = (f"{number}. `{kernel['name']}`" for number, kernel in enumerate(found["kernels"], 1))
        lines += ["", *names, ""]
    return "\n".join(lines)


def good(found: dict[str, Any]) -> bool:
    """Whether its results agree, and each kernel was launched and has every stage."""
    agree = all(error <= TOLERANCE for error in found["errors"].values())
    whole = all(set(STAGES) <= set(kernel) and kernel["name"] in found["launches"] for kernel in found["kernels"])
    return agree and whole and bool(found["kernels"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"some of {', '.join(PROGRAMS)}")
    parser.add_argument("--target", default="sm_90", help="the GPU that stages are made for (default sm_90)")
    parser.add_argument("--json", metavar="FILE", help="write what was found there, - for stdout")
    parser.add_argument("--run", choices=PROGRAMS, help=argparse.SUPPRESS)
    parser.add_argument("--recording", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.run:
        print(json.dumps(run(args.run, args.recording)))
        return 0
    with tempfile.TemporaryDirectory(prefix="dynadiag-triton-") as folder:
        studied = {name: study(name, args.target, Path(folder)) for name in args.programs or PROGRAMS}
    if args.json == "-":
        print(json.dumps(studied, indent=2))
    elif args.json:
        Path(args.json).write_text(json.dumps(studied, indent=2))
    if args.json != "-":
        print(table(studied, args.target))
    return 0 if all(good(found) for found in studied.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
