"""Cache lookups: one record each, which is complete when torch logs the metrics of its compile.

torch writes lookups of the AOTAutograd and FX graph caches, of precompiled code and of profiles. Those of C++ libraries
are in events of ours only. A module that was generated without a lookup shows that the FX graph cache was off.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from dynadiag.recording.digest.context import METRICS_KINDS, DigestContext, Payload
from dynadiag.recording.json_values import float_or_none, json_object, text_or_none
from dynadiag.recording.records import CacheLookup, Event

_LOOKUP = re.compile(r"(fx_graph_cache|fx_graph_bundled_cache|aotautograd_cache)_(hit|miss|bypass)")
_CACHES = {"fx_graph_cache": "fx_graph", "fx_graph_bundled_cache": "fx_graph", "aotautograd_cache": "aot_autograd"}
_GRAPHS = {"aot_inference_graph": "inference", "aot_forward_graph": "forward", "aot_backward_graph": "backward"}
_BYPASSED = {"precompile_cache_bypass": "precompile", "dynamo_cache_bypass": "precompile"}
# The options that switch a cache off: the part of the metrics that has it, the option, its value then, its full name.
_NO_CACHES = ("compiler_config", "force_disable_caches", True, "torch.compiler.config.force_disable_caches")
_SWITCHES = {
    "fx_graph": (_NO_CACHES, ("inductor_config", "fx_graph_cache", False, "torch._inductor.config.fx_graph_cache")),
    "aot_autograd": (
        _NO_CACHES,
        ("functorch_config", "enable_autograd_cache", False, "torch._functorch.config.enable_autograd_cache"),
    ),
}
_MAX_REASON = 4000  # characters of a reason; a traceback may be in it


@dataclass(slots=True)
class _OpenCompile:
    """The lookups of one compile that wait for its metrics."""

    lookups: list[CacheLookup] = field(default_factory=list)
    key_event: int | None = None  # of the event of ours with the components of the next lookup
    modules: int = 0  # generated modules without a lookup


class CacheCollector:
    """Collects the lookups of each compile until its metrics are logged."""

    def __init__(self, context: DigestContext) -> None:
        self._context = context
        self._open: dict[str, _OpenCompile] = {}
        self._graphs: dict[str, list[str]] = {}  # compile id -> graphs below AOTAutograd, in the order of lookups
        self._lookup_counts: Counter[str] = Counter()  # compile id -> lookups of the FX graph cache so far
        self._profile: CacheLookup | None = None

    def event(self, name: str, event: Event, metadata: dict[str, Any], payload: Payload) -> Iterator[CacheLookup]:
        """Yield the lookups that this event completes."""
        if name in _GRAPHS:
            self._graphs.setdefault(event.compile_id, []).append(_GRAPHS[name])
        elif name == "inductor_output_code":
            self._compile(event).modules += 1
        elif name == "dynadiag_cache_key":
            self._compile(event).key_event = event.index
        elif match := _LOOKUP.fullmatch(name):
            self._graph_lookup(_CACHES[match[1]], match[2], event, json_object(payload()))
        elif name == "aotautograd_cache_pickle_failure":
            self._mark_not_stored(event, json_object(payload()))
        elif name in _BYPASSED:
            self._add(event, None, _BYPASSED[name], "bypass", json_object(payload()))
        elif name == "triton_kernel_info":
            self._autotune_lookups(event, json_object(payload()))
        elif name.endswith("_code_state"):
            self._profile_event(name, event)
        elif name == "dynadiag_cache" and isinstance(data := metadata.get(name), dict):
            self._recorder_event(event, data)
        elif name in METRICS_KINDS:
            data = metadata.get(name)
            measured = data if isinstance(data, dict) else {}
            yield from self._complete(event.compile_id, measured, forward=name == "compilation_metrics")

    def finish(self) -> Iterator[CacheLookup]:
        """Yield the lookups of the compiles that the log does not end, and that of the profile."""
        for compile_id in list(self._open):
            yield from self._complete(compile_id, {}, forward=False)
        if self._profile is not None:
            yield self._numbered(self._profile)

    def _compile(self, event: Event) -> _OpenCompile:
        return self._open.setdefault(event.compile_id, _OpenCompile())

    def _graph_lookup(self, cache: str, outcome: str, event: Event, data: dict[str, Any]) -> None:
        compiling = self._compile(event)
        graph = "dynamo" if cache == "aot_autograd" else self._graph_of(event)
        keyed = compiling.key_event if cache == "aot_autograd" else None
        self._add(event, graph, cache, outcome, data, event.index if keyed is None else keyed)
        if cache == "aot_autograd":
            compiling.key_event = None
        elif compiling.modules:
            compiling.modules -= 1

    def _graph_of(self, event: Event) -> str | None:
        """The graph of the next lookup below AOTAutograd: graphs are looked up in the order of their events."""
        position, graphs = self._lookup_counts[event.compile_id], self._graphs.get(event.compile_id, ())
        self._lookup_counts[event.compile_id] += 1
        return graphs[position] if position < len(graphs) else None

    def _add(
        self,
        event: Event,
        graph: str | None,
        cache: str,
        outcome: str,
        data: dict[str, Any],
        components: int | None = None,
    ) -> None:
        reason = text_or_none(data.get("cache_bypass_reason")) or text_or_none(data.get("reason"))
        reason = reason or _guard_miss(outcome, data)
        key, reason = text_or_none(data.get("key")), None if reason is None else reason[:_MAX_REASON]
        seconds, components = _seconds(outcome, data), components if outcome in ("hit", "miss") else None
        lookup = CacheLookup(0, event.compile_id, graph, cache, outcome, key, reason, seconds, components)
        self._compile(event).lookups.append(lookup)

    def _mark_not_stored(self, event: Event, data: dict[str, Any]) -> None:
        """Add to the lookup that what was compiled cannot be stored: the next run misses it again."""
        lookups = self._compile(event).lookups
        for position, lookup in reversed(list(enumerate(lookups))):
            if lookup.cache == "aot_autograd":
                reason = f"the result cannot be stored: {data.get('error')} (field {data.get('field')})"
                lookups[position] = replace(lookup, reason=reason[:_MAX_REASON])
                return

    def _autotune_lookups(self, event: Event, data: dict[str, Any]) -> None:
        for kernel, info in data.items():
            state = info.get("autotune_cache_state") if isinstance(info, dict) else None
            outcome = {"hit": "hit", "miss": "miss", "force_disabled": "disabled"}.get(str(state))
            if outcome is not None:
                self._add(event, kernel, "autotune", outcome, info)

    def _profile_event(self, name: str, event: Event) -> None:
        """A profile that is read is a hit. A profile that is only written is a miss."""
        if name.startswith("get_"):
            self._profile = _lookup_of_profile(event, "hit", None, None)
        elif self._profile is None and name.startswith("put_"):
            self._profile = _lookup_of_profile(event, "miss", None, None)

    def _recorder_event(self, event: Event, data: dict[str, Any]) -> None:
        outcome, key = str(data.get("outcome")), text_or_none(data.get("key"))
        if data.get("cache") == "pgo":
            reason = "no job id: torch.compiler.config.job_id" if outcome == "disabled" else None
            self._profile = _lookup_of_profile(event, outcome, key, reason)
        elif isinstance(cache := data.get("cache"), str):
            graph, seconds = text_or_none(data.get("name")), float_or_none(data.get("seconds"))
            lookup = CacheLookup(0, event.compile_id, graph, cache, outcome, key, None, seconds, None)
            self._compile(event).lookups.append(lookup)

    def _complete(self, compile_id: str, metrics: dict[str, Any], *, forward: bool) -> Iterator[CacheLookup]:
        compiling = self._open.pop(compile_id, None)
        if compiling is None:
            return
        self._add_disabled(compile_id, compiling, metrics, forward=forward)
        backend = float_or_none(metrics.get("backend_compile_time_s"))
        inductor = float_or_none(metrics.get("inductor_compile_time_s"))
        bypassed = [lookup for lookup in compiling.lookups if lookup.cache == "fx_graph" and lookup.seconds is None]
        for lookup in compiling.lookups:
            spent = backend if lookup.cache == "aot_autograd" else inductor if [lookup] == bypassed else None
            if lookup.seconds is None and lookup.outcome != "hit" and lookup.cache in _SWITCHES:
                lookup = replace(lookup, seconds=spent)
            yield self._numbered(lookup)

    def _add_disabled(
        self, compile_id: str, compiling: _OpenCompile, metrics: dict[str, Any], *, forward: bool
    ) -> None:
        """Add a disabled lookup for each generated module, and AOTAutograd graph, that was looked up in no cache."""
        generated = compiling.modules > 0 or any(lookup.cache == "fx_graph" for lookup in compiling.lookups)
        no_aot = forward and generated and not any(lookup.cache == "aot_autograd" for lookup in compiling.lookups)
        for cache in ["aot_autograd"] * no_aot + ["fx_graph"] * compiling.modules:
            reason = _option_that_disables(cache, metrics)
            compiling.lookups.append(CacheLookup(0, compile_id, None, cache, "disabled", None, reason, None, None))

    def _numbered(self, lookup: CacheLookup) -> CacheLookup:
        return replace(lookup, index=self._context.next_index("cache_lookup"))


def _lookup_of_profile(event: Event, outcome: str, key: str | None, reason: str | None) -> CacheLookup:
    return CacheLookup(0, event.compile_id, None, "pgo", outcome, key, reason, None, None)


def _guard_miss(outcome: str, data: dict[str, Any]) -> str | None:
    """What torch adds to a miss: an entry was found, but it is for other sizes."""
    if outcome == "miss" and data.get("cache_status_detailed") == "guard_miss":
        return "an entry with this key is there, but its guards on sizes fail"
    return None


def _seconds(outcome: str, data: dict[str, Any]) -> float | None:
    if outcome == "hit" and (saved := float_or_none(data.get("time_saved_ns"))) is not None:
        return saved / 1e9
    if outcome == "hit" and (saved := float_or_none(data.get("time_saved_ms"))) is not None:
        return saved / 1e3
    taken = float_or_none(data.get("time_taken_ns"))
    return None if taken is None else taken / 1e9


def _option_that_disables(cache: str, metrics: dict[str, Any]) -> str | None:
    """The option that switches a cache off, from the configuration in the metrics."""
    for part, option, value, name in _SWITCHES[cache]:
        if json_object(str(metrics.get(part) or "")).get(option) is value:
            return f"{name} is {value}"
    return None
