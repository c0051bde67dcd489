"""Parse the comments that Inductor writes above kernels and calls. They name the nodes that the code was made from.

::

    # Topologically Sorted Source Nodes: [h, linear], Original ATen: [aten.native_layer_norm, aten.addmm]
    # Source node to ATen node mapping:
    #   h => add, add_1
    # Graph fragment:
    #   %primals_1 : Tensor "f32[2]" = PlaceHolder[target=primals_1]
    #   %add : Tensor "f32[2]"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (...), kwargs = {})
    #   return %add
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Comment", "CommentReader"]

_SOURCES = re.compile(r"^\s*# (?:Topologically Sorted|Unsorted) Source Nodes: \[([^\]]*)\], Original ATen: \[")
_FRAGMENT_NODE = re.compile(r"^\s*#   %(\w+) :.*? = (\w+)\[target=")
_RETURN = re.compile(r"^\s*#   return (.*)$")


@dataclass(slots=True)
class Comment:
    """One comment. `sources` are Dynamo's nodes, `nodes` and `reads` are nodes of the lowered graph."""

    line: int
    sources: tuple[str, ...]
    nodes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    returns: list[str] = field(default_factory=list)


class CommentReader:
    """Collects the comment above the next statement."""

    def __init__(self) -> None:
        self._comment: Comment | None = None

    def feed(self, line: str, number: int) -> bool:
        """Take one line. Returns whether it is a comment."""
        if not line.lstrip().startswith("#"):
            return False
        if found := _SOURCES.match(line):
            self._comment = Comment(number, _split(found[1]))
        elif self._comment is not None:
            self._add_detail(self._comment, line)
        return True

    def _add_detail(self, comment: Comment, line: str) -> None:
        if found := _FRAGMENT_NODE.match(line):
            (comment.reads if found[2] == "PlaceHolder" else comment.nodes).append(found[1])
        elif found := _RETURN.match(line):
            comment.returns.extend(one.lstrip("%") for one in _split(found[1]))

    def pop(self) -> Comment | None:
        """Return the comment above the current statement and forget it."""
        comment, self._comment = self._comment, None
        return comment


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
