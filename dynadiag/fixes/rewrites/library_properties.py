"""A property of a library's object that breaks the graph where it is computed (it logs, or looks something up): read
once in front of the calls, and set to what it is.

This is right where the library lets the property be set, and where it has the same value at each call. What reading it
does, a message for one, is done once, before the first call. The proof compares output, results and state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.rewrites.call_sites import call_sites

_WHY = "the library lets it be set, and the calls find the value that reading it gives"


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The property of each object that the user's line calls, set where the object is made."""
    name = problem.function.rpartition(".")[2]
    if problem.kind != "break" or problem.file is not None or not _can_be_set(problem.span.file, name):
        return
    for site in call_sites(problem, sources, []):
        made = _assignment(site.file, site.call)
        if made is not None:
            file, object_ = site.file, site.file.code(site.call.func)
            line = f"{file.indent(made)}{object_}.{name} = {object_}.{name}{file.newline}"
            title = f"read `{object_}.{name}` once, in front of the calls"
            yield Candidate(title, "source", (file.insert_line(file.end_line(made) + 1, line),), _WHY)


def _can_be_set(file: str | None, name: str) -> bool:
    """Whether a file of a library has a property of this name with a setter."""
    if file is None or not Path(file).is_file():
        return False
    text = Path(file).read_text("utf-8", "replace")
    return all(re.search(rf"^ +@{kind}\n +def {name}\(", text, re.M) for kind in ("property", rf"{name}\.setter"))


def _assignment(file: ParsedSource, call: cst.Call) -> cst.CSTNode | None:
    """The statement that makes the object that is called; ``None`` unless it is the only one in its scope."""
    name = file.code(call.func)
    targets = [target for target in file.nodes(cst.AssignTarget) if file.code(target.target) == name]
    for scope in _scopes(file, call) if isinstance(call.func, cst.Name) else ():
        if own := [target for target in targets if file.enclosing(target, cst.FunctionDef) is scope]:
            targets = own
            break
    statements = [file.statement(target) for target in targets]
    return statements[0] if len(statements) == 1 and isinstance(statements[0], cst.SimpleStatementLine) else None


def _scopes(file: ParsedSource, node: cst.CSTNode) -> Iterator[cst.CSTNode | None]:
    """The functions around a node, the innermost first, then the module."""
    scope = file.enclosing(node, cst.FunctionDef)
    while scope is not None:
        yield scope
        scope = file.enclosing(scope, cst.FunctionDef)
    yield None
