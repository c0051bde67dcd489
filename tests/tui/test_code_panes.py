"""The panes of the code screen: generated code is shown beside its graph."""

from __future__ import annotations

from pathlib import Path

from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.graph_parser import PrintedGraph
from dynadiag.kernels.module_parser import ParsedModule
from tests.tui import build
from tests.tui.conftest import browsing, press, screen
from tui.code_panes import CodePaneModel
from tui.documents import DocumentRef
from tui.views.code import CodeView


def _board() -> CodePaneModel:
    later = [
        DocumentRef(key, "graph", title)
        for key, title in (("event:1", "joint graph"), ("event:2", "a"), ("event:4", "b"))
    ]
    kernel = [DocumentRef("event:3", "kernel", "generated code"), DocumentRef("event:5", "kernel", "generated code")]
    refs: dict[str, list[DocumentRef]] = {"source": [], "dynamo": [], "later": later, "kernel": kernel, "stage": []}
    nothing = PrintedGraph({}, {})
    modules = {
        f"event:{event}": GeneratedModule(event, "0/0", ParsedModule(), nothing, event - 1, nothing) for event in (3, 5)
    }
    return CodePaneModel("0/0", refs, dict.fromkeys(refs, 0), modules=modules)


def test_the_backward_code_stands_beside_the_backward_graph() -> None:
    board = _board()
    board.select("kernel", 1)
    assert board.selected["later"] == 2
    board.select("later", 1)
    assert board.selected["kernel"] == 0
    board.select("later", 0)  # nothing was made of the joint graph as it is
    assert (board.selected["later"], board.selected["kernel"]) == (0, 0)
    assert board.find("event:5") == "kernel"
    assert board.selected["later"] == 2


async def test_a_pane_with_nothing_in_it_takes_little_room(tmp_path: Path) -> None:
    events = [event for event in build.compile_events("0/0") if "inductor_output_code" not in event[0]]
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *events, *build.end_events()])
    async with browsing(path, (200, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert view.pane("kernel").size.width < 25 < 40 < view.pane("dynamo").size.width
        text = screen(pilot)
        assert "no code was" in text
        assert "generated in this" in text


async def test_tab_goes_to_what_belongs_to_the_line_in_a_pane_that_is_new(program: Path) -> None:
    async with browsing(program, (200, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        source = view.pane("source")
        line = source.cursor
        await press(pilot, "tab")
        assert view.pane("dynamo").cursor in view.pane("dynamo").highlighted
        assert source.highlighted == [line]
