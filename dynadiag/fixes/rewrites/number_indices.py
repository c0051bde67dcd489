"""An index of no dimensions (`x[best]`), which is read as a number: with one dimension it remains a tensor.

`x[best.reshape(1)][0]` has the values of `x[best]`, and is a copy where that is a view. Right where nobody writes to
either of them afterwards, and the index is a tensor in each call: the proof compares writes and shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource

_READ_AS_NUMBER = "GB0033"  # an operator that gives a number made of values
_WHY = "both have the same values, and the index remains a tensor"
_ATOMS = (cst.Name, cst.Attribute, cst.Call, cst.Subscript)  # what a method call may follow
_NUMBER = m.Index(m.Integer() | m.UnaryOperation(expression=m.Integer()))
_NEW_DIMENSIONS = m.Index(m.Ellipsis() | m.Name("None"))


def candidates(site: Site[cst.Subscript]) -> Iterator[Candidate]:
    """Offer the subscript with indices that have one dimension."""
    file, node = site.file, site.node
    behind = _behind(file, node) if site.problem.gb_id == _READ_AS_NUMBER else None
    if behind is not None:
        parts = ", ".join(_reshaped(file, each) for each in node.slice)
        edit = file.replace(node, f"{file.code(node.value)}[{parts}]{behind}")
        yield Candidate("give the index one dimension", "source", (edit,), _WHY)


def _reshaped(file: ParsedSource, element: cst.SubscriptElement) -> str:
    text = file.code(element.slice)
    if not isinstance(element.slice, cst.Index) or m.matches(element.slice, _NUMBER):
        return text
    return f"{text if isinstance(element.slice.value, _ATOMS) else f'({text})'}.reshape(1)"


def _behind(file: ParsedSource, node: cst.Subscript) -> str | None:
    """What takes the dimension away that the indices leave; empty where the subscript is written to. None where that
    is not certain.
    """
    parent, parts = file.parent(node), [each.slice for each in node.slice]
    if isinstance(parent, cst.Del) or any(m.matches(each, _NEW_DIMENSIONS) for each in parts):
        return None
    is_written = isinstance(parent, (cst.AssignTarget, cst.AugAssign)) and parent.target is node
    slices = [isinstance(each, cst.Slice) for each in parts]
    if all(isinstance(each, cst.Slice) or m.matches(each, _NUMBER) for each in parts):
        return None
    if not any(slices):
        return "" if is_written else "[0]"
    first, number = slices.index(False), slices.count(False)
    is_one_block = not any(slices[first : first + number]) and not any(m.matches(each, _NUMBER) for each in parts)
    return f".squeeze({first})" if is_one_block and not is_written else None
