"""Calls a function while torch compiles, with the object itself, and makes its result a constant of the graph.

Dynamo runs a function that is marked `assume_constant_result` at once, but gives it constants alone. An object gets
there by `comptime`. Torch guards on the constants that the object holds, and compiles again where one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import Edit, ParsedSource

__all__ = ["DOCSTRING", "Constant", "now", "object_copies"]

DOCSTRING = m.SimpleStatementLine([m.Expr(m.SimpleString() | m.ConcatenatedString())])
_COPY_WHY = "torch guards on what the object holds, and copies it again where that changes"
_CALL_WHY = "torch guards on what its object holds, and calls it again where that changes"
_NAMES = ("_Made", "_give", "_make", "_contents", "_while_compiling")
_HELPERS = '''

class _Made:
    """What was made while torch compiled, each under a name of its own."""

    given = None  # the object that the next one is made of


def _give(context):
    """Keep the object that is the local variable `value`; torch calls this while it compiles."""
    variable = context.get_local("value")._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
    translator = context._i_will_not_complain_if_bc_breaks_InstructionTranslator()
    if translator.output.side_effects.is_modified(variable):
        raise torch._dynamo.exc.Unsupported("the object was changed in this call before")
    _Made.given = getattr(variable, "value", None)


def _contents(value):
    """The constants in an object. Where torch traces this, it guards on them."""
    if value is None or isinstance(value, (bool, str, bytes, torch.dtype)):
        return value
    if isinstance(value, (int, float)):
        return len({value: None})  # it guards on a key's value, and has no constant of a number that changes
    if isinstance(value, dict):
        return tuple([(key, _contents(item)) for key, item in value.items()])
    if isinstance(value, (list, tuple)):
        return tuple([_contents(item) for item in value])
    if isinstance(value, torch.Tensor):
        torch._dynamo.graph_break()
    return tuple([(key, _contents(item)) for key, item in value.__dict__.items()])


@torch.compiler.assume_constant_result
def _make(key, seen, *rest):
    function, contents = getattr(_Made, key)
    value, _Made.given = _Made.given, None
    if contents(value) != seen:
        raise torch._dynamo.exc.Unsupported("the object was changed in this call before")
    name = f"made_{len(vars(_Made))}"
    setattr(_Made, name, (function(value, *rest),))
    return name


def _while_compiling(function, contents=_contents):
    """The function as one that is called while torch compiles; torch guards on the contents of its first argument."""
    key = f"function_{len(vars(_Made))}"
    setattr(_Made, key, (function, contents))

    def call(value, *rest):
        seen = contents(value)
        torch._dynamo.comptime.comptime(_give)
        return getattr(_Made, _make(key, seen, *rest))[0]

    return call
'''


class Constant:
    """A function of one object that is called while torch compiles, and the edits that define it.

    ``function`` is its text, ``name`` what it is called by. With ``guarded=False`` torch guards on nothing of the
    object: right for what is done once.
    """

    def __init__(self, file: ParsedSource, name: str, function: str, beside: cst.CSTNode, *, guarded: bool = True):
        names = [file.free_name(each, of=file.module) for each in _NAMES]
        text, end = _HELPERS, file.newline
        for old, new in zip(_NAMES, names, strict=True):
            text = text.replace(old, new)
        self.name = file.free_name(name, of=file.statement(beside))
        imported = (
            "import torch._dynamo.comptime\n"
            if file.imports("torch")
            else "import torch\nimport torch._dynamo.comptime\n"
        )
        text = (imported + text.replace("    ", file.indent_unit)).replace("\n", end)
        made = f"{names[-1]}({function}{'' if guarded else ', contents=lambda value: None'})"
        self.edits: tuple[Edit, ...] = (
            file.insert_line(file.after_imports(), text),
            file.insert_line(_line_behind(file, beside), f"{end}{end}{self.name} = {made}{end}"),
        )


def now() -> str:
    """The condition under which torch traces the code."""
    return "torch.compiler.is_dynamo_compiling()"


def _line_behind(file: ParsedSource, node: cst.CSTNode) -> int:
    """The line behind the statement of the module that a node is in."""
    top = node
    while (above := file.parent(top)) is not None and above is not file.module:
        top = above
    return file.end_line(top) + 1


def object_copies(site: Site[cst.Call]) -> Iterator[Candidate]:
    """`copy.copy` and `copy.deepcopy` of an object (a configuration): a copy that is made while torch compiles.

    Right because torch guards on all that the object holds. Further calls get the same copy, with what a call has
    written to it. Where that does not do, all of the function with the copy is called while torch compiles: right where
    it depends on its object and on constants.
    """
    file, call = site.file, site.node
    plain = len(call.args) == 1 and isinstance(call.args[0].value, (cst.Name, cst.Attribute))
    if not plain or file.code(call.func) not in ("copy.copy", "copy.deepcopy", "deepcopy"):
        return
    function = file.enclosing(call, cst.FunctionDef)
    if not isinstance(function, cst.FunctionDef):
        return
    copier = file.code(call.func)
    made = Constant(file, f"_{copier.rpartition('.')[2]}", copier, function)
    text = f"({made.name}({file.code(call.args[0].value)}) if {now()} else {file.code(call)})"
    yield Candidate(
        f"copy the object with `{copier}` while torch compiles",
        "source",
        (*made.edits, file.replace(call, text)),
        _COPY_WHY,
    )
    given = _parameters(function)
    if given is None or not isinstance(function.body, cst.IndentedBlock) or not _only_returns(file, function):
        return
    name, method = (
        function.name.value,
        isinstance(file.enclosing(function, cst.ClassDef, cst.FunctionDef), cst.ClassDef),
    )
    body = f"lambda value, *rest: value.{name}(*rest)" if method else name
    made = Constant(file, f"_{name.strip('_')}", body, function)
    statements = [each for each in function.body.body if not m.matches(each, DOCSTRING)]
    pad, unit, end = file.indent(statements[0]), file.indent_unit, file.newline
    lines = f"{pad}if {now()}:{end}{pad}{unit}return {made.name}({', '.join(given)}){end}"
    edits = (*made.edits, file.insert_line(file.line(statements[0]), lines))
    yield Candidate(f"call `{name}` while torch compiles", "source", edits, _CALL_WHY)


def _parameters(function: cst.FunctionDef) -> list[str] | None:
    """The parameters of a function that takes an object, and others by position; ``None`` for another one."""
    known = function.params
    names = [each.name.value for each in (*known.posonly_params, *known.params)]
    plain = known.star_arg is cst.MaybeSentinel.DEFAULT and not known.kwonly_params and known.star_kwarg is None
    return names if names and plain and not function.decorators and not function.asynchronous else None


def _only_returns(file: ParsedSource, function: cst.FunctionDef) -> bool:
    """Whether a function makes something that it returns, and is no generator."""
    returns = [each.value for each in file.nodes(cst.Return, function)]
    return bool(returns) and None not in returns and next(file.nodes(cst.Yield, function), None) is None
