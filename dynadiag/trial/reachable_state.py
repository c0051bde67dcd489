"""Finds the state that a call can read and change: everything that its function and its arguments lead to.

A compiled method of a trainer changes its model, its optimizer, its counters and its lists. All of it must be restored
for two runs to start from the same state: the contents of tensors, and the items of dicts, lists and objects.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

from dynadiag.torch_private.trial import uncompiled

_COLLECTIONS = (list, deque, set)  # whose items are values alone
_CONTAINERS = (dict, *_COLLECTIONS)
_SCALARS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
_TORCH_STATE_CLASSES = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")  # dicts of a module whose items are its attributes
_OF_DYNAMO = "_torchdynamo_"  # what Dynamo sets on a compiled module: ids, and functions before they were compiled
_FOREIGN_PACKAGES = frozenset({"torch", "numpy", "dynadiag"}) | sys.stdlib_module_names


class ContainerSnapshot:
    """The items of a dict, a list, a deque, a set or an object, saved so that they can be restored."""

    def __init__(self, holder: Any) -> None:
        self._container, self._type = holder, type(holder)
        self._saved = _items(holder)

    def restore(self) -> None:
        """Restore the items. An unchanged container is left alone, so that Dynamo's guards on it stay valid."""
        if type(self._container) is not self._type:
            self._container.__class__ = self._type  # a lazy module changes its class at its first call
        now = _items(self._container)
        if len(now) != len(self._saved) or any(a is not b for a, b in zip(now, self._saved, strict=True)):
            _fill(self._container, self._saved)


def _is_object(value: Any) -> bool:
    return not isinstance(value, _CONTAINERS)


def _items(holder: Any) -> list[Any]:
    """Keys and values in turn, or the items of a list, a deque or a set."""
    if isinstance(holder, _COLLECTIONS):
        return list(holder)
    pairs = vars(holder) if _is_object(holder) else holder
    return [part for pair in pairs.items() for part in pair]


def _fill(holder: Any, contents: list[Any]) -> None:
    if isinstance(holder, list):
        holder[:] = contents
        return
    if isinstance(holder, _COLLECTIONS):
        holder.clear()
        holder.update(contents) if isinstance(holder, set) else holder.extend(contents)
        return
    space = vars(holder) if _is_object(holder) else holder
    kind = OrderedDict if isinstance(space, OrderedDict) else dict  # a subclass may override clear()
    kind.clear(space)
    for key, value in zip(contents[::2], contents[1::2], strict=True):
        kind.__setitem__(space, key, value)


def find_state(
    function: Callable[..., Any], arguments: Iterable[Any]
) -> tuple[list[tuple[str, torch.Tensor]], list[Any]]:
    """(named tensors, containers) that a call can reach, each once, in the same order every time.

    Names are those by which the function reaches the tensor (``self.norm.running_mean``). The gradients of leaf tensors
    are among the tensors.
    """
    found = list(walk_objects(_roots(function, arguments)))
    tensors = [(name, value) for name, value in found if _is_tensor(value)]
    return tensors, [value for _, value in found if not _is_tensor(value)]


def find_scalars(function: Callable[..., Any], arguments: Iterable[Any]) -> dict[str, Any]:
    """The numbers and texts in the containers and objects that a call can reach, by their names."""
    return find_scalars_in(walk_objects(_roots(function, arguments)))


