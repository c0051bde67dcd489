"""The panes of the code screen: generated code is shown beside its graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag.kernels.document_links import RecordedLinks
from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.graph_parser import PrintedGraph
from dynadiag.kernels.module_parser import ParsedModule
from dynadiag.recording.records import Compile, Graph, Node, Seconds
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.code_panes import CodePaneModel, lex_ahead
from tui.documents import DocumentRef, compile_documents, stage_before, stage_changes
from tui.line_links import LineLinks
from tui.views.code import CodeView


class NoTexts:
    """Texts of a compile that nobody reads."""

    def payload(self, event: int) -> str:
        raise AssertionError(event)

    def nodes(self, graph: int, start: int = 0, limit: int | None = None) -> Sequence[Node]:
        raise AssertionError(graph, start, limit)


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
    linker = RecordedLinks(NoTexts(), (), from_cache=False)
    return CodePaneModel("0/0", None, linker, refs, modules=modules)


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


@pytest.mark.parametrize("selected", ["forward, after passes", "backward, after passes", "joint graph"])
def test_the_forward_graph_stands_beside_the_backward_graph_of_its_stage(selected: str) -> None:
    board = _board()
    order = ("joint", "forward", "before_post_grad", "post_grad", "backward", "before_post_grad", "post_grad")
    later = board.documents_of["later"] = _stages("dynamo", *order)
    board.selected["later"] = [ref.title for ref in later].index(selected)
    assert board.toggle_directions()
    shown = [ref.title for pane in ("dynamo", "later") if (ref := board.ref(pane))]
    assert shown == ["forward, after passes", "backward, after passes"]
    for pane in ("dynamo", "later"):
        ref = board.ref(pane)
        assert ref is not None
        assert board.find(ref.key) == pane
    assert board.toggle_directions()
    assert board.ref("dynamo") is None


def test_a_graph_of_one_direction_has_no_other_beside_it() -> None:
    assert not _board().toggle_directions()


async def test_a_pane_with_nothing_in_it_takes_little_room(tmp_path: Path) -> None:
    events = [event for event in build.compile_events("0/0") if "inductor_output_code" not in event[0]]
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *events, *build.end_events()])
    async with browsing(path, (200, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert "no code was" not in screen(pilot)  # what can be read has the room
        await press(pilot, "tab", "tab", "tab")
        assert view.pane("kernel").size.width < 25 < 40 < view.pane("source").size.width
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


def _stages(*stages: str) -> list[DocumentRef]:
    compiled = Compile(0, "0/0", None, None, "f", (), "ok", 1, Seconds(), 0, None, None, None)
    graphs = [Graph(index, "0/0", stage, 1, 1, index) for index, stage in enumerate(stages)]
    return compile_documents(compiled, graphs, [])["later"]


@pytest.mark.parametrize(
    "order",
    [
        ["joint", "forward", "backward", "before_post_grad", "post_grad", "before_post_grad", "post_grad"],
        ["joint", "forward", "before_post_grad", "post_grad", "backward", "before_post_grad", "post_grad"],
    ],
)
def test_stages_are_told_by_direction_whenever_the_backward_is_compiled(order: list[str]) -> None:
    refs = _stages("dynamo", *order)
    last = len(refs) - 1
    assert [ref.title for ref in refs if ref.stage == "post_grad"] == [
        "forward, after passes",
        "backward, after passes",
    ]
    before = stage_before(refs, last)
    assert before is not None
    assert before.title == "backward, before passes"
    assert stage_before(refs, refs.index(before)) == next(ref for ref in refs if ref.stage == "backward")
    first = next(place for place, ref in enumerate(refs) if ref.stage == "forward")
    assert stage_before(refs, first) == refs[0]


def test_an_attempt_that_starts_again_is_no_backward() -> None:
    refs = _stages("forward", "post_grad", "forward", "post_grad")
    assert {ref.direction for ref in refs} == {"forward"}


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (["a = f(x)", "b = g(a)", "c = h(b)"], "nothing changed"),
        (["b = g(a)", "a = f(x)", "c = h(b)"], "1 only moved"),
        (["a = f(x)", "b = g2(a)", "d = h(b)"], "1 new, 1 gone, 1 changed"),
        ([], "3 gone"),
    ],
)
def test_what_a_pass_changed_is_told_apart_from_what_it_moved(after: list[str], words: str) -> None:
    assert stage_changes(["inputs: x", "a = f(x)", "b = g(a)", "c = h(b)", "return (c,)"], after) == words


async def test_the_status_line_tells_what_changed_since_the_graph_before(program: Path) -> None:
    async with browsing(program, (160, 40)) as pilot:
        await press(pilot, "3", "tab", "tab")
        assert "since Dynamo's graph" in screen(pilot)


async def test_every_cell_has_the_background_of_the_theme(program: Path) -> None:
    async with browsing(program, (160, 40)) as pilot:
        await press(pilot, "t")
        for key in "1234567890":
            await press(pilot, key)
            pilot.app.clear_notifications()
            await settle(pilot)
            for strip in pilot.app.screen._compositor.render_strips():
                assert [each.text for each in strip if each.text and not (each.style and each.style.bgcolor)] == [], key


async def test_of_a_source_that_is_not_recorded_the_lines_are_shown_that_graphs_name(tmp_path: Path) -> None:
    log = build.recording(tmp_path, [*build.run_events(), *build.compile_events("0/0"), *build.end_events()])
    async with browsing(log, (200, 60)) as pilot:
        await press(pilot, "3")
        assert "only the lines that graphs name" in screen(pilot)
        assert "7 ▌ z = torch.relu(y)" in screen(pilot)
        await press(pilot, "j", "enter")
        view = pilot.app.query_one(CodeView)
        assert "z = relu(y)" in view.pane("dynamo").text_of(view.pane("dynamo").cursor)


async def test_the_cursor_starts_in_a_pane_that_has_a_text(tmp_path: Path) -> None:
    events = build.compile_events("0/0", graph="nothing that names a line")
    events = [(data, text) for data, text in events if "artifact" not in data and "inductor_output_code" not in data]
    async with browsing(build.recording(tmp_path, [*build.run_events(), *events, *build.end_events()])) as pilot:
        await press(pilot, "3")
        assert pilot.app.query_one(CodeView).pane("source").document is None
        assert pilot.app.focused is pilot.app.query_one(CodeView).pane("dynamo")


async def test_the_cursor_starts_on_a_line_that_an_operator_was_made_of(tmp_path: Path) -> None:
    """Line 5 is only in a graph that no pane shows."""
    joint = build.POST_GRAD.replace(":6 in f, code: y = x.sin()", ":5 in f, code: def f(x):")
    more = ({"artifact": {"name": "aot_joint_graph", "encoding": "string"}, **build.at("0/0")}, joint)
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), more, *build.end_events()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "3")
        pane = pilot.app.query_one(CodeView).pane("source")
        assert min(pane.links.keys) == 4
        assert pane.cursor == 5


def _shown(view: CodeView) -> list[str]:
    return [name for name, pane in view.panes().items() if pane.display]


async def test_the_source_stays_beside_the_pane_that_is_read(program: Path) -> None:
    async with browsing(program, (109, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert _shown(view) == ["source", "dynamo"]
        await press(pilot, "tab", "tab")
        assert _shown(view) == ["source", "later"]
        await press(pilot, "tab")
        assert _shown(view) == ["source", "kernel"]
        assert min(view.pane(name).size.width for name in _shown(view)) > 50
        await press(pilot, "tab", "tab")  # over the node's details
        assert view.pane("source").has_focus
        assert _shown(view) == ["source", "kernel"]


async def test_source_graph_and_code_are_side_by_side_from_110_columns_on(program: Path) -> None:
    async with browsing(program, (120, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        for shown in (["source", "dynamo", "kernel"], ["source", "dynamo", "kernel"], ["source", "later", "kernel"]):
            assert _shown(view) == shown
            assert sum(view.pane(name).outer_size.width for name in shown) == 120
            await press(pilot, "tab")
        assert view.pane("kernel").has_focus
        assert _shown(view) == ["source", "later", "kernel"]
        assert view.pane("later").outer_size.width < view.pane("source").outer_size.width


async def test_forward_and_backward_graph_are_side_by_side_where_two_panes_fit(tmp_path: Path) -> None:
    both = [
        ({"artifact": {"name": f"aot_{direction}_graph", "encoding": "string"}, **build.at("0/0")}, build.POST_GRAD)
        for direction in ("forward", "backward")
    ]
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), *both, *build.end_events()]
    async with browsing(build.recording(tmp_path, events), (109, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert _shown(view) == ["source", "dynamo"]
        await press(pilot, "o")
        assert _shown(view) == ["dynamo", "later"]
        assert view.pane("later").has_focus
        assert {"forward", "backward"} <= set(screen(pilot).split())
        await press(pilot, "o")
        assert _shown(view) == ["source", "later"]


async def test_a_terminal_of_ten_rows_has_lines_of_the_pane_with_the_cursor(program: Path) -> None:
    async with browsing(program, (40, 10)) as pilot:
        await press(pilot, "3")
        assert "y = x.sin()" in screen(pilot)
        await press(pilot, "tab")
        assert "y = x.sin()" in screen(pilot)
        assert "Dynamo's graph" in screen(pilot)
        await pilot.resize_terminal(100, 40)
        await settle(pilot)
        assert pilot.app.query_one(CodeView).pane("source").display


async def test_a_narrow_screen_has_two_panes_of_its_whole_width(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        upper, lower = (view.pane(name).region for name in _shown(view))
        assert upper.width == lower.width == 80
        assert upper.bottom == lower.y


async def test_a_pane_of_another_size_still_shows_what_is_linked_to_the_cursor(tmp_path: Path) -> None:
    """Its own cursor is on the first line of a graph that is longer than the pane."""
    node = '        y: "f32[4][1]cpu" = l_x_.sin();  l_x_ = None\n'
    graph = build.DYNAMO.replace(node, "".join(node.replace("y:", f"y{number}:") for number in range(40)) + node)
    events = [
        *build.run_events(),
        *build.source_events(),
        *build.compile_events("0/0", graph=graph),
        *build.end_events(),
    ]
    async with browsing(build.recording(tmp_path, events), (120, 40)) as pilot:
        await press(pilot, "3", "j")
        dynamo = pilot.app.query_one(CodeView).pane("dynamo")
        for height in (14, 12):
            assert dynamo.cursor == 0
            assert dynamo.is_line_visible(dynamo.first_highlighted)
            await pilot.resize_terminal(120, height)
            await settle(pilot)
        assert dynamo.is_line_visible(dynamo.first_highlighted)


async def test_a_node_is_described_by_the_graph_that_is_shown(tmp_path: Path) -> None:
    """Another stage may be selected already, and be read."""
    node = '        relu: "f32[4][1]cpu" = torch.ops.aten.relu.default(sin);  sin = None\n'
    graph = build.POST_GRAD.replace(node, "".join(node.replace("relu:", f"r{number}:") for number in range(9)) + node)
    forward = ({"artifact": {"name": "aot_forward_graph", "encoding": "string"}, **build.at("0/0")}, graph)
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), forward, *build.end_events()]
    async with browsing(build.recording(tmp_path, events), (200, 40)) as pilot:
        await press(pilot, "3", "tab", "tab", "right_square_bracket", "G", "k")
        view = pilot.app.query_one(CodeView)
        assert "relu(" in view.pane("later").text_of(view.pane("later").cursor)
        assert view.model is not None
        before = view.node_details.full_text()
        view.model.select("later", view.model.selected["later"] + 1)
        view.highlight()
        assert view.node_details.full_text() == before


async def test_a_stage_that_is_selected_and_not_read_yet_is_waited_for(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "tab")
        view = pilot.app.query_one(CodeView)
        model, shown = view.model, view.pane("later").document
        assert model is not None
        assert shown is not None
        model.documents_of["later"].append(replace(shown.ref, key="event:1000"))
        model.select("later", len(model.documents_of["later"]) - 1)
        lex_ahead(model)
        view.show_pane("later")
        assert view.pane("later").document is shown


async def test_the_node_of_a_source_line_is_that_of_a_graph_on_the_screen(program: Path) -> None:
    async with browsing(program, (120, 40)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert (view.pane("dynamo").display, view.pane("later").display) == (True, False)
        assert " x.sin()" in view.node_details.full_text()
        assert view.node_details.border_title == "node of Dynamo's graph"


async def test_the_node_of_a_source_line_is_that_of_a_graph_that_is_linked_to_it(tmp_path: Path) -> None:
    """A later graph from a cache may name no line of this run."""
    other = build.POST_GRAD.replace(build.FILE, "/elsewhere.py").replace("sin", "cos").replace("relu", "tan")
    events = [
        (data, other if data.get("artifact", {}).get("name") == "inductor_post_grad_graph" else text)
        for data, text in build.compile_events("0/0")
    ]
    path = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *events, *build.end_events()])
    async with browsing(path, (240, 60)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert view.pane("later").display
        assert " x.sin()" in view.node_details.full_text()


async def test_a_compile_without_a_graph_opens_at_the_line_that_says_why(tmp_path: Path) -> None:
    """Line 5 is that of the function, line 8 the one with the break."""
    kept = ("dynadiag_frame", "dynamo_start", "compilation_metrics")
    events = [event for event in build.compile_events("0/0") if any(name in event[0] for name in kept)]
    made = [*build.run_events(), *build.source_events(), *build.break_events("0/0"), *events, *build.end_events(1)]
    async with browsing(build.recording(tmp_path, made)) as pilot:
        await press(pilot, "3")
        source = pilot.app.query_one(CodeView).pane("source")
        assert source.cursor == 7
        assert source.cursor in source.notes


async def test_a_function_of_a_library_opens_at_the_line_that_called_it(tmp_path: Path) -> None:
    """What `torch.compile` was given is often a decorator's inner function in a library, which says nothing."""
    library = "/usr/lib/python3/site-packages/models/generic.py"
    events = build.compile_events("0/0")
    events[0][0]["dynadiag_frame"].update(file=library)
    events[1][0]["dynamo_start"]["stack"][1].update(filename=library)
    events[-1][0]["compilation_metrics"].update(co_filename=library)
    made = [*build.run_events(), *build.source_events(), *events, *build.end_events()]
    async with browsing(build.recording(tmp_path, made)) as pilot:
        await press(pilot, "3")
        pane = pilot.app.query_one(CodeView).pane("source")
        assert pane.text_of(pane.cursor) == "    f(torch.randn(size))"
        assert "compile 0/0" in screen(pilot)


