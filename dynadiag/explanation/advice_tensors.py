"""Advice where a tensor changed: its sizes, dtype, layout, kind."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dynadiag.explanation import process_state
from dynadiag.explanation.guard_text import argument_description, joined_sources, sizes_in, source_text
from dynadiag.explanation.guards import ParsedGuard

__all__ = [
    "alias",
    "device",
    "dispatch_keys",
    "dtype",
    "is_special",
    "rank",
    "requires_grad",
    "shape",
    "size",
    "stride",
]

_MOST_DIMENSIONS = 4  # of sizes that are named one by one; with more, dynamic=True says it shorter
_MOST_GROUPS = 3  # of guards on shapes that are advised on
_SPECIAL_SIZES = ("0", "1")  # torch always compiles for these apart
# What every dynamic size must be, as torch writes it: what fails it is 0 or 1.
_NOT_SMALL = re.compile(
    r"2 <= (?P<tensor>[^\s()]+)\.size\(\)\[(?P<dim>\d+)\]|(?P<the>[^\s()]+)\.size\(\)\[(?P<d>\d+)\] >= 2"
)
_BY_ITSELF = (
    "(By itself torch makes a size a symbol when it first changes, at the price of this recompile; with "
    "`dynamic=False`, never.)"
)


def size(found: Sequence[ParsedGuard]) -> list[str]:
    if any("_parameters[" in (item.subject or "") for item in found):
        return [
            "A parameter has another shape: torch treats shapes of parameters as constants. Expect one compile "
            "for each shape, or set `torch._dynamo.config.force_parameter_static_shapes = False`."
        ]
    special = [item for item in found if is_special(item)]
    changed = [item for item in found if item not in special]
    advice = [_changed_size(changed)] if changed else []
    if special:
        advice.append(_zero_or_one(special[0].subject, special[0].index))
    return advice


def _zero_or_one(tensor: str | None, dimension: str | None) -> str:
    return (
        "torch always compiles sizes 0 and 1 apart from all others: avoid them (drop the last short batch, "
        f"pad), or `torch._dynamo.decorators.mark_unbacked({source_text(tensor)}, {dimension})`."
    )


def is_special(item: ParsedGuard) -> bool:
    return item.now in _SPECIAL_SIZES or item.was in _SPECIAL_SIZES


def _changed_size(found: Sequence[ParsedGuard]) -> str:
    dims = list(dict.fromkeys((source_text(item.subject), item.index) for item in found))
    if len({(item.subject, item.index, item.was) for item in found}) > len(dims):
        return (
            "The size changed before, and the code was still made for one size only: the program was compiled with "
            "`dynamic=False`, the dimension is marked static, or Python code needs its number. Remove that, or "
            "pad to a few sizes."
        )
    if len(dims) > _MOST_DIMENSIONS:
        return (
            f"Sizes change: `torch.compile(..., dynamic=True)` makes them symbols from the first call on. {_BY_ITSELF}"
        )
    calls = ", ".join(f"`torch._dynamo.mark_dynamic({name}, {index})`" for name, index in dims)
    return (
        f"The size changes: call {calls} before the first call{_who(found)}, or use "
        f"`torch.compile(..., dynamic=True)`. {_BY_ITSELF}"
    )


def _who(found: Sequence[ParsedGuard]) -> str:
    """What the names stand for that no program has: those of a wrapper's ``*args, **kwargs``."""
    each = dict.fromkeys((source_text(item.subject), argument_description(item.subject)) for item in found)
    told = [f"`{name}` is {what}" for name, what in each if what]
    return f" ({', '.join(told)})" if told else ""


def shape(found: Sequence[ParsedGuard]) -> list[str]:
    """One advice for the guards on the same sizes: the first that failed is what torch went by."""
    small = [match for item in found if (match := _NOT_SMALL.fullmatch(item.index or ""))]
    groups: dict[tuple[str, ...], list[str]] = {}
    for item in found:
        if _NOT_SMALL.fullmatch(item.index or ""):
            continue
        expression = item.index or "a condition that was not recorded"
        expressions = groups.setdefault(sizes_in(expression) or (expression,), [])
        if expression not in expressions:
            expressions.append(expression)
    first = list(groups.items())[:_MOST_GROUPS]
    left = sum(len(expressions) for expressions in groups.values()) - sum(len(each) for _, each in first)
    advice = [_zero_or_one(match["tensor"] or match["the"], match["dim"] or match["d"]) for match in small[:1]]
    advice += [_shape_of(source_text(each[0]), len(each) - 1, sizes) for sizes, each in first]
    return [*advice, f"And {left} more guards on sizes failed."] if left else advice


def _shape_of(expression: str, others: int, sizes: Sequence[str]) -> str:
    made = f"The code is dynamic, but made for `{expression}`"
    if others:
        on = ", ".join(f"`{source_text(size)}`" for size in sizes)
        made += f" (and {others} more {'guard' if others == 1 else 'guards'} on {on})"
    if re.search(r"== \d+$", expression):
        return (
            f"{made}: something needs that size as a number (Python code, an operator). Avoid it, or pad to one size."
        )
    if "==" in expression:
        return (
            f"{made}: in the calls before, these sizes went together. Where they need not, make them differ in "
            "the first call, or mark both with `torch._dynamo.mark_dynamic`."
        )
    if expression.startswith("2 <= "):
        made += " (the 2 is torch's own: it always compiles sizes 0 and 1 apart)"
    return (
        f"{made}: a branch on it, in the program or in torch, takes another way beyond. Keep to one side, or "
        "expect one compile for each; `torch._dynamo.mark_dynamic(tensor, dimension, min=..., max=...)` states a range."
    )


def rank(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} came with another number of dimensions: that always needs code of its own. Reshape "
        "to one (`unsqueeze`, `view`) before the call."
    ]


def dtype(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} came in another dtype: code is made for each dtype. Convert before the call, or "
        "expect one "
        "compile for each and call each once to warm up. Under autocast, check that every call is inside it."
    ]


def stride(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} came with another memory layout: call `.contiguous()` on it before the compiled call."
    ]


def device(found: Sequence[ParsedGuard]) -> list[str]:
    return [f"{joined_sources(found)} came on another device: code is made for each device. Move it before the call."]


def requires_grad(found: Sequence[ParsedGuard]) -> list[str]:
    return [
        f"{joined_sources(found)} came with another `requires_grad`: with and without gradients is different code. "
        "Expect one "
        "compile for each, or `detach()` before the call where no gradient is wanted."
    ]


def dispatch_keys(found: Sequence[ParsedGuard]) -> list[str]:
    return process_state.dispatch_keys(found, joined_sources(found))


def alias(_found: Sequence[ParsedGuard]) -> list[str]:
    return [
        "Two arguments were the same tensor (or shared memory) in one call and not in the other: `clone()` one "
        "of them, or always pass them alike."
    ]
