"""The compiles of two recordings are matched by code and content."""

from __future__ import annotations

from typing import Any

from dynadiag.diff.compile_matching import GraphReader, match_compiles
from dynadiag.recording.records import Compile, Graph, Seconds

_GRAPH = '    def forward(self, x: "f32[4]"):\n        y: "f32[4]" = x.{}()\n        return (y,)\n'


class _Recording:
    """Compiles given as (id, function, operator of its graph)."""

    def __init__(self, *compiles: tuple[str, str, str]) -> None:
        self._given = compiles

    def compiles(self) -> tuple[Compile, ...]:
        return tuple(
            Compile(index, id_, "f.py", index, function, (), "ok", 1, Seconds(), 0, None, None, None)
            for index, (id_, function, _) in enumerate(self._given)
        )

    def graphs(self, compile_id: str | None = None) -> tuple[Graph, ...]:
        return tuple(Graph(index, id_, "dynamo", 3, 1, index) for index, (id_, _, _) in enumerate(self._given))

    def payload(self, event: int) -> str:
        return _GRAPH.format(self._given[event][2])


def _matched(before: Any, after: Any) -> list[tuple[str | None, str | None]]:
    pairs = match_compiles(GraphReader(before), GraphReader(after))
    return [(_id(pair.before), _id(pair.after)) for pair in pairs]


def _id(item: Compile | None) -> str | None:
    return None if item is None else item.compile_id


def test_numbers_do_not_count() -> None:
    before = _Recording(("0/0", "f", "sin"), ("1/0", "g", "cos"))
    after = _Recording(("0/0", "g", "cos"), ("4/0", "f", "sin"))
    assert _matched(before, after) == [("1/0", "0/0"), ("0/0", "4/0")]


def test_a_renamed_function_is_known_by_its_graph() -> None:
    assert _matched(_Recording(("0/0", "f", "sin")), _Recording(("0/0", "h", "sin"))) == [("0/0", "0/0")]


def test_a_function_with_another_graph_is_known_by_its_name() -> None:
    assert _matched(_Recording(("0/0", "f", "sin")), _Recording(("0/0", "f", "cos"))) == [("0/0", "0/0")]


def test_a_recompile_that_only_one_side_has_stays_alone() -> None:
    before = _Recording(("0/0", "f", "sin"), ("0/1", "f", "tan"))
    after = _Recording(("0/0", "f", "sin"), ("0/1", "f", "cos"), ("0/2", "f", "tan"))
    assert _matched(before, after) == [("0/0", "0/0"), (None, "0/1"), ("0/1", "0/2")]
    assert _matched(after, before) == [("0/0", "0/0"), ("0/2", "0/1"), ("0/1", None)]


def test_resume_functions_are_matched_whatever_their_line() -> None:
    before = _Recording(("0/0", "f", "sin"), ("1/0", "torch_dynamo_resume_in_f_at_3", "cos"))
    after = _Recording(("0/0", "f", "sin"), ("1/0", "torch_dynamo_resume_in_f_at_9", "tan"))
    assert _matched(before, after) == [("0/0", "0/0"), ("1/0", "1/0")]
