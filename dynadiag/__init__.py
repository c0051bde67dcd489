"""dynadiag: see what ``torch.compile`` did with a program, in the program's own lines.

    import dynadiag
    print(dynadiag.explain(fn, x))                 # run once, explain every graph, guard, break and recompile
    print(dynadiag.bisect(fn, (x,)))               # which part of the compiler makes it fail
    with dynadiag.record("run.dynadiag"): ...      # record whatever is compiled inside
    dynadiag.open("run.dynadiag")                  # read a recording

Importing this package imports neither torch nor anything of ours: the names below load on first use, because
torch loads `dynadiag.autoload` in every process of an environment that has dynadiag installed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dynadiag.api import bisect, explain, open, record  # noqa: A004 - `dynadiag.open`, as `gzip.open` is
    from dynadiag.errors import DynadiagError, UnreadableInput

__version__ = "0.1.0"
__all__ = ["DynadiagError", "UnreadableInput", "__version__", "bisect", "explain", "open", "record"]

_WHERE = {
    "DynadiagError": "dynadiag.errors",
    "UnreadableInput": "dynadiag.errors",
    "bisect": "dynadiag.api",
    "explain": "dynadiag.api",
    "open": "dynadiag.api",
    "record": "dynadiag.api",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'dynadiag' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


class _CallablePackage(ModuleType):
    """A subpackage of ours that has the name of a function of ours: both `dynadiag.explain` are one name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(_WHERE[name]), name)(*args, **kwargs)


class _Package(ModuleType):
    """Importing a subpackage sets it as an attribute here, where the function of that name is looked for."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _WHERE and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(__all__)
