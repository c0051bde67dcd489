"""How torch calls a function that is made for its effect: after the graph, in it, or while it compiles.

In the graph it is an operator that writes to a tensor which all of them in a module share: each backend keeps their
order, and no CUDA graph captures them. What torch calls effects is to have an order too, but Inductor of torch 2.11 to
2.14 loses it where it reorders for peak memory. Where the text says the type of each argument, it is an operator of its
own, as one writes it by hand. Else helpers find out the types while torch compiles. The function gets copies of tensors
then, without their gradients. Objects are given to it while torch compiles; one that the same call has changed before
is not, and the call is left to a graph break.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.project import module_of
from dynadiag.fixes.rewrites.definitions import Definition, Helpers, giving_object

_HELPERS = (
    '''

class _Effects:
    """The functions that graphs call for their effect, and their calls as torch compiled them, each under a name."""

    given = ()  # the objects among the arguments of the next call


'''
    + giving_object("_give_owner", "_Effects")
    + '''

@torch.library.custom_op(
    f"{__name__.replace('.', '_')}::_run_effect",
    mutates_args=("order",),
    schema="(Tensor(a!) order, str name, Tensor[] tensors, SymInt[] integers, float[] floats) -> ()",
    tags=(torch.Tag.cudagraph_unsafe,),
)
def _run_effect(order, name, tensors, integers, floats):
    copies = [each.clone() for each in tensors]  # the graph may use the memory again, and the function may keep them
    getattr(_Effects, name)({"tensor": iter(copies), "integer": iter(integers), "float": iter(floats)})


@_run_effect.register_fake
def _no_result(order, name, tensors, integers, floats):
    return None


@torch.compiler.assume_constant_result
def _name_of_call(key, names, kinds, *values):
    """The name of a call with these constants; empty where it is not known with which object it is made. Torch calls
    this while it compiles.
    """
    function, given = getattr(_Effects, key), list(_Effects.given)
    _Effects.given = ()
    if len(given) != kinds.count("object") or any(each is None for each in given):
        return ""
    constants = [given.pop(0) if kind == "object" else value for kind, value in zip(kinds, values)]

    def call(left):
        arguments = [next(left[kind]) if kind in left else each for kind, each in zip(kinds, constants)]
        positional = len(arguments) - len(names)
        function(*arguments[:positional], **dict(zip(names, arguments[positional:])))

    name = f"call_{len(vars(_Effects))}"
    setattr(_Effects, name, call)
    return name


def _kind(value):
    if isinstance(value, torch.Tensor):
        return "tensor"
    if value is None or isinstance(value, (bool, str, torch.dtype, torch.device)):
        return "constant"
    if isinstance(value, (int, float)):
        return "integer" if isinstance(value, int) else "float"
    return "other" if isinstance(value, (list, tuple, dict, set)) else "object"


def _in_graph(function):
    """The function, which returns nothing, called by an operator of the graph, at its place among the others."""
    key = f"function_{len(vars(_Effects))}"
    setattr(_Effects, key, function)
    uncompiled = torch._dynamo.disable(function)

    def call(*arguments, **named):
        values = (*arguments, *named.values())
        kinds = tuple([_kind(value) for value in values])
        if "other" in kinds:
            return uncompiled(*arguments, **named)
        for value, kind in zip(values, kinds):
            if kind == "object":
                id(value)  # torch guards on the object
                torch._dynamo.comptime.comptime(_give_owner)
        constants = [value if kind == "constant" else None for value, kind in zip(values, kinds)]
        name = _name_of_call(key, tuple(named), kinds, *constants)
        if not name:
            return uncompiled(*arguments, **named)
        taken = ("tensor", "integer", "float")
        tensors, *numbers = [[value for value, known in zip(values, kinds) if known == kind] for kind in taken]
        _run_effect(_ORDER, name, tensors, *numbers)

    return call
'''
)
_NAMES = (
    "_ORDER",
    "_Effects",
    "_give_owner",
    "_name_of_call",
    "_run_effect",
    "_no_result",
    "_kind",
    "_in_graph",
)
_IN_GRAPH = Helpers(_HELPERS, _NAMES, ("torch", "torch._dynamo.comptime"))
_ORDER = "\n\n_ORDER = torch.empty(0)  # each operator with an effect writes to it, by which they keep their order\n"
ORDER = Helpers(_ORDER, ("_ORDER",))


@dataclass(frozen=True, slots=True)
class Way:
    """How torch calls the function: the decorator says it, and a line behind the function."""

    when: str
    decorator: str = ""  # that of the helpers where there are some
    behind: str = ""
    helpers: Helpers | None = None

    def definition(self, file: ParsedSource, name: str, head: str, *lines: str) -> tuple[str, tuple[Edit, ...]]:
        """The text of a function of the module, with the decorator, and the edits that the decorator needs."""
        decorator, edits = self.decorated(file)
        behind = ["", "", self.behind.format(name=name)] if self.behind else []
        return file.newline.join([decorator, head, *lines, *behind]), edits

    def decorated(self, file: ParsedSource) -> tuple[str, tuple[Edit, ...]]:
        """The line of the decorator, and the edits that it needs."""
        if self.helpers is None:
            return self.decorator, ()
        order, made = Definition.of_helpers(file, ORDER), Definition.of_helpers(file, self.helpers)
        return f"@{made.name}", (*order.edits, *made.edits)


# Torch drops the calls after the graph that an inlined function asks for.
AFTER = Way(
    "calls after the graph",
    "@torch.compiler.disable",
    "torch._dynamo.config.reorderable_logging_functions.add({name})",
)
WITHIN = Way("runs in the graph", helpers=_IN_GRAPH)


def operator(file: ParsedSource, name: str, order: str, types: Mapping[str, str]) -> Way:
    """The way in the graph of a function whose parameters, behind ``order``, have these types of torch's schemas."""
    place = "".join(each if each.isalnum() else "_" for each in module_of(file.name))
    end, unit = file.newline, file.indent_unit
    schema = ", ".join(f"{type_} {each}" for each, type_ in {order: "Tensor(a!)", **types}.items())
    arguments = (
        f'"{place}::{name}"',
        f'mutates_args=("{order}",)',
        f'schema="({schema}) -> ()"',
        "tags=(torch.Tag.cudagraph_unsafe,)",
    )
    decorator = end.join(["@torch.library.custom_op(", *(f"{unit}{each}," for each in arguments), ")"])
    fake = f"{{name}}.register_fake(lambda {', '.join([order, *types])}: None)"
    return Way(WITHIN.when, decorator, fake)


# For what is done once in a process, and with constants alone.
COMPILING = Way("calls while it compiles", "@torch.compiler.assume_constant_result")
