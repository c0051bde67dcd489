"""Between records and rows: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynadiag.recording.record_mapping import MAX_VALUE, FieldError
from dynadiag.recording.records import (
    Break,
    BreakFacts,
    Frame,
    GraphNode,
    Guard,
    GuardFailure,
    Kernel,
    Node,
    Recompile,
    SourceFile,
    Span,
    Trial,
)
from dynadiag.recording.schema import RECORD_TABLES, TABLES, mapping_of

st.register_type_strategy(int, st.integers(-(1 << 63), (1 << 63) - 1))
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))

GUARD = Guard(0, "0/0", "TENSOR_MATCH", "L['x']", "x", None, None)


def stored(record: object) -> Any:
    """The record after a way through SQLite."""
    table = RECORD_TABLES[type(record)]
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.execute(table.ddl())
        database.execute(table.insert(), mapping_of(type(record)).row(record))
        (row,) = database.execute(table.select()).fetchall()
    return mapping_of(type(record)).read(row)


@pytest.mark.parametrize("record", RECORD_TABLES)
def test_records_come_back(record: type) -> None:
    @given(st.from_type(record))
    def check(value: object) -> None:
        kept = replace(value, facts=BreakFacts()) if isinstance(value, Break) else value  # they have their own table
        assert stored(kept) == kept

    check()


def test_every_record_that_a_digest_yields_has_a_table() -> None:
    from typing import get_args

    from dynadiag.recording.records import Record

    assert set(get_args(Record)) == set(RECORD_TABLES)


@pytest.mark.parametrize(
    "record",
    [
        Guard("0", "0/0", "", "", "", None, None),  # type: ignore[arg-type]
        Guard(True, "0/0", "", "", "", None, None),
        Guard(0, None, "", "", "", None, None),  # type: ignore[arg-type]
        Guard(1 << 63, "0/0", "", "", "", None, None),
        Trial(0, 1, "", "", float("nan")),
        Recompile(0, "", None, None, "", ("text",), False),  # type: ignore[arg-type]
        Recompile(0, "", None, None, "", [], False),  # type: ignore[arg-type]
        GraphNode(0, GUARD),  # type: ignore[arg-type]
    ],
)
def test_wrong_values_are_refused(record: object) -> None:
    with pytest.raises(FieldError):
        mapping_of(type(record)).row(record)


def test_endless_values_are_cut() -> None:
    text = "é" * (3 << 20)
    guard = stored(Guard(0, text, text, text, text, text, None))
    assert guard.expression.startswith("é" * 1000)
    assert guard.expression.endswith("…")
    failure = GuardFailure(text, None, None, None, "0/0", None, None)
    row = mapping_of(Recompile).row(Recompile(0, "", None, None, "", (failure,) * 100, False))
    assert max(len(cell.encode()) for cell in row if isinstance(cell, str)) <= MAX_VALUE
    assert mapping_of(Recompile).read(row).reasons


def test_lone_surrogates_are_replaced() -> None:
    assert stored(SourceFile("a\ud800b", 0)).file == "a?b"
    assert stored(Recompile(0, "", None, None, "\udfff", (), False)).function == "?"


@pytest.mark.parametrize(
    "row",
    [
        (0, "0/0", "k", "s", 5, None, None),
        ("0", "0/0", "k", "s", "e", None, None),
        (0.0, "0/0", "k", "s", "e", None, None),
        (0, b"0/0", "k", "s", "e", None, None),
        (0, "0/0", "k", "s", None, None, None),
        (0, "0/0", "k", "s", "e", None, "1"),
    ],
)
def test_cells_of_the_wrong_type_are_refused(row: tuple[object, ...]) -> None:
    with pytest.raises(FieldError):
        mapping_of(Guard).read(row)


@pytest.mark.parametrize("reasons", ["", "{}", "[1]", "[{}]", '[{"guard": 1, "against": "0"}]', "[" * 9999, None, 5])
def test_json_of_the_wrong_shape_is_refused(reasons: object) -> None:
    with pytest.raises(FieldError):
        mapping_of(Recompile).read((0, "0/0", None, None, "f", reasons, 0))


def test_nested_records_have_columns_of_their_own() -> None:
    columns = [column.name for column in RECORD_TABLES[Break].columns]
    assert "span_line" in columns
    assert [column.name for column in RECORD_TABLES[GraphNode].columns][:3] == ["graph", "position", "name"]
    node = Node(0, "x", "call_function", "add", ("a",), "[]", None, None, None, Span("f", 1, 2, 3, 4))
    assert stored(GraphNode(7, node)) == GraphNode(7, node)
    assert stored(Kernel(0, "0/0", "k", "cpp", None)).event is None
    assert Frame("f", None, "g").line is None


def test_tables_have_distinct_names() -> None:
    assert len({table.name for table in TABLES}) == len(TABLES)
