"""Programs that differ from a program in one option: whether they fail too says what the failure depends on."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from minifier.source.trees import Edit, Replacement, apply_edit, expression, render

_MAX_TEXT = 120  # characters of an option that is told
# Keywords that stay: they are other rungs, machines and numbers, or have a kind of their own. A graph names the layout
# of each tensor that it makes.
_KEPT = frozenset(("backend", "device", "dtype", "generator", "layout", "requires_grad"))
_TESTING = "torch.testing."
_DTYPES = {
    **dict.fromkeys(("float16", "half", "bfloat16", "float64", "double", "complex64", "complex128"), "float32"),
    **dict.fromkeys(("bool", "uint8", "int8", "int16", "short", "int32", "int"), "int64"),
}
_CASTS = {"half": "float", "bfloat16": "float", "double": "float"}  # methods of tensors and modules
_SPECIAL = frozenset(("nan", "inf"))
# Methods whose result is not contiguous.
_STRIDED = frozenset(("as_strided", "expand", "expand_as", "movedim", "permute", "t", "transpose"))
_MAKING = frozenset(("empty", "ones", "zeros", "full", "rand", "randn"))  # functions of torch: sizes come first
_LARGER = 2  # in the place of a size of 0: of one element most operations return it


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A program in which one option is another: an ``argument``, a ``dtype``, a ``value``, a ``size``, a ``layout``, a
    ``gradient`` or a ``setting``.

    ``was`` is the option as the program has it, ``now`` what stands there instead, empty where it is left out.
    """

    kind: str
    was: str
    now: str
    text: str


_Change = tuple[str, str, Edit]