async def test_a_compile_that_failed_opens_at_the_line_at_fault(tmp_path: Path) -> None:
    events = [event for event in build.compile_events("0/0") if "inductor_output_code" not in event[0]]
    events[-1][0]["compilation_metrics"].update(
        fail_type="torch._inductor.exc.InductorError",
        fail_reason=f'LoweringException: no\nFound from : \n  File "{build.FILE}", line 7, in f\n    z = torch.relu(y)',
        has_guarded_code=False,
    )
    made = [*build.run_events(), *build.source_events(), *events, *build.end_events(1)]
    async with browsing(build.recording(tmp_path, made)) as pilot:
        await press(pilot, "3")
        source = pilot.app.query_one(CodeView).pane("source")
        assert source.notes[source.cursor].role == "error"
        assert source.links.keys_of(source.cursor)


async def test_what_was_traced_before_a_failure_is_shown_with_its_lines(tmp_path: Path) -> None:
    made = [*build.run_events(), *build.source_events(), *build.failed_trace_events("0/0"), *build.end_events(1)]
    async with browsing(build.recording(tmp_path, made)) as pilot:
        await press(pilot, "3")
        view = pilot.app.query_one(CodeView)
        assert "traced before the failure" in screen(pilot)
        assert "failed while Dynamo traced it" in screen(pilot)
        view.pane("source").move_to(6)
        await settle(pilot)
        dynamo = view.pane("dynamo")
        assert [dynamo.text_of(line).strip() for line in dynamo.highlighted] == ["z = relu(y)"]
        await press(pilot, "v")
        assert "relu" in screen(pilot)


