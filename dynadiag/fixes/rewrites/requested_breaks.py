"""A break that the program asks for: `torch._dynamo.graph_break()`, `skip_frame()`, or a function that is excluded with
`torch.compiler.disable`. The request is removed. This is right if nothing but the place of the graphs depended on it:
where somebody excluded code that Dynamo cannot take, or that is wrong when it is compiled, the proof sees that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource, callee_name

_BREAK = re.compile(r"^(?:torch\._dynamo\.)?(?:graph_break|skip_frame)$")
_DISABLE = re.compile(r"^(?:torch\.(?:compiler|_dynamo)\.)?disable$")
_WHY = "it says only where graphs end, and the program computes the same without it"


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """The program without the request."""
    file, call = site.file, site.node
    statement = file.statement(call)
    if _BREAK.match(file.code(call.func)) and isinstance(file.parent(call), cst.Expr):
        alone = _is_alone(file, statement)
        edit = file.replace_lines(statement, statement, "") if alone else file.replace(call, "None")
        yield Candidate(f"remove `{file.code(call)}`", "source", (edit,), _WHY)
    for decorator in _disabling(file, call):
        title = f"remove `@{file.code(decorator.decorator)}` of `{callee_name(call)}`"
        yield Candidate(title, "source", (_without(file, decorator),), _WHY)


def _is_alone(file: ParsedSource, statement: cst.CSTNode) -> bool:
    """Whether a statement has its lines for itself, and is not all of a block."""
    block = file.parent(statement)
    alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    return alone and isinstance(block, (cst.IndentedBlock, cst.Module)) and len(block.body) > 1


def _disabling(file: ParsedSource, call: cst.Call) -> Iterator[cst.Decorator]:
    """The decorator that excludes the function that is called, if one function of the file has its name."""
    found = [each for each in file.nodes(cst.FunctionDef) if each.name.value == callee_name(call)]
    for decorator in found[0].decorators if len(found) == 1 else ():
        named = decorator.decorator.func if isinstance(decorator.decorator, cst.Call) else decorator.decorator
        if _DISABLE.match(file.code(named)):
            yield decorator


def _without(file: ParsedSource, decorator: cst.Decorator) -> Edit:
    """The edit that removes a decorator with its line."""
    return file.replace_lines(decorator, decorator, "")
