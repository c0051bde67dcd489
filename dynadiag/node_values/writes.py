"""Which nodes of a graph write to what they read, and what became of each value."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

_IN_PLACE = (operator.setitem, operator.delitem)
_IN_PLACE_OPERATORS = frozenset(  # `iadd` and its like, not `invert`
    name for name in dir(operator) if name[0] == "i" and {name[1:], f"{name[1:]}_"} & set(dir(operator))
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A part of a tensor's memory, and the layout of that tensor. ``offset`` is from its first element, in elements.

    ``is_whole`` says whether it has all elements, in their order.
    """

    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    of: tuple[torch.Size, tuple[int, ...]]
    is_whole: bool

    @classmethod
    def between(cls, part: Any, whole: torch.Tensor) -> _Place | None:
        """Where ``part`` lies in the memory of ``whole``. None if it does not lie there."""
        if not isinstance(part, torch.Tensor) or memory_of(part) != memory_of(whole):
            return None
        offset = part.storage_offset() - whole.storage_offset()
        if offset < 0 or offset + _extent(part) > _extent(whole):
            return None
        of = whole.shape, whole.stride()
        is_alike = (part.shape, part.stride()) == of or (part.is_contiguous() and whole.is_contiguous())
        return cls(part.shape, part.stride(), offset, of, is_alike and part.numel() == whole.numel())

    def of_tensor(self, whole: torch.Tensor) -> torch.Tensor | None:
        """The same part of another tensor. None if its layout is another."""
        if (whole.shape, whole.stride()) != self.of:
            return None
        return whole.as_strided(self.shape, self.stride, whole.storage_offset() + self.offset)


def _extent(value: torch.Tensor) -> int:
    """How many elements of memory a tensor spans."""
    spans = ((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
    return 1 + sum(spans) if value.numel() else 0


@dataclass(frozen=True, slots=True)
class Write:
    """The last write to a value: by which node, and where its own value lies in that value's memory.

    ``read_as`` are the nodes whose values a reader reads then.
    """

    node: str
    place: _Place | None
    read_as: tuple[str, ...]

    def part_of(self, value: torch.Tensor) -> torch.Tensor | None:
        """What the node wrote to, in that value or one of the same layout; None if unknown."""
        return None if self.place is None else self.place.of_tensor(value)


class Writes:
    """The writes of one run. ``of`` has the last to each value."""

    def __init__(self) -> None:
        self.of: dict[Node, Write] = {}
        self._inputs: dict[Node, Any] = {}

    def hold(self, node: Node, value: Any) -> None:
        """Follow what becomes of an input, also after the last node that reads it."""
        self._inputs[node] = value

    def read_as(self, node: Node) -> tuple[str, ...]:
        """The nodes whose values one reads that reads this one now."""
        return self.of[node].read_as if node in self.of else (node.name,)

    def left_in_inputs(self) -> Iterator[tuple[str, ...]]:
        """Yield the nodes whose values each input that was written to has at last."""
        for node in self._inputs:
            if node in self.of:
                yield self.read_as(node)

    def versions(self, env: Mapping[Node, Any], read: Sequence[torch.Tensor]) -> dict[Node, tuple[torch.Tensor, int]]:
        """How often each value that is held was written to. Views share the number.

        Tensors of inference mode do not count: those that share the memory of the first tensor read have -1, and are
        taken for written to.
        """
        found, target = dict[Node, tuple[torch.Tensor, int]](), {memory_of(each) for each in read[:1]}
        for source, value in {**self._inputs, **env}.items():
            if isinstance(value, torch.Tensor) and (not value.is_inference() or memory_of(value) in target):
                found[source] = value, -1 if value.is_inference() else value._version
        return found

    def note(self, n: Node, value: Any, before: Mapping[Node, tuple[torch.Tensor, int]]) -> None:
        """Note a node as the writer of the values that it changed in place: later readers get what it wrote."""
        for source, (held, version) in before.items():
            if version == -1 or held._version != version:
                place = _Place.between(value, held)
                is_whole = place is not None and place.is_whole
                self.of[source] = Write(n.name, place, (n.name,) if is_whole else (self.read_as(source)[0], n.name))


def is_mutating(n: Node) -> bool:
    """Whether a node writes to one of its inputs."""
    if not n.op.startswith("call_"):
        return False  # the names of parameters end with an underscore too
    if isinstance(n.target, torch._ops.OpOverload):
        return n.target._schema.is_mutable
    if isinstance(n.target, torch._ops.OpOverloadPacket):
        return any(getattr(n.target, name)._schema.is_mutable for name in n.target.overloads())
    name = n.target if isinstance(n.target, str) else getattr(n.target, "__name__", "")
    return (
        n.target in _IN_PLACE
        or "out" in n.kwargs
        or _is_inplace(n)
        or (name.endswith("_") and not name.endswith("__"))
        or name.strip("_") in _IN_PLACE_OPERATORS
        or isinstance(n.target, torch._ops.HigherOrderOperator)
        or n.op == "call_module"
        or name in ("batch_norm", "instance_norm")  # their running statistics
    )


def _is_inplace(n: Node) -> bool:
    """Whether a function such as ``relu(x, True)`` is called with its argument ``inplace``."""
    names = getattr(getattr(n.target, "__code__", None), "co_varnames", ())
    return bool(n.kwargs.get("inplace") or dict(zip(names, n.args, strict=False)).get("inplace"))


def writers(module: GraphModule) -> list[str]:
    """The nodes of a graph that write to what they read, inputs among it, by name."""
    return [node.name for node in module.graph.nodes if is_mutating(node)]


def mutates(module: GraphModule) -> bool:
    """Whether it has any such node."""
    return any(map(is_mutating, module.graph.nodes))


def memory_of(value: torch.Tensor) -> int:
    """Return what is equal for tensors that share storage."""
    try:
        return value.untyped_storage()._cdata
    except (NotImplementedError, RuntimeError):
        return id(value)
