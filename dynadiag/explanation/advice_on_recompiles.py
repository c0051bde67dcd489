"""What helps against a recompile: the remedies of tensors, states and values, and how those of a case are chosen.

torch compiles code for what it saw, and again when a guard on that fails. Whether that is a waste depends on what
changed: a size can be a symbol, a dtype cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dynadiag.explanation.findings import Advice
from dynadiag.explanation.hook_remedies import HOOKS
from dynadiag.explanation.item_remedies import ITEMS
from dynadiag.explanation.recompile_case import RecompileCase, is_special_size, of_sort, place_text
from dynadiag.explanation.remedy import MOST, Remedy, advise, slots_if, tried
from dynadiag.explanation.state_remedies import STATES
from dynadiag.explanation.tensor_remedies import TENSORS, markable_sizes
from dynadiag.explanation.value_remedies import VALUES


def _set_at(case: RecompileCase) -> str:
    return place_text(case.set_inside) if case.set_inside else ""


# In this order: of several that fit, the first that ends the recompile leads.
_FITTING: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "recompile.shared_wrapper",
        "Another callable than before: torch compiles what has no Python function of its own (a builtin, a partial, a "
        "callable object, a module of `torch.nn`, a function that `torch.no_grad` decorates) by way of one function, "
        "and all of these share its variants and their limit. Where they are many, write a function around each: "
        "`torch.compile(lambda x: fn(x))`.",
        lambda case: slots_if(case.is_other_callable),
        trials=tried("partials"),
    ),
    Remedy(
        "break.compiled_apart",
        "`{function}` is compiled by itself only because the break at `{place}` leaves its caller `{caller}` to "
        "Python. End that break first: it is then a part of the caller's graph, and what changes from one of its calls "
        "to the next, but not for `{caller}`, is no reason to compile again.",
        lambda case: dict(zip(("function", "caller", "place"), case.apart, strict=True)) if case.apart else None,
        trials=tried("a_loop_with_a_break"),
    ),
    Remedy(
        "recompile.layout_inside",
        "The compiled code itself sets {names} (`{place}`), in another memory layout than it was in before, so the "
        "call after it is compiled anew. Write `.contiguous()` there, and set it to a tensor of that layout before the "
        "first call.",
        lambda case: slots_if(case.set_inside and case.sort == "stride", names=case.names, place=_set_at(case)),
        trials=tried("a_view_that_is_kept"),
    ),
    Remedy(
        "recompile.set_inside",
        "The compiled code itself sets {names} (`{place}`), so the call after it is compiled anew. Set it before the "
        "first call, outside of the compiled code (of a cache, for the longest input). Where the first call has to "
        "find it unset, expect this compile.",
        lambda case: slots_if(case.set_inside and case.sort != "stride", names=case.names, place=_set_at(case)),
        trials=tried("a_cache_that_grows", "a_pair_that_grows"),
    ),
    *TENSORS,
    *STATES,
    *VALUES,
    *HOOKS,
    *ITEMS,
)

# What is said where nothing else fits.
_GENERAL: tuple[Remedy[RecompileCase], ...] = (
    Remedy(
        "state.other",
        "A global setting of torch changed between the calls. The code is made for each: set it once, before the first "
        "call.",
        of_sort("state"),
        ends=False,
    ),
    Remedy(
        "recompile.other",
        "{names} changed: keep it the same for every call, or pass what depends on it as a tensor.",
        lambda case: slots_if(case.sort in ("other", "value") and case.fact.subject, names=case.names),
        ends=False,
    ),
    Remedy(
        "recompile.unknown",
        "What this guard reads changed between the calls; nothing more is known of it.",
        lambda case: slots_if(case.sort == "other" and not case.fact.subject),
        ends=False,
    ),
)
_LIMIT: Remedy[RecompileCase] = Remedy(
    "recompile.limit",
    "End the recompiles first; raise the limit (`torch._dynamo.config.recompile_limit`) only if all variants are "
    "wanted.",
    lambda case: slots_if(case.recompile.limit_reached),
    ends=False,
)
REMEDIES = (*_FITTING, *_GENERAL, _LIMIT)


def advise_on(cases: Sequence[RecompileCase], torch: str | None = None) -> tuple[Advice, ...]:
    """What to do about a recompile: for its only cause what fits, for several causes one remedy each, the first few.

    ``torch`` is the version that the recompile was recorded on.
    """
    cases = _alike_together(cases)
    most = MOST if len(cases) == 1 else 1
    each = [
        _known(advise(_FITTING, case, torch=torch, most=most)) or advise(_GENERAL, case, torch=torch, most=1)
        for case in cases
    ]
    limit = [advice for case in cases[:1] if (advice := _LIMIT.advice(case, torch=torch)) is not None]
    return tuple(dict.fromkeys([*(advice for given in each for advice in given), *limit]))[:MOST]


# What the compiled code itself does, or a hook, is the cause: what else helps against such a change is not said.
_KNOWN = (
    "recompile.set_inside",
    "items.added",
    "items.appended",
    "hooks.of_instances",
    "hooks.between_calls",
    "value.placements",
)


def _known(given: tuple[Advice, ...]) -> tuple[Advice, ...]:
    return tuple(each for each in given if each.key in _KNOWN) or given


def _alike_together(cases: Sequence[RecompileCase]) -> list[RecompileCase]:
    """The causes; those that one remedy is for, whose text names several things, are told together: sizes are marked
    at once, and numbers need no paragraph each."""
    together: dict[object, RecompileCase] = {}
    for number, case in enumerate(cases):
        key: object = number
        if case.added is not None and case.added[0] is not None:
            key = case.added[1]
        elif markable_sizes(case) and not case.is_computed:
            key = "size"
        elif case.sort == "size" and is_special_size(case.fact) and not case.fact.is_of_parameter:
            key = "special size"
        elif case.sort == "length" and case.fact.index is None and case.added is None:
            key = ("length", case.fact.was, case.fact.now, case.fact.now_type, case.goes_on)
        elif case.sort == "none":
            key = ("none", case.fact.base)
        elif case.sort == "value":
            first = next((each.key for each in _FITTING if each.needs(case) is not None), None)
            key = (first, case.fact.base in ("closure", "global")) if first in _NAMING_ALL else number
        other = together.get(key)
        together[key] = case if other is None else replace(other, changes=(*other.changes, *case.changes))
    return list(together.values())


# Remedies that name all values that changed.
_NAMING_ALL = ("value.attribute", "value.float", "value.float_again", "value.integer", "value.integer_again")
