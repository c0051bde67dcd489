"""Checks without a run whether a program can run (it compiles, and each name that it reads is bound), and whether it
reads memory that nothing has set.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import warnings

_ALWAYS_BOUND = frozenset(
    {*dir(builtins), "__name__", "__file__", "__doc__", "__class__", "__qualname__", "__module__"}
    | {"__conditional_annotations__"}  # of a module with `x: int = 3`, in Python 3.14
)
_UNSET = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"})


def makes_unset_tensor(node: ast.AST) -> bool:
    """Whether a node is a call that makes a tensor without setting its memory: `torch.empty(4)`, `torch.Tensor(4)`.

    What it holds may differ from run to run, and so may the failure of a program that compares it.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    sizes = bool(node.args) and all(isinstance(a, ast.Constant) and isinstance(a.value, int) for a in node.args)
    return node.func.attr in _UNSET or (node.func.attr.endswith("Tensor") and sizes)


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
