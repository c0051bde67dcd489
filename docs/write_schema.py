"""Writes `recording-schema.md` from the schema of a recording: run by `make docs`, checked by `tests/test_docs.py`."""

from __future__ import annotations

import textwrap
from pathlib import Path

from dynadiag.recording.schema import APPLICATION_ID, TABLES, VERSION

PAGE = Path(__file__).with_name("recording-schema.md")


def markdown() -> str:
    """The page: each table with its columns."""
    parts = [
        "# The schema of a recording",
        "<!-- written by `make docs`: change dynadiag/recording/schema.py instead -->",
        "A recording is one SQLite file, which any SQLite tool reads. "
        f"Its `application_id` is {APPLICATION_ID:#x}. Its `user_version` is the version of this schema, {VERSION}. "
        "Lines count from 1, columns from 0. The end of a range is exclusive. NULL means that torch did not say.",
    ]
    for table in TABLES:
        parts += [f"## {table.name}", table.description]
        parts.append("\n".join(_wrapped(f"- `{one.name}` {one.sql}: {one.description}") for one in table.columns))
    return "\n\n".join(part if part.startswith(("- ", "<!--")) else _wrapped(part) for part in parts) + "\n"


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(markdown())
