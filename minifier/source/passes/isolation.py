"""A pass that calls one function directly, with arguments that it had: what led to the call goes in one step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from minifier.source.observed import Seen, SeenCall
from minifier.source.passes.statements import drop_unused
from minifier.source.scopes import bound_names, import_bindings, names_read, new_name, own_nodes, uses_of
from minifier.source.trees import Edit, Replacement, apply_edit, expression, render, substitute

Options = tuple[ast.keyword, ...]  # of a call that compiles
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def isolate_calls(tree: ast.Module, seen: Seen) -> Iterator[list[Edit]]:
    """Replace all that the module runs by the calls of one of its functions, compiled as the program compiles: the
    shortest program first. A function that is given a compiled one stays outside of the compiler.
    """
    kept, imported = _kept_statements(tree), _imported(tree)
    found: dict[str, ast.Module] = {}
    for function, owner in _callables(tree):
        for options in _compile_options(tree, seen):
            calls = _calls(tree, function, owner, seen.calls(function), options)
            if calls:
                program = _without_unused(ast.Module([*_reached(kept, calls, imported), *calls], []), seen, imported)
                found[render(program)] = program
    for text in sorted(found, key=len):
        yield [{tree: found[text]}]


def _callables(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, ast.ClassDef | None]]:
    """The functions and methods of the module that can be called from outside."""
    for node in tree.body:
        for item in node.body if isinstance(node, ast.ClassDef) else [node]:
            is_plain = isinstance(item, ast.FunctionDef) and item.name != "__init__" and not _is_property(item)
            if is_plain and not any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own_nodes(item)):
                assert isinstance(item, ast.FunctionDef)
                yield item, node if isinstance(node, ast.ClassDef) else None


def _is_property(function: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(d) or ".setter" in ast.unparse(d) for d in function.decorator_list)


def _compile_options(tree: ast.Module, seen: Seen) -> list[Options | None]:
    """The keywords of each call that compiles; None where there is none."""
    compiling = _compiling_calls(tree)
    options = [tuple(part for keyword in call.keywords for part in _option(keyword, seen)) for call in compiling]
    return list({ast.unparse(ast.Call(_name("f"), [], list(each))): each for each in options}.values()) or [None]


def _compiling_calls(tree: ast.Module) -> list[ast.Call]:
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    return [c for c in calls if ast.unparse(c.func).endswith(".compile") and ast.unparse(c.func) != "re.compile"]


def _option(keyword: ast.keyword, seen: Seen) -> Options:
    """A keyword with the value that it had: a variable of a function means nothing outside."""
    values = seen.values(keyword.value)
    value = expression(values[0]) if values else keyword.value
    match value:
        case ast.Dict(keys=keys, values=parts) if keyword.arg is None:  # **options
            pairs = zip(keys, parts, strict=True)
            return tuple(ast.keyword(str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant))
    return (ast.keyword(keyword.arg, value),)


def _imported(tree: ast.Module) -> set[str]:
    return {n for s in tree.body if isinstance(s, ast.Import | ast.ImportFrom) for n in import_bindings(s)}


def _kept_statements(tree: ast.Module) -> list[ast.stmt]:
    """Definitions, assignments, and calls that only read what is imported: settings and seeds."""
    imported = _imported(tree)
    plain = (*_DEFINITIONS, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    return [
        s
        for s in tree.body
        if isinstance(s, plain)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and names_read(s) <= imported)
    ]


def _calls(
    tree: ast.Module,
    function: ast.FunctionDef,
    owner: ast.ClassDef | None,
    calls: Sequence[SeenCall],
    options: Options | None,
) -> list[ast.stmt]:
    """The statements that call a function with each of its arguments; none where these are not known."""
    if not calls:
        return []
    first = calls[0]
    alike = [call for call in calls if (call.owner, call.grad) == (first.owner, first.grad)]
    callee: ast.expr = _name(function.name)
    if owner is not None:
        callee = ast.Attribute(expression(first.owner) if first.owner else _name(owner.name), function.name, ast.Load())
    made: list[ast.stmt] = []
    given: set[str] = set()
    if options is not None and "torch.compile" not in ast.unparse(function):
        compiled = {ast.unparse(argument) for call in _compiling_calls(tree) for argument in call.args[:1]}
        if function.name not in compiled:
            given = {name for call in alike for name in names_read(expression(f"_{call.arguments}"))} & compiled
        if not given:
            callee = _compiled(callee, options)
    if len(alike) > 1 and not isinstance(callee, ast.Name):
        name = new_name("compiled", bound_names(tree))
        made, callee = [ast.Assign([ast.Name(name, ast.Store())], callee)], _name(name)
    prints = uses_of(tree, "print")  # its output may be what is wrong
    as_compiled = {name: _compiled(_name(name), options or ()) for name in given}
    calls_made = [_called(callee, call.arguments, as_compiled) for call in alike]
    lines = [ast.Expr(ast.Call(_name("print"), [call], []) if prints else call) for call in calls_made]
    if first.grad:
        return [*made, *lines]
    return [ast.With([ast.withitem(expression("torch.no_grad()"))], [*made, *lines])]


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _compiled(function: ast.expr, options: Options) -> ast.expr:
    return ast.Call(expression("torch.compile"), [function], list(options))


def _called(callee: ast.expr, arguments: str, as_compiled: Mapping[str, ast.expr]) -> ast.Call:
    """A call with the arguments in a text, which has their parentheses, some of them compiled."""
    call = substitute(expression(f"function{arguments}"), as_compiled)
    assert isinstance(call, ast.Call)
    return ast.Call(callee, call.args, call.keywords)


def _reached(kept: list[ast.stmt], calls: list[ast.stmt], imported: set[str]) -> list[ast.stmt]:
    """The statements that bind what the calls read, or what these statements read, and the settings."""
    binds = {s: bound_names(ast.Module([s], [])) or _targets(s) - imported for s in kept}
    found = [s for s in kept if not binds[s]]
    names = {name for s in [*found, *calls] for name in names_read(s)}
    while more := [s for s in kept if s not in found and binds[s] & names]:
        found += more
        names |= {name for s in more for name in names_read(s)}
    texts: dict[str, ast.stmt] = {}  # modules that became one file import the same
    for s in kept:
        if s in found:
            texts.setdefault(ast.unparse(s) if isinstance(s, ast.Import | ast.ImportFrom) else str(id(s)), s)
    return list(texts.values())


def _targets(node: ast.stmt) -> set[str]:
    """The names of objects whose attributes or items an assignment sets."""
    return {_root(target) for target in (node.targets if isinstance(node, ast.Assign) else ())}


def _without_unused(program: ast.Module, seen: Seen, imported: set[str]) -> ast.Module:
    """The program without what nothing reads; attributes of what is imported are settings."""
    edit: dict[ast.AST, Replacement] = {}
    for group in drop_unused(program, seen):
        for found in group:
            if not any(isinstance(node, ast.Assign) and _root(node.targets[0]) in imported for node in found):
                edit |= found
    return apply_edit(program, edit)


def _root(node: ast.expr) -> str:
    return ast.unparse(node).partition(".")[0]
