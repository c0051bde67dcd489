"""Statements and loops of the program's lines."""

from __future__ import annotations

from dynadiag.job.trace import ProgramLines

_TEXT = """for epoch in range(2):
    for batch in batches:
        step(batch)
    else:
        check()
    save()
done()
"""


def test_the_innermost_loop_around_a_line() -> None:
    lines = ProgramLines(_TEXT)
    assert [lines.loop_end(number) for number in range(1, 9)] == [None, 6, 3, 6, 6, 6, None, None]
    assert (lines.statement(3), lines.statement(8), lines.statement(None)) == ("step(batch)", "", "")


def test_a_file_that_is_no_python_has_no_loops() -> None:
    assert ProgramLines("for x in:\n  y\n").loop_end(2) is None
