"""What training graphs save, against bytes worked out by hand from the shapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor

import dynadiag
from dynadiag.__main__ import main
from dynadiag.commands.schema import schema_of
from dynadiag.kernels.memory import Memory, read_memory
from dynadiag.recording.opening import open_recording
from dynadiag.render.memory import memory_text
from dynadiag.render.printer import Printer

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

_BACKEND = "aot_eager_decomp_partition"  # partitions as Inductor does, and generates no code
_FLOAT = 4  # bytes


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.compiler.reset()


def read(path: Path, run: Callable[[], object]) -> Memory:
    """What is read of a recording of the call."""
    with dynadiag.record(path):
        run()
    with open_recording(path) as recording:
        return read_memory(recording)


def step(model: Callable[..., Tensor], *inputs: Tensor, **how: Any) -> Callable[[], object]:
    """A training step of the compiled model."""
    compiled = torch.compile(model, **{"backend": _BACKEND, **how})
    return lambda: compiled(*inputs).sum().backward()


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


_MLP_PARAMETERS = (8 * 16 + 16 + 16 * 4 + 4) * _FLOAT


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(8, 24, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mixed(x).split(8, 2)
        return torch.softmax(q @ k.transpose(1, 2), 2) @ v


class Twice(nn.Module):
    """One layer on both sides of a graph break."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x).relu()
        torch._dynamo.graph_break()
        return self.layer(x).relu()


def test_an_mlp_saves_its_input_and_the_result_of_relu(tmp_path: Path) -> None:
    memory = read(tmp_path / "a.dynadiag", step(mlp(), torch.randn(6, 8)))
    (graph,) = memory.graphs
    assert (graph.activations, graph.inputs) == (6 * 16 * _FLOAT, 6 * 8 * _FLOAT)
    assert graph.parameters == graph.gradients == memory.parameters == _MLP_PARAMETERS
    assert (graph.tangents, graph.unknown) == (6 * 4 * _FLOAT, 0)
    assert [(row.operator, row.bytes) for row in graph.saved] == [("relu", 384)]
    assert [(saving.how, saving.bytes) for saving in graph.savings] == [("no_grad", 384), ("half", 192)]


def test_three_saved_views_of_one_product_count_once(tmp_path: Path) -> None:
    (graph,) = read(tmp_path / "a.dynadiag", step(Attention(), torch.randn(2, 4, 8))).graphs
    sizes = {row.operator: (row.bytes, row.shape) for row in graph.saved}
    assert sizes == {"mm": (2 * 4 * 24 * _FLOAT, "[8, 24]"), "div": (2 * 4 * 4 * _FLOAT, "[2, 4, 4]")}
    assert (graph.inputs, graph.activations) == (2 * 4 * 8 * _FLOAT, (192 + 32) * _FLOAT)


def test_parameters_that_two_graphs_share_count_once(tmp_path: Path) -> None:
    memory = read(tmp_path / "a.dynadiag", step(Twice(), torch.randn(6, 8)))
    assert len(memory.graphs) == 2
    assert memory.parameters == (8 * 8 + 8) * _FLOAT
    assert {graph.parameters for graph in memory.graphs} == {memory.parameters}


def test_a_parameter_that_aot_autograd_splits_is_not_counted(tmp_path: Path) -> None:
    model = nn.Linear(8, 8, bias=False)
    model.weight = nn.Parameter(TwoTensor(torch.ones(8, 8), torch.ones(8, 8)))
    memory = read(tmp_path / "a.dynadiag", step(model, torch.randn(4, 8)))
    assert (len(memory.graphs), memory.parameters) == (1, 0)


def test_what_is_compiled_again_has_the_same_parameters(tmp_path: Path) -> None:
    model = torch.compile(mlp(), backend=_BACKEND)

    def run() -> None:
        for size in (6, 7):
            model(torch.randn(size, 8)).sum().backward()

    memory = read(tmp_path / "a.dynadiag", run)
    assert memory.parameters == _MLP_PARAMETERS
    assert [graph.activations for graph in memory.graphs] == [6 * 16 * _FLOAT, 7 * 16 * _FLOAT]


