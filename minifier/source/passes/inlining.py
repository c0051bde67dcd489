"""Passes that replace a call by the body of its function, and a variable by its value."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from minifier.source.calls import Calls, CallTarget
from minifier.source.observed import Seen
from minifier.source.scopes import (
    bound_names,
    functions,
    is_free_of,
    names_read,
    new_name,
    own_nodes,
    reads_of,
    scope_of,
    use_counts,
)
from minifier.source.trees import Edit, call_arguments, parents_of, size, substitute

_SIMPLE = (ast.Name, ast.Constant)


def inline_variables(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace a variable that is assigned once by its value."""
    for scope in [tree, *functions(tree)]:
        assigned = [n for n in own_nodes(scope) if isinstance(n, ast.Assign) and len(n.targets) == 1]
        for node in assigned:
            target = node.targets[0]
            if not isinstance(target, ast.Name):
                continue
            reads = reads_of(scope, target.id)
            named = [n for n in own_nodes(scope) if isinstance(n, ast.Name) and n.id == target.id]
            stores = [n for n in named if not isinstance(n.ctx, ast.Load)]
            later = [n for n in reads if n.lineno > node.lineno]  # the name is a parameter, or assigned before
            if later and len(later) < len(reads):
                yield [{node: (), **dict.fromkeys(later, node.value)}]
            if reads and len(stores) == 1:
                yield [{node: (), **dict.fromkeys(reads, node.value)}]
            elif reads:
                yield [{reads[0]: node.value, node: ()}]


def inline_calls(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace a call by the body of its function, which is removed if nothing else calls it."""
    calls, parents = Calls(tree, seen), parents_of(tree)
    found = [(call, target) for call in calls.calls for target in calls.targets(call) if target.inlinable]
    found = [(call, target) for call, target in found if call not in set(ast.walk(target.function))]
    for call, target in sorted(found, key=lambda pair: size(pair[1].function)):
        for edit in _inlined(tree, call, target, parents):
            single = use_counts(tree)[target.function.name] <= 1 or target.function.name.startswith("__")
            yield [{**edit, target.function: ()}] if single else [edit]
    yield from _inline_properties(tree, calls)
    for call in calls.calls:
        value = _value_of_call(call.func, call)
        if value is not None:
            yield [{call: value}]


def _value_of_call(function: ast.expr, call: ast.Call) -> ast.expr | None:
    """What a call of a lambda returns, or of one of two lambdas; None if it calls something else."""
    match function:
        case ast.Lambda(body=body):
            arguments = call_arguments(function, call, 0)
            return _spliced(body, arguments) if arguments is not None else None
        case ast.IfExp(test=test, body=one, orelse=other):
            values = _value_of_call(one, call), _value_of_call(other, call)
            return ast.IfExp(test, values[0], values[1]) if values[0] is not None and values[1] is not None else None
    return None


def _inline_properties(tree: ast.Module, calls: Calls) -> Iterator[list[Edit]]:
    for method in calls.owners:
        if not isinstance(method, ast.FunctionDef) or "property" not in [ast.unparse(d) for d in method.decorator_list]:
            continue
        value = _result(method.body[-1])
        reads = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr == method.name and value]
        if value is not None and len(method.body) == 1:
            yield [{method: (), **{n: substitute(value, {"self": n.value}) for n in reads}}]


def _result(node: ast.stmt) -> ast.expr | None:
    return node.value if isinstance(node, ast.Return) else None


def _inlined(
    tree: ast.Module, call: ast.Call, target: CallTarget, parents: dict[ast.AST, ast.AST]
) -> Iterator[dict[ast.AST, ast.AST | tuple[ast.AST, ...]]]:
    """The edits that inline a call: as an expression if the function's body is one, else before the statement."""
    function, own = target.function, list(own_nodes(target.function))
    arguments = call_arguments(function, call, target.bound)
    if arguments is None:
        return
    if target.receiver is not None and function.args.args:
        arguments[function.args.args[0].arg] = target.receiver
    if values := _yielded(function):
        yield {call: _spliced(ast.List(values, ast.Load()), arguments)}
    if any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Global | ast.Nonlocal) for n in own):
        return
    body = [s for s in function.body if not isinstance(s, ast.Pass)]
    last = _result(body[-1]) if body else ast.Constant(None)
    returns = [n for n in own if isinstance(n, ast.Return)]
    if len(body) == 1 and last is not None:
        yield {call: _spliced(last, arguments)}
        return
    if len(returns) > (last is not None):
        return
    statement = _statement_of(call, parents)
    if statement is None:
        return
    prologue, result = _prologue(tree, function, arguments, body, last, scope_of(call, parents))
    if isinstance(statement, ast.Expr) and statement.value is call and (last is None or isinstance(last, ast.Constant)):
        yield {statement: tuple(prologue)}
    else:
        yield {statement: (*prologue, statement), call: result}


def _yielded(function: ast.FunctionDef) -> list[ast.expr]:
    """What a generator yields if it does nothing else; empty for other functions."""
    values: list[ast.expr] = []
    for statement in function.body:
        match statement:
            case ast.Expr(value=ast.Yield(value=value)):
                values.append(value or ast.Constant(None))
            case ast.Expr(value=ast.YieldFrom(value=value)):
                values.append(ast.Starred(value, ast.Load()))
            case _:
                return []
    return values


