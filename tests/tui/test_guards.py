"""The guards of a compile: those on what can change come first, and those that failed before all others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dynadiag.recording.records import Guard
from tests.tui import build
from tests.tui.conftest import browsing, press, screen, settle
from tui.views.guards import GuardsView, _rank, _row, condition_text


def _guard(kind: str, source: str) -> Guard:
    return Guard(0, "0/0", kind, source, f"{source} == 1", None, None)


def test_what_can_change_comes_first() -> None:
    identity, size, state = _guard("ID_MATCH", "L['f']"), _guard("TENSOR_MATCH", "L['x']"), _guard("GLOBAL_STATE", "")
    failed, constant = _guard("EQUALS_MATCH", "L['n']"), _guard("EQUALS_MATCH", "G['LIMIT']")
    mark = _guard("DIMENSION_DYNAMIC_MARKING_GUARD", "L['x']")
    order = sorted([state, mark, constant, identity, size, failed], key=lambda item: _rank(item, {"L['n']"}))
    assert order == [failed, size, identity, state, constant, mark]


def test_a_guard_reads_as_the_program_does_and_bears_a_sign_where_it_failed() -> None:
    assert _row(_guard("EQUALS_MATCH", "L['n']"), None, failed=True).cells == ("n ↻", "EQUALS_MATCH", "-", "== 1")
    assert _row(_guard("GLOBAL_STATE", ""), None, failed=False).cells[0] == "-"


def test_of_a_tensor_the_type_and_the_shape_come_first() -> None:
    text = (
        "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, AutogradCPU), torch.float32, device=None, "
        "requires_grad=False, size=[2, 3], stride=[3, 1])"
    )
    guard = replace(_guard("TENSOR_MATCH", "L['x']"), expression=text)
    told = "float32, size=[2, 3], stride=[3, 1], requires_grad=False, device=None, DispatchKeySet(CPU, AutogradCPU)"
    assert condition_text(guard) == _row(guard, None, failed=False).cells[-1] == told
    assert condition_text(replace(guard, expression="L['x'] == 1")) == "== 1"


def test_a_condition_does_not_repeat_the_value_beside_it() -> None:
    guard = replace(_guard("LENGTH_CHECK", "L['self'].layers"), expression="len(L['self'].layers) == 3")
    assert condition_text(guard) == "len(…) == 3"
    assert condition_text(replace(guard, source="L['self'].lay")) == "len(self.layers) == 3"
    assert condition_text(replace(guard, source="L['x']", expression="check_aliasing(L['x'], L['y'])")) == (
        "check_aliasing(x, y)"
    )
    assert condition_text(replace(guard, source="L['x']", expression="L['x'] is None")) == "is None"


def test_a_value_without_a_condition_of_its_own_has_none() -> None:
    assert condition_text(replace(_guard("NO_TENSOR_ALIASING", "L['y']"), expression="")) == "-"


async def test_the_screen_opens_with_a_compile_that_has_guards(tmp_path: Path) -> None:
    bare = [event for event in build.compile_events("0/0") if "dynamo_cpp_guards_str" not in event[0]]
    events = [*build.run_events(), *bare, *build.compile_events("1/0"), *build.end_events()]
    async with browsing(build.recording(tmp_path, events)) as pilot:
        await press(pilot, "6")
        assert "Guards of 1/0 f · 1" in screen(pilot)


async def test_a_compile_that_failed_has_no_guards(tmp_path: Path) -> None:
    events = [event for event in build.compile_events("0/0") if "dynamo_cpp_guards_str" not in event[0]]
    events[-1][0]["compilation_metrics"].update(fail_type="E", fail_reason="no", has_guarded_code=False)
    async with browsing(build.recording(tmp_path, [*build.run_events(), *events, *build.end_events(1)])) as pilot:
        await press(pilot, "6")
        assert "no guard was made: this compile failed before that" in screen(pilot)


async def test_a_guard_that_is_not_there_any_more_has_no_detail(program: Path) -> None:
    """The guards of the next compile may come while the detail of one is read."""
    async with browsing(program) as pilot:
        await press(pilot, "6")
        view = pilot.app.query_one(GuardsView)
        (known,) = view._guards
        assert view.detail(known)
        assert view.detail(known + 1000) == []


async def test_a_guard_that_failed_tells_the_change_that_its_own_compile_did_not_fit(tmp_path: Path) -> None:
    """A later recompile, which another compile came nearer to, has other changes."""
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0")]
    for compile_id, source, was, now, against in (
        ("0/1", "L['x'].dtype", "torch.float32", "torch.bfloat16", "0/0"),
        ("0/2", "L['x'].dtype", "torch.bfloat16", "torch.float32", "0/1"),
    ):
        (made, text), artifact = build.recompile_events(compile_id, was, now)
        guard = f"tensor 'x' dtype mismatch. expected {was}, actual {now}"
        made["dynadiag_recompile"]["failures"][0].update(guard=guard, source=source, against=against)
        events += [(made, text), artifact, *build.compile_events(compile_id)]
    async with browsing(build.recording(tmp_path, [*events, *build.end_events()])) as pilot:
        await press(pilot, "6")
        assert "it failed: x.dtype: torch.float32 → torch.bfloat16" in screen(pilot)
        await press(pilot, "J")
        assert "it failed: x.dtype: torch.bfloat16 → torch.float32" in screen(pilot)


async def test_a_guard_that_failed_tells_its_own_change(tmp_path: Path) -> None:
    """And not that of a mode, which made the same recompile."""
    (made, text), artifact = build.recompile_events("0/1", "4", "5")
    mode = {"guard": "___check_global_state()", "source": None, "was": "True", "now": "False", "against": "0/0"}
    made["dynadiag_recompile"]["failures"].insert(0, mode)
    recompiled = [(made, text), artifact, *build.compile_events("0/1")]
    events = [*build.run_events(), *build.source_events(), *build.compile_events("0/0"), *recompiled]
    async with browsing(build.recording(tmp_path, [*events, *build.end_events()])) as pilot:
        await press(pilot, "6")
        assert "it failed: x.size()[0]: 4 → 5\n" in "\n".join(row.rstrip("│ ") for row in screen(pilot).split("\n"))


async def test_of_a_long_value_the_end_is_shown_and_that_it_failed(program: Path) -> None:
    async with browsing(program, (80, 24)) as pilot:
        await press(pilot, "6")
        table = pilot.app.query_one(GuardsView).table
        table.show([_row(_guard("TENSOR_MATCH", "self.first.attention.projection.weight"), None, failed=True)])
        await settle(pilot)
        assert "weight ↻  " in screen(pilot)


async def test_the_tree_opens_at_the_guard_and_a_branch_of_none_has_no_detail(tmp_path: Path) -> None:
    tree = ["", "TREE_GUARD_MANAGER:", "+- RootGuardManager"]
    for number in range(60):
        source = f"L['s'].part.value{number}"
        tree += [f"| +- GuardManager: source={source}, accessed_by=X()", f"| | +- EQUALS_MATCH: {source} == {number}"]
    events = build.compile_events("0/0")
    guards = next(place for place, event in enumerate(events) if "dynamo_cpp_guards_str" in event[0])
    events[guards] = (events[guards][0], "\n".join(tree))
    made = [*build.run_events(), *events, *build.end_events()]
    async with browsing(build.recording(tmp_path, made)) as pilot:
        await press(pilot, "6", "j", "j", "v")
        view = pilot.app.query_one(GuardsView)
        chosen = view.details.full_text()
        assert view.tree_.text_of(view.tree_.cursor).endswith("== 2")
        assert view.tree_.scroll_y == 0  # the value that it checks stands above it
        assert "value2" in chosen
        await press(pilot, "h")
        assert view.details.full_text() == ""
        await press(pilot, "v")
        assert view.details.full_text() == chosen
