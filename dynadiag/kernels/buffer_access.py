"""How a call accesses each of its buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.kernels.module_parser import ModuleCall, ParsedModule, buffer_name

__all__ = ["BufferAccess", "buffer_access"]

_READ = re.compile(r"\bin_ptr|^const [^*]*\*")
_WRITTEN = re.compile(r"\bout_ptr")
_UPDATED = re.compile(r"\bin_out_ptr")


@dataclass(frozen=True, slots=True)
class BufferAccess:
    """The buffers that a call reads, writes, and updates in place."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    updates: tuple[str, ...]


def buffer_access(module: ParsedModule, call: ModuleCall) -> BufferAccess:
    """Return the buffers that a call reads and writes.

    They follow from parameter names, or a library call's arguments.
    """
    definition = module.definitions.get(call.kernel)
    if definition is None:
        given = [buffer_name(one) for one in call.arguments if not one.startswith("out=")]
        return BufferAccess(_unique(given), call.outputs, ())
    reads, writes, both = [], [], []
    for parameter, argument in zip(definition.parameters, call.arguments, strict=False):
        name = buffer_name(argument)
        if _UPDATED.search(parameter):
            both.append(name)
        elif _WRITTEN.search(parameter):
            writes.append(name)
        elif _READ.search(parameter):
            reads.append(name)
        elif name in module.buffers and definition.language != "cpp":  # a kernel that the user wrote
            (both if parameter.split(":")[0].strip() in definition.mutated else reads).append(name)
    return BufferAccess(_unique(reads), _unique(writes), _unique(both))


def _unique(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))
