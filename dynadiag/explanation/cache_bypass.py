"""Graphs that bypass torch's caches: why, by torch's reason, at which line, and what makes them cacheable.

Such a graph is compiled again at each start of the program: all of it, or, where only the AOTAutograd cache is bypassed
and the FX graph cache below it is not, what AOTAutograd makes of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dynadiag.explanation.findings import Advice, Cost, Fact, Finding
from dynadiag.explanation.identity import identity
from dynadiag.explanation.remedy import Remedy, advise, slots_if
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.source_search import call_span, definition_span, option_span
from dynadiag.recording.code_origin import is_torch_file
from dynadiag.recording.records import CacheLookup, Compile, Span
from dynadiag.recording.torch_text.reasons import BypassFacts, read_bypass, without_address

_NAMES = {"aot_autograd": "the AOTAutograd cache", "fx_graph": "the FX graph cache", "precompile": "precompiled code"}
_AUTOCAST = ("_enter_autocast", "_exit_autocast")
_AUTOGRAD_FUNCTION = ("autograd_function_apply", "FunctionCtx")
_OF_FUNCTIONS = "torch._functorch.config.autograd_cache_allow_custom_autograd_functions"
_VOUCHED, _TRIED = "torch._inductor.config.unsafe_marked_cacheable_functions", "tried by dynadiag"
# Options of torch that set a custom pass, by torch's name of the pass.
_PASS_OPTIONS = {
    "pre grad": ("pre_grad_custom_pass",),
    "post grad": ("post_grad_custom_post_pass", "post_grad_custom_pre_pass"),
    "joint": ("joint_custom_post_pass", "joint_custom_pre_pass"),
    "pre_fusion": ("_pre_fusion_custom_pass",),
    "post_fusion": ("_post_fusion_custom_pass",),
    "fuse_ddp": ("_fuse_ddp_communication_passes",),
}
# Of each kind of reason: the cause in words, and what the line that it is about sets or calls.
_CAUSES: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "freezing": ("parameters are frozen into the graph, so that it holds for this run alone", ("freezing",), ()),
    "context_fn": (
        "the context_fn of selective activation checkpointing has no cache_hash: torch cannot tell whether it changed",
        (),
        ("checkpoint", "create_selective_checkpoint_contexts"),
    ),
    "budget": (
        "{name} is a plain function, so torch cannot tell whether it changed",
        ("activation_memory_budget_runtime_estimator", "activation_memory_budget_solver"),
        (),
    ),
    "fake first call": ("a frame before it is compiled with fake tensors only", (), ()),
    "no FX cache": ("the FX graph cache below it is off", ("fx_graph_cache",), ()),
    "constant folding": (
        "constants are folded at run time, so that the graph holds for this run alone",
        ("aot_inductor.use_runtime_constant_folding", "use_runtime_constant_folding"),
        (),
    ),
    "mkldnn": ("the graph holds constants in MKLDNN's layout, which cannot be hashed", (), ()),
    "bisector": ("torch's compiler bisector is on, and it switches the cache off", (), ()),
    "pickle": ("a part of the cache key cannot be pickled", (), ()),
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


def _remedy(key: str, kind: str, says: str) -> Remedy[BypassFacts]:
    """What usually makes graphs cacheable that bypass a cache for this kind of reason. `dynadiag caches` can try it."""
    return Remedy(
        f"cache.{key}",
        says,
        lambda facts: slots_if(_kind(facts) == kind, whole=facts.whole, name=facts.name),
        usual=True,
    )


CACHES = (
    _remedy(
        "uuid",
        "custom pass",
        "Make the pass a subclass of torch._inductor.custom_graph_pass.CustomGraphPass whose uuid() returns "
        "get_hash_for_files((__file__,)): the key then changes only if its file does.",
    ),
    _remedy(
        "freezing",
        "freezing",
        "Leave torch._inductor.config.freezing off, or load a package that AOTInductor has compiled before.",
    ),
    _remedy(
        "context_fn",
        "context_fn",
        "Give the context_fn an attribute cache_hash, a text that changes with what it decides.",
    ),
    _remedy(
        "budget",
        "budget",
        "Subclass torch._functorch.partitioners' CustomRuntimeEstimator or CustomKnapsackSolver and return a uuid().",
    ),
    _remedy(
        "autograd_function",
        "autograd function",
        f"Set {_OF_FUNCTIONS} = True: forward and backward are part of the key.",
    ),
    _remedy(
        "higher_order",
        "operator",
        "Compile what is around it by itself: the other graphs are cached then. Or vouch for it: "
        f'{_VOUCHED}["{{whole}}"] = a text that changes with the functions that it is given.',
    ),
    _remedy(
        "autocast",
        "autocast",
        "Enter autocast around the call of the compiled function, not within it: the key has the state of autocast.",
    ),
    _remedy(
        "constant_folding",
        "constant folding",
        "Leave torch._inductor.config.aot_inductor.use_runtime_constant_folding off.",
    ),
    _remedy(
        "function",
        "function",
        "Make {name} a custom operator (torch.library.custom_op), or vouch for it: "
        f'{_VOUCHED}["{{whole}}"] = a text that changes with it.',
    ),
)


def _kind(facts: BypassFacts) -> str | None:
    """The kind of a reason, with what is called told apart: an autograd Function, autocast, an operator of torch's."""
    if facts.kind == "operator" and facts.name in _AUTOGRAD_FUNCTION:
        return "autograd function"
    if facts.kind == "function" and facts.module.partition(".")[0] == "torch":
        return "autocast" if facts.name in _AUTOCAST else "operator"
    return facts.kind


