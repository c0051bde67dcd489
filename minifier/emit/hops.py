"""Writes higher-order operations as calls of torch's public functions, where a graph's own form cannot be called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from minifier.emit.expressions import ARGUMENT_SEPARATOR, argument_source, arguments_source
from minifier.emit.identifiers import NameAllocator
from minifier.errors import EmitError
from minifier.vmap_folding import vmap_call

_SCORE = "score, batch, head, query, key"
_MASK = "batch, head, query, key"


@dataclass(frozen=True, slots=True)
class HopCall:
    """The source of a call: an expression, the lines before it, and the modules it needs."""

    expression: str
    before: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()


HopWriter = Callable[[fx.Node, Callable[[fx.Node], str], NameAllocator], HopCall]


def _checkpoint(node: fx.Node, name_of: Callable[[fx.Node], str], _: NameAllocator) -> HopCall:
    """In a graph, the function is a module with special metadata."""
    text = arguments_source(node.args, node.kwargs, name_of)
    return HopCall(f"torch.utils.checkpoint.checkpoint({text})", imports=frozenset({"torch.utils.checkpoint"}))


def _scan(node: fx.Node, name_of: Callable[[fx.Node], str], names: NameAllocator) -> HopCall:
    """In a graph, carry and row are one flat list. The function of a program takes and returns them separately."""
    combine, initial, rows, *extra = node.args
    if not isinstance(initial, (tuple, list)):
        raise EmitError("a scan whose initial carry is not a list")
    step, carry, row, result = (names.unique_name(wanted) for wanted in ("step", "carry", "row", "result"))
    more = "".join(f", {argument_source(value, name_of)}" for value in (extra[0] if extra else ()))
    count = len(initial)
    before = (
        f"def {step}({carry}, {row}):",
        f"    {result} = {argument_source(combine, name_of)}(*{carry}, *{row}{more})",
        f"    return list({result}[:{count}]), list({result}[{count}:])",
        "",
        f"{carry}, {row} = torch._higher_order_ops.scan({step}, {_list(initial, name_of)}, {_list(rows, name_of)})",
    )
    return HopCall(f"(*{carry}, *{row})", before, frozenset({"torch._higher_order_ops"}))


def _flex_attention(node: fx.Node, name_of: Callable[[fx.Node], str], _: NameAllocator) -> HopCall:
    """In a graph, the captured values of score_mod and mask_mod are extra arguments. A program captures them."""
    (query, key, value, score, mask, *rest), (in_score, in_mask) = node.args[:7], node.args[7:9] or ((), ())
    written = [argument_source(argument, name_of) for argument in (query, key, value)]
    written.append(_closure_source(score, in_score, _SCORE, name_of))
    *sizes, mask_mod = mask
    inner = [*(argument_source(size, name_of) for size in sizes), _closure_source(mask_mod, in_mask, _MASK, name_of)]
    written.append(f"({', '.join(inner)})")
    written.extend(argument_source(argument, name_of) for argument in rest)
    return HopCall(f"torch.ops.higher_order.flex_attention({ARGUMENT_SEPARATOR.join(written)})")


def _vmap(node: fx.Node, name_of: Callable[[fx.Node], str], _: NameAllocator) -> HopCall:
    """Writes only the keyword arguments that differ from the defaults of `torch.vmap`."""
    function, *operands = node.args
    usual = {"in_dims": tuple(0 for _ in operands), "out_dims": 0, "randomness": "error"}
    words = {name: value for name, value in node.kwargs.items() if value != usual[name]}
    mapped = arguments_source((function,), words, name_of).replace(ARGUMENT_SEPARATOR, ", ")
    return HopCall(f"torch.vmap({mapped})({arguments_source(tuple(operands), {}, name_of)})")


def _closure_source(function: Any, over: Any, parameters: str, name_of: Callable[[fx.Node], str]) -> str:
    name = argument_source(function, name_of)
    if not over:
        return name
    return f"lambda {parameters}: {name}({parameters}, {', '.join(argument_source(value, name_of) for value in over)})"


def _list(values: Any, name_of: Callable[[fx.Node], str]) -> str:
    return argument_source(list(values), name_of)


HOPS: Mapping[Any, HopWriter] = {
    torch.ops.higher_order.tag_activation_checkpoint: _checkpoint,
    torch.ops.higher_order.scan: _scan,
    torch.ops.higher_order.flex_attention: _flex_attention,
    vmap_call: _vmap,
}
