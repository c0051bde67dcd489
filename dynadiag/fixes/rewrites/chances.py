"""A random number of a tensor that is compared with a probability (a layer that is dropped now and then): the
comparison is made only where the probability is above zero.

Right for numbers: what is drawn from 0 to 1 is never less than zero, and the number is drawn all the same. Where the
probability is above zero the choice is a random one, and the break stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource

_WHY = "a number from 0 to 1 is never less than 0"
_DRAWN = re.compile(
    r"(?:torch\.rand\((?:\[\]|\(\)|1|\[1\]|\(1,\))(?:, *device=[\w.]+)?\)|random\.(?:random\(\)|uniform\(0, 1\)))"
)
_LESS = m.Comparison(left=m.Name(), comparisons=[m.ComparisonTarget(m.LessThan(), m.Name() | m.Attribute())])


def candidates(site: Site[cst.If | cst.IfExp]) -> Iterator[Candidate]:
    """The comparison behind one with zero."""
    file = site.file
    function = file.enclosing(site.node, cst.FunctionDef)
    if function is None:
        return
    drawn = {name for name, value in _assigned(file, function) if _DRAWN.fullmatch(file.code(value))}
    chances = [
        each
        for each in file.nodes(cst.Comparison, function)
        if m.matches(each, _LESS) and file.code(each.left) in drawn
    ]
    names = {node.value for node in file.nodes(cst.Name, site.node.test)}
    for chance in chances:
        holders = {
            name for name, value in _assigned(file, function) if chance in list(file.nodes(cst.Comparison, value))
        }
        inside = chance in list(file.nodes(cst.Comparison, site.node.test))
        if inside or holders & names:
            probability = file.code(chance.comparisons[0].comparator)
            text = f"{probability} > 0 and {file.code(chance)}"
            is_whole = isinstance(file.parent(chance), (cst.If, cst.IfExp, cst.Assign)) and not chance.lpar
            edits = (file.replace(chance, text if is_whole else f"({text})"),)
            yield Candidate(f"compare with `{probability}` only where it is above 0", "source", edits, _WHY)


def _assigned(file: ParsedSource, function: cst.CSTNode) -> Iterator[tuple[str, cst.BaseExpression]]:
    """The names that a function assigns, with their values."""
    for node in file.nodes(cst.Assign, function):
        yield from ((each.target.value, node.value) for each in node.targets if isinstance(each.target, cst.Name))
