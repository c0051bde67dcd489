"""How a call accesses each of its buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.kernels.module import Call, Module, base

__all__ = ["Roles", "roles"]

_READ = re.compile(r"\bin_ptr|^const [^*]*\*")
_WRITTEN = re.compile(r"\bout_ptr")
_BOTH = re.compile(r"\bin_out_ptr")


@dataclass(frozen=True, slots=True)
class Roles:
    """The buffers that a call reads, writes, and updates in place."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    both: tuple[str, ...]


def roles(module: Module, call: Call) -> Roles:
    """Return the buffers that a call reads and writes.

    They follow from parameter names, or a library call's arguments.
    """
    definition = module.definitions.get(call.kernel)
    if definition is None:
        given = [base(one) for one in call.arguments if not one.startswith("out=")]
        return Roles(_once(given), call.outputs, ())
    reads, writes, both = [], [], []
    for parameter, argument in zip(definition.parameters, call.arguments, strict=False):
        name = base(argument)
        if _BOTH.search(parameter):
            both.append(name)
        elif _WRITTEN.search(parameter):
            writes.append(name)
        elif _READ.search(parameter):
            reads.append(name)
        elif name in module.buffers and definition.language != "cpp":  # a kernel that the user wrote
            (both if parameter.split(":")[0].strip() in definition.mutated else reads).append(name)
    return Roles(_once(reads), _once(writes), _once(both))


def _once(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name is not None))
