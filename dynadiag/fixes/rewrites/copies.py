"""`copy.copy` and `copy.deepcopy` of a tensor: a clone outside of autograd.

This is right because a deep copy of a tensor has the same values in memory of its own and takes no part in the gradient
of the original. The proof sees where the copy needs a gradient of its own, or keeps gaps in memory that a clone closes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site

__all__ = ["candidates"]

_COPY = re.compile(r"^(?:copy\.)?(?:deepcopy|copy)$")
_PLAIN = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """A clone in place of the copy."""
    file, call = site.file, site.node
    if not _COPY.match(file.code(call.func)) or len(call.args) != 1:
        return
    value = call.args[0].value
    text = file.code(value) if isinstance(value, _PLAIN) else f"({file.code(value)})"
    for method in ("detach().clone()", "clone()"):
        yield Candidate(
            f"copy the tensor with `{method}`",
            "source",
            (file.replace(call, f"{text}.{method}"),),
            "the copy has the same values in memory of its own",
        )