def find_scalars_in(objects: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The numbers and texts that these containers and objects hold themselves, by their names, also those in tuples,
    and how many items each list, deque and set has.
    """
    found: dict[str, Any] = {}
    for name, value in objects:
        if not _is_tensor(value):
            found |= {own: held for own, held in _without_tuples(_children(name, value)) if isinstance(held, _SCALARS)}
        if isinstance(value, _COLLECTIONS):
            found[f"len({name})"] = len(value)
    return found


def _without_tuples(children: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The children, with the items of a tuple in its place."""
    for name, value in children:
        if isinstance(value, tuple) and not isinstance(value, _SCALARS):
            yield from _without_tuples(_children(name, value))
        else:
            yield name, value


def _roots(function: Callable[..., Any], arguments: Iterable[Any]) -> list[tuple[str, Any]]:
    """What the function reaches by its variables and those of the functions that they hold, by name, and the arguments.

    An object that is reached by several names gets the first. Names are therefore sorted: if a part of a function
    becomes a function of its own, every object keeps its name.
    """
    found, functions = list(_referenced_values(function)), {id(function)}
    for _, held in found:  # grows while it is read
        if isinstance(held, FunctionType) and id(held) not in functions:
            functions.add(id(held))
            found += _children("", held)
    objects = [(name, held) for name, held in found if not isinstance(held, FunctionType)]
    objects.sort(key=lambda pair: (pair[0] != "self", pair[0]))
    return [*objects, *((f"argument {i}", value) for i, value in enumerate(arguments))]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def expand_objects(values: Iterable[Any]) -> list[Any]:
    """The values, with each object of a user's class (a dataclass that a function returns) replaced by its tensors."""
    tensors = lambda value: [found for _, found in walk_objects([("", value)]) if isinstance(found, torch.Tensor)]  # noqa: E731
    return [part for value in values for part in (tensors(value) if _may_be_inspected(value) else [value])]


def walk_objects(roots: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The tensors, containers and user objects that the roots lead to, with their names, each once, depth first.

    A name that another one has already, such as that of a variable in two closures, gets a number.
    """
    seen: set[int] = set()
    names: Counter[str] = Counter()
    waiting = list(roots)[::-1]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, _SCALARS) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, (torch.Tensor, *_CONTAINERS)) or _may_be_inspected(value):
            names[name] += not name.endswith(".")  # all of a module's own dicts have that name
            name += f" ({names[name]})" if names[name] > 1 else ""
            yield name, value
        waiting += _children(name, value)[::-1]


def _children(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        return [(f"{name}.grad", value.grad)] if value.is_leaf and value.grad is not None else []
    if isinstance(value, dict):
        return [(_item_name(name, key), held) for key, held in value.items()]
    if isinstance(value, (set, frozenset)):  # in an order that differs from process to process
        return [(_item_name(name, held), held) for held in value]
    if isinstance(value, (list, tuple, deque)):
        return [(f"{name}[{i}]", held) for i, held in enumerate(value)]
    if isinstance(value, MethodType):
        return [(name, value.__self__)]
    if isinstance(value, FunctionType):
        original = uncompiled(value)
        return list(_referenced_values(original) if original is not value else _helper_closure(value))
    if (original := uncompiled(value)) is not value:  # hooks are its own
        return [(name, original), *(pair for pair in _attributes(name, value) if isinstance(pair[1], dict))]
    return _attributes(name, value) if _may_be_inspected(value) else []


def _attributes(name: str, value: Any) -> list[tuple[str, Any]]:
    hidden = _MODULE_DICTS if isinstance(value, torch.nn.Module) else ()
    own = [(key, held) for key, held in vars(value).items() if not key.startswith(_OF_DYNAMO)]
    return [(f"{name}." if key in hidden else f"{name}.{key}", held) for key, held in own]


def _item_name(name: str, key: Any) -> str:
    """The name of an item of a dict. A name that ends in a dot is one of a module's own dicts, whose items are
    attributes.
    """
    if name.endswith("."):
        return f"{name[:-1]}[{key}]" if str(key).isdigit() else f"{name}{key}"
    return f"{name}[{key!r}]" if isinstance(key, (str, int)) else f"{name}[...]"


def _may_be_inspected(value: Any) -> bool:
    """Whether an object's attributes are inspected: modules, optimizers, and instances of the user's classes are. A
    compiled module has no state beside that of the module that it was made of.
    """
    if isinstance(value, (torch.Tensor, FunctionType, MethodType, type)) or not hasattr(value, "__dict__"):
        return False
    if uncompiled(value) is not value:
        return False
    return isinstance(value, _TORCH_STATE_CLASSES) or type(value).__module__.partition(".")[0] not in _FOREIGN_PACKAGES


def bound_object(function: Any) -> Any:
    """The object that a method is bound to, after unwrapping; anything else itself."""
    function = inspect.unwrap(function) if callable(function) else function
    return getattr(function, "__self__", function)


def _referenced_values(function: Any) -> Iterator[tuple[str, Any]]:
    """The function's object, its closure, and the globals that its code names."""
    function = inspect.unwrap(function) if callable(function) else function
    yield "self", bound_object(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    yield from _closure(function)
    names = getattr(function, "__globals__", {})
    yield from ((name, names[name]) for name in code.co_names if name in names)


def _helper_closure(function: Any) -> Iterator[tuple[str, Any]]:
    """The closure of a user's function that is called by another one."""
    function = inspect.unwrap(function)
    module = getattr(function, "__module__", None) or ""
    return iter(()) if module.partition(".")[0] in _FOREIGN_PACKAGES else _closure(function)


def _closure(function: Any) -> Iterator[tuple[str, Any]]:
    """The variables around a function that it reads or sets."""
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=False):
        if (held := _cell_value(cell)) is not None:
            yield name, held


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable is not set yet
        return None
