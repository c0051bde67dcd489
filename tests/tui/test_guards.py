"""The guards of a compile: those on what can change come first, and those that failed before all others."""

from __future__ import annotations

from dynadiag.recording.records import Guard
from tui.views.guards import _rank, _row


def _guard(kind: str, source: str) -> Guard:
    return Guard(0, "0/0", kind, source, f"{source} == 1", None, None)


def test_what_can_change_comes_first() -> None:
    identity, size, state = _guard("ID_MATCH", "L['f']"), _guard("TENSOR_MATCH", "L['x']"), _guard("GLOBAL_STATE", "")
    failed, constant = _guard("EQUALS_MATCH", "L['n']"), _guard("EQUALS_MATCH", "G['LIMIT']")
    order = sorted([state, constant, identity, size, failed], key=lambda item: _rank(item, {"L['n']"}))
    assert order == [failed, size, identity, state, constant]


def test_a_guard_reads_as_the_program_does_and_bears_a_sign_where_it_failed() -> None:
    assert _row(_guard("EQUALS_MATCH", "L['n']"), None, failed=True).cells == ("↻ n", "EQUALS_MATCH", "-", "n == 1")
    assert _row(_guard("GLOBAL_STATE", ""), None, failed=False).cells[0] == "-"
