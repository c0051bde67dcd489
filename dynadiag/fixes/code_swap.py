"""Puts the changed functions of a module into a program that has imported it: each gets its new code.

So a trial can be forked from the program stopped at its first compiled call. What the functions did before that is not
done again; the patched program runs from its beginning at the end of a search.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from dynadiag.overlay_runtime import functions_in

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_Place = tuple[str, int]  # the qualified name, and the number among those of the name


def swap_module(name: str, copy: str) -> None:
    """Give the functions of a module that is imported the code of the file ``copy``, and run what is new at its top.

    Raises `RuntimeError` where a function has other variables of its enclosing functions, or another signature.
    """
    module = sys.modules[name]
    file = str(module.__file__)
    before, after = (_code(path, path) for path in (file, copy))
    if changed := set(_decorators(file)) - set(_decorators(copy)):
        raise RuntimeError(f"{min(changed)[0]} cannot be decorated while the program runs")
    new, positions = dict(_functions(after)), {_key(code): place for place, code in _functions(before)}
    for function in _live_functions(file):
        place = positions.get(_key(function.__code__))
        if place is not None and place in new:
            _swap(function, new[place])
    for statement in _added(file, copy):
        exec(statement, vars(module))  # noqa: S102 - a change of the module, as its import would run it


def _code(path: str, name: str) -> types.CodeType:
    return compile(Path(path).read_bytes(), name, "exec", dont_inherit=True)


def _functions(module: types.CodeType) -> Iterator[tuple[_Place, types.CodeType]]:
    """The code of each function in a module, the outer ones first, in the order of the text."""
    seen, left = Counter[str](), [module]
    while left:
        code = left.pop(0)
        inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
        for each in sorted(inner, key=lambda one: one.co_firstlineno):
            yield (each.co_qualname, seen[each.co_qualname]), each
            seen[each.co_qualname] += 1
            left.append(each)


def _key(code: types.CodeType) -> tuple[str, int, bytes]:
    return code.co_qualname, code.co_firstlineno, code.co_code


def _live_functions(file: str) -> Iterator[types.FunctionType]:
    for each in gc.get_objects():
        if type(each) is types.FunctionType and each.__code__.co_filename == file:
            yield each


def _swap(function: types.FunctionType, code: types.CodeType) -> None:
    old = function.__code__
    signature = (code.co_argcount, code.co_kwonlyargcount, code.co_posonlyargcount, code.co_flags & 0x0C)
    same = signature == (old.co_argcount, old.co_kwonlyargcount, old.co_posonlyargcount, old.co_flags & 0x0C)
    if not same or code.co_freevars != old.co_freevars:
        raise RuntimeError(f"{code.co_qualname} cannot be changed while the program runs")
    function.__code__ = code


def _decorators(path: str) -> list[tuple[str, str]]:
    """The functions of a file by their qualified names, each with the text of its decorators."""
    return sorted(
        (name, re.split(r"^\s*(?:async )?def ", text, maxsplit=1, flags=re.M)[0])
        for name, _, _, text in functions_in(Path(path).read_text("utf-8"))
    )


def _top(path: str) -> list[ast.stmt]:
    return ast.parse(Path(path).read_bytes()).body


def _added(file: str, copy: str) -> Iterator[types.CodeType]:
    """The statements at the top of the copy that the file does not have, each compiled where it stands."""
    before, after = _top(file), _top(copy)
    defined = {node.name for node in before if isinstance(node, _DEFINITIONS)}
    own = Counter(ast.unparse(node) for node in before if not isinstance(node, _DEFINITIONS))
    for node in after:
        if isinstance(node, _DEFINITIONS):
            is_new = node.name not in defined
        else:
            text = ast.unparse(node)
            is_new, own[text] = not own[text], max(own[text] - 1, 0)
        if is_new:
            yield compile(ast.Module([node], []), copy, "exec", dont_inherit=True)
