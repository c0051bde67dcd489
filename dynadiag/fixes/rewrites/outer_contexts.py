"""A `with` block in a compiled function whose context Dynamo cannot enter (a lock, a timer, a library's mode): entered
around the call, with the calls of a library that the block begins with (`warnings.simplefilter("ignore")`).

This is right if the rest of the function may run within the context too: a lock is held longer, a setting holds for
more. What that changes in the results and in the output, the proof sees; also where the program then waits for a lock
that it holds itself.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable, Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.rewrites.call_sites import CallSite, call_sites
from dynadiag.recording.records import Span

_OF_OBJECT = re.compile(r"^self((?:\.\w+)+)$")
_WHY = "the whole call runs in the context, the block in it too"


def candidates(site: Site[cst.With]) -> Iterator[Candidate]:
    """The function without the context, and its call in it."""
    file, found = site.file, site.node
    context = file.code(found.items[0].item)
    for caller in call_sites(site.problem, site.sources, []):
        outside, statement = _at_call(found.items[0].item, caller, file), caller.file.statement(caller.call)
        if outside is not None and not (has_long_text(file, found) or has_long_text(caller.file, statement)):
            first = _first_calls(file, found) if outside == context else []
            edits = (_without_context(file, found, len(first)), _wrapped(caller, outside, map(file.code, first)))
            yield Candidate(f"enter `{context}` around the call", "source", edits, _WHY)


def with_at(file: ParsedSource, span: Span) -> cst.With | None:
    """The block that breaks, or that begins with the call that does, if it has one context without a name."""
    for block in file.nodes(cst.With):
        single = len(block.items) == 1 and block.items[0].asname is None and block.asynchronous is None
        if single and isinstance(block.body, cst.IndentedBlock):
            places = [file.line(each) for each in (block, *_first_calls(file, block))]
            if span.line in places:
                return block
    return None


def _first_calls(file: ParsedSource, block: cst.With) -> list[cst.CSTNode]:
    """The calls that a block begins with and that a library makes, without a value of the function; one is left."""
    calls = list[cst.CSTNode]()
    for statement in block.body.body[:-1]:
        call = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        if not isinstance(call, cst.Expr) or not is_of_libraries(file, call.value):
            break
        calls.append(statement)
    return calls


def is_of_libraries(file: ParsedSource, value: cst.BaseExpression) -> bool:
    """Whether an expression is a call that reads imported modules and constants alone."""
    names = [name for name in file.nodes(cst.Name, value) if is_read(file, name)]
    own = all(file.imports(name.value) or name.value in ("True", "False", "None") for name in names)
    return isinstance(value, cst.Call) and own


def is_read(file: ParsedSource, name: cst.Name) -> bool:
    """Whether a name stands for a variable, and not for an attribute or a parameter that is given."""
    above = file.parent(name)
    attribute = isinstance(above, cst.Attribute) and above.attr is name
    return not attribute and not (isinstance(above, cst.Arg) and above.keyword is name)


def _at_call(item: cst.BaseExpression, site: CallSite, file: ParsedSource) -> str | None:
    """The context as the caller can name it: of the object that is called, of the same module, or of a library."""
    context = file.code(item)
    if is_of_libraries(file, item) and site.file.name == file.name:
        return context
    if (attribute := _OF_OBJECT.match(context)) is not None:
        called = site.file.code(site.call.func)
        known = re.fullmatch(r"[\w.]+", called) and called.partition(".")[0] not in (*dir(builtins), "torch")
        return f"{called}{attribute[1]}" if known else None
    is_global = re.fullmatch(r"\w+", context) and any(
        file.code(target.target) == context and file.parent(file.statement(target)) is file.module
        for target in file.nodes(cst.AssignTarget)
    )
    return context if is_global and site.file.name == file.name else None


def has_long_text(file: ParsedSource, node: cst.CSTNode) -> bool:
    """Whether a node holds a string of several lines. Another indentation would change the string."""
    kinds = (cst.SimpleString, cst.FormattedString)
    return any("\n" in file.code(text) for kind in kinds for text in file.nodes(kind, node))


def _without_context(file: ParsedSource, block: cst.With, first: int) -> Edit:
    """The statements of the block in its place, but for the first ones."""
    begin = file.line(block.body.body[first]) - 1 if first else file.line(block)
    lines = file.text.splitlines(keepends=True)[begin : file.end_line(block)]
    cut = len(file.indent(block.body.body[0])) - len(file.indent(block))
    return file.replace_lines(block, block, "".join(line[cut:] if line.strip() else line for line in lines))


def _wrapped(site: CallSite, context: str, first: Iterable[str]) -> Edit:
    """The statement of the call in a block of the context, behind the calls that the block begins with."""
    file, statement = site.file, site.file.statement(site.call)
    indent, lines = file.indent(statement), file.text.splitlines(keepends=True)
    inner = "".join(f"{indent}{file.indent_unit}{text.strip()}{file.newline}" for text in first)
    inner += "".join(f"{file.indent_unit}{line}" for line in lines[file.line(statement) - 1 : file.end_line(statement)])
    return file.replace_lines(statement, statement, f"{indent}with {context}:{file.newline}{inner}")
