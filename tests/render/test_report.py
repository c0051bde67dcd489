"""The explanation that Python callers get."""

from __future__ import annotations

import pytest

from dynadiag.render.report import report
from tests.explanation.build import FakeRecording, a_break, a_compile, a_graph, a_run
from tests.render.samples import EVIL


def test_the_repr_is_a_line_with_the_answer() -> None:
    compiles = tuple(a_compile(index, f"{index}/0") for index in range(300))
    made = report(FakeRecording(compile_records=compiles, break_records=(a_break(),), graph_records=(a_graph(),)))
    assert repr(made).startswith("<Report of prog.py: ")
    assert made.headline.sentence in repr(made)
    assert repr(made).endswith(" 1 graph, 1 graph break, 0 recompiles>")


@pytest.mark.parametrize("target", [EVIL, "x" * 10_000])
def test_a_hostile_target_makes_a_short_plain_repr(target: str) -> None:
    shown = repr(report(FakeRecording(run=a_run(target=target))))
    assert shown.isprintable()
    assert len(shown) < 300
