"""The records of each event: for events made by hand, for a log that torch wrote, and for arbitrary input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.recording.digest.digest import Digest
from dynadiag.recording.json_values import int_or_none
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import (
    Break,
    Compile,
    Event,
    Graph,
    Guard,
    Kernel,
    Recompile,
    Record,
    Run,
    SkippedFrame,
    Span,
    Symbol,
)
from dynadiag.recording.torch_text.breaks import parse_message

ZERO = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
ONE = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}


def digest(*events: tuple[dict[str, Any], str]) -> list[Record]:
    """The records of ``(metadata, payload)`` pairs, in the order in which they come."""
    made, found = Digest(), list[Record]()
    for index, (metadata, payload) in enumerate(events):
        kind = next(iter(metadata))
        body = metadata[kind]
        name = body.get("name") if isinstance(body, dict) else None
        frame, number = metadata.get("frame_id"), metadata.get("frame_compile_id")
        compile_id = "-" if frame is None else f"{frame}/{number}"
        event = Event(index, kind, name, compile_id, metadata.get("attempt"), len(payload), None)
        found += made.event(event, metadata, lambda payload=payload: payload)  # type: ignore[misc]
    return [*found, *made.finish(), made.run()]


def only(records: list[Record], kind: type[Any]) -> list[Any]:
    return [record for record in records if isinstance(record, kind)]


def artifact(name: str, context: dict[str, int] = ZERO) -> dict[str, Any]:
    return {"artifact": {"name": name, "encoding": "string"}, **context}


BREAK = """Graph break in user code at /u/p.py:7
Graph Break Reason: Call to `torch._dynamo.graph_break()`
  Explanation: User-inserted graph break. Message: None
  Hint: Remove the `torch._dynamo.graph_break()` call.

  Developer debug context: Called `torch._dynamo.graph_break()`

 For more details about this graph break, please visit: https://meta-pytorch.github.io/x/gb/gb0025.html
User code traceback:
  File "/u/main.py", line 3, in <module>
    f(x)
  File "/u/p.py", line 7, in torch_dynamo_resume_in_inner_at_6
    torch._dynamo.graph_break()
