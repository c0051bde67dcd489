"""Passes that make definitions smaller: parameters with their arguments, decorators, bases, annotations."""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Iterator

from minifier.source.calls import Calls
from minifier.source.observed import Seen
from minifier.source.scopes import bound_names, names_read, uses_of
from minifier.source.trees import Edit, call_arguments


def drop_annotations(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove annotations and docstrings, all at once if possible. Those of a class are its fields: they go last."""
    edits: list[Edit] = []
    fields = {item for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for item in node.body}
    of_fields: list[Edit] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            edits.append({node.annotation: ()})
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            edits.append({node.returns: ()})
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            (of_fields if node in fields else edits).append({node: ast.Assign([node.target], node.value)})
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            edits.append({node: ()})
    yield edits
    yield of_fields


def drop_async(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Make a program synchronous, all at once: `async def` becomes `def`, `await x` and `asyncio.run(x)` become `x`,
    and `asyncio.gather(x, y)` becomes `[x, y]`.
    """
    plain = {ast.AsyncFunctionDef: ast.FunctionDef, ast.AsyncFor: ast.For, ast.AsyncWith: ast.With}
    edit: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef() | ast.AsyncFor() | ast.AsyncWith():
                edit[node] = plain[type(node)](**dict(ast.iter_fields(node)))
            case ast.comprehension(is_async=1):
                edit[node] = ast.comprehension(node.target, node.iter, node.ifs, 0)
            case (
                ast.Await(value=value)
                | ast.Call(func=ast.Attribute(value=ast.Name("asyncio"), attr="run"), args=[value])
            ):
                edit[node] = value
            case ast.Call(func=ast.Attribute(value=ast.Name("asyncio"), attr="gather"), args=values):
                edit[node] = ast.List(values, ast.Load())
            case ast.Call(func=ast.Attribute(value=ast.Name("asyncio"), attr="sleep")):
                edit[node] = ast.Constant(None)
    if edit:
        yield [edit]


def drop_decorators(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Remove decorators, base classes and keywords of classes."""
    edits: list[Edit] = []
    for node in ast.walk(tree):
        edits += [{d: ()} for d in getattr(node, "decorator_list", ())]
        if isinstance(node, ast.ClassDef):
            edits += [{part: ()} for part in [*node.bases, *node.keywords]]
    yield edits
    yield from ([edit] for edit in edits)


def drop_parameters(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Remove parameters that a function does not read, with their arguments in each call."""
    calls = Calls(tree, seen)
    edits: list[Edit] = []
    for function in _callables(tree):
        read = names_read(function.body if isinstance(function, ast.Lambda) else ast.Module(function.body, []))
        for parameter in _parameters(function, calls):
            if parameter.arg not in read:
                edits.append(_without(function, parameter, calls))
        for spare in (function.args.vararg, function.args.kwarg):
            if spare is not None and spare.arg not in read:
                edits.append({spare: ()})
    yield edits


def bind_parameters(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace a parameter by its argument, if all calls pass the same one or use its default."""
    calls, shared = Calls(tree, seen), bound_names(tree)
    for function in _callables(tree):
        callers = calls.callers(function)
        for parameter in _parameters(function, calls):
            given = [call_arguments(function, call, bound) for call, bound in callers]
            texts = {ast.unparse(g[parameter.arg]): g[parameter.arg] for g in given if g and parameter.arg in g}
            reads = uses_of(function, parameter.arg)
            if len(texts) != 1 or any(not isinstance(n.ctx, ast.Load) for n in reads):
                continue
            value = copy.deepcopy(next(iter(texts.values())))  # the argument itself is removed
            own = {node.arg for node in ast.walk(value) if isinstance(node, ast.arg)}  # of a lambda
            if names_read(value) <= shared | own | set(dir(builtins)):
                yield [{**_without(function, parameter, calls), **dict.fromkeys(reads, value)}]


def parameters_to_attributes(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Pass what a function reads of an object, if that is one attribute: `f(a.b)` in place of `f(a)`. A method, which
    nothing sets, is called where it was: a bound one as an argument is no smaller, and another thing to a compiler.
    """
    calls = Calls(tree, seen)
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    values = {node.attr for node in attributes if isinstance(node.ctx, ast.Store)}
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    methods = {node for node in attributes if node in called and node.attr not in values}
    for function in _callables(tree):
        for parameter in _parameters(function, calls):
            reads = set(uses_of(function, parameter.arg))
            whole = [n for n in attributes if n.value in reads]
            arguments = [_argument(function, parameter, call, bound) for call, bound in calls.callers(function)]
            if len({n.attr for n in whole}) == 1 and len(whole) == len(reads) and arguments and not methods & {*whole}:
                edit: dict[ast.AST, ast.AST] = {n: ast.Name(parameter.arg, n.ctx) for n in whole}
                given: dict[ast.AST, ast.AST] = {
                    a: ast.Attribute(a, whole[0].attr, ast.Load()) for a in arguments if a is not None
                }
                if len(given) == len(arguments):
                    yield [{**edit, **given}]


def _argument(
    function: ast.FunctionDef | ast.Lambda, parameter: ast.arg, call: ast.Call, bound: int
) -> ast.expr | None:
    return (call_arguments(function, call, bound) or {}).get(parameter.arg)


def _callables(tree: ast.Module) -> list[ast.FunctionDef | ast.Lambda]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.Lambda)]


def _parameters(function: ast.FunctionDef | ast.Lambda, calls: Calls) -> list[ast.arg]:
    """The parameters that calls pass: all but ``self``."""
    spec = function.args
    first = int(function in calls.owners and not (isinstance(function, ast.FunctionDef) and _is_static(function)))
    return [*[*spec.posonlyargs, *spec.args][first:], *spec.kwonlyargs]


def _is_static(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(d) == "staticmethod" for d in function.decorator_list)


def _without(
    function: ast.FunctionDef | ast.Lambda, parameter: ast.arg, calls: Calls
) -> dict[ast.AST, ast.AST | tuple[()]]:
    """The edit that removes a parameter, its default, and its argument in each call."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    edit: dict[ast.AST, ast.AST | tuple[()]] = {parameter: ()}
    if parameter in positional:
        place = positional.index(parameter)
        default = place - len(positional) + len(spec.defaults)
        if default >= 0:
            edit[spec.defaults[default]] = ()
    else:
        place = -1
        edit[spec] = _without_keyword(spec, parameter)
    for call, bound in calls.callers(function):
        index = place - bound
        if 0 <= index < len(call.args) and place >= 0:
            edit[call.args[index]] = ()
        edit |= {k: () for k in call.keywords if k.arg == parameter.arg}
    return edit


def _without_keyword(spec: ast.arguments, parameter: ast.arg) -> ast.arguments:
    kept = [(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if a is not parameter]
    return ast.arguments(
        spec.posonlyargs, spec.args, spec.vararg, [a for a, _ in kept], [d for _, d in kept], spec.kwarg, spec.defaults
    )
