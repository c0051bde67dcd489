"""The type that torch's schema of an operator has for a value, as far as the text of the function says it."""

from __future__ import annotations

import ast
import symtable

import libcst as cst

_ANNOTATED = {"int": "SymInt", "float": "float", "bool": "bool", "str": "str"}
_SIZES = ("size", "dim", "numel")
_BOUND = (ast.Store, ast.Del)


def type_in_text(function: cst.FunctionDef, value: cst.BaseExpression) -> str | None:
    """Return ``SymInt`` for a size, or what the annotation of a parameter says. None if the text does not say it."""
    within, text = cst.Module([]).code_for_node(function), cst.Module([]).code_for_node(value)
    (definition,), found = ast.parse(within).body, ast.parse(f"({text})", mode="eval").body
    assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
    if isinstance(found, ast.Name):
        return _type_of_name(definition, found.id)
    return "SymInt" if _is_size(found) else None


def all_locals(function: cst.FunctionDef) -> set[str]:
    """The names of a function's own, however it binds them."""
    (scope,) = symtable.symtable(cst.Module([]).code_for_node(function), "f", "exec").get_children()
    return {each.get_name() for each in scope.get_symbols() if each.is_local()}


def _type_of_name(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str | None:
    names = (each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name)
    bound = [each for each in names if isinstance(each.ctx, _BOUND)]
    parameters = [each for each in ast.walk(function) if isinstance(each, ast.arg) and each.arg == name]
    if len(bound) + len(parameters) != 1:
        return None
    if parameters:
        annotation, default = parameters[0].annotation, _default(function, name)
        known = _ANNOTATED.get(ast.unparse(annotation)) if annotation is not None else None
        return None if isinstance(default, ast.Constant) and default.value is None else known
    return "SymInt" if any(_gives_size(each, bound[0]) for each in ast.walk(function)) else None


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = [*positional[len(positional) - len(arguments.defaults) :], *arguments.kwonlyargs]
    pairs = zip(with_default, [*arguments.defaults, *arguments.kw_defaults], strict=True)
    return next((default for each, default in pairs if each.arg == name), None)


def _gives_size(node: ast.AST, name: ast.Name) -> bool:
    """Whether a statement gives a size to this name: `n = x.shape[0]`, `b, n = x.shape`."""
    if not isinstance(node, ast.Assign) or len(node.targets) > 1:
        return False
    target = node.targets[0]
    if target is name:
        return _is_size(node.value)
    return isinstance(target, ast.Tuple) and name in target.elts and _is_shape(node.value)


def _is_size(value: ast.expr) -> bool:
    match value:
        case ast.Subscript(value=of, slice=index):
            return _is_shape(of) and not isinstance(index, ast.Slice)
        case ast.Call(func=ast.Name(id="len")) | ast.Attribute(attr="ndim"):
            return True
        case ast.Call(func=ast.Attribute(attr=name), args=given):
            return name in _SIZES and bool(given) == (name == "size")
    return False


def _is_shape(value: ast.expr) -> bool:
    match value:
        case ast.Subscript(value=of, slice=ast.Slice()):
            return _is_shape(of)
        case ast.Attribute(attr="shape") | ast.Call(func=ast.Attribute(attr="size"), args=[]):
            return True
    return False
