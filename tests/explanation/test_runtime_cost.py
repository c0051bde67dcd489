"""The cost of breaks and the use of compiled code, from profiles built by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dynadiag.explanation.breaks import break_findings
from dynadiag.explanation.findings import Finding, ranked
from dynadiag.explanation.runtime_cost import WARM, CodeRun, WarmCalls, costs, entries, read_warm_calls
from dynadiag.recording.records import Break, Compile, Event, Seconds, Span
from tests.explanation.build import FakeRecording, records

FILE = "/home/user/prog.py"


def a_break(index: int, compile_id: str, cause: int | None = None, *, fatal: bool = False) -> Break:
    return Break(
        index=index,
        gb_id="GB0025",
        gb_type="a type",
        reason="",
        explanation="",
        hints=(),
        span=Span(FILE, index + 1),
        function="f",
        user_stack=(),
        compile_id=compile_id,
        cause=cause,
        fatal=fatal,
    )


def use(compile_id: str, parent: str | None, after: float = 0.0, **more: float) -> CodeRun:
    numbers = {"calls": 1.0, "graphs": 1.0, "guard": 1.0, "before": 2.0, "operators": 0.0, "launches": 0.0, **more}
    return CodeRun(compile_id, parent, after=after, **numbers)


def warm(*uses: CodeRun, outside_operators: float = 0.0) -> WarmCalls:
    return WarmCalls(10, 1000.0, 7.0, outside_operators, uses)


def test_a_break_costs_what_passes_after_its_graph_and_the_way_into_the_next() -> None:
    found = costs(
        [a_break(0, "0/0"), a_break(1, "1/0")],
        warm(use("0/0", None, 30.0, operators=2.0), use("1/0", "0/0", 500.0), use("2/0", "1/0", 4.0)),
    )
    assert [found[index].seconds for index in (0, 1)] == [30 + 1 + 2, 500 + 1 + 2]
    assert (found[0].operators, found[0].entries, found[0].graphs, found[0].guard) == (2, 1, 1, 1)


def test_the_cost_of_a_consequence_is_its_roots() -> None:
    found = costs(
        [a_break(0, "1/0"), a_break(1, "0/0", cause=0)],
        warm(use("0/0", None, 10.0), use("1/0", "0/0", 20.0), use("2/0", "1/0"), use("3/0", "0/0")),
    )
    assert {index: cost.seconds for index, cost in found.items()} == {0: 10 + 20 + 3 * 3}


def test_a_function_that_was_left_to_python_costs_what_passed_in_no_compiled_code() -> None:
    (only,) = costs([a_break(0, "0/0")], warm(use("1/0", None), outside_operators=3.0)).values()
    assert (only.seconds, only.operators) == (7.0, 3.0)
    assert costs([a_break(0, "0/0")], warm(use("1/0", None))) == {}
    assert costs([a_break(0, "0/0"), a_break(1, "1/0")], warm(outside_operators=3.0)) == {}  # nobody knows whose


def test_breaks_stand_in_the_order_of_their_cost_where_it_was_measured() -> None:
    ids = ("0/0", "1/0", "9/0", "8/0")
    met = tuple(replace(a_break(i, id_, fatal=i == 3), function=f"f{i}") for i, id_ in enumerate(ids))
    profile = warm(use("0/0", None, 30.0), use("1/0", "0/0", 500.0))
    assert [item.records[0] for item in _findings(met, profile)] == [3, 1, 0, 2]
    assert [item.records[0] for item in _findings(met, None)] == [3, 0, 1, 2]
    assert all(item.cost.call is None for item in _findings(met, None))


def _findings(breaks: tuple[Break, ...], profile: WarmCalls | None) -> tuple[Finding, ...]:
    return ranked(break_findings(records(breaks=breaks, warm=profile)))


def a_compile(compile_id: str, outcome: str = "ok") -> Compile:
    return Compile(
        index=0,
        compile_id=compile_id,
        file=FILE,
        line=1,
        function="f",
        user_stack=(),
        outcome=outcome,
        seconds=Seconds(),
        guards=3,
        attempts=1,
        error=None,
        reason=None,
        cache=None,
    )


def test_code_is_hot_by_its_runs_and_cold_where_no_call_ran_it() -> None:
    profile = replace(warm(use("0/1", None), use("1/0", "0/1", calls=4.0, guard=8.0)), others=("0/2",))
    compiles = [a_compile(each) for each in ("0/0", "0/1", "0/2", "1/0")] + [a_compile("2/0", "skipped")]
    found = {entry.compile.compile_id: entry for entry in entries(compiles, profile)}
    assert list(found) == ["1/0", "0/1", "0/0", "0/2"]
    assert (found["1/0"].calls, found["1/0"].guard) == (4, 2)
    assert [each for each, entry in found.items() if not entry.run] == ["0/0"]
    assert entries(compiles, None) == ()


class Log(FakeRecording):
    """A recording with one event."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self._payload = payload.decode()

    def events(self, kind: str | None = None, *, compile_id: str | None = None) -> tuple[Event, ...]:
        return (Event(0, WARM, None, "-", None, len(self._payload), None),) if kind == WARM else ()

    def payload(self, event: int) -> str:
        assert event == 0
        return self._payload


def test_what_was_written_is_read() -> None:
    profile = warm(use("0/0", None), use("1/0", "0/0"))
    assert read_warm_calls(Log(msgspec.json.encode(profile))) == profile


@pytest.mark.parametrize(
    "change",
    [
        {"calls": "5"},
        {"seconds": -1.0},
        {"uses": [{}]},
        {"uses": 3},
        {"outside": None},
        {"calls": True},
        {"seconds": "inf"},
    ],
)
def test_a_damaged_profile_is_none(change: dict[str, Any]) -> None:
    data = {**msgspec.to_builtins(warm(use("0/0", None))), **change}
    assert read_warm_calls(Log(msgspec.json.encode(data))) is None
