"""`queue.rotate(n)` of a deque, which Dynamo does not take: the items that leave at the right come in at the left.

This is right because a rotation by n moves that many items, one after the other, and one of more than the deque's
length moves the rest of the division. The items leave before they come in, so that a deque with a `maxlen` loses none.
A class of the user's may rotate in another way, which the proof sees.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst
from libcst import matchers as m

from dynadiag.fixes.candidate import Candidate, Site

__all__ = ["candidates"]

_SIMPLE = m.Name() | m.Integer() | m.Attribute() | m.Call() | m.UnaryOperation(expression=m.Integer())


def candidates(site: Site[cst.Call]) -> Iterator[Candidate]:
    """`extendleft` of what `pop` takes, in place of the rotation."""
    file, call = site.file, site.node
    rotation = m.Call(m.Attribute(m.Name() | m.Attribute(), m.Name("rotate")))
    if not m.matches(call, rotation) or not isinstance(file.parent(call), cst.Expr):
        return
    assert isinstance(call.func, cst.Attribute)
    queue = file.code(call.func.value)
    given = [each.value for each in call.args if not each.star and each.keyword is None]
    if len(given) != len(call.args) or len(given) > 1 or any(name.value == "_" for name in file.nodes(cst.Name, call)):
        return
    count = file.code(given[0]) if given else "1"
    count = count if not given or m.matches(given[0], _SIMPLE) else f"({count})"
    text = f"{queue}.extendleft([{queue}.pop() for _ in range({count} % max(len({queue}), 1))])"
    why = "the items that leave at the right come in at the left, as many as the rotation moves"
    yield Candidate("rotate with `pop` and `extendleft`", "source", (file.replace(call, text),), why)
