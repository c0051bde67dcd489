"""What the caches were asked in one start of a program, or in two, and why the second one still compiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from dynadiag.caches.causes import find_causes
from dynadiag.caches.key_changes import JOB_VARIABLES, Cause, ChangedComponent, RunSide, changed_components
from dynadiag.caches.start_phases import StartPhases, start_phases
from dynadiag.diff.compile_matching import GraphReader, in_both, match_compiles
from dynadiag.explanation.cache_bypass import explain_bypass
from dynadiag.explanation.changes import changes, without_consequences
from dynadiag.explanation.guard_text import described
from dynadiag.explanation.source import event_data, first_event_data, recorded_variables
from dynadiag.explanation.source_search import call_span, option_span
from dynadiag.grouping import grouped, paired
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import CacheLookup, Compile, Run, Seconds, Span
from dynadiag.recording.torch_text.reasons import option_that_is_off

_CONFIGS = ("inductor_config", "functorch_config", "compiler_config")
# Options that switch caches of graphs off, and their environment variables.
_SWITCHES = {
    "force_disable_caches": "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "fx_graph_cache": "TORCHINDUCTOR_FX_GRAPH_CACHE",
    "enable_autograd_cache": "TORCHINDUCTOR_AUTOGRAD_CACHE",
}
_FOLDER = "TORCHINDUCTOR_CACHE_DIR"

GRAPH_CACHES = ("aot_autograd", "fx_graph")
_CPP = "cpp"
_BACKWARD = "backward"


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One lookup of one run. ``changed`` and ``causes`` compare its key to that of the same graph in the first run."""

    run: int
    lookup: CacheLookup
    function: str
    span: Span  # of what the reason is about, if that is known; else of the compile
    changed: tuple[ChangedComponent, ...] = ()
    causes: tuple[Cause, ...] = ()

    @property
    def compiles(self) -> bool:
        """Whether something was compiled because of this answer."""
        return self.lookup.outcome != "hit"


@dataclass(frozen=True, slots=True)
class StartedRun:
    """One start: its process, and where its seconds went. ``compile_seconds`` is the time of all compiles."""

    run: Run
    compile_seconds: float
    phases: StartPhases


@dataclass(frozen=True, slots=True)
class TriedCure:
    """A second start with options of torch set, after a first one with the same options.

    ``seconds`` is the time of all its compiles, ``compiled`` the number of graphs that no cache answered for.
    """

    options: Mapping[str, Any]
    seconds: float
    compiled: int

    def helps(self, before: int) -> bool:
        """Whether caches answered for more graphs than without, where so many were compiled."""
        return self.compiled < before

    def covers(self, cause: Cause) -> bool:
        """Whether these options are the cure of a cause."""
        return bool(cause.options) and all(
            _merged(self.options, cause.options)[each] == value for each, value in self.options.items()
        )


@dataclass(frozen=True, slots=True)
class CacheReport:
    """The lookups of one run or two. ``notes`` are sentences on what could not be compared or is not recorded.

    ``sources`` maps the program's files to their text, as the last run had them.
    """

    runs: tuple[StartedRun, ...]
    entries: tuple[CacheEntry, ...]
    notes: tuple[str, ...]
    sources: Mapping[str, str]
    same_program: bool = True  # False if no compile of one run is in the other
    tried: TriedCure | None = None

    @property
    def last(self) -> tuple[CacheEntry, ...]:
        return tuple(entry for entry in self.entries if entry.run == len(self.runs) - 1)

    @property
    def graphs(self) -> tuple[str, ...]:
        """The compiles of the last run that asked a cache of graphs."""
        return tuple(dict.fromkeys(each.lookup.compile_id for each in self.last if each.lookup.cache in GRAPH_CACHES))

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of torch that are said to make the last run's graphs cacheable, all together."""
        found: Mapping[str, Any] = {}
        for entry in self.last:
            for cause in entry.causes:
                found = _merged(found, cause.options)
        return found

    def with_tried(self, options: Mapping[str, Any], other: CacheReport) -> CacheReport:
        """This report with what a second start cost with these options; `other` is the report of that."""
        return replace(self, tried=TriedCure(options, other.runs[-1].compile_seconds, len(other.compiled)))

    @property
    def compiled(self) -> tuple[tuple[CacheEntry, ...], ...]:
        """The compiles of the last run that no cache answered for: their lookups, the costliest first."""
        own = (entry for entry in self.last if entry.lookup.cache in GRAPH_CACHES and entry.compiles)
        found = grouped((entry.lookup.compile_id, entry) for entry in own)
        return tuple(sorted(map(tuple, found.values()), key=lambda each: -cost_of(each)))

    @property
    def only_traced(self) -> bool:
        """Whether the code of all graphs that were compiled came from the FX graph cache.

        AOTAutograd traced these again.
        """
        fx_graph = [each for each in self.last if each.lookup.cache == "fx_graph"]
        taken = {each.lookup.compile_id for each in fx_graph if not each.compiles}
        taken -= {each.lookup.compile_id for each in fx_graph if each.compiles}
        return taken >= {entries[0].lookup.compile_id for entries in self.compiled}

    @property
    def rebuilt(self) -> tuple[CacheEntry, ...]:
        """The kernels that the last run built again although a cache answered for their graph."""
        hits = {each.lookup.compile_id for each in self.last if each.lookup.cache in GRAPH_CACHES and not each.compiles}
        compiled = {entries[0].lookup.compile_id for entries in self.compiled}
        return tuple(
            entry
            for entry in self.last
            if entry.lookup.cache == _CPP and entry.compiles and entry.lookup.compile_id in hits - compiled
        )


