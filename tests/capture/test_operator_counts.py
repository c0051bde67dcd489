"""Operator calls in graphs and outside of them, against torch's profiler on the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import fx, nn
from torch._dynamo import convert_frame, output_graph
from torch.autograd.profiler import record_function
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from dynadiag.capture.operator_counts import OperatorCounts, function_at

# Dynamo looks at `.grad` of any tensor and hides the warning that `error` makes an exception of.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:FSDP2-wrapped module")
CALL, GRAPH = "the compiled call", "a graph"
OPERATORS = ("aten::", "c10d::")  # FSDP2 has marks of its own, such as FSDP::pre_forward


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x))) * helper(x)


class Loop(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = torch.relu(self.first(x))
            torch._dynamo.graph_break()
        return helper(x)


def helper(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).sin()


def hooked() -> nn.Module:
    net = Net()
    net.first.register_forward_hook(left)
    return net


@torch.compiler.disable
def left(_module: nn.Module, _inputs: object, output: torch.Tensor) -> torch.Tensor:
    return sum((output + number for number in range(3)), output)


class Left(nn.Module):
    @torch.compiler.disable
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(0)


def sharded() -> nn.Module:
    net, mesh = Net(), init_device_mesh("cpu", (1,))
    fully_shard(net.first, mesh=mesh)
    return fully_shard(net, mesh=mesh)


class Calls:
    """A backend that knows its graphs."""

    def __init__(self) -> None:
        self.nodes = 0

    def __call__(self, gm: fx.GraphModule, _inputs: object) -> Callable[..., Any]:
        nodes = sum(node.op.startswith("call_") for node in gm.graph.nodes)

        def run(*args: Any) -> Any:
            self.nodes += nodes
            with record_function(GRAPH):
                return gm.forward(*args)

        return run


@pytest.fixture
def torch_unchanged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for kind, name in (
        (convert_frame.CatchErrorsWrapper, "__call__"),
        (output_graph.OutputGraph, "call_user_compiler"),
    ):
        monkeypatch.setattr(kind, name, getattr(kind, name))
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def counted(call: Callable[[], object]) -> dict[str, Any]:
    counts = OperatorCounts()
    counts.start()
    try:
        call()
    finally:
        found = counts.stop()
    return found


def by_the_profiler(call: Callable[[], object], calls: Calls) -> tuple[int, int]:
    """The nodes of graphs times their calls, and the leaves of the profile outside of graphs, in one call."""
    calls.nodes = 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, record_function(CALL):
        call()
    leaves = 0
    for event in profile.events():
        around = list(names_around(event))
        calls_others = any(child.name.startswith(OPERATORS) for child in event.cpu_children)
        leaves += event.name.startswith(OPERATORS) and not calls_others and CALL in around and GRAPH not in around
    return calls.nodes, leaves


def names_around(event: Any) -> Iterator[str]:
    while (event := event.cpu_parent) is not None:
        yield event.name


@pytest.mark.usefixtures("torch_unchanged", "one_rank")
@pytest.mark.parametrize(
    "build",
    [
        Net, Loop, hooked, sharded, lambda: DistributedDataParallel(Net()), lambda: nn.Sequential(Net(), Left()),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
    ],
    ids=["whole", "break in a loop", "hooks", "FSDP2", "DDP", "container", "transformer"],
)  # fmt: skip
def test_the_counts_are_those_of_the_profiler(build: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    calls = Calls()
    module, x = build(), torch.randn(2, 4, 8)
    module(x)  # FSDP2 prepares itself in its first call
    model = torch.compile(module, backend=calls)
    found = counted(lambda: model(x))
    compiled, uncompiled = (sum(row[place] for row in found["functions"]) for place in (3, 4))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert (compiled, uncompiled) == by_the_profiler(lambda: model(x), calls)


@pytest.mark.usefixtures("torch_unchanged")
def test_calls_are_told_by_function_and_those_outside_apart() -> None:
    found = counted(lambda: torch.compile(Loop(), backend="eager")(torch.ones(2, 8)))
    rows = {row[2]: tuple(row[3:]) for row in found["functions"]}
    relu, linear = 1, 5  # leaves: clamp_min; as_strided twice, copy_, resolve_conj twice
    assert rows == {"Loop.forward": (0, 3 * (relu + linear)), "helper": (2, 0)}
    assert [row[1] for row in found["functions"]] == [
        Loop.forward.__code__.co_firstlineno,
        helper.__code__.co_firstlineno,
    ]
    assert found["outside"] >= 4  # the parameters of two layers


def test_the_function_of_a_line() -> None:
    code = hooked.__code__
    assert function_at(__file__, code.co_firstlineno + 2, "hooked") == (__file__, code.co_firstlineno, "hooked")
    within = left.__wrapped__.__code__ if hasattr(left, "__wrapped__") else left.__code__
    line = within.co_firstlineno
    assert function_at(__file__, line + 2, "<genexpr>") == (__file__, line, "left")
    assert function_at("<generated>", 3, "forward") == ("<generated>", None, "forward")
