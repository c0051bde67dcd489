"""Calls a function while torch compiles, with the object itself, and makes its result a constant of the graph.

Dynamo runs a function that is marked `assume_constant_result` at once, but gives it constants alone. An object gets
there by `comptime`. Torch guards on the constants that the object holds, and compiles again where one of them changes.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.rewrites.definitions import TRACED, Definition, Helpers, body_of

_COPY_WHY = "torch guards on what the object holds, and copies it again where that changes"
_CALL_WHY = "torch guards on what its object holds, and calls it again where that changes"
_HELPERS = '''

class _Made:
    """What was made while torch compiled, each under a name of its own."""

    given = (None, False)  # what the next one is made of, and whether that is a copy with what this call has set


def _give(context):
    """Keep the object that is the local variable `value`; torch calls this while it compiles.

    Attributes that this call has set are not in the object yet: a copy of it has them.
    """
    variable = context.get_local("value")._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
    value = getattr(variable, "value", None)
    effects = context._i_will_not_complain_if_bc_breaks_InstructionTranslator().output.side_effects
    changes = effects.store_attr_mutations.get(variable, {}) if effects.is_modified(variable) else {}
    if changes:
        value = copy.copy(value)
        vars(value).update({name: item.as_python_constant() for name, item in changes.items()})
    _Made.given = (value, effects.is_modified(variable))


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
    return tuple([(key, _contents(value.__dict__[key])) for key in sorted(value.__dict__)])


def _holds_constants(value, above=()):
    """Whether an object holds what torch can guard on: no tensor, set or function, and nothing that holds itself."""
    if value is None or isinstance(value, (bool, int, float, str, bytes, torch.dtype)):
        return True
    above = (*above, id(value))
    inside = value if isinstance(value, (list, tuple)) else getattr(value, "__dict__", None)
    inside = [*value, *value.values()] if isinstance(value, dict) else inside
    inside = list(inside.values()) if isinstance(inside, dict) else inside
    if inside is None or callable(value) or isinstance(value, torch.Tensor) or id(value) in above[:-1]:
        return False
    return all(_holds_constants(each, above) for each in inside)


@torch.compiler.assume_constant_result
def _is_known():
    return _Made.given[0] is not None and _holds_constants(_Made.given[0])


@torch.compiler.assume_constant_result
def _compile_time_name(key, seen, *rest):
    function = getattr(_Made, key)
    (value, changed), _Made.given = _Made.given, (None, False)
    made = None if _contents(value) != seen else (function(value, *rest),)
    if made is None or changed and made[0] is value:
        raise torch._dynamo.exc.Unsupported("the object was changed in this call before")
    name = f"made_{len(vars(_Made))}"
    setattr(_Made, name, made)
    return name


def _while_compiling(function):
    """The function as one that is called while torch compiles; torch guards on the contents of its first argument."""
    key = f"function_{len(vars(_Made))}"
    setattr(_Made, key, function)
    uncompiled = torch._dynamo.disable(function)

    def call(value, *rest):
        torch._dynamo.comptime.comptime(_give)
        if any([isinstance(each, torch.Tensor) for each in rest]) or not _is_known():
            return uncompiled(value, *rest)
        seen = _contents(value)
        return getattr(_Made, _compile_time_name(key, seen, *rest))[0]

    return call
'''


_WHILE_COMPILING = Helpers(
    _HELPERS,
    (
        "_Made",
        "_give",
        "_contents",
        "_holds_constants",
        "_is_known",
        "_compile_time_name",
        "_while_compiling",
    ),
    ("copy", "torch", "torch._dynamo.comptime"),
)


def while_compiling(file: ParsedSource, name: str, function: str, beside: cst.CSTNode) -> Definition:
    """A function of one object that is called while torch compiles. ``function`` is the text of what it calls."""
    return Definition.of(file, _WHILE_COMPILING, name, function, beside)


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
    made = while_compiling(file, f"_{copier.rpartition('.')[2]}", copier, function)
    title = f"copy the object with `{copier}` while torch compiles"
    text = f"{made.name}({file.code(call.args[0].value)}) if {TRACED} else {file.code(call)}"
    text = text if isinstance(file.parent(call), (cst.Assign, cst.Return)) else f"({text})"
    yield Candidate(title, "source", (*made.edits, file.replace(call, text)), _COPY_WHY)
    given, body = _parameters(function), body_of(function)
    if given is None or not body or not _only_returns(file, function):
        return
    name = function.name.value
    is_method = isinstance(file.enclosing(function, cst.ClassDef, cst.FunctionDef), cst.ClassDef)
    text = f"lambda value, *rest: value.{name}(*rest)" if is_method else name
    made = while_compiling(file, f"_{name.strip('_')}", text, function)
    edits = made.before(file, body[0], f"return {{call}}({', '.join(given)})")
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
