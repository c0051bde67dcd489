"""Advice where a tensor changed: its sizes, dtype, layout, kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from dynadiag.explanation import process_state
from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.guard_text import argument_description, joined_sources, sizes_in, source_text
from dynadiag.explanation.guards import ParsedGuard

__all__ = [
    "alias",
    "computed_size",
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
_SIZE = re.compile(r"\.size\(\)\[\d+\]$")
_STATED_RANGE = "; `torch._dynamo.mark_dynamic(tensor, dimension, min=..., max=...)` states a range"
_SPECIAL_SIZES = ("0", "1")  # torch always compiles for these apart
# What every dynamic size must be, as torch writes it: what fails it is 0 or 1.
_NOT_SMALL = re.compile(
    r"2 <= (?P<tensor>[^\s()]+)\.size\(\)\[(?P<dim>\d+)\]|(?P<the>[^\s()]+)\.size\(\)\[(?P<d>\d+)\] >= 2"
)


def size(found: Sequence[ParsedGuard]) -> list[Advice]:
    if any("_parameters[" in (item.subject or "") for item in found):
        return [advice("size.parameter")]
    special = [item for item in found if is_special(item)]
    changed = [item for item in found if item not in special]
    given = [_changed_size(changed)] if changed else []
    if special:
        given.append(_zero_or_one(special[0].subject, special[0].index))
    return given


def computed_size(found: Sequence[ParsedGuard]) -> list[Advice]:
    tensors = [
        replace(item, subject=_SIZE.sub("", size))
        for item in found
        for size in (sizes_in(item.index or "") if item.kind == "shape" else ()) or (item.subject or "",)
    ]
    return [advice("size.computed", names=joined_sources(tensors))]


def _zero_or_one(tensor: str | None, dimension: str | None) -> Advice:
    return advice("size.zero_or_one", tensor=source_text(tensor), dimension=dimension)


def is_special(item: ParsedGuard) -> bool:
    return item.now in _SPECIAL_SIZES or item.was in _SPECIAL_SIZES


def _changed_size(found: Sequence[ParsedGuard]) -> Advice:
    dims = list(dict.fromkeys((source_text(item.subject), item.index) for item in found))
    if len({(item.subject, item.index, item.was) for item in found}) > len(dims):
        return advice("size.static")
    if len(dims) > _MOST_DIMENSIONS:
        return advice("size.many")
    calls = ", ".join(f"`torch._dynamo.mark_dynamic({name}, {index})`" for name, index in dims)
    return advice("size.changed", calls=calls, who=_who(found))


def _who(found: Sequence[ParsedGuard]) -> str:
    """What the names stand for that no program has: those of a wrapper's ``*args, **kwargs``."""
    each = dict.fromkeys((source_text(item.subject), argument_description(item.subject)) for item in found)
    told = [f"`{name}` is {what}" for name, what in each if what]
    return f" ({', '.join(told)})" if told else ""


def shape(found: Sequence[ParsedGuard]) -> list[Advice]:
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
    given = [_zero_or_one(match["tensor"] or match["the"], match["dim"] or match["d"]) for match in small[:1]]
    given += [_shape_of(source_text(each[0]), len(each) - 1, sizes) for sizes, each in first]
    return [*given, advice("shape.more", number=left)] if left else given


def _shape_of(expression: str, others: int, sizes: Sequence[str]) -> Advice:
    made = f"The code is dynamic, but made for `{expression}`"
    if others:
        on = ", ".join(f"`{source_text(size)}`" for size in sizes)
        made += f" (and {others} more {'guard' if others == 1 else 'guards'} on {on})"
    if re.search(r"== \d+$", expression):
        return advice("shape.number", made=made)
    if "==" in expression:
        return advice("shape.together", made=made)
    if expression.startswith("2 <= "):
        made += " (the 2 is torch's own: it always compiles sizes 0 and 1 apart)"
    return advice("shape.branch", made=made, range=_STATED_RANGE if sizes_in(expression) else "")


def rank(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("tensor.rank", names=joined_sources(found))]


def dtype(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("tensor.dtype", names=joined_sources(found))]


def stride(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("tensor.stride", names=joined_sources(found))]


def device(found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("tensor.device", names=joined_sources(found))]


def requires_grad(found: Sequence[ParsedGuard]) -> list[Advice]:
    parameters = [item for item in found if "_parameters[" in (item.subject or "")]
    others = [item for item in found if item not in parameters]
    kinds = (("tensor.requires_grad", others), ("tensor.frozen", parameters))
    return [advice(key, names=joined_sources(items)) for key, items in kinds if items]


def dispatch_keys(found: Sequence[ParsedGuard]) -> list[Advice]:
    return process_state.dispatch_keys(found, joined_sources(found))


def alias(_found: Sequence[ParsedGuard]) -> list[Advice]:
    return [advice("tensor.alias")]
