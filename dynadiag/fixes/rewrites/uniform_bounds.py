"""`x.uniform_(**{"from": a, "to": b})`: the bounds by position. `from` is a word of Python, so the keyword is written
that way, and Dynamo does not take it. This is right because it is the same call.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.problems import FixProblem

__all__ = ["candidates"]


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The call with both bounds by position."""
    file = sources.file(problem.file)
    call = file.at(problem.span, cst.Call) if file is not None and problem.kind == "break" else None
    while file is not None and call is not None and not file.code(call.func).endswith(".uniform_"):
        inner = call.func.value if isinstance(call.func, cst.Attribute) else None
        call = inner if isinstance(inner, cst.Call) else None
    if file is None or call is None or (bounds := _bounds(file, call)) is None:
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
