"""dynadiag: see what ``torch.compile`` did with a program, in the program's own lines.

    import dynadiag
    print(dynadiag.explain(fn, x))                 # run once, explain every graph, guard, break and recompile
    print(dynadiag.bisect(fn, (x,)))               # which part of the compiler makes it fail
    print(dynadiag.values(fn, x))                  # the value of each node: the first NaN, the first that is wrong
    print(dynadiag.fix(fn, x))                     # changes that remove its graph breaks, each proved
    with dynadiag.record("run.dynadiag"): ...      # record whatever is compiled inside
    with dynadiag.watch(): ...                     # a line as each compile begins, breaks, recompiles or gives up
    dynadiag.warm()                                # the warm-up is over: reports are of what is compiled later
    dynadiag.open("run.dynadiag")                  # read a recording: .report(), .findings, .sql(...)

Importing this package imports neither torch nor anything of ours: the names below load on first use, because
torch loads `dynadiag.autoload` in every process of an environment that has dynadiag installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dynadiag.api import (
        bisect,
        explain,
        fix,
        open,  # noqa: A004 - `dynadiag.open`, as `gzip.open` is
        record,
        values,
        warm,
        watch,
    )
    from dynadiag.errors import DynadiagError, UnreadableInput

__version__ = "0.1.0"
__all__ = [
    "DynadiagError",
    "UnreadableInput",
    "__version__",
    "bisect",
    "explain",
    "fix",
    "open",
    "record",
    "values",
    "warm",
    "watch",
]

_ERRORS = ("DynadiagError", "UnreadableInput")

if not TYPE_CHECKING:  # a type checker takes the names above, and any other name is an error to it

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'dynadiag' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module("dynadiag.errors" if name in _ERRORS else "dynadiag.api"), name)


def load_ipython_extension(shell: object) -> None:
    """Add ``%%dynadiag`` to IPython: ``%load_ext dynadiag``."""
    from importlib import import_module

    import_module("dynadiag.notebook").register(shell)


def __dir__() -> list[str]:
    return sorted(__all__)
