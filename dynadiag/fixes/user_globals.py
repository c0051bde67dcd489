"""What the globals of the user's modules hold: a compiled call may change it, also from functions that it calls.

`ReplayableCall` finds what the compiled function itself names. A module whose forward appends to a list of its file is
found here.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from dynadiag.torch_private import trial as torch_private
from dynadiag.trial.reachable_state import ContainerSnapshot, find_scalars_in, walk_objects
from dynadiag.trial.reference_run import ReplayableCall

_MAX_OBJECTS = 5_000
_MAX_ELEMENTS = 1 << 24  # of all tensors together
_CODE = (ModuleType, FunctionType, BuiltinFunctionType, type)
_HELD = (torch.Tensor, list, dict, set, deque)
_LOCK = type(threading.Lock())
_SCALARS = (bool, int, float, str, bytes, complex, type(None))
_LAST: dict[tuple[str, ...], tuple[dict[str, Any], list[dict[str, Any]]]] = {}  # by the roots: `_namespaces` of modules


class UserGlobals:
    """The globals of the modules whose paths begin with one of ``roots``, without what a call reaches itself, as they
    are now.
    """

    def __init__(self, roots: tuple[str, ...], call: ReplayableCall) -> None:
        self._namespaces = _namespaces(roots)
        held = (name for _, name, value in self._globals() if not isinstance(value, _CODE))
        names = Counter(held)  # a change may add a function of the name: it hides nothing
        self._repeated = {name for name, count in names.items() if count > 1}
        self._known = {id(value) for value in (*call.state, *call.containers)}
        self._scalars = list(self._scalar_globals())
        objects = [value for _, value in self._objects()]
        self._containers = [ContainerSnapshot(value) for value in objects if not isinstance(value, torch.Tensor)]
        self._tensors = [(value, value.detach().clone()) for value in _sample(objects)]
        self._free_locks = [lock for lock in self._locks((*call.containers, *objects)) if not lock.locked()]

    def restore(self) -> None:
        """Make all of it as it was. A call that raised may have left a lock taken, for which the next would wait."""
        for lock in self._free_locks if threading.active_count() == 1 else ():
            if lock.locked():
                lock.release()
        for namespace, name, value in self._scalars:
            if namespace.get(name) is not value:
                namespace[name] = value
        for container in self._containers:
            container.restore()
        for tensor, saved in self._tensors:
            if tensor.shape == saved.shape and not torch.equal(tensor.detach(), saved):
                tensor.data.copy_(saved)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copies of the tensors now, by name."""
        named = dict(self._objects())
        kept = _sample(list(named.values()))
        wanted = {id(tensor) for tensor in kept}
        return {name: copy_of_state(value) for name, value in named.items() if id(value) in wanted}

    def scalars(self) -> dict[str, Any]:
        """The numbers and texts now, by name."""
        found = {self._name(namespace, name): value for namespace, name, value in self._scalar_globals()}
        return found | find_scalars_in(self._objects())

    def _locks(self, holders: Iterable[Any]) -> Iterator[Any]:
        """The locks of the modules, and those that objects hold."""
        spaces = [*self._namespaces, *(vars(each) for each in holders if hasattr(each, "__dict__"))]
        yield from (value for space in spaces for value in list(space.values()) if isinstance(value, _LOCK))

    def _objects(self) -> list[tuple[str, Any]]:
        roots = [
            (self._name(space, name), _uncompiled(value))
            for space, name, value in self._globals()
            if not isinstance(value, (*_CODE, *_SCALARS))
        ]
        roots += [root for space in self._namespaces for root in _held_by_classes(space)]
        found = []
        for name, value in walk_objects(roots):
            if id(value) not in self._known:
                found.append((name, value))
            if len(found) >= _MAX_OBJECTS:
                break
        return found

    def _name(self, space: dict[str, Any], name: str) -> str:
        """What a global is called: by its name alone if that is the only one, as a function that uses it calls it. The
        changed program may use it in another function.
        """
        return f"{space['__name__']}.{name}" if name in self._repeated else name

    def _scalar_globals(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        return (each for each in self._globals() if isinstance(each[2], _SCALARS))

    def _globals(self) -> Iterator[tuple[dict[str, Any], str, Any]]:
        """The globals without Python's own and those that Dynamo adds."""
        added = torch_private.constant_globals(self._namespaces)
        for space in self._namespaces:
            own = ((name, each) for name, each in list(space.items()) if not name.startswith("__"))
            yield from ((space, name, each) for name, each in own if not added.fullmatch(name))


def copy_of_state(value: torch.Tensor) -> torch.Tensor:
    """A tensor as it is now, with its `requires_grad` and without its autograd graph."""
    made = value.detach().clone()
    return made.requires_grad_() if value.requires_grad else made


def _held_by_classes(space: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The tensors and containers that are attributes of a module's own classes, which all their objects share."""
    classes = [value for value in list(space.values()) if isinstance(value, type)]
    for each in classes:
        own = vars(each).items() if each.__module__ == space["__name__"] else ()
        kept = [(name, held) for name, held in own if isinstance(held, _HELD) and not name.startswith("__")]
        yield from ((f"{each.__qualname__}.{name}", held) for name, held in kept)


def _uncompiled(value: Any) -> Any:
    """A model, if the value is what `torch.compile` made of it: a change may compile its methods instead."""
    return value._modules.get("_orig_mod", value) if isinstance(value, torch.nn.Module) else value


def _namespaces(roots: tuple[str, ...]) -> list[dict[str, Any]]:
    """The globals of each module once: a program in a fresh interpreter is `__main__` and `__mp_main__`.

    torch alone has thousands of modules: they are asked for their files when other modules are loaded than the last
    time.
    """
    if roots in _LAST and _LAST[roots][0] == sys.modules:
        return _LAST[roots][1]
    modules, spaces = dict(sys.modules), dict[int, dict[str, Any]]()
    for module in modules.values():
        # ``module.__file__`` would run a function that many modules have for missing names.
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and lies_in(file, roots):
            spaces[id(module)] = vars(module)
    _LAST[roots] = modules, list(spaces.values())
    return _LAST[roots][1]


def lies_in(file: str, roots: tuple[str, ...]) -> bool:
    """Whether the path of a file begins with one of ``roots``.

    That of a program in a fresh interpreter is relative. So is that of `torch.ops`, which names no file.
    """
    if file.startswith(os.sep):
        return file.startswith(roots)
    path = Path.cwd() / file
    return str(path).startswith(roots) and path.exists()


def _sample(values: list[Any]) -> list[torch.Tensor]:
    """The dense tensors among the values, the first of them, up to a limit of memory."""
    found, left = [], _MAX_ELEMENTS
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            left -= value.numel()
            if left < 0:
                break
            found.append(value)
    return found
