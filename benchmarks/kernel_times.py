"""Every Triton kernel of two programs on a GPU: stages, registers, spills, and time beside the profiler's.

    python benchmarks/kernel_times.py [--write docs/kernels-gpu.md] [--keep FOLDER]

Records `samples/fused_ops.py` and a transformer block in bfloat16, forward and backward, has their kernels timed by
`dynadiag kernels --measure`, and runs the same programs once more under torch.profiler by themselves. Kernels are told
by name; where one is called several times in a step, the sum is compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STEPS = 50
STAGES = ("ttir", "ttgir", "llir", "ptx", "sass")
FUSED = """
import sys
sys.path.insert(0, {samples!r})
import torch
from fused_ops import mix

compiled, x = torch.compile(mix), torch.randn(8192, 8192, device="cuda")


def step():
    compiled(x)
"""
BLOCK = f"""
import sys

import torch

sys.path.insert(0, {str(ROOT / "benchmarks")!r})
from block import Block

torch.manual_seed(0)
block = torch.compile(Block().to("cuda", torch.bfloat16))
x = torch.randn(8, 1024, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def step():
    block(x).float().square().mean().backward()
"""
RUN = """

for _ in range(3):
    step()
torch.cuda.synchronize()
"""
PROFILE = f"""
import collections, json
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    for _ in range({STEPS}):
        step()
    torch.cuda.synchronize()
found = collections.defaultdict(float)
for event in profile.events():
    if event.device_type == torch.autograd.DeviceType.CUDA:
        found[event.name] += event.device_time * 1e-6 / {STEPS}
print(json.dumps({{"seconds": found, "occupancy": driver_occupancy()}}))
"""
# The driver's occupancy of each compiled kernel, launched by Triton or by torch, for each loaded configuration (told
# apart by its registers).
DRIVER = """
import ctypes, gc


def driver_occupancy():
    driver, found = ctypes.CDLL("libcuda.so.1"), collections.defaultdict(list)
    most = torch.cuda.get_device_properties(0).max_threads_per_multi_processor // 32
    kinds = "StaticallyLaunchedCudaKernel", "CompiledKernel"
    for kernel in [o for o in gc.get_objects() if type(o).__name__ in kinds]:
        said = getattr(kernel, "metadata", kernel)
        blocks, function = ctypes.c_int(), getattr(kernel, "function", None)
        if function is None:
            continue
        sizes = 32 * said.num_warps, ctypes.c_size_t(said.shared)
        call = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        if call(ctypes.byref(blocks), ctypes.c_void_p(function), *sizes) == 0:
            found[said.name].append((blocks.value * said.num_warps / most, kernel.n_regs))
    return found
"""


def programs() -> dict[str, str]:
    return {"fused_ops": FUSED.format(samples=str(ROOT / "samples")), "block": BLOCK}


def study(name: str, text: str, folder: Path) -> dict[str, Any]:
    """The kernels of a program with what is known of each, and the profiler's seconds a step by kernel."""
    program, recording = folder / f"{name}.py", folder / f"{name}.dynadiag"
    program.write_text(text + RUN)
    _dynadiag("explain", "--force", "-o", str(recording), str(program))
    listed = json.loads(_dynadiag("kernels", "--measure", "--trust", "--json", "-", str(recording)))
    names = dict.fromkeys(one["name"] for one in listed["kernels"] if one["language"] == "triton")
    stages = {
        kernel: json.loads(_dynadiag("kernels", "--stage", "ptx", "--trust", "--json", "-", str(recording), kernel))[
            "stages"
        ]
        for kernel in names
    }
    profiled = folder / f"{name}_profiled.py"
    profiled.write_text(text + DRIVER + RUN + PROFILE)
    done = subprocess.run([sys.executable, str(profiled)], check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{profiled} ended with {done.returncode}\n{done.stderr}")
    profile = json.loads(done.stdout.splitlines()[-1])
    return {**listed, "stages": stages, "profiler": profile["seconds"], "driver": profile["occupancy"]}


def _dynadiag(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "dynadiag", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"dynadiag {' '.join(words)} ended with {done.returncode}\n{done.stderr}")
    return done.stdout


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each Triton kernel, all its calls together."""
    made: dict[str, dict[str, Any]] = {}
    for one in found["kernels"]:
        if one["language"] != "triton":
            continue
        row = made.setdefault(one["name"], {**one, "calls": 0, "total": 0.0})
        row["calls"] += 1
        row["total"] += one["seconds"] or 0.0
    for name, row in made.items():
        row["profiler"] = found["profiler"].get(name)
        row["stages"] = [stage for stage in STAGES if found["stages"][name].get(stage, {}).get("text")]
    return sorted(made.values(), key=lambda row: -row["total"])


def table(name: str, found: dict[str, Any]) -> str:
    """As Markdown."""
    peaks = found["measured"]
    products = ", ".join(f"{dtype} {most / 1e12:.0f}" for dtype, most in peaks["flops_per_second"].items() if most)
    lines = [
        f"## {name}",
        "",
        f"{peaks['device']}, torch {peaks['torch']}. Peak bandwidth: {peaks['bytes_per_second'] / 1e12:.2f} TB/s.",
        f"Peak operations, in 10^12 a second: {products}.",
        "",
        "| # | calls | stages | registers | spills | shared | occupancy | time | profiler's | ratio | of peak |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(rows(found), 1):
        other, share = row["profiler"], row["peak_share"]
        cells = [
            number, row["calls"], " ".join(row["stages"]), row["registers"], row["spills"],
            row["shared_memory"], "?" if row["occupancy"] is None else f"{row['occupancy']:.0%}",
            f"{row['total'] * 1e6:.2f} µs", "?" if other is None else f"{other * 1e6:.2f} µs",
            "?" if not other else f"{row['total'] / other:.3f}",
            "?" if share is None or row["calls"] > 1 else f"{share:.0%} of {row['bound']}",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    lines += ["", *(f"{number}. `{row['name']}`" for number, row in enumerate(rows(found), 1))]
    ratios = [row["total"] / row["profiler"] for row in rows(found) if row["profiler"]]
    within = sum(0.9 <= ratio <= 1.1 for ratio in ratios)
    lines += ["", f"{within} of {len(ratios)} within 10% of the profiler's time.", _compared_to_driver(found)]
    return "\n".join(lines)


def _compared_to_driver(found: dict[str, Any]) -> str:
    """Compares the recorded occupancy to the driver's, for kernels that both runs compiled to the same registers."""
    pairs = []
    for row in rows(found):
        shares = {share for share, registers in found["driver"].get(row["name"], ()) if registers == row["registers"]}
        if row["occupancy"] is not None and len(shares) == 1:
            pairs.append((row["occupancy"], shares.pop()))
    same = sum(abs(ours - drivers) < 1e-6 for ours, drivers in pairs)
    return f"Occupancy equal to the CUDA driver's for {same} of {len(pairs)} kernels with the same registers."


HEAD = """# Triton kernels on a GPU

Made by `python benchmarks/kernel_times.py --write docs/kernels-gpu.md`. Stages, registers, spills and shared memory are
those of the binary that the recorded run used. The time is that of one step, all calls of the kernel together, as
`dynadiag kernels --measure` reports it: the generated module alone, on random inputs, with a cold cache. The profiler's
time is that of the whole program. Both use the configurations that autotuning chose in the recorded run: `--measure`
reads them from the recording, the profiled run from Inductor's cache.

The names of the kernels are listed below each table, in the order of its rows.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep programs and recordings there")
    args = parser.parse_args()
    import torch  # after --help

    if not torch.cuda.is_available():
        sys.exit("the kernels are timed on a GPU, and torch has none here")
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        parts = [table(name, study(name, text, folder)) for name, text in programs().items()]
    page = "\n".join([HEAD, "\n\n".join(parts)]) + "\n"
    if args.write:
        args.write.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