def explain_bypass(reason: str, sources: Mapping[str, str]) -> BypassReason:
    """Explain torch's reason for a bypass with the program's source files."""
    facts = read_bypass(reason)
    cause, span, options = _explained(facts, sources)
    return BypassReason(cause, span, next(iter(advise(CACHES, facts)), None), options)


def _explained(facts: BypassFacts, sources: Mapping[str, str]) -> tuple[str, Span | None, Mapping[str, Any]]:
    """The cause, its line, and the options that are the cure."""
    name, vouched = facts.name, {_VOUCHED: {facts.whole: _TRIED}}
    sources = {file: text for file, text in sources.items() if not is_torch_file(file)}  # which call it for the program
    match _kind(facts):
        case "autograd function":
            cause = "the graph calls a torch.autograd.Function, which the AOTAutograd cache does not take by default"
            return cause, call_span(_mentioning(sources, "Function"), ("apply",)), {_OF_FUNCTIONS: True}
        case "operator":
            named = f"the higher-order operator {name}" if facts.kind == "operator" else facts.whole
            return f"the graph calls {named}, which torch does not cache", call_span(sources, (name,)), vouched
        case "autocast":
            cause = "autocast is entered within the graph, which the AOTAutograd cache does not take"
            return cause, call_span(sources, ("autocast",)), {}
        case "function":
            cause = (
                f"{name} is called from the graph as a whole (allow_in_graph): torch cannot tell whether its code "
                "changed"
            )
            whole = ("allow_in_graph", "nonstrict_trace", "substitute_in_graph")
            registered = call_span(_mentioning(sources, name), whole)
            return cause, registered or definition_span(sources, name), vouched
        case "custom pass":
            span = option_span(sources, _PASS_OPTIONS[name])
            return f"a {name} custom pass is a plain function without uuid()", span, {}
        case str(kind) if kind in _CAUSES:
            cause, options, calls = _CAUSES[kind]
            return cause.format(name=name), option_span(sources, options) or call_span(sources, calls), {}
    return facts.text, None, {}


def _mentioning(sources: Mapping[str, str], name: str) -> dict[str, str]:
    return {file: text for file, text in sources.items() if name in text}


def bypass_findings(
    lookups: Sequence[CacheLookup],
    compiles: Sequence[Compile],
    sources: Mapping[str, str],
    code_cached: Collection[str] = (),
) -> list[Finding]:
    """Return one finding for each reason that graphs bypass a cache, and the line that it is about.

    ``code_cached`` are the compiles whose code the FX graph cache keeps.
    """
    known = {each.compile_id: each for each in compiles}
    groups: dict[tuple[str, Span], list[CacheLookup]] = defaultdict(list)
    for lookup in lookups:
        if lookup.outcome == "bypass" and lookup.compile_id in known:
            reason = without_address(lookup.reason or "no reason was recorded")
            groups[reason, _blamed_span(lookup, known[lookup.compile_id], sources)].append(lookup)
    return [_finding(reason, span, group, known, sources, code_cached) for (reason, span), group in groups.items()]


def _blamed_span(lookup: CacheLookup, compile_: Compile, sources: Mapping[str, str]) -> Span:
    return explain_bypass(lookup.reason or "", sources).span or Span(compile_.file, compile_.line)


def _finding(
    reason: str,
    span: Span,
    group: Sequence[CacheLookup],
    known: Mapping[str, Compile],
    sources: Mapping[str, str],
    code_cached: Collection[str],
) -> Finding:
    told = explain_bypass(reason, sources)
    ids = tuple(dict.fromkeys(lookup.compile_id for lookup in group))
    functions = dict.fromkeys(known[id_].function for id_ in ids)
    caches = " and ".join(dict.fromkeys(_NAMES.get(lookup.cache, lookup.cache) for lookup in group))
    seconds = sum(max((each.seconds or 0.0 for each in group if each.compile_id == id_), default=0.0) for id_ in ids)
    what = next(iter(functions)) if len(functions) == 1 else f"{len(ids)} graphs"
    is_one, cached = len(functions) == 1, {each.cache for each in group}
    is_kept = cached == {"aot_autograd"} and {*ids} <= {*code_cached}
    traced = "traced again by AOTAutograd at each start (the code of its kernels is cached)"
    again = traced if is_kept else "compiled again at each start"
    function = next(iter(functions)) if len(functions) == 1 else "?"
    return Finding(
        rule=Rule.CACHE_BYPASS,
        id=None,
        identity=identity(Rule.CACHE_BYPASS, None, function, [span], sources, " ".join(reason.split())[:80]),
        severity="warning",
        span=span,
        function=function,
        title=f"{what} {'bypasses' if is_one else 'bypass'} {caches}, and {'is' if is_one else 'are'} {again}",
        cause=told.cause,
        places=(span,),
        compile_ids=ids,
        cost=Cost(compile_seconds=None if is_kept else seconds or None, graphs=len(ids)),
        advice=() if told.cure is None else (told.cure,),
        evidence=(Fact("why", told.cause),),
    )
