"""The Code screen follows a line through calls: to its compile, to the files of its nodes, to what a call became."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from textual.pilot import Pilot

import dynadiag
from tests.tui.conftest import browsing, press, screen, settle
from tui.location import Location
from tui.session import Session
from tui.views.code import CodeView

LAYERS = """
import torch


class Gate(torch.nn.Module):
    def forward(self, x):
        value, gate = x.chunk(2, -1)
        return value * torch.sigmoid(gate)
"""
MODEL = """
import torch
from called_layers import Gate


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = torch.nn.ModuleList([Gate(), Gate()])

    def forward(self, x):
        for gate in self.gates:
            x = gate(x)
        return x
"""
MAIN = """
import torch
from called_model import Net

net = Net()


@torch.compile(backend="aot_eager")
def step(x):
    logits = net(x)
    return logits.exp()


@torch.compile(backend="aot_eager", dynamic=False)
def scale(x):
    return x * 2


def unfit(graph, inputs):
    raise RuntimeError("no such device")


@torch.compile(backend=unfit)
def broken(x):
    y = x.cos()
    return y.tan()


def run():
    step(torch.randn(3, 8))
    scale(torch.randn(3))
    scale(torch.randn(4))
    stop(torch.ones(3))
    residual(torch.randn(3, 8))
    try:
        broken(torch.ones(3))
    except Exception:
        pass


@torch.compile(backend="aot_eager")
def stop(x):
    y = x.sin()
    if y.sum().item() > 0:
        y = y * 2
    return y.cos()


@torch.compile(backend="aot_eager")
def residual(x):
    x = x * 2 + net.gates[0](torch.cat([x, x], -1))
    return x.tan()
"""
FILES = {"called_layers": LAYERS, "called_model": MODEL, "called_main": MAIN}
CALL, OWN, SCALED, FAILED, LEFT, BREAK, BOTH = 9, 10, 15, 22, 29, 43, 50  # lines of MAIN
SIGMOID, GATE = 7, 12  # lines of LAYERS and MODEL


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The recording of a program of three files. Its folder has the files, too."""
    folder = tmp_path_factory.mktemp("calls")
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text.lstrip())
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    main: ModuleType = sys.modules["called_main"]
    torch._dynamo.reset()
    with dynadiag.record(folder / "run.dynadiag"):
        main.run()
    yield folder / "run.dynadiag"
    for name in FILES:
        del sys.modules[name]


def _code(pilot: Pilot[int]) -> CodeView:
    return pilot.app.query_one(CodeView)


async def _at(pilot: Pilot[int], recorded: Path, line: int) -> CodeView:
    """The Code screen at a line of the program's main file."""
    pilot.app.go_to(Location("code", document=f"source:{recorded.parent / 'called_main.py'}", line=line))  # type: ignore[attr-defined]  # Pilot knows no subclass
    await settle(pilot)
    return _code(pilot)


def _node_pane(view: CodeView) -> str:
    return "\n".join(item.text for item in view.node_details.lines)


async def test_a_line_opens_in_the_compile_that_has_it(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, SCALED)
        assert view.location().compile_id == "1/0"
        assert "compiled in 1/0, 1/1 (J: next)" in screen(pilot)
        await press(pilot, "J")
        assert (view.location().compile_id, view.location().line) == ("1/1", SCALED)


async def test_the_next_compile_is_shown_at_a_line_of_its_own(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, OWN)
        await press(pilot, "J")
        assert (view.location().compile_id, view.location().line) == ("1/0", SCALED)


async def test_code_opens_at_the_compile_that_failed(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        await press(pilot, "3")
        view = _code(pilot)
        assert (view.location().compile_id, view.location().line) == ("5/0", FAILED)
        await press(pilot, "j", "j")
        assert any("cos()" in view.pane("dynamo").text_of(line) for line in view.pane("dynamo").highlighted)
        assert "compile 5/0, which failed before code was generated" in screen(pilot)
        assert "no mapping" not in screen(pilot)


async def test_the_compile_follows_the_cursor(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, OWN)
        assert view.location().compile_id == "0/0"
        await press(pilot, *["j"] * (SCALED - OWN))
        assert (view.location().compile_id, view.location().line) == ("1/0", SCALED)
        assert view.pane("dynamo").highlighted
        await press(pilot, *["k"] * (SCALED - OWN))
        assert (view.location().compile_id, view.location().line) == ("0/0", OWN)


async def test_the_line_of_a_break_shows_the_graph_that_ended_there(recorded: Path) -> None:
    """What comes after it is of a function that is called at this line, too: by itself."""
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, BREAK)
        assert any("sum(" in view.pane("dynamo").text_of(line) for line in view.pane("dynamo").highlighted)
        assert "compiled in" not in screen(pilot)
        await press(pilot, "j")
        assert any("y * 2" in view.pane("dynamo").text_of(line) for line in view.pane("dynamo").highlighted)


async def test_a_call_of_a_model_shows_what_it_became_by_module(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, CALL)
        shown = _node_pane(view)
        assert "nodes made by this call" in shown
        assert "gates.0" in shown
        assert "gates.1" in shown
        assert "sigmoid" in shown
        marked = view.pane("dynamo")
        assert all("exp" not in marked.text_of(line) for line in marked.highlighted)
        assert sum("sigmoid(" in marked.text_of(line) for line in marked.highlighted) == 2
        await press(pilot, "enter")
        assert view.location().document != f"source:{recorded.parent / 'called_main.py'}"


async def test_a_line_with_an_operation_of_its_own_shows_its_calls_too(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, BOTH)
        assert _node_pane(view).splitlines()[0].strip().endswith("nodes made by this call")
        await press(pilot, "j")  # a line without a call shows its node
        assert "made by this call" not in _node_pane(view)


async def test_the_source_follows_a_node_into_its_file(recorded: Path) -> None:
    async with browsing(recorded) as pilot:
        view = await _at(pilot, recorded, OWN)
        await press(pilot, "tab")
        pane = view.pane("dynamo")
        row = max(line for line in range(pane.count) if "sigmoid(" in pane.text_of(line))
        while pane.cursor > row:
            await press(pilot, "k")
        source = view.pane("source")
        assert source.document is not None
        assert source.document.ref.title.endswith("called_layers.py")
        assert source.highlighted == [SIGMOID - 1]
        shown = _node_pane(view)
        assert "gates.1" in shown
        chain = f"called_layers.py:{SIGMOID} < called_model.py:{GATE} < called_main.py:{CALL}"
        assert chain in shown


async def test_a_line_of_the_caller_leads_to_what_it_compiled(recorded: Path) -> None:
    with Session.open(recorded) as session:
        lines = session.compiled_lines()
        main = str(recorded.parent / "called_main.py")
        assert lines.of(main, LEFT) == ("0/0",)
        assert lines.of(main, SCALED) == ("1/0", "1/1")
        assert lines.of(str(recorded.parent / "called_layers.py"), SIGMOID) == ("0/0", "4/0")
        assert lines.of(main, 1) == ()
        assert lines.nearest(main, SCALED + 1) == "1/0"
        assert lines.nearest("/nowhere.py", 1) is None
