"""`torch.bincount` with a least length: counted into a tensor of that length.

The result of `bincount` is longer where a value is as large as the length, so its size depends on the data. This is
right where no value is: then both have the same counts. A larger value raises an error in the changed program.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource, callee_name

__all__ = ["candidates"]


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """Replace the call by a `scatter_add` of ones into a tensor of the least length."""
    file, call = site.file, site.node
    found = _counted(file, call)
    if found is None or not file.imports("torch"):
        return
    values, length = found
    yield Candidate(
        f"count into a tensor of length `{length}` instead of `bincount`",
        "source",
        (file.replace(call, f"{values}.new_zeros({length}).scatter_add(0, {values}, torch.ones_like({values}))"),),
        "no value is as large as the least length, so the result always has that length",
    )


def _counted(file: ParsedSource, call: cst.Call) -> tuple[str, str] | None:
    """What is counted, by its name, and the least length; ``None`` if there are weights."""
    if callee_name(call) != "bincount" or not isinstance(call.func, cst.Attribute):
        return None
    named = {each.keyword.value: file.code(each.value) for each in call.args if each.keyword is not None}
    values = [each.value for each in call.args if each.keyword is None]
    if file.code(call.func.value) != "torch":
        values.insert(0, call.func.value)
    if len(values) != 1 or named.keys() != {"minlength"} or not isinstance(values[0], (cst.Name, cst.Attribute)):
        return None
    return file.code(values[0]), named["minlength"]
