"""Checks without a run whether a program can run: it compiles, and each name that it reads is bound."""

from __future__ import annotations

import builtins
import symtable
import warnings

__all__ = ["can_run"]

_ALWAYS_BOUND = frozenset(
    {*dir(builtins), "__name__", "__file__", "__doc__", "__class__", "__qualname__", "__module__"}
)


def can_run(text: str) -> bool:
    """Whether the text compiles and reads no name that nothing binds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of what no programmer would write
        return _can_run(text)


def _can_run(text: str) -> bool:
    try:
        compile(text, "candidate", "exec", dont_inherit=True)
        top = symtable.symtable(text, "candidate", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return False
    tables = [top]
    for table in tables:
        tables += table.get_children()
    bound = {
        symbol.get_name()
        for table in tables
        for symbol in table.get_symbols()
        if (table is top or symbol.is_declared_global()) and (symbol.is_assigned() or symbol.is_imported())
    }
    bound |= {table.get_name() for table in top.get_children()}
    return not any(
        symbol.is_referenced() and symbol.get_name() not in bound | _ALWAYS_BOUND
        for table in tables
        for symbol in table.get_symbols()
        if (table is top and not symbol.is_assigned() and not symbol.is_imported())
        or (table is not top and symbol.is_global())
    )
