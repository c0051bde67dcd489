"""What is told of modules that DDP and FSDP2 wrap, and the recipes that the advice gives, each tried."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import dynadiag
from dynadiag.render.report import Report, report

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:FSDP2-wrapped module"),
    pytest.mark.usefixtures("one_rank"),
]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(torch.relu(self.first(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def one_rank() -> Iterator[None]:
    torch._dynamo.reset()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch._dynamo.reset()


def recorded(folder: Path, model: nn.Module) -> Report:
    with dynadiag.record(folder / "run.dynadiag"):
        model(torch.ones(2, 4))
    with dynadiag.open(folder / "run.dynadiag") as recording:
        return report(recording)


def sharded(*, compiled: bool) -> nn.Module:
    net, mesh = Net(), init_device_mesh("cpu", (1,))
    for block in net.blocks:
        if compiled:
            block.compile(backend="eager")
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)


def test_a_module_that_ddp_leaves_to_python(tmp_path: Path) -> None:
    """torch compiles no frame of its own inside DDP, and a container has no other."""
    found = recorded(tmp_path, torch.compile(DistributedDataParallel(nn.Sequential(nn.Linear(4, 4))), backend="eager"))
    first = found.findings[0]
    assert (found.graph_count, first.title) == (0, "DDP's own forward runs in Python, and nothing in it was compiled")
    assert [(each.checked, "DDP(torch.compile(module))" in each.text) for each in first.advice] == [("tried", True)]
    assert found.headline.sentence.startswith("No graph was compiled")


@pytest.mark.parametrize("wrapped", [nn.Sequential(nn.Linear(4, 4)), Block()])
def test_a_loss_that_is_compiled_on_the_same_line_is_not_in_ddp(tmp_path: Path, wrapped: nn.Module) -> None:
    model = torch.compile(DistributedDataParallel(wrapped), backend="eager")
    loss = torch.compile(lambda y: y.sum(), backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        loss(model(torch.ones(2, 4)))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        found = report(recording)
    told = found.headline.sentence
    if isinstance(wrapped, Block):
        assert told.startswith("No graph break")
    else:
        assert told.startswith(
            "Nothing of DistributedDataParallel.forward is compiled: DDP's own forward runs in Python"
        )


def test_the_recipe_for_ddp(tmp_path: Path) -> None:
    found = recorded(tmp_path, DistributedDataParallel(torch.compile(nn.Sequential(nn.Linear(4, 4)), backend="eager")))
    assert (found.graph_count, found.break_count) == (1, 0)


def test_ddp_beside_what_was_compiled_costs_nothing(tmp_path: Path) -> None:
    found = recorded(tmp_path, torch.compile(DistributedDataParallel(Block()), backend="eager"))
    assert found.graph_count == 1
    assert {item.severity for item in found.findings} == {"note"}
    assert found.headline.sentence == "All that was compiled is one graph."


def test_fsdp2_and_its_recipe(tmp_path: Path) -> None:
    found = recorded(tmp_path, torch.compile(sharded(compiled=False), backend="eager"))
    first = found.findings[0]
    assert first.title.startswith("FSDP2's hooks run in Python, around each module that `fully_shard` was called on")
    assert [(each.checked, "block.compile()" in each.text) for each in first.advice] == [("tried", True)]
    torch._dynamo.reset()
    (tmp_path / "run.dynadiag").unlink()
    after = recorded(tmp_path, sharded(compiled=True))
    assert (after.graph_count, after.break_count) == (
        2,
        0,
    )  # the input of the second block requires a gradient
