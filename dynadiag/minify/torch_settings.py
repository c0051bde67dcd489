"""Finds what a program changed in torch before the failing call: options, lowerings, functions, patterns, global state.

A snapshot of torch is taken before the program runs. Each later difference is a `TorchSetting`: it has the source line
that makes it, and a way to undo it, so that trials can find out which settings the failure needs.
"""

from __future__ import annotations

import itertools
import re
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dynadiag.minify.pattern_export import registered_patterns, registration_source
from dynadiag.minify.source_export import CannotExportError, SourceExporter, registers_itself
from dynadiag.torch_private import minify as torch_private
from dynadiag.torch_private import monkeypatches

ASSUME_STATIC = "torch._dynamo.config.assume_static_by_default"  # False if sizes are symbolic from the first call

# Options that trials set themselves, or that do not affect the compiled code.
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


# Starts of blocks that have blank lines around them.
DEFINITION_STARTS = ("def ", "class ", "@", "async ")


@dataclass(frozen=True, slots=True)
class TorchSetting:
    """One thing that the program changed in torch.

    ``write`` returns its source line, and adds the definitions that the line needs to the exporter. ``undo`` restores
    the original in this process.
    """

    name: str
    write: Callable[[SourceExporter], str]
    undo: Callable[[], None]


@dataclass(slots=True)
class TorchSnapshot:
    """The state of torch before the program ran."""

    configs: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[Any, Any]] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)  # by dotted name, as the attribute holds them
    modules: frozenset[str] = frozenset()

    @classmethod
    def take(cls) -> TorchSnapshot:
        """Take a snapshot of torch in this process."""
        return cls(
            {module.__name__: module.get_config_copy() for module in torch_private.config_modules()},
            {name: dict(table) for name, table in torch_private.lowering_tables()},
            {found.path: found.value for found in monkeypatches.compiler_functions()},
            frozenset(name for name, _ in monkeypatches.compiler_modules()),
        )

    def expression_of(self, value: Any) -> str | None:
        """An expression for an original object of torch: an entry of a lowering table, or a function. Else None."""
        for name, table in self.tables.items() if callable(value) else ():
            keys = [key for key, entry in table.items() if entry is value]
            if keys:
                overloads = [key for key in keys if isinstance(key, torch._ops.OpOverload)]
                return f"{name}[{SourceExporter().expression((overloads or keys)[0])}]"
        if not isinstance(value, types.FunctionType):
            return None
        return next((place for place, held in self.functions.items() if monkeypatches.function_of(held) is value), None)

    def functions_without_original(self) -> list[str]:
        """Foreign functions in modules that torch loaded after the snapshot: the original is not known."""
        found = (f for f in monkeypatches.foreign_functions() if f.path not in self.functions)
        return [f.path for f in found if f.module not in self.modules]


def changed_settings(snapshot: TorchSnapshot, threads: int | None) -> list[TorchSetting]:
    """All settings that the program changed. With ``threads``, the number of threads is one of them."""
    return [
        *_config_settings(snapshot),
        *_table_settings(snapshot),
        *_function_settings(snapshot),
        *(TorchSetting(name, partial(registration_source, made), made.undo) for made, name in registered_patterns()),
        *_global_state_settings(),
        *_process_group_settings(),
        *([_threads_setting(threads)] if threads is not None else []),
    ]


def settings_source(settings: Sequence[TorchSetting], exporter: SourceExporter, operators: Sequence[str] = ()) -> str:
    """Source that makes these settings and defines these operators, after the definitions in the exporter.

    Raises `CannotExportError` for objects without source.
    """
    for name in operators:
        exporter.operator(name)
    lines = [line for setting in settings if (line := setting.write(exporter))]  # none where a decorator does it
    blocks = [f"\n\n{b.rstrip()}\n\n" if b.startswith(DEFINITION_STARTS) else b for b in exporter.blocks]
    text = "\n".join([*_merged(sorted(exporter.imports)), *blocks, *lines])
    return re.sub(r"\n{4,}", "\n\n\n", text)


def _merged(imports: Sequence[str]) -> Iterator[str]:
    """The imports, with all names of a module in one line."""
    for begins, lines in itertools.groupby(imports, lambda line: line.partition(" import ")[0]):
        first, *more = lines
        if begins.startswith("from "):
            yield ", ".join([first, *(line.partition(" import ")[2] for line in more)])
        else:
            yield from (first, *more)


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
    except (TypeError, ValueError, RuntimeError):  # an option may hold any object, even one without a usable ==
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
    """An entry that was added, replaced, or removed (then ``new`` is None)."""
    entry = SourceExporter().expression(key)
    place = f"{name}[{entry}]"

    def write(carrier: SourceExporter) -> str:
        text = carrier.expression(new) if new is not None else ""
        if new is not None and carrier.defines(new) and registers_itself(new, entry):
            return ""
        carrier.import_module(name.partition("[")[0].rpartition(".")[0])
        return f"{place} = {text}" if new is not None else f"{name}.pop({entry})"

    def undo() -> None:
        if old is None:
            del table[key]
        else:
            table[key] = old

    return TorchSetting(place, write, undo)


def _function_settings(before: TorchSnapshot) -> list[TorchSetting]:
    """Functions of the program that replace or extend torch's."""
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
    """Changed global state of torch that is no compiler option, as of the failing call."""
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


def use_fake_process_groups() -> None:
    """Replace the process groups of this process by fake ones, whose collectives do nothing: no other rank answers."""
    for setting in _process_group_settings():
        setting.undo()
        exporter = SourceExporter()
        line = setting.write(exporter)
        exec("\n".join([*exporter.imports, line]), {"torch": torch})  # noqa: S102 - our own text


def _process_group_settings() -> list[TorchSetting]:
    """Process groups with the names that graphs know them by."""
    groups = torch_private.group_ranks()
    if not groups:
        return []
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    others = [f"torch.distributed.new_group({ranks or [(rank + 1) % size]})" for ranks in groups[1:]]
    store = f"{torch_private.FAKE_STORE}()"
    first = f'torch.distributed.init_process_group("fake", rank={rank}, world_size={size}, store={store})'

    def write(carrier: SourceExporter) -> str:
        carrier.import_module("torch.distributed")
        carrier.import_module(torch_private.FAKE_STORE.rpartition(".")[0])
        return "\n".join([first, *others])

    return [TorchSetting("process groups", write, torch.distributed.destroy_process_group)]


def _threads_setting(threads: int) -> TorchSetting:
    """The number of threads. A crash in a parallel region may not show with one thread."""
    return _line_setting(f"torch.set_num_threads({threads})", lambda: torch.set_num_threads(1))


def _line_setting(line: str, undo: Callable[[], Any]) -> TorchSetting:
    return TorchSetting(line, lambda _: line, undo)
