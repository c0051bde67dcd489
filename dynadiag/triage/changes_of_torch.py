"""Find in a program's text which functions of torch it replaces, and which settings make torch fail on purpose."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Functions of torch that put what they decorate into a table of torch's.
_TABLES = {
    "torch._inductor.lowering.register_lowering": "torch._inductor.lowering.lowerings",
    "torch._inductor.decomposition.register_decomposition": "torch._inductor.decomposition.decompositions",
    "torch._decomp.register_decomposition": "torch._decomp.decomposition_table",
}
_FOR_TESTS = "_TESTING_ONLY"  # the end of torch's settings with which Inductor makes a fault


def changes_of_torch(text: str) -> tuple[str, ...]:
    """The names in torch that a program binds anew (``torch._inductor.lowering.relu``), in order, each once.

    A setting (an attribute of a module ``config``, a number, a text) is no part of torch. Nothing is run: what is bound
    by another way than an assignment, ``setattr``, ``patch.object`` or a decorator that registers is not seen.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    own = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    modules = {local: full for local, full in _modules(tree) if local not in own}
    found = (_full_name(target, modules) for target in _bound(tree))
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    registered = (_TABLES.get(_full_name(called, modules) or "") for called in calls)
    return tuple(dict.fromkeys(name for name in (*found, *registered) if name is not None and _is_part(name)))


def own_functions(text: str) -> frozenset[str]:
    """The names of the functions and classes that a program defines, wherever it does."""
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))


def _modules(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The local names of torch and of what is imported from it, with their full names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.partition(".")[0] == "torch":
                    yield (each.asname, each.name) if each.asname else ("torch", "torch")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)


def _bound(tree: ast.Module) -> Iterator[ast.expr]:
    """What is assigned to that is an attribute or an item: also by ``setattr`` and `unittest.mock.patch.object`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant):
            yield from (each for each in node.targets if isinstance(each, (ast.Attribute, ast.Subscript)))
        elif isinstance(node, ast.Assign):
            yield from (each for each in node.targets if ast.unparse(each).endswith(_FOR_TESTS))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ("setattr", "object"):
            match node.args:
                case [owner, ast.Constant(value=str(name)), *_]:
                    yield ast.Attribute(owner, name, ast.Store())


def _full_name(target: ast.expr, modules: dict[str, str]) -> str | None:
    """``torch._inductor.lowering.lowerings`` for ``lowering.lowerings[aten.relu]``; None where it is not in torch."""
    while isinstance(target, ast.Subscript):
        target = target.value
    root, _, rest = ast.unparse(target).partition(".")
    return f"{modules[root]}.{rest}".rstrip(".") if root in modules else None


def _is_part(name: str) -> bool:
    is_setting = ".config." in name or "._config." in name or name.startswith("torch.backends.")
    return name.endswith(_FOR_TESTS) or not is_setting
