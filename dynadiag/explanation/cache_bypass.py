"""Graphs that bypass torch's caches: why, by torch's reason, at which line, and what makes them cacheable.

Such a graph is compiled again at each start of the program.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.explanation.advice_table import advice
from dynadiag.explanation.findings import Advice, Cost, Finding
from dynadiag.explanation.identity import identity
from dynadiag.explanation.source_search import call_span, definition_span, option_span
from dynadiag.recording.records import CacheLookup, Compile, Span

__all__ = ["BypassReason", "bypass_findings", "explain_bypass", "without_address"]

_RULE = "cache-bypass"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_NAMES = {"aot_autograd": "the AOTAutograd cache", "fx_graph": "the FX graph cache", "precompile": "precompiled code"}
_PASS_OPTIONS = {
    "pre grad": ("pre_grad_custom_pass",),
    "post grad": ("post_grad_custom_post_pass", "post_grad_custom_pre_pass"),
    "joint": ("joint_custom_post_pass", "joint_custom_pre_pass"),
    "pre_fusion": ("_pre_fusion_custom_pass",),
    "post_fusion": ("_post_fusion_custom_pass",),
    "fuse_ddp": ("_fuse_ddp_communication_passes",),
}


@dataclass(frozen=True, slots=True)
class BypassReason:
    """Why a lookup was bypassed: a cause in words, the line that it is about if that is known, and the cure.

    ``options`` of torch are the cure where it can be tried without a change of the program: their names and values. A
    value that is a dict is added to what the option has.
    """

    cause: str
    span: Span | None
    cure: Advice | None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class _Family:
    """Reasons of one kind. ``{0}`` in the cause is the first group of the pattern. ``cure`` is a key of the table."""

    pattern: str
    cause: str
    cure: str | None
    options: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


# Texts of torch 2.11 to 2.15: codecache.py, autograd_cache.py, package.py.
_FAMILIES = (
    _Family(
        r"Cannot cache a graph with freezing|frozen constants",
        "parameters are frozen into the graph, so that it holds for this run alone",
        "cache.freezing",
        options=("freezing",),
    ),
    _Family(
        r"SAC context_fn does not have a cache_hash",
        "the context_fn of selective activation checkpointing has no cache_hash: torch cannot tell whether it changed",
        "cache.context_fn",
        calls=("checkpoint", "create_selective_checkpoint_contexts"),
    ),
    _Family(
        r"(activation_memory_budget_\w+) is a raw callable",
        "{0} is a plain function, so torch cannot tell whether it changed",
        "cache.budget",
        options=("activation_memory_budget_runtime_estimator", "activation_memory_budget_solver"),
    ),
    _Family(
        r"Won't cache a graph with fakify_first_call",
        "a frame before it is compiled with fake tensors only",
        None,
    ),
    _Family(r"FX graph cache is not enabled", "the FX graph cache below it is off", None, options=("fx_graph_cache",)),
    _Family(
        r"[Rr]untime constant folding",
        "constants are folded at run time, so that the graph holds for this run alone",
        "cache.constant_folding",
        options=("aot_inductor.use_runtime_constant_folding", "use_runtime_constant_folding"),
    ),
    _Family(r"mkldnn tensors", "the graph holds constants in MKLDNN's layout, which cannot be hashed", None),
    _Family(r"bisect", "torch's compiler bisector is on, and it switches the cache off", None),
    _Family(r"[Pp]ickle|unpicklable", "a part of the cache key cannot be pickled", None),
)
_FUNCTION = re.compile(
    r"Unsupported call_function target .*?Function module: (.*?), *\s*Function name: (\S+)", re.DOTALL
)
_OPERATOR = re.compile(
    r"Can't cache HigherOrderOperator: (\S+)"
    r"|call_function target .*?module: torch\.ops\.higher_order, *\s*Function name: (\S+)"
    r"|call_function target .*?module: torch\.autograd\.function, *\s*Function name: (\S+)",
    re.DOTALL,
)
_AUTOCAST = ("_enter_autocast", "_exit_autocast")
_AUTOGRAD_FUNCTION = ("autograd_function_apply", "FunctionCtx")
_VOUCHED, _TRIED = "torch._inductor.config.unsafe_marked_cacheable_functions", "tried by dynadiag"
_CUSTOM_PASS = re.compile(r"Unsupported _?(pre grad|post grad|joint|pre_fusion|post_fusion|fuse_ddp)")


def explain_bypass(reason: str, sources: Mapping[str, str]) -> BypassReason:
    """Explain torch's reason for a bypass with the program's source files."""
    if found := _OPERATOR.search(reason):
        return _uncacheable_operator(next(filter(None, found.groups())), sources)
    if found := _FUNCTION.search(reason):
        if found[1].partition(".")[0] == "torch":
            return _function_of_torch(found[2], found[1], sources)
        return _uncacheable_function(found[2], found[1], sources)
    if found := _CUSTOM_PASS.search(reason):
        options = _PASS_OPTIONS[found[1]]
        span = option_span(sources, options)
        return BypassReason(f"a {found[1]} custom pass is a plain function without uuid()", span, advice("cache.uuid"))
    for family in _FAMILIES:
        if found := re.search(family.pattern, reason):
            span = option_span(sources, family.options) or call_span(sources, family.calls)
            cure = None if family.cure is None else advice(family.cure)
            return BypassReason(family.cause.format(*found.groups()), span, cure)
    return BypassReason(" ".join(without_address(reason).split()), None, None)


def _uncacheable_operator(name: str, sources: Mapping[str, str]) -> BypassReason:
    """A higher-order operator, called by its own name but for that of a ``torch.autograd.Function``."""
    if name in _AUTOGRAD_FUNCTION:
        option = "autograd_cache_allow_custom_autograd_functions"
        return BypassReason(
            "the graph calls a torch.autograd.Function, which the AOTAutograd cache does not take by default",
            call_span(_mentioning(sources, "Function"), ("apply",)),
            advice("cache.autograd_function"),
            {f"torch._functorch.config.{option}": True},
        )
    whole = f"torch.ops.higher_order.{name}"
    return BypassReason(
        f"the graph calls the higher-order operator {name}, which torch does not cache",
        call_span(sources, (name,)),
        advice("cache.higher_order", whole=whole),
        {_VOUCHED: {whole: _TRIED}},
    )


def _function_of_torch(name: str, module: str, sources: Mapping[str, str]) -> BypassReason:
    whole = f"{module}.{name}"
    if name in _AUTOCAST:
        cause = "autocast is entered within the graph, which the AOTAutograd cache does not take"
        return BypassReason(cause, call_span(sources, ("autocast",)), advice("cache.autocast"))
    return BypassReason(
        f"the graph calls {whole}, which torch does not cache",
        call_span(sources, (name,)),
        advice("cache.higher_order", whole=whole),
        {_VOUCHED: {whole: _TRIED}},
    )


def _uncacheable_function(name: str, module: str, sources: Mapping[str, str]) -> BypassReason:
    registered = call_span(_mentioning(sources, name), ("allow_in_graph", "nonstrict_trace", "substitute_in_graph"))
    return BypassReason(
        f"{name} is called from the graph as a whole (allow_in_graph): torch cannot tell whether its code changed",
        registered or definition_span(sources, name),
        advice("cache.function", name=name, module=module),
        {_VOUCHED: {f"{module}.{name}": _TRIED}},
    )


def _mentioning(sources: Mapping[str, str], name: str) -> dict[str, str]:
    return {file: text for file, text in sources.items() if name in text}


def without_address(text: str) -> str:
    """The text without addresses of objects, which differ from run to run.

    >>> without_address("<function f at 0x7f51bf2804a0>")
    '<function f>'
    """
    return _ADDRESS.sub("", text)


def bypass_findings(
    lookups: Sequence[CacheLookup], compiles: Sequence[Compile], sources: Mapping[str, str]
) -> list[Finding]:
    """Return one finding for each reason that graphs bypass a cache, and the line that it is about."""
    known = {each.compile_id: each for each in compiles}
    groups: dict[tuple[str, Span], list[CacheLookup]] = defaultdict(list)
    for lookup in lookups:
        if lookup.outcome == "bypass" and lookup.compile_id in known:
            reason = without_address(lookup.reason or "no reason was recorded")
            groups[reason, _blamed_span(lookup, known[lookup.compile_id], sources)].append(lookup)
    return [_finding(reason, span, group, known, sources) for (reason, span), group in groups.items()]


def _blamed_span(lookup: CacheLookup, compile_: Compile, sources: Mapping[str, str]) -> Span:
    return explain_bypass(lookup.reason or "", sources).span or Span(compile_.file, compile_.line)


def _finding(
    reason: str, span: Span, group: Sequence[CacheLookup], known: Mapping[str, Compile], sources: Mapping[str, str]
) -> Finding:
    told = explain_bypass(reason, sources)
    ids = tuple(dict.fromkeys(lookup.compile_id for lookup in group))
    functions = dict.fromkeys(known[id_].function for id_ in ids)
    caches = " and ".join(dict.fromkeys(_NAMES.get(lookup.cache, lookup.cache) for lookup in group))
    seconds = sum(max((each.seconds or 0.0 for each in group if each.compile_id == id_), default=0.0) for id_ in ids)
    what = next(iter(functions)) if len(functions) == 1 else f"{len(ids)} graphs"
    function = next(iter(functions)) if len(functions) == 1 else "?"
    return Finding(
        rule=_RULE,
        id=None,
        identity=identity(_RULE, None, function, [span], sources, re.sub(r"\s+", " ", reason)[:80]),
        severity="warning",
        span=span,
        function=function,
        title=f"{what} bypasses {caches}, and is compiled again at each start"
        if len(functions) == 1
        else f"{what} bypass {caches}, and are compiled again at each start",
        cause=told.cause,
        places=(span,),
        compile_ids=ids,
        cost=Cost(compile_seconds=seconds or None, graphs=len(ids)),
        advice=() if told.cure is None else (told.cure,),
    )
