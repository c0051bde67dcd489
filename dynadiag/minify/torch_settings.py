"""What the program changed in torch before it compiled: what the failure may need, and a repro has to say.

A snapshot of torch as it was before the program ran tells what is not as it was. Each difference is a `TorchSetting`,
with the line that makes it and a way to undo it in the process of a trial, so that trials tell which ones matter.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dynadiag.minify.pattern_export import registered_patterns, registration_source
from dynadiag.minify.source_export import CannotExportError, SourceExporter
from dynadiag.torch_private import minify as torch_private
from dynadiag.torch_private import monkeypatches

__all__ = ["ASSUME_STATIC", "DEFINITION_STARTS", "TorchSetting", "TorchSnapshot", "changed_settings", "settings_source"]

ASSUME_STATIC = "torch._dynamo.config.assume_static_by_default"  # off where sizes are symbols from the first call

# What trials themselves set, and what has no bearing on what is compiled.
_IGNORED_OPTIONS = frozenset(
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
DEFINITION_STARTS = ("def ", "class ", "@", "async ")


@dataclass(frozen=True, slots=True)
class TorchSetting:
    """One thing that the program changed. ``write`` gives its line, with whatever that needs left to the carrier."""

    name: str
    write: Callable[[SourceExporter], str]
    undo: Callable[[], None]


@dataclass(slots=True)
class TorchSnapshot:
    """torch before the program."""

    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[Any, Any]] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)  # by place, as they lie there
    modules: frozenset[str] = frozenset()

    @classmethod
    def take(cls) -> TorchSnapshot:
        return cls(
            {module.__name__: module.get_config_copy() for module in torch_private.config_modules()},
            {name: dict(table) for name, table in torch_private.lowering_tables()},
            {found.path: found.value for found in monkeypatches.compiler_functions()},
            frozenset(name for name, _ in monkeypatches.compiler_modules()),
        )

    def expression_of(self, value: Any) -> str | None:
        """An expression for what torch held before: an entry of a table, or a function where another may be now."""
        for name, table in self.tables.items() if callable(value) else ():
            keys = [key for key, entry in table.items() if entry is value]
            if keys:
                overloads = [key for key in keys if isinstance(key, torch._ops.OpOverload)]
                return f"{name}[{SourceExporter().expression((overloads or keys)[0])}]"
        if not isinstance(value, types.FunctionType):
            return None
        return next((place for place, held in self.functions.items() if monkeypatches.function_of(held) is value), None)

    def functions_without_original(self) -> list[str]:
        """Places of functions of somebody's of which it is not known what was there: torch loaded them meanwhile."""
        found = (f for f in monkeypatches.foreign_functions() if f.path not in self.functions)
        return [f.path for f in found if f.module not in self.modules]


def changed_settings(snapshot: TorchSnapshot, threads: int | None) -> list[TorchSetting]:
    """Everything that is not as it was. ``threads`` is their number, where that is to be part of it."""
    return [
        *_config_settings(snapshot),
        *_table_settings(snapshot),
        *_function_settings(snapshot),
        *(TorchSetting(name, partial(registration_source, made), made.undo) for made, name in registered_patterns()),
        *_global_state_settings(),
        *([_threads_setting(threads)] if threads is not None else []),
    ]


def settings_source(settings: Sequence[TorchSetting], exporter: SourceExporter, operators: Sequence[str] = ()) -> str:
    """The lines that make these settings and define these operators, after all that the carrier holds by then.

    Raises `CannotExportError` for what has no source.
    """
    for name in operators:
        exporter.operator(name)
    lines = [setting.write(exporter) for setting in settings]
    blocks = [f"\n\n{b.rstrip()}\n\n" if b.startswith(DEFINITION_STARTS) else b for b in exporter.blocks]
    text = "\n".join([*sorted(exporter.imports), *blocks, *lines])
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _config_settings(before: TorchSnapshot) -> list[TorchSetting]:
    found: list[TorchSetting] = []
    for module in torch_private.config_modules():
        old = before.configs.get(module.__name__, {})
        now = module.get_config_copy()
        for key, value in now.items():
            if key in old and key not in _IGNORED_OPTIONS and _differs(old[key], value):
                found.append(_config_setting(module, key, old[key], value))
    return found


