"""`x.uniform_(**{"from": a, "to": b})`: the bounds by position. `from` is a word of Python, so the keyword is written
that way, and Dynamo does not take it. This is right because it is the same call.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource

__all__ = ["candidates"]


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The call with both bounds by position."""
    file, call = site.file, site.node
    while not file.code(call.func).endswith(".uniform_"):
        inner = call.func.value if isinstance(call.func, cst.Attribute) else None
        if not isinstance(inner, cst.Call):
            return
        call = inner
    if (bounds := _bounds(file, call)) is None:
        return
    edit = file.replace(call, f"{file.code(call.func)}({bounds})")
    yield Candidate("give the bounds of `uniform_` by position", "source", (edit,), "it is the same call")


def _bounds(file: ParsedSource, call: cst.Call) -> str | None:
    """The bounds by position; ``None`` where they are not written as one dict."""
    value = call.args[0].value if len(call.args) == 1 and call.args[0].star == "**" else None
    elements = value.elements if isinstance(value, cst.Dict) else ()
    items = [item for item in elements if isinstance(item, cst.DictElement)]
    texts = {file.code(item.key).strip("\"'"): file.code(item.value) for item in items}
    if len(items) != len(elements) or not texts or not texts.keys() <= {"from", "to"}:
        return None
    return f"{texts.get('from', '0.0')}, {texts.get('to', '1.0')}"