"""
STARTS: list[tuple[dict[str, Any], str]] = [
    ({"str": ["/u/p.py", 3]}, ""),
    ({"dynamo_start": {"stack": [{"filename": 3, "line": 5, "name": "f"}]}, **ZERO}, ""),
]
ENDS = (
    {
        "compilation_metrics": {
            "entire_frame_compile_time_s": 2.0,
            "backend_compile_time_s": 0.5,
            "has_guarded_code": True,
        },
        **ZERO,
    },
    "",
)


def test_a_break_of_a_foreign_log_has_what_its_text_says() -> None:
    (found,) = only(digest((artifact("dynamo_graph_break_reason"), BREAK)), Break)
    assert (found.gb_id, found.gb_type) == ("GB0025", "Call to `torch._dynamo.graph_break()`")
    assert found.explanation == "User-inserted graph break. Message: None"
    assert found.hints == ("Remove the `torch._dynamo.graph_break()` call.",)
    assert (found.span.file, found.span.line, found.span.column) == ("/u/p.py", 7, None)
    assert found.function == "inner"
    assert [frame.line for frame in found.user_stack] == [3, 7]
    assert not found.fatal


def test_a_break_of_ours_has_its_columns() -> None:
    place = {"file": "/u/p.py", "line": 7, "column": 4, "end_line": 8, "end_column": 9, "function": "C.g"}
    found = digest(({"dynadiag_break": place, **ZERO}, ""), (artifact("dynamo_graph_break_reason"), BREAK))
    (item,) = only(found, Break)
    assert (item.span.column, item.span.end_line, item.span.end_column) == (4, 8, 9)
    assert item.function == "C.g"


def test_an_exception_of_fullgraph_is_a_fatal_break_once() -> None:
    text = "Traceback (most recent call last):\n\ntorch._dynamo.exc.Unsupported: " + BREAK.partition("Reason: ")[2]
    raised = {"dynadiag_break": {"fatal": True, "raised": "Unsupported", "line": 7, "file": "/u/p.py"}, **ZERO}
    (alone,) = only(digest((raised, ""), (artifact("dynamo_error"), text)), Break)
    assert alone.fatal
    logged = [
        ({"dynadiag_break": {"line": 7, "file": "/u/p.py"}, **ZERO}, ""),
        (artifact("dynamo_graph_break_reason"), BREAK),
    ]
    (first,) = only(digest(*logged, (raised, ""), (artifact("dynamo_error"), text)), Break)
    assert not first.fatal


def test_an_error_that_is_no_break_is_none() -> None:
    assert not only(digest((artifact("dynamo_error"), "Traceback\nValueError: no")), Break)


def test_a_compile_has_its_place_its_times_and_its_end() -> None:
    (found,) = only(digest(*STARTS, ENDS), Compile)
    assert (found.compile_id, found.file, found.line, found.function) == ("0/0", "/u/p.py", 5, "f")
    assert (found.seconds.total, found.seconds.dynamo, found.seconds.aot) == (2.0, 1.5, 0.5)
    assert found.outcome == "ok"


def test_a_compile_that_the_log_does_not_end_is_an_error() -> None:
    (found,) = only(digest(*STARTS), Compile)
    assert found.outcome == "error"
    assert "ends during" in (found.reason or "")


def test_a_frame_without_guarded_code_was_skipped() -> None:
    metrics = ({"compilation_metrics": {"co_name": "f", "co_filename": "/u/p.py", "co_firstlineno": 5}, **ZERO}, "")
    records = digest(*STARTS, metrics)
    assert only(records, SkippedFrame)[0].function == "f"
    assert only(records, Compile)[0].outcome == "skipped"


def test_the_rest_of_a_split_function_is_not_said_to_have_no_operation_at_all() -> None:
    metrics = ({"compilation_metrics": {"co_name": "f", "co_filename": "/u/p.py", "co_firstlineno": 5}, **ZERO}, "")
    name = {"file": "/u/p.py", "line": 7, "function": "torch_dynamo_resume_in_f_at_6"}
    records = digest(({"dynadiag_frame": name, **ZERO}, ""), *STARTS[-1:], metrics)
    (found,) = only(records, SkippedFrame)
    assert (found.function, found.line) == ("f", 7)
    assert found.reason == "what follows the break has no tensor operation"


def test_ids_that_are_given_out_again_are_told_apart() -> None:
    again = digest(*STARTS, ENDS, *STARTS, (artifact("dynamo_graph_break_reason"), BREAK), ENDS)
    assert [item.compile_id for item in only(again, Compile)] == ["0/0", "0/0#2"]
    assert [item.outcome for item in only(again, Compile)] == ["ok", "break"]
    assert only(again, Break)[0].compile_id == "0/0#2"


def test_torchs_own_sentence_of_a_recompile_is_read() -> None:
    told = "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 5"
    records = digest(*STARTS, ENDS, (artifact("recompile_reasons", ONE), json.dumps(told)), ({**ENDS[0], **ONE}, ""))
    (found,) = only(records, Recompile)
    (reason,) = found.reasons
    assert (found.compile_id, reason.against) == ("0/1", "0/0")
    assert (reason.source, reason.was, reason.now) == ("x.size()[0]", "4", "5")


def test_our_failures_take_the_place_of_torchs_for_their_entry() -> None:
    ours = {"failures": [{"guard": "L['k'] == 3", "source": "L['k']", "was": "3", "now": "4", "against": "0/0"}]}
    told = json.dumps(["0/0: x == 1", "0/7: y == 2"])
    events = [({"dynadiag_recompile": ours, **ONE}, ""), (artifact("recompile_reasons", ONE), told)]
    (found,) = only(digest(*STARTS, ENDS, *events, ({**ENDS[0], **ONE}, "")), Recompile)
    assert [(reason.against, reason.source) for reason in found.reasons] == [("0/0", "L['k']"), ("0/7", "y")]


def test_a_recompile_without_reasons_has_none() -> None:
    (found,) = only(
        digest(*STARTS, ENDS, (artifact("recompile_reasons", ONE), "[]"), ({**ENDS[0], **ONE}, "")), Recompile
    )
    assert found.reasons == ()


def test_the_guard_tree_becomes_guards_with_lines() -> None:
    tree = (
        "\nTREE_GUARD_MANAGER:\n+- RootGuardManager\n| +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None\n"
        "| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x', framelocals_idx=0)\n"
        "| | +- TENSOR_MATCH: check_tensor(L['x'], ...)  # return x  # p.py:9 in f\n"
    )
    places = {"dynadiag_guards": {"places": [["TENSOR_MATCH", "L['x']", "/u/p.py", 9, "f"]]}, **ZERO}
    device, tensor = only(digest((places, ""), ({"dynamo_cpp_guards_str": {}, **ZERO}, tree)), Guard)
    assert (device.kind, device.source, device.line) == ("DEFAULT_DEVICE", "", None)
    assert (tensor.kind, tensor.source, tensor.file, tensor.line) == ("TENSOR_MATCH", "L['x']", "/u/p.py", 9)
    assert tensor.expression == "check_tensor(L['x'], ...)"


def test_symbols_are_read() -> None:
    data = {"symbol": "s77", "val": "4", "sources": ["L['x'].size()[0]"], "user_stack": []}
    (found,) = only(digest(({"create_symbol": data, **ZERO}, "")), Symbol)
    assert (found.name, found.value, found.source, found.event) == ("s77", "4", "L['x'].size()[0]", "created")


def test_a_run_that_nobody_ended_was_cut_short() -> None:
    start = ({"dynadiag_run": {"target": "x.py", "pid": 5, "torch": "2.13.0"}}, "")
    (cut,) = only(digest(start), Run)
    assert (cut.complete, cut.exit_code) == (False, None)
    assert any("cut short" in note for note in cut.notes)
    (ended,) = only(digest(start, ({"dynadiag_exit": {"code": -9}}, "")), Run)
    assert (ended.complete, ended.exit_code) == (True, -9)
    assert any("signal 9" in note for note in ended.notes)


def test_what_was_missed_or_stopped_is_a_note() -> None:
    events: list[tuple[dict[str, Any], str]] = [
        ({"dynadiag_run": {"target": "x.py"}}, ""),
        ({"dynadiag_missed": {"probe": "dynamo_start", "error": "KeyError: 'code'"}, **ZERO}, ""),
        ({"dynadiag_missed": {"probe": "journal", "error": "the journal was closed"}}, ""),
        ({"dynadiag_limit": {"bytes": 10}}, ""),
        ({"dynadiag_stopped": {"calls": 3}}, ""),
        ({"dynadiag_exit": {"code": 0, "notes": ["mine"]}}, ""),
    ]
    notes = " | ".join(only(digest(*events), Run)[0].notes)
    for word in ("dynamo_start: KeyError", "closed: it was opened again", "size limit", "--stop-after 3", "mine"):
        assert word in notes


def test_a_log_that_torch_wrote_is_read_whole(torch_recording: Path) -> None:
    with Recording(torch_recording) as recording:
        assert [item.gb_id for item in recording.breaks()] == ["GB0025"] * len(recording.breaks())
        lines = {item.span.line for item in recording.breaks()}
        assert lines == {7}
        assert {item.function for item in recording.compiles()} == {"broken"}
        assert all(item.outcome in ("ok", "break") for item in recording.compiles())
        assert all(item.seconds.total for item in recording.compiles())
        stages = {graph.stage for graph in recording.graphs()}
        assert {"dynamo", "joint", "forward", "backward"} <= stages
        assert all(graph.nodes > 0 for graph in recording.graphs())
        changed = {reason.source for item in recording.recompiles() for reason in item.reasons}
        assert any("size" in (source or "") for source in changed)
        assert recording.symbols()
        assert recording.run.exit_code is None
        assert any("imported" in note for note in recording.run.notes)
        assert not only(list(recording.kernels()), Kernel)


def test_nodes_of_a_printed_graph_are_counted(torch_recording: Path) -> None:
    with Recording(torch_recording) as recording:
        for graph in recording.graphs():
            text = recording.payload(graph.event)
            assert graph.ops < graph.nodes <= text.count("\n")


KINDS = st.sampled_from(
    [
        "artifact",
        "dynamo_start",
        "compilation_metrics",
        "bwd_compilation_metrics",
        "dynamo_output_graph",
        "dynamo_cpp_guards_str",
        "create_symbol",
        "inductor_output_code",
        "aot_joint_graph",
        "str",
        *(
            f"dynadiag_{name}"
            for name in ("run", "end", "exit", "frame", "break", "graph", "guards", "recompile", "trial")
        ),
        *(f"dynadiag_{name}" for name in ("source", "missed", "limit", "stopped", "origins", "other")),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12) | KINDS, inner, max_size=4),
    max_leaves=8,
)
KEYS = (
    "name",
    "stack",
    "file",
    "line",
    "function",
    "places",
    "failures",
    "nodes",
    "stacks",
    "notes",
    "code",
    "user_stack",
)
BODIES = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4) | JSON
NAMES = (
    "dynamo_graph_break_reason",
    "dynamo_error",
    "recompile_reasons",
    "fx_graph_cache_hit",
    "before_pre_grad_graph",
)


@st.composite
def events(draw: st.DrawFn) -> tuple[dict[str, Any], str]:
    kind = draw(KINDS)
    body: Any = {"name": draw(st.sampled_from(NAMES))} if kind == "artifact" else draw(BODIES)
    context = draw(st.sampled_from([ZERO, ONE, {}]))
    return {kind: body, **context}, draw(st.text(max_size=60) | JSON.map(json.dumps) | st.just(BREAK))


@given(st.lists(events(), max_size=12))
def test_anything_is_read_without_an_error(log: list[tuple[dict[str, Any], str]]) -> None:
    records = digest(*log)
    assert len(only(records, Run)) == 1
    for kind in (Break, Compile, Graph, Guard, Recompile):
        assert [record.index for record in only(records, kind)] == list(range(len(only(records, kind))))


@pytest.mark.parametrize("value", [5, None, True, "x", [1], [[1]], {"a": [1]}])
def test_a_value_of_another_type_is_left_out(value: object) -> None:
    """A stranger may have made the log."""
    at = {"file": "/u/p.py", "function": "f", "line": value}
    error = "\ntorch._dynamo.exc.Unsupported: it\n https://x/gb/gb0001.html"
    nodes = [{"name": "a", "op": "call_function", "target": "t", "stack": 0}]
    records = digest(
        ({"dynadiag_run": {"argv": value}}, ""),
        ({"dynadiag_guards": {"places": value}, **ZERO}, ""),
        (artifact("dynamo_cpp_guards_str"), GUARDS_ON_KEYS),
        ({"dynadiag_recompile": {"failures": value}, **ZERO}, ""),
        (artifact("recompile_reasons"), json.dumps(value)),
        ({"dynadiag_break": at, **ZERO}, ""),
        (artifact("dynamo_error"), error),
        ({"dynadiag_graph": {}, **ZERO}, json.dumps({"nodes": nodes, "stacks": value})),
        ({"dynamo_output_graph": {}, **ZERO}, ""),
        ({"dynadiag_graph": {}, **ONE}, json.dumps({"nodes": value, "stacks": []})),
        ({"dynamo_output_graph": {}, **ONE}, ""),
        ({"dynadiag_exit": {"code": 0, "notes": value}}, ""),
    )
    assert len(only(records, Graph)) == 2
    assert only(records, Run)[0].exit_code == 0


def test_a_frame_skipped_after_tracing_is_skipped_though_it_has_the_flag_of_code() -> None:
    metrics = {"compilation_metrics": {"has_guarded_code": True, "guard_count": None}, **ZERO}
    found = digest(*STARTS, (metrics, ""))
    (compile_,), (frame,) = only(found, Compile), only(found, SkippedFrame)
    assert compile_.outcome == "skipped"
    assert frame.reason.startswith("no tensor operation in it")


def test_a_break_without_a_place_stands_at_the_function_that_was_compiled() -> None:
    text = BREAK[: BREAK.index("User code traceback:")].replace("Graph break in user code at /u/p.py:7\n", "")
    (found,) = only(digest(*STARTS, (artifact("dynamo_graph_break_reason"), text)), Break)
    assert (found.span.file, found.span.line, found.function) == ("/u/p.py", 5, "f")


GUARDS_ON_KEYS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- DictGuardManager: source=L['d'], accessed_by=FrameLocalsGuardAccessor(key='d'), type=<class 'dict'>
| | +- KeyValueManager pair at index=0
| | | +- KeyManager: GuardManager: source=list(dict.keys(L['d']))[0], type=<class 'str'>, tag_safe=(False, False)
| | | | +- EQUALS_MATCH: list(dict.keys(L['d']))[0] == 'a'  # return list(d)  # utils/_pytree.py:895 in _flatten
| | | +- ValueManager: GuardManager: source=L['d']['a'], type=<class 'torch.Tensor'>, tag_safe=(False, False)
| | | | +- TYPE_MATCH: ___check_type_id(L['d']['a'], 1), type=<class 'torch.Tensor'>
"""


