"""A tensor that the graph makes of constants, and whose numbers are then used as sizes or bounds (deformable attention
reads `for height, width in spatial_shapes`): the numbers themselves.

While torch compiles, the nodes that make the tensor are followed back. Where all of them compute of constants alone,
and nothing has written to one, they are computed, and torch goes on with the numbers; what the constants depend on,
torch guards. Anything else stays the tensor, and so does everything without `torch.compile`. Numbers are no tensors:
they have no memory that `height += 1` would write to, and Python computes with them in float64. The proof sees where
that makes a difference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.rewrites.definitions import Definition, Helpers
from dynadiag.recording.records import Span

_OF_NUMBERS = ("GB0033", "GB0124")  # an operator needs a number that a tensor holds; `item`
_WHY = "torch computes these numbers while it compiles, and only where the graph makes them of constants"
_HELPERS = '''

class _Found:
    """The numbers that torch found last while it compiled; None where they are not known."""

    numbers = None


_COMPUTING = frozenset(
    "tensor as_tensor new_tensor full zeros ones arange new_full new_zeros new_ones full_like zeros_like ones_like cat "
    "stack getitem select narrow unbind split clone detach contiguous to type type_as long int float bool flatten "
    "reshape view expand squeeze unsqueeze flip t transpose pad add sub rsub mul truediv div floordiv floor_divide mod "
    "remainder neg invert logical_not eq ne lt le gt ge and_ or_ logical_and logical_or where masked_fill any all sum "
    "prod cumsum cumprod max min amax amin maximum minimum".split()
)


def _computed(node, values):
    """What a node of the graph computes, of constants alone. Raises `ValueError` where there is anything else."""
    if node not in values:
        call = getattr(torch.Tensor, node.target) if node.op == "call_method" else node.target
        is_of_torch = node.op == "call_method" or isinstance(call, type(len))  # a function of C
        is_written = getattr(node.meta.get("example_value"), "_version", 0) > 0
        if not is_of_torch or call.__name__ not in _COMPUTING or is_written:
            raise ValueError(node)
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: _computed(each, values))
        values[node] = call(*args, **kwargs)
    return values[node]


def _find_numbers(context):
    """Find the numbers of the local variable `value`; torch calls this while it compiles."""
    variable = context.get_local("value")._i_will_not_complain_if_bc_breaks_VariableTracker().realize()
    with contextlib.suppress(Exception), torch.no_grad():  # where it cannot be computed it stays a tensor
        tensor = _computed(variable.as_proxy().node, {})
        _Found.numbers = tensor.tolist() if tensor.numel() < 1000 else None


@torch.compiler.assume_constant_result
def _found_numbers():
    numbers, _Found.numbers = _Found.numbers, None
    return numbers


def _known_numbers(value, read=lambda unknown: unknown):
    """The numbers of a tensor that a graph makes of constants; what is read of anything else."""
    if not torch.compiler.is_dynamo_compiling() or not isinstance(value, torch.Tensor):
        return read(value)
    torch._dynamo.comptime.comptime(_find_numbers)
    numbers = _found_numbers()
    return read(value) if numbers is None else numbers
'''
_NAMES = ("_Found", "_COMPUTING", "_computed", "_find_numbers", "_found_numbers", "_known_numbers")
_KNOWN = Helpers(_HELPERS, _NAMES, ("contextlib", "torch", "torch._dynamo.comptime"))
_NO_NUMBERS = ("device", "dtype", "dim", "layout", "indexing")  # arguments that are no sizes
_READ = m.Call(m.Attribute(attr=m.Name("item") | m.Name("tolist")), [])
_CONVERTED = m.Call(m.Name("int") | m.Name("float") | m.Name("bool"))
_SIZE = re.compile(r"len\(.*\)|[\w.]+\.(?:ndim|shape(?:\[[^]]*\])?|(?:dim|numel|size)\([^()]*\))", re.S)


def expression_at(file: ParsedSource, span: Span) -> cst.BaseExpression | None:
    """The expression at the span of the break; of a bound of a slice, the whole that is sliced."""
    found = file.at(span, cst.BaseExpression)  # type: ignore[type-abstract]  # `at` only asks `isinstance`
    is_bound = found is not None and isinstance(file.parent(found), cst.Slice)
    sliced = file.enclosing(found, cst.Subscript) if found is not None and is_bound else None
    return sliced if isinstance(sliced, cst.Subscript) else found


def candidates(site: Site[cst.BaseExpression]) -> Iterator[Candidate]:
    """The numbers in place of the tensors that the sizes in an expression are read from."""
    file, function = site.file, site.file.enclosing(site.node, cst.FunctionDef)
    if site.problem.gb_id not in _OF_NUMBERS or not isinstance(function, cst.FunctionDef):
        return
    inside = f"in `{function.name.value}`, where torch knows them"
    if m.matches(site.node, _READ):
        attribute = cst.ensure_type(cst.ensure_type(site.node, cst.Call).func, cst.Attribute)
        known, tensor = Definition.of_helpers(file, _KNOWN), file.code(attribute.value)
        text = f"{known.name}({tensor}, lambda each: each.{attribute.attr.value}())"
        title = f"use the numbers of `{tensor}` {inside}"
        yield Candidate(title, "source", (*known.edits, file.replace(site.node, text)), _WHY)
        return
    names = [name for each in _alike(file, function, site.node) for name in _names(file, each)]
    read = {each: place for name in names for each, place in _sources(file, function, name)}
    chosen = [each for each, in_parts in read.items() if in_parts]
    if not chosen and not m.matches(site.node, _CONVERTED):
        chosen = list(read)
    if chosen:
        known = Definition.of_helpers(file, _KNOWN)
        edits = [file.replace(each, f"{known.name}({file.code(each)})") for each in chosen]
        texts = ", ".join(dict.fromkeys(f"`{file.code(each)}`" for each in chosen))
        yield Candidate(f"use the numbers of {texts} {inside}", "source", (*known.edits, *edits), _WHY)


def _alike(file: ParsedSource, function: cst.FunctionDef, node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The expression; of a call all calls of the same function here, which break one behind the other."""
    if not isinstance(node, cst.Call):
        return [node]
    return [each for each in file.nodes(cst.Call, function) if file.code(each.func) == file.code(node.func)]