async def test_where_the_later_graphs_are_is_said_in_the_pane_of_the_first(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "3", "tab", "]")
        assert any("tab goes to the later graphs" in note.message for note in pilot.app._notifications)


async def test_a_pane_of_short_lines_leaves_its_room_to_the_others(program: Path) -> None:
    async with browsing(program, (200, 40)) as pilot:
        await press(pilot, "3", "tab")
        code = pilot.app.query_one(CodeView)
        widths = [pane.outer_size.width for pane in code.panes().values() if pane.display]
        assert sum(widths) == 200
        assert code.pane("dynamo").outer_size.width == 60 < min(widths[0], widths[2])
        await press(pilot, "z")
        assert code.pane("dynamo").outer_size.width == 200


async def test_beside_empty_panes_the_source_takes_the_room(tmp_path: Path) -> None:
    events = [*build.run_events(), *build.source_events(), *build.break_events("0/0"), *build.end_events(1)]
    async with browsing(build.recording(tmp_path, events), (200, 40)) as pilot:
        await press(pilot, "3")
        panes = pilot.app.query_one(CodeView).panes().values()
        assert sum(pane.outer_size.width for pane in panes if pane.display) == 200


async def test_a_pane_is_drawn_between_other_links_and_the_lines_that_they_light(program: Path) -> None:
    """A recording that is still being written was read again while a line was lit that called something."""
    async with browsing(program) as pilot:
        await press(pilot, "3")
        assert isinstance(pilot.app, Browser)
        assert isinstance(pilot.app.current, CodeView)
        pane = pilot.app.current.pane("source")
        pane._called = frozenset(range(pane.count))
        pane.links = LineLinks()
        assert len(pane.render_lines(pane.size.region)) == pane.size.height


async def test_a_finding_keeps_its_name_where_its_line_has_no_room_for_it(program: Path) -> None:
    async with browsing(program, (120, 40)) as pilot:
        await press(pilot, "3", "tab")
        assert "⚠ GB0059" in screen(pilot)
        assert "Failed to trace" not in screen(pilot).split("node of")[0]
