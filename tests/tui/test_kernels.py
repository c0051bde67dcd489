"""The kernels: sorted by what they move once that is known, filtered, and found again after that."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.graph_parser import SourceLine
from dynadiag.kernels.read_modules import generated_modules, kernel_calls
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Kernel
from dynadiag.recording.store import save_derived
from dynadiag.render.call_costs import KernelCost, KernelCosts
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.app import Browser
from tui.kernel_summary import _lines
from tui.session import Session
from tui.views.code import CodeView
from tui.views.kernels import KernelsView


def _costs(recording: Recording, compile_ids: object, callers: object) -> KernelCosts:
    """As if the kernels of the second compile moved more, and nobody knew of the library's. Each is called twice."""
    found = {}
    for item in recording.kernels():
        if item.compile_id in list(compile_ids):  # type: ignore[call-overload]
            moved = None if item.language == "extern" else (item.compile_id == "0/1") * 1_000_000 + item.index
            cost = KernelCost(1, 30, lines=(f"{build.FILE}:6",), bytes_moved=moved)
            found[item.event, item.name] = [cost, replace(cost, number=2, bytes_moved=0 if moved else None)]
    return found


def _view(app: object) -> KernelsView:
    assert isinstance(app, Browser)
    assert isinstance(app.current, KernelsView)
    return app.current


