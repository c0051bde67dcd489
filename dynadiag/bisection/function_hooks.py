"""Hooks functions of the user, wherever they are called from.

A function has many names: a global, an item of a list of passes, a method, an attribute of another module, an argument
that torch keeps. So its code object is replaced, not its names.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_LIBRARY_PACKAGES = frozenset({"torch", "functorch", "dynadiag"}) | sys.stdlib_module_names
_MAX_OBJECTS = 5_000  # objects; a backend's own functions are found early, and the data that it holds may be large
_PLACEHOLDER = "called"
_originals: dict[types.FunctionType, types.FunctionType] = {}  # hooked function -> its original


def _trampoline(*args: Any, **kwargs: Any) -> Any:
    function: Any = "called"
    return function(*args, **kwargs)


def hook_function(function: types.FunctionType, ask: Callable[..., Any]) -> None:
    """Call ``ask(original, *args, **kwargs)`` in place of ``function``, permanently. Does nothing the second time."""
    if function in _originals:
        return
    code, closure = function.__code__, function.__closure__
    original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    original.__kwdefaults__, original.__qualname__ = function.__kwdefaults__, function.__qualname__
    called = functools.partial(ask, original)
    constants = tuple(called if one == _PLACEHOLDER else one for one in _trampoline.__code__.co_consts)
    function.__code__ = _trampoline.__code__.replace(co_consts=constants, co_freevars=code.co_freevars)
    _originals[function] = original


def reachable_functions(root: Any) -> Iterator[types.FunctionType]:
    """The user's functions that ``root`` can reach: by the names in their code, in containers and in objects."""
    seen: dict[int, Any] = {}
    waiting = [root]
    while waiting and len(seen) < _MAX_OBJECTS:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, (torch.Tensor, torch.nn.Module, torch.fx.Graph)):
            continue
        seen[id(value)] = value
        if isinstance(value, types.FunctionType) and value not in _originals and _is_the_users(value):
            yield value
        waiting += _children(_originals.get(value, value) if isinstance(value, types.FunctionType) else value)


def _is_the_users(value: Any) -> bool:
    """Whether a function or class was defined in a module of the user's."""
    return str(value.__module__).partition(".")[0] not in _LIBRARY_PACKAGES


def _children(value: Any) -> list[Any]:
    if isinstance(value, types.FunctionType):
        return [*_cell_values(value), *(_named_globals(value) if _is_the_users(value) else ())]
    if isinstance(value, types.MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, (staticmethod, classmethod)):
        return [value.__func__]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, types.ModuleType) or not hasattr(value, "__dict__"):
        return []
    if isinstance(value, type):
        return list(vars(value).values()) if _is_the_users(value) else []
    return [*vars(value).values(), *type(value).__mro__]


def _cell_values(function: types.FunctionType) -> list[Any]:
    filled = []
    for cell in function.__closure__ or ():
        try:
            filled.append(cell.cell_contents)
        except ValueError:  # the variable is not set yet
            continue
    return filled


def _named_globals(function: types.FunctionType) -> list[Any]:
    """The globals that its code names, and for modules among them the attributes that it names."""
    names = list(_names_in_code(function.__code__))
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    for module in [one for one in found if isinstance(one, types.ModuleType)]:
        found += [vars(module)[name] for name in names if name in vars(module)]
    return found


def _names_in_code(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in_code(constant)
