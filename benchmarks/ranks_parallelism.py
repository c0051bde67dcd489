"""Recorded jobs of every kind of parallelism: undisturbed, one report each, and no divergence where ranks are alike?

    python benchmarks/ranks_parallelism.py [--backend gloo|nccl] [--ranks 2 4] [-- WAY...]

The ways are DDP, FSDP2, tensor parallel (`parallelize_module`), and compiled autograd with DDP. Each trains three steps
under torchrun, bare and then under `dynadiag record`. Each rank prints the bits of its losses and of its weights. Exit
code 1 if the recorded job prints or returns something else, if a rank is missing from the report, if nothing was
compiled, or if ranks that do the same are not told as alike.

NCCL needs a GPU for each rank; gloo runs on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PROGRAM = """
import os, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

WAY, BACKEND = sys.argv[1:]
KIND = "cuda" if BACKEND == "nccl" else "cpu"


def say(line):
    os.write(1, f"{line}\\n".encode())  # in one piece: ranks share the pipe


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


def parallel(model):
    if WAY in ("ddp", "compiled_autograd"):
        return DistributedDataParallel(model)
    mesh = init_device_mesh(KIND, (dist.get_world_size(),))
    if WAY == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        for block in model:
            fully_shard(block, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    for block in model:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def main():
    rank = int(os.environ["RANK"])
    if KIND == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(BACKEND)
    torch.manual_seed(0)
    model = parallel(torch.nn.Sequential(Block(), Block()).to(KIND))
    torch._dynamo.config.compiled_autograd = WAY == "compiled_autograd"
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(0 if WAY == "tensor" else rank)
    for step in range(3):
        loss = compiled(torch.randn(4, 16).to(KIND)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        say(f"rank {rank} step {step} {loss.item().hex()}")
    for name, each in model.named_parameters():
        part = each.to_local() if hasattr(each, "to_local") else each
        say(f"rank {rank} {name} {part.double().sum().item().hex()}")
    dist.barrier()
    dist.destroy_process_group()


main()
"""
_WAYS = ("ddp", "fsdp2", "tensor", "compiled_autograd")
_TIMEOUT = 280  # seconds of one job


def main() -> int:
    """Run the ways, print a row for each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"{', '.join(_WAYS)} (default: all)")
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="how many, one job for each number")
    args = parser.parse_args()
    if unknown := set(args.ways) - set(_WAYS):
        parser.error(f"no such way: {', '.join(sorted(unknown))}")
    return max([_try(way, args.backend, ranks) for ranks in args.ranks for way in args.ways or _WAYS])


def _try(way: str, backend: str, ranks: int) -> int:
    with tempfile.TemporaryDirectory(prefix="dynadiag-ranks-") as name:
        folder = Path(name)
        (folder / "train.py").write_text(_PROGRAM)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        job = [*torchrun, "train.py", way, backend]
        record = [sys.executable, "-m", "dynadiag", "record", "-o", "job/", "--"]
        bare, seconds = _run(job, folder)
        recorded, seconds_recorded = _run([*record, *job], folder)
        wrong = [] if bare == recorded else ["the recorded job prints or returns something else"]
        text, found = _explain(folder, ranks)
        wrong += found
    print(f"{way:<18} {backend}, {ranks} ranks: {seconds:.1f} s bare, {seconds_recorded:.1f} s recorded; {text}")
    print("".join(f"    WRONG: {each}\n" for each in wrong), end="", flush=True)
    return bool(wrong)


def _run(command: list[str], folder: Path) -> tuple[tuple[int, list[str]], float]:
    """The exit code and the sorted lines of a job, and its seconds. Each job has caches of its own."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        environment |= {"OMP_NUM_THREADS": "1"}
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
        seconds = time.monotonic() - began
    if done.returncode:
        sys.stderr.write(done.stderr[-3000:])
    return (done.returncode, sorted(line for line in done.stdout.splitlines() if line.startswith("rank "))), seconds


def _explain(folder: Path, ranks: int) -> tuple[str, list[str]]:
    """What the report of the job says, and what is wrong with that."""
    document, recordings = folder / "job.json", folder / "job"
    command = [sys.executable, "-m", "dynadiag", "explain", "--json", document, recordings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return "no report", [f"explain ended with {done.returncode}: {done.stderr[-1000:]}"]
    told = json.loads(document.read_bytes())
    found, groups = told["divergence"], {each["alike"] for each in told["processes"] if each["role"] == "rank"}
    graphs = [each["graph_count"] for each in told["ranks"]]
    breaks = [each["break_count"] for each in told["ranks"]]
    wrong = [f"{len(told['ranks'])} ranks are in the report"] if len(told["ranks"]) != ranks else []
    wrong += [f"{found['kind']} on {found['ranks']}: {found['text']}"] if found else []
    wrong += ["the ranks are not alike"] if len(groups) != 1 else []
    wrong += ["nothing was compiled"] if not all(graphs) else []
    size = sum(path.stat().st_size for path in recordings.iterdir()) / ranks / 1e6
    alike = "alike" if len(groups) == 1 else f"{len(groups)} groups"
    return f"{alike}, graphs {graphs}, breaks {breaks}, {size:.1f} MB a rank", wrong


if __name__ == "__main__":
    sys.exit(main())