async def test_what_moves_most_comes_first_and_the_unknown_last(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.views.kernels.read_kernel_costs", _costs)
    async with browsing(program) as pilot:
        await press(pilot, "7")
        table = _view(pilot.app).table
        assert [row.cells[-1] for row in table.rows].count("cpp_fused_relu_1 #2") == 2
        moved = [row.cells[4] for row in table.rows]
        assert moved == sorted(moved, key=lambda text: int(text.replace(",", "").replace("-", "-1")), reverse=True)
        assert moved[0].startswith("1,000,")
        assert moved[-1] == "-"
        assert table.cursor == 0
        assert "prog.py:6" in screen(pilot)
        await press(pilot, "f", *"0/1", "enter")
        assert {row.cells[1] for row in table.rows} == {"0/1"}


async def test_of_many_kernels_the_costs_are_read_when_the_screen_is_shown(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def read(recording: Recording, compile_ids: list[str], callers: object) -> KernelCosts:
        asked.extend(compile_ids)
        return _costs(recording, compile_ids, callers)

    monkeypatch.setattr("tui.views.kernels.read_kernel_costs", read)
    monkeypatch.setattr("tui.views.kernels.MAX_AUTOMATIC", 2)
    monkeypatch.setattr("tui.views.kernels._COMPILES_PER_READ", 1)
    async with browsing(program) as pilot:
        assert asked == []
        await press(pilot, "7")
        assert asked == ["0/0", "0/1"]
        assert _view(pilot.app).table.rows[0].cells[4].startswith("1,000,")


async def test_costs_are_those_of_the_generated_code(program: Path) -> None:
    async with browsing(program) as pilot:
        await press(pilot, "7")
        table = _view(pilot.app).table
        rows = {row.cells[-1]: row.cells for row in table.rows}
        assert table.border_subtitle == f"{len(table.rows)} calls of 6 kernels"
    assert rows["cpp_fused_relu_1"][2] == "inference"


async def test_what_was_measured_is_shown_and_sorted_by(tmp_path: Path, program: Path) -> None:
    path = tmp_path / "measured.dynadiag"
    path.write_bytes(program.read_bytes())
    with Session.open(path) as session:
        calls = [
            call for id_ in ("0/0", "0/1") for call in kernel_calls(session.recording, id_) if call.language == "cpp"
        ]
    times: dict[str, dict[str, object]] = {}
    for number, call in enumerate(calls):
        times.setdefault(str(call.event), {})[str(call.line)] = {"seconds": 1e-6 * (number + 2), "device_kernels": []}
    peaks = {"bytes_per_second": 1e9, "product_flops": {"f32": 1e9}, "vector_flops": 1e9}
    assert save_derived(
        path, "times", {"times": times, "peaks": peaks, "device": "cpu", "torch": "2.13.0", "errors": {}}
    )
    async with browsing(path) as pilot:
        await press(pilot, "7")
        table = _view(pilot.app).table
        assert [column.title for column in table.columns][-3:] == ["µs", "of peak", "name"]
        shown = [row.cells[-3] for row in table.rows]
        assert shown[: len(calls)] == [f"{number + 2:.1f}" for number in reversed(range(len(calls)))]
        assert set(shown[len(calls) :]) <= {"-"}
        assert "µs▼" in screen(pilot)
        assert f"{len(calls) + 1:.1f} µs" in screen(pilot)


async def test_a_narrow_screen_leaves_out_columns_and_not_the_names(program: Path) -> None:
    async with browsing(program, (72, 24)) as pilot:
        await press(pilot, "7")
        head, rows = screen(pilot).split("\n")[1], screen(pilot).split("\n")[2:8]
        assert "language" not in head
        assert "pass" in head
        assert "compile" in head
        assert any("triton_poi_fused_sin_0" in row for row in rows)
        table = _view(pilot.app).table
        table.move_to(next(place for place, row in enumerate(table.rows) if row.cells[-1] == "triton_poi_fused_sin_0"))
        await settle(pilot)
        assert "triton_poi_fused_sin_0  triton, compile 0/" in screen(pilot)
        await pilot.click(table, offset=(head.index("name"), 0))
        assert "name▲" in screen(pilot).split("\n")[1]
        await pilot.resize_terminal(120, 40)
        await settle(pilot)
        assert "language" in screen(pilot)


async def test_names_that_begin_alike_are_told_apart_where_they_are_cut(tmp_path: Path) -> None:
    name = "triton_poi_fused_" + "native_layer_norm_backward_" * 4
    module = "\n".join(build.MODULE.replace("triton_poi_fused_sin_0", f"{name}{number}") for number in (3, 14))
    events = [*build.run_events(), *build.compile_events("0/0", module=module), *build.end_events()]
    async with browsing(build.recording(tmp_path, events), (80, 24)) as pilot:
        await press(pilot, "7")
        rows = screen(pilot).split("\n")
        for end in ("ard_3", "ard_14"):
            assert any(row.rstrip("▅▂▆ ").endswith(end) and "triton_poi" in row and "…" in row for row in rows), end
        table = _view(pilot.app).table
        table.move_to(next(place for place, row in enumerate(table.rows) if row.cells[-1] == f"{name}3"))
        await settle(pilot)
        told = screen(pilot).split("detail")[1].split("\n")[1:4]
        assert "".join(told).startswith(f"{name}3  triton, compile 0/0")
        await press(pilot, "2", "E")
        rows = screen(pilot).split("\n")
        assert any(row.startswith("      triton  triton_poi") and row.endswith("backward_14") for row in rows)


@pytest.mark.parametrize("columns", [84, 114])
def test_a_kernel_takes_one_line_of_the_overview(columns: int) -> None:
    name = "triton_poi_fused_" + "native_layer_norm_backward_" * 4
    kernels = [Kernel(number, "0/0", f"{name}{number}", "triton", 5) for number in (3, 14)]
    cost = KernelCost(1, 4, lines=("programs/run_transformer.py:20",), bytes_moved=4)
    costs: KernelCosts = {(5, item.name): [cost] for item in kernels}
    told = [line.text for line in _lines(kernels, costs, 9, columns)][1:]
    assert all(len(line) <= columns and line.endswith("run_transformer.py:20") for line in told)
    assert [line.split()[-2].rpartition("_")[2] for line in told] == ["3", "14"]


async def test_where_compiling_failed_no_backend_is_blamed_for_the_missing_kernels(tmp_path: Path) -> None:
    events = [one for one in build.compile_events("0/0") if "inductor_output_code" not in one[0]]
    events[-1][0]["compilation_metrics"].update(
        fail_type="torch._inductor.exc.InductorError", fail_reason="LoweringException: no", has_guarded_code=False
    )
    made = [*build.run_events(), *build.source_events(), *events, *build.end_events(1)]
    async with browsing(build.recording(tmp_path, made, "failed")) as pilot:
        await press(pilot, "7")
        assert "no kernel was generated: compiling failed before that" in screen(pilot)


@pytest.mark.parametrize(("evidence", "shown"), [("dataflow", "prog.py:6?"), ("comment", "prog.py:6")])
async def test_a_line_that_was_only_inferred_bears_a_question_mark(
    evidence: str, shown: str, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def modules(recording: Recording, compile_id: str) -> list[GeneratedModule]:
        at = (SourceLine(build.FILE, 6),)
        read = generated_modules(recording, compile_id)
        calls = [[replace(call, source_lines=at, evidence=evidence) for call in unit.calls] for unit in read]
        return [replace(unit, calls=tuple(changed)) for unit, changed in zip(read, calls, strict=True)]

    monkeypatch.setattr("dynadiag.render.call_costs.generated_modules", modules)
    async with browsing(program) as pilot:
        await press(pilot, "7", "down", "down")  # to a kernel that is called
        assert {row.cells[7].split("/")[-1] for row in _view(pilot.app).table.rows} == {shown, "-"}
        assert ("? after a line: inferred from the generated code" in screen(pilot)) == shown.endswith("?")


@pytest.mark.parametrize(("share", "told"), [(0.9, False), (1.3, True)])
async def test_a_share_above_the_peak_says_how_that_can_be(
    share: float, told: bool, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(recording: Recording, compile_ids: object, callers: object) -> KernelCosts:
        found = _costs(recording, compile_ids, callers)
        return {key: [replace(cost, seconds=1e-6, peak_share=share) for cost in costs] for key, costs in found.items()}

    monkeypatch.setattr("tui.views.kernels.read_kernel_costs", measured)
    async with browsing(program) as pilot:
        await press(pilot, "7")
        assert f"1.0 µs, {share:.0%} of the device's peak" in screen(pilot)
        assert ("what came out of a cache" in screen(pilot)) == told


_AT = f"        # File: {build.FILE}:6 in f, code: y = x.sin()\n"
_TWICE = f"""class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[4][1]cpu"):
{_AT}        one: "f32[4][1]cpu" = OP(x);  x = None

{_AT}        two: "f32[4][1]cpu" = OP(one);  one = None
        return (two,)
"""
_CALLED_TWICE = """# AOT ID: ['0_inference']
import torch
async_compile = AsyncCompile()

cpp_fused_sin_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0)
{
    auto tmp0 = in_ptr0[0];
}
''')


class Runner:
    def call(self, args):
        x, = args
        cpp_fused_sin_0(x, buf0)
        cpp_fused_sin_0(buf0, buf1)
        return (buf1, )
"""


async def test_a_call_of_a_kernel_shows_the_nodes_that_it_computes(tmp_path: Path) -> None:
    """Both calls are of one line of source, as those of the layers of a model are."""
    operations = [
        [at, "ComputedBuffer", [f"buf{at}"], [], name, [name], None] for at, name in enumerate(("one", "two"))
    ]
    scheduled = json.dumps({"operations": operations, "sources": {"one": ["one"], "two": ["two"]}, "refused": []})
    events = build.compile_events("0/0", graph=_TWICE.replace("OP", "torch.sin"), module=_CALLED_TWICE)
    events[3] = events[3][0], _TWICE.replace("OP", "torch.ops.aten.sin.default")
    events.insert(4, ({"dynadiag_origins": {}, **build.at("0/0")}, scheduled))
    made = build.recording(tmp_path, [*build.run_events(), *build.source_events(), *events, *build.end_events()])
    async with browsing(made) as pilot:
        await press(pilot, "7")
        view = _view(pilot.app)
        view.table.move_to(next(at for at, row in enumerate(view.table.rows) if row.cells[-1].endswith("#2")))
        await press(pilot, "enter")
        code = pilot.app.query_one(CodeView)
        assert code.pane("kernel").text_of(code.pane("kernel").cursor).strip() == "cpp_fused_sin_0(buf0, buf1)"
        assert "call 2 of 2" in screen(pilot)
        for name in ("dynamo", "later"):
            pane = code.pane(name)
            assert [pane.text_of(line).split(" = ")[0].strip() for line in pane.highlighted] == ["two"], name
        await press(pilot, "shift+tab", "shift+tab")  # and back: a node leads to the call that computes it
        kernel = code.pane("kernel")
        calls = [kernel.text_of(line).strip() for line in kernel.highlighted]
        assert "cpp_fused_sin_0(buf0, buf1)" in calls
        assert "cpp_fused_sin_0(x, buf0)" not in calls