def _merged(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Options with others added; two dicts of one option are joined."""
    joined = {
        name: {**options[name], **more[name]} for name in options.keys() & more.keys() if type(more[name]) is dict
    }
    return {**options, **more, **joined}


def cost_of(entries: Sequence[CacheEntry]) -> float:
    """The seconds that the lookups of one compile cost: those of the outermost cache hold those of the others."""
    outer = [each.lookup.seconds for each in entries if each.lookup.cache == "aot_autograd" and each.compiles]
    inner = [
        each.lookup.seconds or 0.0 for each in entries if each.lookup.cache in ("fx_graph", _CPP) and each.compiles
    ]
    return max(sum(inner), *(seconds or 0.0 for seconds in outer), 0.0)


def read_caches(recordings: Sequence[Recording]) -> CacheReport:
    """Read what caches were asked in one recording, or compare the second of two with the first."""
    sides = [_Side(recording) for recording in recordings]
    runs = tuple(StartedRun(side.recording.run, side.compile_seconds, start_phases(side.recording)) for side in sides)
    entries = [_entry(0, lookup, sides[0]) for lookup in sides[0].lookups]
    if len(sides) == 2:
        entries += _compared(*sides)
    sources = {file: text for side in sides for file, text in side.sources.items()}
    alike = len(sides) == 1 or _share_a_graph(*sides)
    return CacheReport(runs, tuple(entries), tuple(_notes(sides)), sources, alike)


class _Side:
    """One recording, with what explains its keys."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.graphs = GraphReader(recording)
        self.compiles = {item.compile_id: item for item in recording.compiles()}
        self.lookups = recording.cache_lookups()
        self.sources = recording.sources()
        self.environment = _environment(recording)
        self.compile_seconds = sum(item.seconds.total or 0.0 for item in self.compiles.values())
        self._options: dict[str, Mapping[str, Mapping[str, object]]] | None = None

    def compile(self, compile_id: str) -> Compile:
        outside = Compile(-1, compile_id, None, None, "?", (), "ok", 0, Seconds(), 0, None, None, None)
        return self.compiles.get(compile_id, outside)

    def explained(self, compile_id: str, graph: str | None) -> RunSide:
        """This side of the comparison of two keys. A backward graph has inputs of its own, not those of Dynamo's."""
        nodes = [each for each in self.recording.graphs(compile_id) if each.stage == "dynamo" and graph != _BACKWARD]
        return RunSide(
            self.recording.run,
            self.compile(compile_id),
            self.sources,
            self.environment,
            self.options(compile_id),
            self.recording.nodes(nodes[-1].index) if nodes else (),
            self.recording.guards(compile_id),
        )

    def options(self, compile_id: str) -> Mapping[str, Mapping[str, object]]:
        """torch's configuration of a compile, from its metrics."""
        if self._options is None:
            compiled = event_data(self.recording, "compilation_metrics")
            self._options = {event.compile_id: _configs(metrics) for event, metrics in compiled}
        return self._options.get(compile_id, {})


def _entry(
    run: int,
    lookup: CacheLookup,
    side: _Side,
    changed: tuple[ChangedComponent, ...] = (),
    causes: tuple[Cause, ...] = (),
) -> CacheEntry:
    compile_ = side.compile(lookup.compile_id)
    if lookup.outcome == "bypass":
        told = explain_bypass(lookup.reason or "", side.sources)
        cure = None if told.cure is None else told.cure.text
        causes = (Cause(told.cause, told.span, cure, options=told.options),)
    if lookup.outcome == "disabled" and lookup.cache in GRAPH_CACHES and lookup.reason:
        causes = (_switch(lookup.reason, side),)
    span = next((cause.span for cause in causes if cause.span is not None), None)
    place = span or Span(compile_.file, compile_.line)
    return CacheEntry(run, lookup, original_name(compile_.function), place, changed, causes)


def _switch(reason: str, side: _Side) -> Cause:
    """Why a cache is off: torch's option, and the environment variable or the line that sets it."""
    option = option_that_is_off(reason)
    variable = _SWITCHES.get(option)
    if variable in side.environment:
        return Cause(f"{reason}, by {variable}={side.environment[variable]}", None, f"Do not set {variable}.")
    return Cause(reason, option_span(side.sources, (option,)), "Leave the cache on.")


def _compared(before: _Side, after: _Side) -> Iterator[CacheEntry]:
    """The lookups of the second run, each with the one of the same graph in the first."""
    partners = {
        second.compile_id: first.compile_id for first, second in in_both(match_compiles(before.graphs, after.graphs))
    }
    partners["-"] = "-"
    pairs = paired(
        (((each.compile_id, each.cache, each.graph), each) for each in before.lookups),
        (((partners.get(each.compile_id), each.cache, each.graph), each) for each in after.lookups),
    )
    others = {new.index: old for old, new in pairs}
    above: dict[str, tuple[Cause, ...]] = {}  # why AOTAutograd's lookup missed, which explains those below it
    entries: dict[int, CacheEntry] = {}
    for lookup in sorted(after.lookups, key=lambda each: each.cache != GRAPH_CACHES[0]):
        other, known = others.get(lookup.index), above.get(lookup.compile_id, ())
        entry = _compared_entry(lookup, other, before, after, known)
        entries[lookup.index] = entry
        if lookup.cache == GRAPH_CACHES[0] and entry.changed:
            above[lookup.compile_id] = entry.causes
    yield from (entries[lookup.index] for lookup in after.lookups)


def _compared_entry(
    lookup: CacheLookup, other: CacheLookup | None, before: _Side, after: _Side, above: tuple[Cause, ...]
) -> CacheEntry:
    if lookup.cache == _CPP and lookup.outcome == "miss" and _graph_was_cached(lookup, after):
        return _entry(1, lookup, after, (), (_library_missing(after),))
    if lookup.cache not in GRAPH_CACHES or lookup.outcome not in ("hit", "miss"):
        return _entry(1, lookup, after)
    if other is None:
        new = (above or (_new_graph(lookup.compile_id, after),)) if lookup.outcome == "miss" else ()
        return _entry(1, lookup, after, (), new)
    keys = (before.recording.key_components(other), after.recording.key_components(lookup))
    changed = changed_components(*keys)
    causes: tuple[Cause, ...] = ()
    if changed:
        sides = before.explained(other.compile_id, other.graph), after.explained(lookup.compile_id, lookup.graph)
        causes = find_causes(changed, *sides, above)
    elif lookup.outcome == "miss":
        causes = (_same_key(lookup, other, before, after),)
    return _entry(1, lookup, after, changed, causes)


def _graph_was_cached(lookup: CacheLookup, side: _Side) -> bool:
    outcomes = {
        each.outcome for each in side.lookups if (each.compile_id, each.cache) == (lookup.compile_id, "fx_graph")
    }
    return outcomes == {"hit"}


def _library_missing(side: _Side) -> Cause:
    """Why a C++ kernel is built again although its graph came from a cache."""
    span = call_span(side.sources, ("load_cache_artifacts",))
    if span is not None:
        text = "torch.compiler.load_cache_artifacts brings graphs, but no C++ libraries"
        return Cause(text, span, f"Keep the folder of {_FOLDER} too.")
    return Cause("the library of the C++ kernel is not in the folder of the caches", None, "Keep the whole folder.")


def _new_graph(compile_id: str, after: _Side) -> Cause:
    """That the first run lacks a graph, and what the second run compiled it for if it is a recompile."""
    text = "the first run did not compile this graph"
    again = next((each for each in after.recording.recompiles() if each.compile_id == compile_id), None)
    own = changes(without_consequences(again.reasons)) if again else ()
    if again is None or not own:
        return Cause(text)
    place = next((Span(each.file, each.line) for each in again.reasons if each.line is not None), None)
    return Cause(f"{text}: {original_name(again.function)} is compiled again, {described(own[0])}", place)


def _same_key(lookup: CacheLookup, other: CacheLookup, before: _Side, after: _Side) -> Cause:
    """Why a lookup misses although no component of its key is known to differ."""
    if lookup.key is None and other.key is None:
        return Cause("neither recording has the key of this graph", None, None)
    if lookup.key != other.key:
        return Cause("the key changed; this torch does not record what it is made of", None, None)
    if lookup.reason:
        return Cause(lookup.reason, None, "Compile with the sizes of this run before, or with dynamic=True.")
    if other.outcome == "bypass" or other.reason:
        return Cause(f"the first run did not store it: {other.reason}", None, None)
    if _lacks_backward(other, before):
        return Cause(
            "AOTAutograd stores a graph for training once its backward is compiled, and the first run did not run it",
            None,
            "Run the backward in the start that fills the cache.",
        )
    folders = [side.environment.get(_FOLDER) for side in (before, after)]
    if folders[0] != folders[1]:
        told = f"{_FOLDER} went from {folders[0] or 'not set'} to {folders[1] or 'not set'}"
        return Cause(
            f"the key is the same, the cache folder is another one: {told}", None, "Keep the folder of the caches."
        )
    return Cause(
        "the key is the same, but its entry was not there: the cache was emptied, or is of another machine", None
    )


def _lacks_backward(lookup: CacheLookup, side: _Side) -> bool:
    """Whether a run compiled the forward of a graph that has a backward, and never that."""
    if lookup.cache != GRAPH_CACHES[0] or not side.graphs.graphs(lookup.compile_id, _BACKWARD):
        return False
    compiled = [each.graph for each in side.lookups if each.compile_id == lookup.compile_id]
    return _BACKWARD not in compiled


def _configs(metrics: dict[str, Any]) -> dict[str, Mapping[str, object]]:
    found: dict[str, Mapping[str, object]] = {}
    for name in _CONFIGS:
        try:
            read = orjson.loads(str(metrics.get(name)))
        except ValueError:
            continue
        if isinstance(read, dict):
            found[name] = read
    return found


def _environment(recording: Recording) -> dict[str, str]:
    """The variables that change what torch compiles, and the process's place in its job."""
    found, job = recorded_variables(recording), first_event_data(recording, "dynadiag_run").get("job")
    known = job if found is not None and isinstance(job, dict) else {}
    return {
        **(found or {}),
        **{variable: str(known[name]) for name, variable in JOB_VARIABLES.items() if name in known},
    }


def _notes(sides: Sequence[_Side]) -> Iterator[str]:
    for number, side in enumerate(sides, 1):
        which = f"run {number}" if len(sides) > 1 else "this run"
        asked = [each for each in side.lookups if each.cache == "aot_autograd" and each.outcome in ("hit", "miss")]
        if not side.compiles:
            yield f"{which} compiled nothing"
        elif not side.lookups:
            yield f"{which} has no lookups: torch recorded none, or an older dynadiag made the recording"
        elif asked and not any(side.recording.key_components(each) for each in asked):
            yield f"{which} has no keys of the AOTAutograd cache: from torch 2.12 on a TORCH_TRACE log lacks them"
        if side.recording.run.exit_code:
            yield f"{which} ended with exit code {side.recording.run.exit_code}"


def _share_a_graph(before: _Side, after: _Side) -> bool:
    if not (before.compiles and after.compiles):
        return True
    return any(in_both(match_compiles(before.graphs, after.graphs)))
