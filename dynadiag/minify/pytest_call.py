"""Writes the call that pytest would make of a test: fixtures become calls, parameters a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from minifier.source import MergeError

_BUILT_IN = {  # fixtures of pytest, as expressions
    "tmp_path": "pathlib.Path(tempfile.mkdtemp())",
    "monkeypatch": "pytest.MonkeyPatch()",
}
_IMPORTS = "import pathlib, tempfile, pytest\n"  # for these; those that are not read are removed first
_Definition = ast.FunctionDef | ast.ClassDef


def with_test_call(text: str, test: str) -> str:
    """The program with a call of the test ``Class::test_name[parameters]`` at the end, without pytest's decorators.

    With parameters it calls the test for each set of them. Raises `MergeError` if there is no such test or the program
    does not define one of its fixtures.
    """
    tree = ast.parse(text)
    owner, _, name = test.partition("[")[0].rpartition("::")
    scope = _definition(tree, owner).body if owner else tree.body
    function = _definition(ast.Module(list(scope), []), name)
    fixtures = {f.name: f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and _marks(f, "fixture")}
    call = _call(tree, function, owner, fixtures)
    for marks in _marks(function, "parametrize"):
        names, values = marks.args[:2]
        target = ast.unparse(names).strip("'[]()\"").replace("'", "")
        call = f"for {target} in {ast.unparse(_plain_parameters(values))}:\n" + _indented(call)
    for node in ast.walk(tree):
        if isinstance(node, _Definition):
            node.decorator_list = [d for d in node.decorator_list if "pytest." not in ast.unparse(d)]
    return f"{ast.unparse(tree)}\n{_IMPORTS}{call}\n"


def _definition(tree: ast.Module, name: str) -> _Definition:
    for node in tree.body:
        if isinstance(node, _Definition) and node.name == name:
            return node
    raise MergeError(f"there is no test {name} in it")


def _marks(function: _Definition, name: str) -> Iterator[ast.Call]:
    """The decorators of pytest with this name, as calls; the last one first."""
    for decorator in reversed(function.decorator_list):
        made = decorator if isinstance(decorator, ast.Call) else ast.Call(decorator, [], [])
        text = ast.unparse(made.func)
        if text.startswith("pytest.") and text.endswith(f".{name}"):
            yield made


def _call(tree: ast.Module, function: _Definition, owner: str, fixtures: dict[str, ast.FunctionDef]) -> str:
    if not isinstance(function, ast.FunctionDef):
        raise MergeError(f"{function.name} is a class: name one of its tests")
    given = {name for marks in _marks(function, "parametrize") for name in _names(marks.args[0])}
    if owner and any("TestCase" in ast.unparse(base) for base in getattr(_definition(tree, owner), "bases", ())):
        return f"{owner}({function.name!r}).debug()"
    parameters = [a.arg for a in function.args.args][bool(owner) :]
    words = ", ".join(f"{p}={p if p in given else _fixture(p, fixtures)}" for p in parameters)
    return f"{_set_up(tree, owner)}{function.name}({words})"


def _set_up(tree: ast.Module, owner: str) -> str:
    """The statements that make a test's object, and that object with a dot. Empty for a test that is a function."""
    if not owner:
        return ""
    body = ast.Module(list(_definition(tree, owner).body), [])
    methods = {node.name: node for node in body.body if isinstance(node, ast.FunctionDef)}
    if "setup_method" not in methods:
        return f"{owner}()."
    method = "None" if len(methods["setup_method"].args.args) > 1 else ""
    made = f"made_{owner}"
    return f"{made} = {owner}()\n{made}.setup_method({method})\n{made}."


def _names(node: ast.expr) -> Iterator[str]:
    """The names of parameters: "a, b" or ["a", "b"]."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from (word.strip() for word in part.value.split(","))


def _fixture(name: str, fixtures: dict[str, ast.FunctionDef]) -> str:
    """The expression of a fixture's value. A fixture that yields is never ended."""
    if name in _BUILT_IN and name not in fixtures:
        return _BUILT_IN[name]
    if name not in fixtures:
        raise MergeError(f"the fixture {name} of pytest has no source here")
    function = fixtures[name]
    call = f"{name}({', '.join(_fixture(a.arg, fixtures) for a in function.args.args)})"
    return f"next({call})" if any(isinstance(n, ast.Yield) for n in ast.walk(function)) else call


def _plain_parameters(values: ast.expr) -> ast.expr:
    """The sets of parameters, where `pytest.param(a, b, id=...)` is `(a, b)`."""
    if not isinstance(values, ast.List | ast.Tuple):
        return values
    return ast.List([_plain(value) for value in values.elts], ast.Load())


def _plain(value: ast.expr) -> ast.expr:
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "pytest.param":
        return ast.Tuple(value.args, ast.Load()) if len(value.args) > 1 else value.args[0]
    return value


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines()).rstrip("\n")