def _names(file: ParsedSource, node: cst.BaseExpression) -> Iterator[cst.Name]:
    """The names in an expression that may be numbers: not what is called, has attributes or is sliced, and no index."""
    others = {each for call in file.nodes(cst.Call, node) for each in file.nodes(cst.Name, call.func)}
    others |= {each for attribute in file.nodes(cst.Attribute, node) for each in file.nodes(cst.Name, attribute)}
    for argument in file.nodes(cst.Arg, node):
        if argument.keyword is not None:
            unread = argument if argument.keyword.value in _NO_NUMBERS else argument.keyword
            others |= set(file.nodes(cst.Name, unread))
    for subscript in file.nodes(cst.Subscript, node):
        parts = [subscript.value] if subscript is node else subscript.slice
        others |= {each for part in parts for each in file.nodes(cst.Name, part)}
    yield from (each for each in file.nodes(cst.Name, node) if each not in others and not _is_constant(each))


def _is_constant(name: cst.Name) -> bool:
    return name.value in ("None", "True", "False")


def _sources(
    file: ParsedSource, function: cst.FunctionDef, name: cst.Name
) -> Iterator[tuple[cst.BaseExpression, bool]]:
    """What a name in an expression is read from, each with whether it is read in parts: what a loop goes through, what
    is assigned to the elements of a list, an element, or the name itself.
    """
    if (loop := _loop_of(file, name)) is not None:
        through = loop.iter
        if m.matches(through, m.Call(m.Name("enumerate"), [m.Arg()])):
            through = cst.ensure_type(through, cst.Call).args[0].value
        if isinstance(through, (cst.Name, cst.Attribute, cst.Subscript)):
            yield through, True
        return
    made = [each for each in file.nodes(cst.Assign, function) if len(each.targets) == 1]
    targets = [(each.targets[0].target, each.value) for each in made]
    elements = [value for target, value in targets if m.matches(target, m.Subscript(m.Name(name.value)))]
    if elements:
        yield from ((_with_indices(file, each), True) for value in elements for each in _names(file, value))
        return
    if any(each.name.value == name.value and _is_number(file, each) for each in file.nodes(cst.Param, function.params)):
        return
    values = [value for target, value in targets if name.value in {each.value for each in file.nodes(cst.Name, target)}]
    if not any(_SIZE.fullmatch(file.code(value)) for value in values):
        whole = _with_indices(file, name)
        yield whole, whole is not name


def _loop_of(file: ParsedSource, name: cst.Name) -> cst.For | cst.CompFor | None:
    """The innermost loop around a name that gives it its value."""
    around: cst.CSTNode | None = file.parent(name)
    while around is not None and not isinstance(around, cst.FunctionDef):
        loop = around.for_in if isinstance(around, cst.BaseSimpleComp) else around
        given = file.nodes(cst.Name, loop.target) if isinstance(loop, (cst.For, cst.CompFor)) else ()
        if isinstance(loop, (cst.For, cst.CompFor)) and any(each.value == name.value for each in given):
            return loop
        around = file.parent(around)
    return None


def _is_number(file: ParsedSource, parameter: cst.Param) -> bool:
    """Whether the annotation of a parameter says that it is no tensor."""
    return parameter.annotation is not None and file.code(parameter.annotation.annotation) in ("int", "float", "bool")


def _with_indices(file: ParsedSource, name: cst.Name) -> cst.BaseExpression:
    """Return a name with all indices that follow it: `shapes[level][0]`."""
    whole: cst.BaseExpression = name
    while isinstance(above := file.parent(whole), cst.Subscript) and above.value is whole:
        whole = above
    return whole
