"""What the program changed in torch before it compiled: what the failure may need, and a repro has to say.

A snapshot of torch as it was before the program ran tells what is not as it was. Each difference is a `Setting`, with
the line that makes it and a way to undo it in the process of a trial, so that trials tell which ones matter.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dynadiag.minify.patterns import registering, taught
from dynadiag.minify.source import CannotCarryError, Carrier
from dynadiag.torch_private import minify as torch_private
from dynadiag.torch_private import replaced

__all__ = ["ASSUME_STATIC", "DEFINITIONS", "Setting", "Snapshot", "changed", "source_of"]

ASSUME_STATIC = "torch._dynamo.config.assume_static_by_default"  # off where sizes are symbols from the first call

# What trials themselves set, and what has no bearing on what is compiled.
_OURS = frozenset(
    {
        "fx_graph_cache",
        "fx_graph_remote_cache",
        "enable_autograd_cache",
        "compile_threads",
        "worker_start_method",
        "fallback_random",
    }
)


# How a block begins that stands apart from what is around it.
DEFINITIONS = ("def ", "class ", "@", "async ")


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing that the program changed. ``write`` gives its line, with whatever that needs left to the carrier."""

    name: str
    write: Callable[[Carrier], str]
    undo: Callable[[], None]


@dataclass(slots=True)
class Snapshot:
    """torch before the program."""

    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[Any, Any]] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)  # by place, as they lie there
    modules: frozenset[str] = frozenset()

    @classmethod
    def take(cls) -> Snapshot:
        return cls(
            {module.__name__: module.get_config_copy() for module in torch_private.config_modules()},
            {name: dict(table) for name, table in torch_private.lowering_tables()},
            {found.place: found.value for found in replaced.attributes()},
            frozenset(name for name, _ in replaced.modules()),
        )

    def known(self, value: Any) -> str | None:
        """An expression for what torch held before: an entry of a table, or a function where another may be now."""
        for name, table in self.tables.items() if callable(value) else ():
            keys = [key for key, entry in table.items() if entry is value]
            if keys:
                overloads = [key for key in keys if isinstance(key, torch._ops.OpOverload)]
                return f"{name}[{Carrier().expression((overloads or keys)[0])}]"
        if not isinstance(value, types.FunctionType):
            return None
        return next((place for place, held in self.functions.items() if replaced.function_of(held) is value), None)

    def unknown(self) -> list[str]:
        """Places of functions of somebody's of which it is not known what was there: torch loaded them meanwhile."""
        found = (f for f in replaced.foreign_functions() if f.place not in self.functions)
        return [f.place for f in found if f.module not in self.modules]


def changed(before: Snapshot, threads: int | None) -> list[Setting]:
    """Everything that is not as it was. ``threads`` is their number, where that is to be part of it."""
    return [
        *_config_settings(before),
        *_table_settings(before),
        *_function_settings(before),
        *(Setting(name, partial(registering, made), made.undo) for made, name in taught()),
        *_ambient(),
        *([_threads(threads)] if threads is not None else []),
    ]


def source_of(settings: Sequence[Setting], carrier: Carrier, operators: Sequence[str] = ()) -> str:
    """The lines that make these settings and define these operators, after all that the carrier holds by then.

    Raises `CannotCarryError` for what has no source.
    """
    for name in operators:
        carrier.operator(name)
    lines = [setting.write(carrier) for setting in settings]
    blocks = [f"\n\n{b.rstrip()}\n\n" if b.startswith(DEFINITIONS) else b for b in carrier.blocks]
    text = "\n".join([*sorted(carrier.imports), *blocks, *lines])
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _config_settings(before: Snapshot) -> list[Setting]:
    found: list[Setting] = []
    for module in torch_private.config_modules():
        old = before.configs.get(module.__name__, {})
        now = module.get_config_copy()
        for key, value in now.items():
            if key in old and key not in _OURS and _differs(old[key], value):
                found.append(_config_setting(module, key, old[key], value))
    return found


