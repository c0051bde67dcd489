"""Writes higher-order operations as calls of torch's public functions, where a graph's own form cannot be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minifier.emit.errors import EmitError
from minifier.emit.expressions import ARGUMENT, arguments, write
from minifier.emit.names import Names
from minifier.vmaps import vmapped

__all__ = ["HOPS", "Call", "Hop"]

_SCORE = "score, batch, head, query, key"
_MASK = "batch, head, query, key"


@dataclass(frozen=True, slots=True)
class Call:
    """The source of a call: an expression, the lines before it, and the modules it needs."""

    expression: str
    before: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()


Hop = Callable[[fx.Node, Callable[[fx.Node], str], Names], Call]


def _checkpoint(node: fx.Node, name_of: Callable[[fx.Node], str], _: Names) -> Call:
    """In a graph, the function is a module with special metadata."""
    text = arguments(node.args, node.kwargs, name_of)
    return Call(f"torch.utils.checkpoint.checkpoint({text})", imports=frozenset({"torch.utils.checkpoint"}))


def _scan(node: fx.Node, name_of: Callable[[fx.Node], str], names: Names) -> Call:
    """In a graph, carry and row are one flat list. The function of a program takes and returns them separately."""
    combine, initial, rows, *extra = node.args
    if not isinstance(initial, (tuple, list)):
        raise EmitError("a scan whose initial carry is not a list")
    step, carry, row, result = (names.free(wanted) for wanted in ("step", "carry", "row", "result"))
    more = "".join(f", {write(value, name_of)}" for value in (extra[0] if extra else ()))
    count = len(initial)
    before = (
        f"def {step}({carry}, {row}):",
        f"    {result} = {write(combine, name_of)}(*{carry}, *{row}{more})",
        f"    return list({result}[:{count}]), list({result}[{count}:])",
        "",
        f"{carry}, {row} = torch._higher_order_ops.scan({step}, {_list(initial, name_of)}, {_list(rows, name_of)})",
    )
    return Call(f"(*{carry}, *{row})", before, frozenset({"torch._higher_order_ops"}))


def _flex_attention(node: fx.Node, name_of: Callable[[fx.Node], str], _: Names) -> Call:
    """In a graph, the captured values of score_mod and mask_mod are extra arguments. A program captures them."""
    (query, key, value, score, mask, *rest), (in_score, in_mask) = node.args[:7], node.args[7:9] or ((), ())
    written = [write(argument, name_of) for argument in (query, key, value)]
    written.append(_closed(score, in_score, _SCORE, name_of))
    *sizes, mask_mod = mask
    inner = [*(write(size, name_of) for size in sizes), _closed(mask_mod, in_mask, _MASK, name_of)]
    written.append(f"({', '.join(inner)})")
    written.extend(write(argument, name_of) for argument in rest)
    return Call(f"torch.ops.higher_order.flex_attention({ARGUMENT.join(written)})")


def _vmap(node: fx.Node, name_of: Callable[[fx.Node], str], _: Names) -> Call:
    """Writes only the keyword arguments that differ from the defaults of `torch.vmap`."""
    function, *operands = node.args
    usual = {"in_dims": tuple(0 for _ in operands), "out_dims": 0, "randomness": "error"}
    words = {name: value for name, value in node.kwargs.items() if value != usual[name]}
    mapped = arguments((function,), words, name_of).replace(ARGUMENT, ", ")
    return Call(f"torch.vmap({mapped})({arguments(tuple(operands), {}, name_of)})")


def _closed(function: Any, over: Any, parameters: str, name_of: Callable[[fx.Node], str]) -> str:
    name = write(function, name_of)
    if not over:
        return name
    return f"lambda {parameters}: {name}({parameters}, {', '.join(write(value, name_of) for value in over)})"


def _list(values: Any, name_of: Callable[[fx.Node], str]) -> str:
    return write(list(values), name_of)


HOPS: Mapping[Any, Hop] = {
    torch.ops.higher_order.tag_activation_checkpoint: _checkpoint,
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.flex_attention: _flex_attention,
    vmapped: _vmap,
}
