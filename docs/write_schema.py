"""Writes `recording-schema.md` from the schema of a recording: run by `make docs`, checked by `tests/test_docs.py`.

What a table of records and its columns hold is said where the record is defined: in its docstring, and in the comment
at each field.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from dynadiag.recording.schema import APPLICATION_ID, TABLES, VERSION, SqlTable

PAGE = Path(__file__).with_name("recording-schema.md")
COMMON = {  # fields that mean the same in every record
    "compile_id": 'torch\'s id of the compile: "0/1" is the second one of frame 0; "-" outside any',
    "user_stack": 'the user\'s frames, outermost first, with "file", "line" and "function"',
    "file": "the source file",
    "line": "the line in it, from 1",
}
FIELD = re.compile(r"^    (\w+): [^#\n]*(?:  # (.*))?$", re.MULTILINE)


def markdown() -> str:
    """The page: each table with its columns."""
    parts = [
        "# The schema of a recording",
        "<!-- written by `make docs`: change dynadiag/recording/records.py or schema.py instead -->",
        "A recording is one SQLite file, which any SQLite tool reads. "
        f"Its `application_id` is {APPLICATION_ID:#x}. Its `user_version` is the version of this schema, {VERSION}. "
        "Lines count from 1, columns from 0. The end of a range is exclusive. NULL means that torch did not say.",
    ]
    for table in TABLES:
        record = table.record
        about = inspect.getdoc(record) if record is not None else None
        parts += [f"## {table.name}", (about or table.description).partition("\n\n")[0].replace("``", "`")]
        said = dict(_columns(record, table)) if record is not None else {}
        texts = (f"- `{one.name}` {one.sql}: {one.description or said[one.name]}" for one in table.columns)
        parts.append("\n".join(map(_wrapped, texts)))
    return "\n\n".join(part if part.startswith(("- ", "<!--")) else _wrapped(part) for part in parts) + "\n"


def _columns(record: type, table: SqlTable, prefix: str = "", of: str = "") -> Iterator[tuple[str, str]]:
    """Each column of a record with what the comment at its field says. ``of`` is that of the field it is nested in."""
    said = dict(FIELD.findall(inspect.getsource(record)))
    hints = get_type_hints(record)
    for field in dataclasses.fields(record):
        text = said[field.name] or COMMON.get(field.name, "")
        name = prefix + ("id" if field.name == "index" else field.name)
        if dataclasses.is_dataclass(hints[field.name]):
            inner = "" if field.name == table.name else f"{name}_"
            yield from _columns(hints[field.name], table, inner, text)
        elif not text:
            raise ValueError(f"{record.__name__}.{field.name} has no comment")
        else:
            is_json = str(hints[field.name]).startswith("tuple")
            yield name, text + (f", {of}" if of else "") + (": JSON" if is_json else "")


def _wrapped(text: str) -> str:
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(markdown())