def _differs(one: Any, other: Any) -> bool:
    try:
        return one is not other and not bool(one == other)
    except (TypeError, ValueError, RuntimeError):  # the value of an option may be anything, also what has no ==
        return True


def _config_setting(module: Any, key: str, old: Any, value: Any) -> TorchSetting:
    def write(carrier: SourceExporter) -> str:
        try:
            text = carrier.expression(value)
        except CannotExportError as error:
            raise CannotExportError(f"{module.__name__}.{key}: {error}") from error
        carrier.import_module(module.__name__)
        return f"{module.__name__}.{key} = {text}"

    return TorchSetting(f"{module.__name__}.{key}", write, lambda: setattr(module, key, old))


def _table_settings(before: TorchSnapshot) -> list[TorchSetting]:
    return [
        _table_setting(name, table, key, before.tables[name].get(key), table.get(key))
        for name, table in torch_private.lowering_tables()
        if name in before.tables
        for key in {**before.tables[name], **table}
        if table.get(key) is not before.tables[name].get(key)
    ]


def _table_setting(name: str, table: dict[Any, Any], key: Any, old: Any, new: Any) -> TorchSetting:
    """An entry that was put in, replaced, or taken out (``new`` is None)."""
    entry = SourceExporter().expression(key)
    place = f"{name}[{entry}]"

    def write(carrier: SourceExporter) -> str:
        carrier.import_module(name.partition("[")[0].rpartition(".")[0])
        return f"{place} = {carrier.expression(new)}" if new is not None else f"{name}.pop({entry})"

    def undo() -> None:
        if old is None:
            del table[key]
        else:
            table[key] = old

    return TorchSetting(place, write, undo)


def _function_settings(before: TorchSnapshot) -> list[TorchSetting]:
    """Functions of the program's in the place of torch's own, or beside them."""
    return [
        _function_setting(found, before.functions.get(found.path))
        for found in monkeypatches.foreign_functions()
        if found.module in before.modules and before.functions.get(found.path) is not found.value
    ]


def _function_setting(found: monkeypatches.FunctionAttribute, old: Any) -> TorchSetting:
    def write(carrier: SourceExporter) -> str:
        carrier.import_module(found.module)
        text, kind = carrier.expression(found.function), type(found.value)
        return f"{found.path} = {text if kind is types.FunctionType else f'{kind.__name__}({text})'}"

    def undo() -> None:
        if old is None:
            delattr(found.owner, found.name)
        else:
            setattr(found.owner, found.name, old)

    return TorchSetting(found.path, write, undo)


def _global_state_settings() -> list[TorchSetting]:
    """State of torch outside the compiler's configuration, as it is where the graph is called."""
    found: list[TorchSetting] = []
    if torch.get_default_dtype() is not torch.float32:
        dtype = torch.get_default_dtype()
        found.append(_line_setting(f"torch.set_default_dtype({dtype})", lambda: torch.set_default_dtype(torch.float32)))
    if torch.are_deterministic_algorithms_enabled():
        undo: Callable[[], None] = lambda: torch.use_deterministic_algorithms(False)  # noqa: E731
        found.append(_line_setting("torch.use_deterministic_algorithms(True)", undo))
    precision = torch.get_float32_matmul_precision()
    if precision != "highest":
        undo = lambda: torch.set_float32_matmul_precision("highest")  # noqa: E731
        found.append(_line_setting(f'torch.set_float32_matmul_precision("{precision}")', undo))
    found += [_autocast_setting(device) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    if not torch.is_grad_enabled():
        found.append(
            _line_setting("torch.set_grad_enabled(False)", lambda: torch.autograd.grad_mode.set_grad_enabled(True))
        )
    return found


def _autocast_setting(device: str) -> TorchSetting:
    dtype = torch.get_autocast_dtype(device)
    line = f'torch.set_autocast_dtype("{device}", {dtype})\ntorch.set_autocast_enabled("{device}", True)'
    return _line_setting(line, lambda: torch.set_autocast_enabled(device, False))


def _threads_setting(threads: int) -> TorchSetting:
    """A crash in a parallel region is an exception, or nothing, with one thread."""
    return _line_setting(f"torch.set_num_threads({threads})", lambda: torch.set_num_threads(1))


def _line_setting(line: str, undo: Callable[[], Any]) -> TorchSetting:
    return TorchSetting(line, lambda _: line, undo)
