"""The cells of a notebook: IPython compiles each under a name that tells a reader nothing (``/tmp/ipykernel_7/93.py``).

A recording has the number that the notebook shows, as the file ``<In[3]>``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

# What ipykernel and IPython name the code of a cell.
_NAME = re.compile(r"[^\s\"'<>]*/ipykernel_\d+/\d+\.py|<ipython-input-\d+-[0-9a-f]+>")


def _shell() -> Any:
    """The running IPython shell, or None. Nothing is imported."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def notebook_name() -> str | None:
    """Return what names this notebook in a report, or None outside of IPython."""
    if _shell() is None:
        return None
    return os.environ.get("JPY_SESSION_NAME") or "the notebook"  # Jupyter's server sets the variable to the path


def cell_namer() -> Callable[[Any], Any] | None:
    """Return a function that names cells by their number in every text of a JSON value; None outside of IPython."""
    shell = _shell()
    if shell is None:
        return None

    def number(found: re.Match[str]) -> str:
        label = shell.compile.format_code_name(found[0])  # ("Cell", "In[3]"), or None for no cell of this shell
        return f"<{label[1]}>" if label else found[0]

    def name_cells(value: Any) -> Any:
        if isinstance(value, str):
            return _NAME.sub(number, value)
        if isinstance(value, Mapping):
            return {key: name_cells(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [name_cells(item) for item in value]
        return value

    return name_cells
