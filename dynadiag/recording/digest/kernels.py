"""Kernels: those that a generated module defines, and those that it calls from a library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from dynadiag.recording.digest.context import DigestContext
from dynadiag.recording.records import Event, Kernel

_DEFINED = re.compile(r"(?m)^(\w+) = async_compile\.(\w+)\(")
_CALLED = re.compile(
    r"(?m)^ +(?:\w+(?:, \w+)* = )?(?:extern_kernels\.(\w+)|torch\.ops\.([\w.]+)|((?:aten|_quantized)\.[\w.]+))\("
)
# The same for a module of the C++ wrapper.
_CPP_DEFINED = re.compile(r"(?m)^extern \"C\"\s+void\s+(\w+)\([^;{}]*\)\s*\{")
_CPP_CALLED = re.compile(r"aoti_torch_(?:cpu|cuda|proxy_executor)_(\w+?)(?:_out)?\(")
_LANGUAGES = {"cpp_pybinding": "cpp"}  # Inductor's name -> ours; other backends keep their names


def read_kernels(
    context: DigestContext, event: Event, _metadata: dict[str, Any], payload: Callable[[], str]
) -> Iterator[Kernel]:
    """Yield the kernels of one generated module, each once, in the order of the text."""
    seen: set[str] = set()
    for name, language in _kernel_names(payload()):
        if name not in seen:
            seen.add(name)
            yield Kernel(context.next_index("kernel"), event.compile_id, name, language, event.index)


def _kernel_names(module: str) -> Iterator[tuple[str, str]]:
    for name, kind in _DEFINED.findall(module):
        yield name, _LANGUAGES.get(kind, kind)
    if "inductor_entry_impl(" in module:
        yield from ((name, "cpp") for name in _CPP_DEFINED.findall(module))
        yield from ((name, "extern") for name in _CPP_CALLED.findall(module))
    for extern, op, aten in _CALLED.findall(module):
        yield extern or op or aten, "extern"
