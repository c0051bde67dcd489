"""What a cause led to, and which is the worst."""

from __future__ import annotations

from dynadiag.explain.impact import impacts
from dynadiag.recording.records import Span
from tests.explain.build import FILE, a_break, a_graph, a_recompile


def at(line: int) -> Span:
    return Span(FILE, line, 0, line, 4)


def test_a_cause_gathers_its_reports() -> None:
    breaks = (
        a_break(0),
        a_break(1, cause=0, compile_id="0/1"),
        a_break(2, cause=0, compile_id="1/0", function="helper"),
    )
    graphs = (a_graph(0), a_graph(1, "0/1"), a_graph(2, "0/1", stage="forward"))
    (found,) = impacts(breaks, graphs, (a_recompile(compile_id="0/1"),))
    assert found.met == 3
    assert found.compile_ids == ("0/0", "0/1", "1/0")
    assert found.functions == ("forward", "helper")
    assert (found.graphs, found.recompiles) == (2, ("0/1",))


def test_the_worst_stands_first() -> None:
    breaks = (
        a_break(0, span=at(1), compile_id="9/0"),
        a_break(1, span=at(2), compile_id="0/0"),
        a_break(2, span=at(3), compile_id="8/0"),
        a_break(3, span=at(3), compile_id="8/0", cause=2),
        a_break(4, span=at(4), compile_id="7/0", fatal=True),
    )
    assert [item.root.index for item in impacts(breaks, (a_graph(0, "0/0"),), ())] == [4, 1, 2, 0]


def test_what_torch_splits_in_its_own_code_stands_last_unless_it_ended_the_program() -> None:
    optimizer = Span("/env/lib/python3.11/site-packages/torch/optim/optimizer.py", 79)
    breaks = (
        a_break(0, span=optimizer, compile_id="0/0"),
        a_break(1, span=at(2), compile_id="9/0"),
        a_break(2, span=optimizer, gb_type="other", fatal=True, compile_id="8/0"),
    )
    found = impacts(breaks, (a_graph(0, "0/0"),), ())
    assert [(item.root.index, item.is_torchs) for item in found] == [(2, False), (1, False), (0, True)]
