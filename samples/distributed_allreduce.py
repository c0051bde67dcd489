"""A small convnet whose forward sums over all ranks: the collective becomes a node of the graph on every rank.

It runs as a single rank, and under `torchrun` as one of several: gloo on a CPU, nccl on a GPU. Under
`DYNADIAG_RECORD` each rank records itself, with its number in the recording's name. With the argument `hang` the last
rank does not take part in the collective, and the others wait for it until `TIMEOUT`.

    dynadiag explain samples/distributed_allreduce.py
    DYNADIAG_RECORD=ranks torchrun --nproc-per-node 2 samples/distributed_allreduce.py
    dynadiag explain ranks/*-rank1.dynadiag
    dynadiag bisect --timeout 60 samples/distributed_allreduce.py
"""

from __future__ import annotations

import hashlib
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn

BACKEND = "nccl" if torch.cuda.is_available() else "gloo"
TIMEOUT = timedelta(seconds=20)


class ConvNet(nn.Module):
    """Classifies small images into four classes, by features summed over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, 8, kernel_size=3, padding=1)
        self.classify = nn.Linear(8, 4)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        pooled = torch.relu(self.features(images)).mean(dim=(2, 3))
        total = pooled.sum(dim=0)
        dist.all_reduce(total)
        return self.classify(pooled - total / dist.get_world_size()).softmax(dim=-1)


def join() -> torch.device:
    """Join the process group, or create one with a single rank."""
    if "RANK" in os.environ:
        dist.init_process_group(BACKEND, timeout=TIMEOUT)
    else:
        dist.init_process_group(BACKEND, store=dist.HashStore(), rank=0, world_size=1, timeout=TIMEOUT)
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if BACKEND == "nccl" else torch.device("cpu")


def main(how: str = "") -> None:
    device = join()
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    net = ConvNet().to(device)
    images = torch.randn(world, 2, 3, 8, 8)[rank].to(device)
    with torch.no_grad():
        expected = net(images)
        if how == "hang" and rank == world - 1:
            dist.destroy_process_group()
            return
        result = torch.compile(net, backend="aot_eager")(images)
    torch.testing.assert_close(result, expected)
    if rank == 0:
        print(f"{world} rank{'' if world == 1 else 's'}: as without compiling")
        print("result", hashlib.sha256(result.cpu().numpy().tobytes()).hexdigest()[:16])
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
