"""`x.requires_grad = True` or `x.requires_grad_()` of a value that the function has made: it is left out.

Right where nobody asks for that gradient: parameters get theirs without it. The proof compares the gradients and what
of the results has one; a value that is kept, or a function without other gradients, is found out.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.recording.records import Span

_WHY = "the gradient of a value of the function's own is not used by anybody"
_FLAG = m.SimpleStatementLine(
    [m.Assign([m.AssignTarget(m.Attribute(m.Name(), m.Name("requires_grad")))], m.Name("True"))]
)
_CALL = m.Call(m.Attribute(m.Name() | m.Call(), m.Name("requires_grad_")), [m.AtMostN(m.Arg(m.Name("True")), n=1)])


def flag_at(file: ParsedSource, span: Span) -> cst.SimpleStatementLine | cst.Call | None:
    """The statement at the break that sets `requires_grad`, or the call that does."""
    call = file.at(span, cst.Call)
    if call is not None and m.matches(call, _CALL):
        return call
    lines = (each for each in file.nodes(cst.SimpleStatementLine) if file.line(each) == span.line)
    return next((each for each in lines if m.matches(each, _FLAG)), None)


def candidates(site: Site[cst.SimpleStatementLine | cst.Call]) -> Iterator[Candidate]:
    """The function without the statement, or with the value itself in the place of the call."""
    file, found = site.file, site.node
    if isinstance(found, cst.Call):
        edit = file.replace(found, file.code(cst.ensure_type(found.func, cst.Attribute).value))
    else:
        edit = file.replace_lines(found, found, f"{file.indent(found)}pass{file.newline}")
    yield Candidate(f"leave out `{file.code(found)}`", "source", (edit,), _WHY)
