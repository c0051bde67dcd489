"""What a call can read and change without being given it: what its function and its arguments hold.

A compiled method of a trainer changes its model, its optimizer, its counters and its lists. For two arms to begin in
one state all of that is put back: the contents of tensors, and what stands in dicts, lists and objects.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

__all__ = ["Contents", "opened", "owner", "reached"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_OF_TORCH = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_MEMBERS = ("_parameters", "_buffers", "_modules")  # of a module: what is in them is named as its attribute
_OF_OTHERS = frozenset({"torch", "numpy", "dynadiag"}) | sys.stdlib_module_names


class Contents:
    """What stood in a dict, a list or an object, to be put there again."""

    def __init__(self, holder: Any) -> None:
        self._holder, self._type = holder, type(holder)
        self._was = _contents(holder)

    def put_back(self) -> None:
        """Touches nothing that did not change: guards on it would have to be asked anew."""
        if type(self._holder) is not self._type:
            self._holder.__class__ = self._type  # a lazy module became another
        now = _contents(self._holder)
        if len(now) != len(self._was) or any(a is not b for a, b in zip(now, self._was, strict=True)):
            _fill(self._holder, self._was)


def _is_object(value: Any) -> bool:
    return not isinstance(value, (dict, list))


def _contents(holder: Any) -> list[Any]:
    """Keys and values in turn, or the items of a list."""
    if isinstance(holder, list):
        return list(holder)
    pairs = vars(holder) if _is_object(holder) else holder
    return [part for pair in pairs.items() for part in pair]


def _fill(holder: Any, contents: list[Any]) -> None:
    if isinstance(holder, list):
        holder[:] = contents
        return
    space = vars(holder) if _is_object(holder) else holder
    kind = OrderedDict if isinstance(space, OrderedDict) else dict  # a class of its own may not let itself be emptied
    kind.clear(space)
    for key, value in zip(contents[::2], contents[1::2], strict=True):
        kind.__setitem__(space, key, value)


def reached(function: Callable[..., Any], arguments: Iterable[Any]) -> tuple[list[tuple[str, torch.Tensor]], list[Any]]:
    """(tensors, what holds them) that a call can get at, each once, in an order that is the same every time.

    Each tensor with the name that the function has for it (``self.norm.running_mean``). The gradients that lie at
    tensors are among the tensors.
    """
    roots = [(f"argument {i}", value) for i, value in enumerate(arguments)]
    found = list(_walk([*_referenced(function), *roots]))
    tensors = [(name, value) for name, value in found if isinstance(value, torch.Tensor)]
    return tensors, [value for _, value in found if not isinstance(value, torch.Tensor)]


def opened(values: Iterable[Any]) -> list[Any]:
    """Each object of the user's own (a dataclass that a function returns) as the tensors in it; all else as it is."""
    tensors = lambda value: [found for _, found in _walk([("", value)]) if isinstance(found, torch.Tensor)]  # noqa: E731
    return [part for value in values for part in (tensors(value) if _is_open(value) else [value])]


def _walk(roots: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Tensors, dicts, lists and objects of the user's with their names, each once, depth first."""
    met: set[int] = set()
    waiting = list(roots)[::-1]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, _PLAIN) or id(value) in met:
            continue
        met.add(id(value))
        inner = _inside(name, value)
        if isinstance(value, (torch.Tensor, dict, list)) or _is_open(value):
            yield name, value
        waiting += inner[::-1]


def _inside(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        return [(f"{name}.grad", value.grad)] if value.is_leaf and value.grad is not None else []
    if isinstance(value, dict):
        return [(_item(name, key), held) for key, held in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"{name}[{i}]", held) for i, held in enumerate(value)]
    if isinstance(value, MethodType):
        return [(name, value.__self__)]
    if not _is_open(value):
        return []
    hidden = _MEMBERS if isinstance(value, torch.nn.Module) else ()
    return [(f"{name}." if key in hidden else f"{name}.{key}", held) for key, held in vars(value).items()]


def _item(name: str, key: Any) -> str:
    """Of a dict; the name of one that holds a module's members ends in a dot."""
    if name.endswith("."):
        return f"{name[:-1]}[{key}]" if str(key).isdigit() else f"{name}{key}"
    return f"{name}[{key!r}]" if isinstance(key, (str, int)) else f"{name}[...]"


def _is_open(value: Any) -> bool:
    """Whether what an object holds may be looked at: modules, optimizers, and whatever is of the user's own classes."""
    if isinstance(value, (torch.Tensor, FunctionType, MethodType, type)) or not hasattr(value, "__dict__"):
        return False
    return isinstance(value, _OF_TORCH) or type(value).__module__.partition(".")[0] not in _OF_OTHERS


def owner(function: Any) -> Any:
    """What a method is bound to, under whatever wraps it; of any other function or object itself."""
    function = inspect.unwrap(function) if callable(function) else function
    return getattr(function, "__self__", function)


def _referenced(function: Any) -> Iterator[tuple[str, Any]]:
    """The function's owner, its closure, and the globals that its code names."""
    function = inspect.unwrap(function) if callable(function) else function
    yield "self", owner(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, getattr(function, "__closure__", None) or (), strict=False):
        if (held := _held(cell)) is not None:
            yield name, held
    names = getattr(function, "__globals__", {})
    yield from ((name, names[name]) for name in code.co_names if name in names)


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not set yet
        return None