def _prologue(
    tree: ast.Module,
    function: ast.FunctionDef,
    arguments: dict[str, ast.expr],
    body: list[ast.stmt],
    last: ast.expr | None,
    scope: ast.AST,
) -> tuple[list[ast.stmt], ast.expr]:
    """The statements that run before the call's statement, and the expression that takes the place of the call."""
    bound = bound_names(function)
    stored = {n.id for part in body for n in ast.walk(part) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    reads = use_counts(ast.Module(body, []))
    direct = {
        name: value
        for name, value in arguments.items()
        if name not in stored and (reads[name] <= 1 or _is_simple(value))
    }
    locals_ = bound - direct.keys()
    taken = bound_names(scope) | names_read(scope) | (bound_names(tree) if scope is not tree else set())
    if function in ast.walk(scope) and scope is not tree:
        taken |= bound_names(scope)
    renamed = {name: new_name(name, taken) if name in taken else name for name in sorted(locals_)}

    def rename(name: str) -> str:
        return renamed.get(name, name)

    assigns: list[ast.stmt] = [
        ast.Assign([ast.Name(rename(name), ast.Store())], value)
        for name, value in arguments.items()
        if name not in direct
    ]
    kept = body[:-1] if last is not None and isinstance(body[-1:][0] if body else None, ast.Return) else body
    moved = [_substituted(part, direct, rename) for part in kept]
    result = _substituted(last, direct, rename) if last is not None else ast.Constant(None)
    return [*assigns, *moved], result


def _substituted(node: ast.AST, names: dict[str, ast.expr], rename: Callable[[str], str]) -> Any:
    return _splice(substitute(node, names, rename))


def _spliced(value: ast.expr, arguments: dict[str, ast.expr]) -> ast.expr:
    found: ast.expr = _splice(substitute(value, arguments))
    return found


class _Splice(ast.NodeTransformer):
    """`f(*(a, b), **{"c": d})` becomes `f(a, b, c=d)`."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        args: list[ast.expr] = []
        for arg in node.args:
            args += arg.value.elts if isinstance(arg, ast.Starred) and isinstance(arg.value, ast.Tuple) else [arg]
        keywords: list[ast.keyword] = []
        for k in node.keywords:
            if k.arg is None and isinstance(k.value, ast.Dict):
                pairs = zip(k.value.keys, k.value.values, strict=True)
                keywords += [ast.keyword(str(name.value), v) for name, v in pairs if isinstance(name, ast.Constant)]
            else:
                keywords.append(k)
        return ast.Call(node.func, args, keywords)


def _splice(node: ast.AST) -> Any:
    return _Splice().visit(node)


def _is_simple(value: ast.expr) -> bool:
    return isinstance(value, _SIMPLE) or (isinstance(value, ast.Attribute) and _is_simple(value.value))


def _statement_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.stmt | None:
    """The statement of an expression; None inside a lambda, a class body or a decorator."""
    while not isinstance(node, ast.stmt):
        if isinstance(node, ast.Lambda) or node not in parents:
            return None
        node = parents[node]
    return None if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else node


def to_lambda(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace the only use of a function of one expression by a lambda."""
    for function in functions(tree):
        names = reads_of(tree, function.name)
        body = [s for s in function.body if not isinstance(s, ast.Pass)]
        if len(names) != 1 or len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr) or body[0].value is None:
            continue
        value: ast.expr = ast.Lambda(function.args, body[0].value)
        for decorator in reversed(function.decorator_list):
            value = ast.Call(decorator, [value], [])
        yield [{function: (), names[0]: value}]
        yield from _decorators_as_calls(function, names[0])


def _decorators_as_calls(function: ast.FunctionDef, name: ast.Name) -> Iterator[list[Edit]]:
    """`@torch.compile(backend="eager") def f` becomes `torch.compile(f, backend="eager")` where f is named."""
    if len(function.decorator_list) == 1 and isinstance(function.decorator_list[0], ast.Call):
        made = function.decorator_list[0]
        lambda_ = ast.Lambda(function.args, function.body[-1].value)  # type: ignore[attr-defined]  # checked by the caller
        yield [{function: (), name: ast.Call(made.func, [lambda_, *made.args], made.keywords)}]


def call_directly(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """`torch.compile(lambda x: f(x, 1))(y)` becomes `torch.compile(f)(y, 1)`."""
    for call in ast.walk(tree):
        match call:
            case ast.Call(func=ast.Call(args=[ast.Lambda(body=ast.Call() as inner) as wrapper, *_]) as made):
                arguments = call_arguments(wrapper, call, 0)
                if arguments is None or not is_free_of(inner.func, arguments):
                    continue
                keywords = [ast.keyword(k.arg, substitute(k.value, arguments)) for k in inner.keywords]
                given = [substitute(argument, arguments) for argument in inner.args]
                yield [{wrapper: inner.func, call: ast.Call(made, given, keywords)}]


def inline_exec(tree: ast.Module, _seen: Seen) -> Iterator[list[Edit]]:
    """Replace `exec` of a text by the statements in it; `space["f"]`, where they are executed, becomes `f`."""
    texts = {
        node.targets[0].id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id="exec"), args=[code, *spaces])):
                text = texts.get(code.id) if isinstance(code, ast.Name) else code
                body = _parsed(text)
                if body is not None:
                    yield [{node: body, **_reads_by_key(tree, spaces)}]


def _parsed(node: ast.expr | None) -> tuple[ast.stmt, ...] | None:
    """The statements in a text; None if it is not known, or not Python."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return None
    try:
        return tuple(ast.parse(node.value).body)
    except SyntaxError:
        return None


def _reads_by_key(tree: ast.Module, spaces: list[ast.expr]) -> dict[ast.AST, ast.AST]:
    """The edit that replaces `space["f"]` by `f`."""
    names = {space.id for space in spaces if isinstance(space, ast.Name)}
    found: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)), ctx=context):
                if name in names and key.isidentifier():
                    found[node] = ast.Name(key, context)
    return found
