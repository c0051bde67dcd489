"""The document that `explain --json` writes."""

from __future__ import annotations

import json
from typing import Any

from dynadiag.explanation.explanation import explain
from dynadiag.render.json_document import document, encode, explanation_json
from dynadiag.render.report import report
from tests.explanation.build import FakeRecording, a_break, a_graph, a_run
from tests.render.samples import EVIL, evil, full, full_recording

BREAK = {
    *("gb_id", "gb_type", "reason", "hints", "file", "line", "column", "end_line", "end_column"),
    *("function", "user_stack", "compile_id", "cause"),
}
# Every key that the contract names, by the list that it stands in.
KEYS = {
    "breaks": BREAK,
    "skipped_frames": {"file", "line", "function", "reason"},
    "recompiles": {"compile_id", "file", "line", "function", "reasons", "advice"},
    "compiles": {"compile_id", "file", "line", "function", "outcome", "seconds", "guards", "graphs"},
    "graphs": {"compile_id", "stage", "nodes", "ops"},
    "guards": {"compile_id", "kind", "source", "expression", "file", "line"},
    "kernels": {"compile_id", "name", "language"},
}
REASON = {"guard", "source", "was", "now", "against", "file", "line"}
TOP = {
    *("schema", "dynadiag", "torch", "target", "exit_code", "graph_count", "break_count", "recompile_count"),
    *KEYS,
}


def read(raw: bytes) -> dict[str, Any]:
    parsed = json.loads(raw)
    assert isinstance(parsed, dict)
    return parsed


def test_every_key_of_the_contract_is_there() -> None:
    made = read(explanation_json(full()))
    assert set(made) >= TOP
    for name, keys in KEYS.items():
        assert made[name], name
        assert all(set(item) >= keys for item in made[name]), name
    assert set(made["recompiles"][0]["reasons"][0]) >= REASON
    assert set(made["compiles"][0]["seconds"]) == {"total", "dynamo", "aot", "inductor", "codegen"}
    assert set(made["breaks"][0]["user_stack"][0]) == {"file", "line", "function"}


def test_the_values_are_those_of_the_records() -> None:
    made = read(explanation_json(full()))
    assert (made["schema"], made["torch"], made["target"], made["exit_code"]) == (1, "2.13.0", "prog.py", 1)
    first = made["breaks"][0]
    place = [first[key] for key in ("line", "column", "end_line", "end_column")]
    assert place == [3, 7, 3, 18]
    assert [item["cause"] for item in made["breaks"]] == [None, 0, None]
    assert (made["graph_count"], made["break_count"], made["recompile_count"]) == (2, 2, 2)
    assert [item["graphs"] for item in made["compiles"]] == [[0], [1, 2], []]
    assert made["recompiles"][0]["reasons"][0]["now"] == "5"


def test_indices_are_positions_in_the_lists() -> None:
    sparse = FakeRecording(break_records=(a_break(7), a_break(9)), graph_records=(a_graph(4),))
    made = document(explain(sparse))
    assert [item.cause for item in made.breaks] == [None, 0]


def test_nothing_compiled_leaves_the_lists_empty() -> None:
    made = read(explanation_json(explain(FakeRecording(run=a_run(exit_code=None)))))
    assert all(made[name] == [] for name in KEYS)
    assert made["exit_code"] is None


def test_half_a_surrogate_pair_is_written_as_an_escape() -> None:
    made = read(explanation_json(evil(EVIL)))
    assert "\\ud800" in made["target"]
    assert "\x1b[31m" in made["target"]  # JSON escapes it itself, and nothing is lost
    assert read(encode({"a": ["\udcff"], "n": 1})) == {"a": ["\\udcff"], "n": 1}


def test_python_callers_get_the_report_and_the_document() -> None:
    made = report(full_recording())
    assert "GB0170" in str(made)
    assert json.loads(made.to_json())["break_count"] == 2
