"""The schema's page is written from the schema, and every column is explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from dynadiag.recording import schema

PAGE = Path(__file__).parents[2] / "docs" / "recording-schema.md"


def test_page_is_current() -> None:
    assert PAGE.read_text() == schema.markdown_page(), "python -m dynadiag.recording.schema > docs/recording-schema.md"


@pytest.mark.parametrize("table", schema.TABLES, ids=lambda table: table.name)
def test_everything_is_explained(table: schema.SqlTable) -> None:
    assert table.description
    assert all(column.description for column in table.columns)
