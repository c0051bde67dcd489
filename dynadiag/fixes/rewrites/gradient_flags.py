"""`x.requires_grad = True` of a value that the function has made: the statement is left out.

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


def flag_at(file: ParsedSource, span: Span) -> cst.SimpleStatementLine | None:
    """The statement at the break, if it sets `requires_grad`."""
    lines = (each for each in file.nodes(cst.SimpleStatementLine) if file.line(each) == span.line)
    return next((each for each in lines if m.matches(each, _FLAG)), None)


def candidates(site: Site[cst.SimpleStatementLine]) -> Iterator[Candidate]:
    """The function without the statement."""
    file, line = site.file, site.node
    edit = file.replace_lines(line, line, f"{file.indent(line)}pass{file.newline}")
    yield Candidate(f"leave out `{file.code(line)}`", "source", (edit,), _WHY)
