"""Every table of the schema and every column is explained."""

from __future__ import annotations

import pytest

from dynadiag.recording import schema


@pytest.mark.parametrize("table", schema.TABLES, ids=lambda table: table.name)
def test_everything_is_explained(table: schema.SqlTable) -> None:
    assert table.description
    assert all(column.description for column in table.columns)
