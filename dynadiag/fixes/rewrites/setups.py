"""A function that sets something up once (hooks, a table, a lock around it) and returns at once ever after: called
while torch compiles.

Right where a further call does nothing: what the function set up is there when torch goes on to trace, and the
function's own test, which torch traces then, returns. Torch guards on that test, so for another object that shares the
compiled code it compiles, and calls the function, again. A function that does something on every call is left with its
break, because its test does not return.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.rewrites.definitions import Definition, Helpers, body_of
from dynadiag.recording.records import Span

_WHY = "it returns at once where everything is set up, and torch guards on the test that says so"
SETUP = Helpers(
    '''

def _called_while_compiling(function):
    """The function as one that torch calls while it compiles, with the object itself and with constants. It returns
    nothing.
    """

    def call_now(context):
        variable, rest = (
            context.get_local(name)._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
            for name in ("value", "rest")
        )
        effects = context._i_will_not_complain_if_bc_breaks_InstructionTranslator().output.side_effects
        if hasattr(variable, "value") and not effects.is_modified(variable) and rest.is_python_constant():
            function(variable.value, *rest.as_python_constant())

    def call(value, *rest):
        torch._dynamo.comptime.comptime(call_now)

    return call
''',
    ("_called_while_compiling",),
)
_GUARD = m.If(body=m.IndentedBlock([m.SimpleStatementLine([m.Return(value=None)])]), orelse=None)


def setup_at(file: ParsedSource, span: Span) -> cst.FunctionDef | None:
    """The function of the module that breaks, if it begins with a test that it returns at, and returns nothing else."""
    around = [each for each in file.module.body if isinstance(each, cst.FunctionDef) and file.holds(each, span.line)]
    if not around or around[0].decorators:
        return None
    function = around[0]
    statements = body_of(function)
    plain = all(each.value is None for each in file.nodes(cst.Return, function)) and len(function.params.params) == 1
    guarded = statements and m.matches(statements[0], _GUARD) and next(file.nodes(cst.Yield, function), None) is None
    return function if plain and guarded else None


def candidates(site: Site[cst.FunctionDef]) -> Iterator[Candidate]:
    """The function as one that torch calls while it compiles."""
    file, function, name = site.file, site.node, site.node.name.value
    made = Definition.of(file, SETUP, f"_{name.strip('_')}", name, function)
    argument = function.params.params[0].name.value
    edits = made.before(file, body_of(function)[0], f"{{call}}({argument})")
    yield Candidate(f"call `{name}` while torch compiles", "source", edits, _WHY)