def test_guards_on_the_keys_and_values_of_a_dict_have_their_source_and_the_line_of_the_dict() -> None:
    ours = {"dynadiag_guards": {"places": [["DICT_KEYS_MATCH", "L['d']", "/u/p.py", 6, "f"]]}, **ZERO}
    keys, values = only(digest(*STARTS, (ours, ""), ({"dynamo_cpp_guards_str": {}, **ZERO}, GUARDS_ON_KEYS)), Guard)
    assert (keys.source, keys.file, keys.line) == ("list(dict.keys(L['d']))[0]", "/u/p.py", 6)
    assert (values.source, values.file, values.line) == ("L['d']['a']", "/u/p.py", 6)


def test_a_break_without_an_explanation_has_what_torch_tells_its_developers() -> None:
    text = (
        "Graph Break Reason: Encountered graph break:\n\nTypeError when making fake tensor call\n  Explanation: \n"
        "  Hint: Look.\n\n  Developer debug context: TypeError <built-in add at 0x7feb8e>: must be Tensor, not str\n\n"
        " For more details about this graph break, please visit: https://x/gb/gb0112.html\n"
    )
    found = parse_message(text)
    assert found.explanation == "TypeError <built-in add>: must be Tensor, not str"
    assert (found.gb_id, found.hints) == ("GB0112", ("Look.",))


def test_a_break_inside_torchs_own_code_says_where() -> None:
    inner = "/env/lib/python3.11/site-packages/torch/optim/optimizer.py"
    text = (
        "Graph break in user code at /u/p.py:9\nGraph Break Reason: Call to `torch._dynamo.graph_break()`\n"
        "  Explanation: User-inserted graph break.\n\nUser code traceback:\n"
        f'  File "/u/p.py", line 9, in step\n    opt.step()\n  File "{inner}", line 79, in inner\n'
    )
    place = {"dynadiag_break": {"file": "/u/p.py", "line": 9}, **ZERO}
    (found,) = only(digest((place, ""), (artifact("dynamo_graph_break_reason"), text)), Break)
    assert (found.facts.inside, found.facts.inside_function) == (Span(inner, 79), "inner")
    (own,) = only(digest((artifact("dynamo_graph_break_reason"), BREAK)), Break)
    assert own.facts.inside.file is None


@pytest.mark.parametrize(("number", "read"), [(7, 7), (-(1 << 63), -(1 << 63)), (1 << 63, None), (True, None)])
def test_a_number_that_sqlite_cannot_hold_is_none(number: object, read: int | None) -> None:
    assert int_or_none(number) == read