def test_a_size_that_was_not_recorded_is_counted_apart(tmp_path: Path) -> None:
    def selected(x: Tensor) -> Tensor:
        return x[x.detach() > 0].exp()

    x = torch.randn(6, 8, requires_grad=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        memory = read(tmp_path / "a.dynadiag", step(selected, x))
    (graph,) = memory.graphs
    assert graph.unknown > 0
    assert None in {row.bytes for row in graph.saved}
    assert "not in the sums" in memory_text(memory, Printer())


def test_without_a_backward_nothing_is_saved(tmp_path: Path) -> None:
    model = torch.compile(mlp(), backend=_BACKEND)

    def run() -> None:
        with torch.no_grad():
            model(torch.randn(6, 8))

    memory = read(tmp_path / "a.dynadiag", run)
    assert memory == Memory(_MLP_PARAMETERS, (), 1, 0)
    assert memory_text(memory, Printer()).startswith("Nothing is saved for a backward")


def test_without_graphs_of_aot_autograd_nothing_is_known(tmp_path: Path) -> None:
    memory = read(tmp_path / "a.dynadiag", step(mlp(), torch.randn(6, 8), backend="eager"))
    assert memory == Memory(0, (), 0, 1)
    assert "is not known" in memory_text(memory, Printer())


def test_what_pointwise_operators_make_of_the_rest_can_be_recomputed(tmp_path: Path) -> None:
    """`torch._functorch.config.activation_memory_budget` drops it, as the help says."""
    model, x = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4)), torch.randn(6, 8)
    (before,) = read(tmp_path / "a.dynadiag", step(model, x)).graphs
    said = {saving.how: saving.bytes for saving in before.savings if saving.how != "half"}
    assert said == {"no_grad": 2 * 6 * 64 * _FLOAT, "recompute": 6 * 64 * _FLOAT}
    for how, budget in (("recompute", 0.99), ("no_grad", 0.0)):
        torch.compiler.reset()
        with torch._functorch.config.patch(activation_memory_budget=budget):
            (after,) = read(tmp_path / f"{how}.dynadiag", step(model, x)).graphs
        assert before.activations - after.activations == said[how]


def test_under_autocast_only_what_stays_float32_could_be_halved(tmp_path: Path) -> None:
    model = mlp()

    def half(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x).sin()

    (graph,) = read(tmp_path / "a.dynadiag", step(half, torch.randn(6, 8))).graphs
    assert {row.dtype for row in graph.saved} == {"bf16"}
    assert "half" not in {saving.how for saving in graph.savings}


def test_inductor_names_modules_and_copies_of_inputs(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3)))
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        memory = read(tmp_path / "a.dynadiag", step(model, torch.randn(2, 4, 8, 8), backend="inductor"))
    (graph,) = memory.graphs
    image = 2 * 4 * 8 * 8 * _FLOAT
    rows = {row.operator: row for row in graph.saved}
    assert (rows["convolution"].bytes, rows["convolution"].module) == (2 * image, "*")
    assert {row.shape: row.bytes for row in graph.saved if row.operator == "layout copy"} == {
        "[2, 4, 8, 8]": image,
        "[4, 4, 3, 3]": 3 * 4 * 4 * 9 * _FLOAT,
    }
    assert graph.inputs == 0


def test_the_command_shows_the_table_and_writes_what_its_schema_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = read(tmp_path / "a.dynadiag", step(mlp(), torch.randn(6, 8)))
    assert main(["explain", "--memory", "--json", "out.json", "a.dynadiag"]) == 0
    text = capsys.readouterr().out
    assert "saves 384 bytes of activations for its backward" in text
    document = json.loads(Path("out.json").read_text())
    jsonschema.Draft202012Validator(schema_of("explain")).validate(document)
    assert document["memory"]["graphs"][0]["activations"] == expected.graphs[0].activations
    assert main(["explain", "--json", "plain.json", "a.dynadiag"]) == 0
    assert "memory" not in json.loads(Path("plain.json").read_text())