def _differs(one: Any, other: Any) -> bool:
    try:
        return one is not other and not bool(one == other)
    except (TypeError, ValueError, RuntimeError):  # the value of an option may be anything, also what has no ==
        return True


def _config_setting(module: Any, key: str, old: Any, value: Any) -> Setting:
    def write(carrier: Carrier) -> str:
        try:
            text = carrier.expression(value)
        except CannotCarryError as error:
            raise CannotCarryError(f"{module.__name__}.{key}: {error}") from error
        carrier.require(module.__name__)
        return f"{module.__name__}.{key} = {text}"

    return Setting(f"{module.__name__}.{key}", write, lambda: setattr(module, key, old))


def _table_settings(before: Snapshot) -> list[Setting]:
    return [
        _table_setting(name, table, key, before.tables[name].get(key), table.get(key))
        for name, table in torch_private.lowering_tables()
        if name in before.tables
        for key in {**before.tables[name], **table}
        if table.get(key) is not before.tables[name].get(key)
    ]


def _table_setting(name: str, table: dict[Any, Any], key: Any, old: Any, new: Any) -> Setting:
    """An entry that was put in, replaced, or taken out (``new`` is None)."""
    entry = Carrier().expression(key)
    place = f"{name}[{entry}]"

    def write(carrier: Carrier) -> str:
        carrier.require(name.partition("[")[0].rpartition(".")[0])
        return f"{place} = {carrier.expression(new)}" if new is not None else f"{name}.pop({entry})"

    def undo() -> None:
        if old is None:
            del table[key]
        else:
            table[key] = old

    return Setting(place, write, undo)


def _function_settings(before: Snapshot) -> list[Setting]:
    """Functions of the program's in the place of torch's own, or beside them."""
    return [
        _function_setting(found, before.functions.get(found.place))
        for found in replaced.foreign_functions()
        if found.module in before.modules and before.functions.get(found.place) is not found.value
    ]


def _function_setting(found: replaced.Attribute, old: Any) -> Setting:
    def write(carrier: Carrier) -> str:
        carrier.require(found.module)
        text, kind = carrier.expression(found.function), type(found.value)
        return f"{found.place} = {text if kind is types.FunctionType else f'{kind.__name__}({text})'}"

    def undo() -> None:
        if old is None:
            delattr(found.owner, found.name)
        else:
            setattr(found.owner, found.name, old)

    return Setting(found.place, write, undo)


def _ambient() -> list[Setting]:
    """State of torch outside the compiler's configuration, as it is where the graph is called."""
    found: list[Setting] = []
    if torch.get_default_dtype() is not torch.float32:
        dtype = torch.get_default_dtype()
        found.append(_line(f"torch.set_default_dtype({dtype})", lambda: torch.set_default_dtype(torch.float32)))
    if torch.are_deterministic_algorithms_enabled():
        undo: Callable[[], None] = lambda: torch.use_deterministic_algorithms(False)  # noqa: E731
        found.append(_line("torch.use_deterministic_algorithms(True)", undo))
    precision = torch.get_float32_matmul_precision()
    if precision != "highest":
        undo = lambda: torch.set_float32_matmul_precision("highest")  # noqa: E731
        found.append(_line(f'torch.set_float32_matmul_precision("{precision}")', undo))
    found += [_autocast(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    if not torch.is_grad_enabled():
        found.append(_line("torch.set_grad_enabled(False)", lambda: torch.autograd.grad_mode.set_grad_enabled(True)))
    return found


def _autocast(device: str) -> Setting:
    dtype = torch.get_autocast_dtype(device)
    line = f'torch.set_autocast_dtype("{device}", {dtype})\ntorch.set_autocast_enabled("{device}", True)'
    return _line(line, lambda: torch.set_autocast_enabled(device, False))


def _threads(threads: int) -> Setting:
    """A crash in a parallel region is an exception, or nothing, with one thread."""
    return _line(f"torch.set_num_threads({threads})", lambda: torch.set_num_threads(1))


def _line(line: str, undo: Callable[[], Any]) -> Setting:
    return Setting(line, lambda _: line, undo)
