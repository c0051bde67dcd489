"""Runs built by hand, as a check measures them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dynadiag.check.measurement import Measurement, measure
from dynadiag.explanation.explanation import explain
from dynadiag.recording.records import Span
from tests.explanation.build import FILE, FakeRecording, a_break, a_compile, a_failure, a_graph, a_recompile, a_run

__all__ = ["PROGRAM", "a_measurement"]

PROGRAM = """\
def forward(x, n):
    y = x + n
    print(y)
    print(x)
    return y.item()
"""


def a_measurement(
    lines: tuple[int, ...] = (3,),
    *,
    target: str = "prog.py",
    recompiled: str | None = None,
    source: str = PROGRAM,
    **changes: Any,
) -> Measurement:
    """A run with a graph break at each of these lines, and a recompile for the argument ``recompiled``."""
    failures = () if recompiled is None else (a_failure("", source=f"L['{recompiled}']", was="1", now="2"),)
    recording = FakeRecording(
        run=a_run(target=target),
        compile_records=(a_compile(), a_compile(1, "0/1")),
        break_records=tuple(
            a_break(index, gb_id="GB0059" if line != 5 else "GB0124", span=Span(FILE, line))
            for index, line in enumerate(lines)
        ),
        recompile_records=(a_recompile(reasons=failures),) if failures else (),
        graph_records=tuple(a_graph(index, f"{index}/0") for index in range(len(lines) + 1)),
        sources={FILE: source},
    )
    return replace(measure(explain(recording), (), target), **changes)
