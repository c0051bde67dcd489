"""The functions of torch's compiler, in its modules and their classes, and which of them the program replaced.

Read in torch 2.11.0, 2.13.0 and 2.15.0. All of this runs in a trial's process, which is ours and ends with the trial.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

_COMPILER_PACKAGES = ("torch._inductor", "torch._dynamo", "torch._functorch", "torch._decomp", "torch.fx.passes")
_PACKAGES = Path(torch.__file__).parents[1]
_GENERATED_PREFIX = "torch._inductor.runtime.compile_tasks."  # prefix of the modules that Inductor generated
_STDLIB = Path(contextlib.__file__).parent
_TORCH_AND_ITS_NEEDS = frozenset(
    {
        "torch", "functorch", "triton", "sympy", "mpmath", "networkx", "jinja2", "fsspec", "filelock", "numpy",
        "typing_extensions", "torchgen",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FunctionAttribute:
    """A function and where it is stored.

    ``value`` is the stored object: for a static method the wrapper, not the function.
    """

    path: str  # ``torch._inductor.scheduler.Scheduler.can_fuse``
    module: str
    owner: Any
    name: str
    value: Any

    @property
    def function(self) -> Any:
        """The function itself."""
        return function_of(self.value)


def compiler_modules() -> Iterator[tuple[str, Any]]:
    """Yield the loaded modules of torch's compiler, without those that Inductor generated."""
    for name, module in list(sys.modules.items()):
        if module is not None and name.startswith(_COMPILER_PACKAGES) and not name.startswith(_GENERATED_PREFIX):
            yield name, module


def compiler_functions() -> Iterator[FunctionAttribute]:
    """Yield every function in these modules and in the classes that they define."""
    for module_name, module in compiler_modules():
        yield from _functions_in(module_name, module_name, module)
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module_name:
                yield from _functions_in(f"{module_name}.{name}", module_name, value)


def _functions_in(place: str, module: str, owner: Any) -> Iterator[FunctionAttribute]:
    for name, value in list(vars(owner).items()):
        if function_of(value) is not None:
            yield FunctionAttribute(f"{place}.{name}", module, owner, name, value)


def function_of(value: Any) -> FunctionType | None:
    """Return the function of a function or of any kind of method, else None."""
    inner = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return inner if isinstance(inner, FunctionType) else None


def foreign_functions() -> Iterator[FunctionAttribute]:
    """Yield the functions that are not torch's own: the program put them there.

    Imports from Python's library and from torch's own dependencies do not count.
    """
    return (found for found in compiler_functions() if is_foreign(found.function))


def is_foreign(function: FunctionType) -> bool:
    """Whether a function comes from neither torch, its dependencies, nor Python's library."""
    file = function.__code__.co_filename
    if file == contextlib.__file__:  # a context manager made from a generator belongs to the generator's owner
        file = inspect.unwrap(function).__code__.co_filename
    return not _belongs_to_torch(file)


@functools.lru_cache(maxsize=4096)
def _belongs_to_torch(name: str) -> bool:
    file = Path(name)
    if file.is_relative_to(_PACKAGES):
        return file.relative_to(_PACKAGES).parts[0].removesuffix(".py") in _TORCH_AND_ITS_NEEDS
    return file.is_relative_to(_STDLIB) or file.name.startswith("<")