def neighbours(text: str) -> Iterator[Neighbour]:
    """The neighbours of a program: arguments of calls first, then what tensors are, then what it sets in torch.

    An option that stands at several places is changed at all of them. Nothing says that a neighbour runs.
    """
    tree = ast.parse(text)
    for kind, changes in _KINDS:
        for was, now, edit in changes(tree):
            if max(len(was), len(now)) <= _MAX_TEXT:
                yield Neighbour(kind, was, now, render(apply_edit(tree, edit)))


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Calls of torch and of methods, in the order of the text; none of what compares results, or is given to torch."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    given = {each for function in _given_to_torch(tree) for each in ast.walk(function)}
    walked = (node for node in ast.walk(tree) if node not in given)
    calls = [node for node in walked if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    for call in sorted(calls, key=lambda node: (node.lineno, node.col_offset)):
        name = ast.unparse(call.func)
        if not name.startswith(_TESTING) and name.partition(".")[0] not in own:
            yield call, name


def _given_to_torch(tree: ast.Module) -> list[ast.FunctionDef]:
    """Functions that become a part of torch: a pass, a lowering, an operator. What they call is not compiled."""
    assigned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is_of_torch(node.targets[0])]
    names = {name.id for value in assigned for name in ast.walk(value) if isinstance(name, ast.Name)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    return [f for f in functions if f.name in names or any(map(_registers, f.decorator_list))]


def _registers(decorator: ast.expr) -> bool:
    return _name(decorator).startswith("torch.library.") or ".register_" in f".{_name(decorator)}"


def _keywords(tree: ast.Module) -> Iterator[_Change]:
    """Each keyword: a flag with the other value, any other one left out."""
    found = defaultdict[tuple[str, str], list[ast.keyword]](list)
    for call, name in _calls(tree):
        for keyword in call.keywords:
            if keyword.arg is not None and keyword.arg not in _KEPT:
                found[name, ast.unparse(keyword)].append(keyword)
    for (_, was), group in found.items():
        flipped = _flipped(group[0].value)
        if flipped is None:
            yield was, "", dict.fromkeys(group, ())
        else:
            yield was, f"{group[0].arg}={ast.unparse(flipped)}", {keyword.value: flipped for keyword in group}


def _flags(tree: ast.Module) -> Iterator[_Change]:
    """Each flag that has no keyword."""
    for call, _ in _calls(tree):
        for argument in call.args:
            if (flipped := _flipped(argument)) is not None:
                edit: Edit = {argument: flipped}
                yield ast.unparse(call), ast.unparse(apply_edit(ast.Module([ast.Expr(call)], []), edit)), edit


def _flipped(node: ast.expr) -> ast.Constant | None:
    """The other value of a flag; None if it is none."""
    return ast.Constant(not node.value) if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _dtypes(tree: ast.Module) -> Iterator[_Change]:
    """Each dtype as the usual one of its kind, and each method that casts to it."""
    found = defaultdict[str, list[ast.Attribute]](list)
    casts = defaultdict[str, list[ast.Attribute]](list)
    called = {call.func for call, _ in _calls(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node in called and node.attr in _CASTS:
            casts[node.attr].append(node)
        elif isinstance(node, ast.Attribute) and node.attr in _DTYPES and ast.unparse(node) == f"torch.{node.attr}":
            found[node.attr].append(node)
    for name, group in found.items():
        usual = f"torch.{_DTYPES[name]}"
        yield f"torch.{name}", usual, {node: expression(usual) for node in group}
    for name, group in casts.items():
        edit: Edit = {node: ast.Attribute(node.value, _CASTS[name], ast.Load()) for node in group}
        yield f".{name}()", f".{_CASTS[name]}()", edit


def _values(tree: ast.Module) -> Iterator[_Change]:
    """NaN and infinity as 1."""
    found = defaultdict[str, list[ast.expr]](list)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("float"), args=[ast.Constant(value=str(name))]) if name.lstrip("-") in _SPECIAL:
                found[name].append(node)
            case ast.Attribute(value=ast.Name("torch" | "math"), attr=name) if name in _SPECIAL:
                found[name].append(node)
    for name, group in found.items():
        yield name, "1.0", {node: ast.Constant(1.0) for node in group}


def _sizes(tree: ast.Module) -> Iterator[_Change]:
    """Each tensor that is made with a size of 0, with a larger one."""
    for call, name in _calls(tree):
        if name.removeprefix("torch.") not in _MAKING or not call.args:
            continue
        first = call.args[0]
        sizes = first.elts if isinstance(first, ast.Tuple | ast.List) else call.args
        edit: Edit = {node: ast.Constant(_LARGER) for node in sizes if ast.unparse(node) == "0"}
        if edit:
            yield ast.unparse(call), ast.unparse(apply_edit(ast.Module([ast.Expr(call)], []), edit)), edit


def _layouts(tree: ast.Module) -> Iterator[_Change]:
    """Each strided input as a contiguous one: inputs are made outside of functions."""
    for statement in tree.body:
        nodes = ast.walk(statement) if isinstance(statement, ast.Assign) else ()
        for node in nodes:
            match node:
                case ast.Call(func=ast.Attribute(attr=name)) if name in _STRIDED:
                    dense = ast.Call(ast.Attribute(node, "contiguous", ast.Load()), [], [])
                    yield ast.unparse(node), ast.unparse(dense), {node: dense}


def _gradients(tree: ast.Module) -> Iterator[_Change]:
    """All inputs without a gradient."""
    keywords = [key for call, _ in _calls(tree) for key in call.keywords if ast.unparse(key) == "requires_grad=True"]
    calls = [call for call, _ in _calls(tree) if ast.unparse(call).endswith(".requires_grad_()")]
    edit: dict[ast.AST, Replacement] = dict.fromkeys(keywords, ())
    edit |= {call: call.func.value for call in calls if isinstance(call.func, ast.Attribute)}
    if edit:
        yield "requires_grad=True" if keywords else ".requires_grad_()", "", edit


def _settings(tree: ast.Module) -> Iterator[_Change]:
    """What the program sets in torch: a flag with the other value; any other setting, context or decorator left out."""
    given = _given_to_torch(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as target], value=value) if _is_of_torch(target):
                flipped = _flipped(value)
                now = "" if flipped is None else f"{ast.unparse(target)} = {ast.unparse(flipped)}"
                yield ast.unparse(node), now, {node: ()} if flipped is None else {value: flipped}
            case ast.Expr(value=ast.Call(func=ast.Attribute() as called)) if (
                _is_of_torch(called) and "set_" in called.attr
            ):
                yield ast.unparse(node), "", {node: ()}
            case ast.FunctionDef(decorator_list=decorators) if node not in given:
                for each in decorators:
                    if _is_of_torch(each) and _name(each) != "torch.compile":
                        yield f"@{ast.unparse(each)}", "", {each: ()}
            case ast.With(items=items, body=body) if all(_is_of_torch(item.context_expr) for item in items):
                yield f"with {', '.join(map(ast.unparse, items))}", "", {node: body}


def _name(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _is_of_torch(node: ast.expr) -> bool:
    return ast.unparse(node).startswith("torch.")


_KINDS: tuple[tuple[str, Callable[[ast.Module], Iterator[_Change]]], ...] = (
    ("argument", _keywords),
    ("argument", _flags),
    ("dtype", _dtypes),
    ("value", _values),
    ("size", _sizes),
    ("layout", _layouts),
    ("gradient", _gradients),
    ("setting", _settings),
)
