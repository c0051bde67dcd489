"""The message of a check that has a number or a size in it (`check(ok, f"{n} rows")`): in compiled code, the message
without it.

Tracing has no values to put into a text. Right where a check only needs its message when it fails, or not at all in
compiled code. One that keeps or prints it has another one then, and the proof sees that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource, callee_name
from dynadiag.fixes.rewrites.definitions import TRACED
from dynadiag.recording.records import Span

_CHECK = re.compile(r"(?:^|_)(?:check|assert|expect|ensure|verify|require)", re.IGNORECASE)
_WHY = "a check needs its message where it fails, and in compiled code the message has no numbers"


def message_at(file: ParsedSource, span: Span) -> cst.FormattedString | None:
    """The message at the span of the break, where it is an argument of a check whose result nobody asks for."""
    message = file.at(span, cst.FormattedString)
    call = file.enclosing(message, cst.Call) if message is not None else None
    if message is None or not isinstance(call, cst.Call) or not isinstance(file.parent(call), cst.Expr):
        return None
    is_argument = any(each.value is message for each in call.args)
    return message if is_argument and _CHECK.search(callee_name(call) or "") else None


def candidates(site: Site[cst.FormattedString]) -> Iterator[Candidate]:
    """The message in compiled code, and as it is elsewhere."""
    file, message = site.file, site.node
    texts = [part.value if isinstance(part, cst.FormattedStringText) else "…" for part in message.parts]
    plain = "".join(texts).replace("{{", "{").replace("}}", "}")
    start = message.start.replace("f", "").replace("F", "")
    text = f"({start}{plain}{message.end} if {TRACED} else {file.code(message)})"
    title = "leave the numbers out of the check's message in compiled code"
    yield Candidate(title, "source", (file.replace(message, text),), _WHY)
