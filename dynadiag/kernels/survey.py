"""Read every generated module of a recording with its kernels: a pure function of the recording.

A `GeneratedModule` is the parsed text of a module with the graph that it was made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dynadiag.kernels.align import Line
from dynadiag.kernels.built import Builds
from dynadiag.kernels.cached import with_own_places
from dynadiag.kernels.callers import callers, with_callers
from dynadiag.kernels.cost import cost_of
from dynadiag.kernels.cppwrapper import is_wrapper, read_wrapper
from dynadiag.kernels.dataflow import infer
from dynadiag.kernels.holdings import lines_of
from dynadiag.kernels.known import Known, Recorded
from dynadiag.kernels.mapping import mapping, with_inlined
from dynadiag.kernels.module import Call, Definition, Module, parse_module
from dynadiag.kernels.operations import Operation, Scheduled, nodes_of_buffers, nodes_of_calls, read_operations, tie
from dynadiag.kernels.printed import PrintedGraph, PrintedNode, parse_graph
from dynadiag.kernels.replaced import with_places, with_places_in_bodies
from dynadiag.kernels.unit import KernelCall, Unit, places_of, places_of_nodes, sources_of
from dynadiag.recording.records import Event, Graph

__all__ = ["kernel_calls", "unit_of", "units"]

MAX_TEXT = 64 << 20  # bytes of one graph's text that are read; the largest seen so far is a tenth of it


def kernel_calls(recording: Recorded) -> tuple[KernelCall, ...]:
    """Return every call of every kernel, in the order of the generated code."""
    return tuple(call for unit in units(recording) for call in unit.calls)


def units(recording: Recorded) -> tuple[Unit, ...]:
    """Return every generated module of a recording."""
    reader = _Survey(recording, _hints(recording), recording.run.device, Builds(recording))
    return tuple(reader.units())


def unit_of(known: Known, event: Event) -> Unit:
    """Return the generated module of one event, from what is known when that event comes."""
    return _Survey(known, {}, None).unit(event)


class _Survey:
    """The state of reading one recording."""

    def __init__(
        self,
        recording: Known,
        hints: Mapping[str, Mapping[str, int]],
        device: str | None,
        builds: Builds | None = None,
    ) -> None:
        self._recording, self._builds = recording, builds
        self._hints, self._recorded_device = hints, device
        self._graphs = recording.graphs()
        self._origins = list(recording.events("dynadiag_origins"))
        self._modules = list(recording.events("inductor_output_code"))
        self._caches = [
            (event, word)
            for word in ("hit", "miss", "bypass")
            for event in recording.events("artifact", f"fx_graph_cache_{word}")
        ]
        self._ids = {kernel.event: kernel.compile_id for kernel in recording.kernels()}
        self._parsed: dict[int, PrintedGraph] = {}
        self._rows = 0

    def units(self) -> Iterator[Unit]:
        for event in self._modules:
            yield self.unit(event)

    def unit(self, event: Event) -> Unit:
        """Read one generated module."""
        module = _module(self._recording.payload(event.index))
        compile_id = self._ids.get(event.index, event.compile_id)
        lowered = self._lowered(event, compile_id, module.stage)
        earlier = self._nearest(event, compile_id, ("before_post_grad",), 0) if lowered else None
        first = self._nearest(event, compile_id, ("dynamo",), 0)
        scheduled = self._scheduled(event)
        dynamo = self._graph(first)
        placed = with_places(self._graph(lowered), self._graph(earlier), _told(scheduled, dynamo))
        graph = with_places_in_bodies(placed, dynamo)
        if self._cache(event) == "hit":
            forward = self._nearest(event, compile_id, ("forward",), 0) if module.stage == "backward" else None
            graph = with_own_places(graph, dynamo, self._graph(forward) if forward else None)
        called = callers(dynamo, self._recording.nodes(first.index)) if first else {}
        own = {name: (name,) for name in called}
        unit = Unit(
            event.index,
            compile_id,
            module,
            with_callers(graph, dynamo, called, scheduled.sources),
            lowered.event if lowered else None,
            with_callers(dynamo, dynamo, called, own),
            first.event if first else None,
            scheduled.sources,
        )
        return replace(unit, calls=tuple(self._calls(event, unit, scheduled)))

    def _lowered(self, event: Event, compile_id: str, stage: str | None) -> Graph | None:
        """The graph that the module was made from: after the passes, or before them when the code is from a cache."""
        since = max((one.index for one in self._modules if _same(one, event) and one.index < event.index), default=0)
        return self._nearest(event, compile_id, ("post_grad",), since) or self._nearest(
            event, compile_id, (stage or "inference", "inference", "forward"), 0
        )

    def _nearest(self, event: Event, compile_id: str, stages: tuple[str, ...], since: int) -> Graph | None:
        """The last graph before the event, of the first of `stages` that has one."""
        mine = [one for one in self._graphs if one.compile_id == compile_id and since <= one.event < event.index]
        for stage in stages:
            found = [one for one in mine if one.stage == stage]
            if found:
                return found[-1]
        return None

    def _graph(self, graph: Graph | None) -> PrintedGraph:
        if graph is None or self._recording.event(graph.event).payload_size > MAX_TEXT:
            return PrintedGraph({}, {})
        if graph.event not in self._parsed:
            self._parsed[graph.event] = parse_graph(self._recording.payload(graph.event))
        return self._parsed[graph.event]

    def _scheduled(self, event: Event) -> Scheduled:
        """The operations that the recorder wrote just before the module, if it did."""
        found = [one for one in self._origins if _same(one, event) and event.index - 2 <= one.index < event.index]
        return read_operations(self._recording.payload(found[-1].index)) if found else Scheduled()

    def _calls(self, event: Event, unit: Unit, scheduled: Scheduled) -> Iterator[KernelCall]:
        ties = tie(unit.module, scheduled.operations)
        exact = nodes_of_calls(unit.module, scheduled, unit.graph)
        known = nodes_of_buffers(scheduled, unit.graph)
        inferred: dict[int, tuple[str, ...]] = {}
        if len(exact) < len(unit.module.calls):
            inferred, buffers = infer(unit.module, unit.graph)
            known = {**buffers, **known}
        numbers: dict[str, int] = {}
        cache = self._cache(event)
        for place, call in enumerate(unit.module.calls):
            numbers[call.kernel] = numbers.get(call.kernel, 0) + 1
            nodes, how = mapping(unit.module, unit.graph, call, exact.get(place, ()), inferred.get(place, ()))
            nodes = nodes if how == "around" else with_inlined(unit.module, unit.graph, nodes)
            lines = lines_of(unit.module, call, unit.graph, nodes, known)
            yield self._call(unit, call, numbers[call.kernel], nodes, how, ties.get(place, []), cache, lines)

    def _call(
        self,
        unit: Unit,
        call: Call,
        number: int,
        names: tuple[str, ...],
        how: str,
        operations: list[Operation],
        cache: str | None,
        lines: tuple[Line, ...],
    ) -> KernelCall:
        found = [unit.graph.nodes[name] for name in names if name in unit.graph.nodes]
        nodes = [node for node in found if node.computes] or found
        views = [node for node in found if node not in nodes]
        definition = unit.module.definitions.get(call.kernel)
        subgraph = found[0].subgraph if found else call.subgraph
        self._rows += 1
        return KernelCall(
            index=self._rows - 1,
            compile_id=unit.compile_id,
            stage=unit.module.stage,
            event=unit.event,
            name=call.kernel,
            language=definition.language if definition else "extern",
            number=number,
            line=call.line,
            text=call.text,
            definition=definition,
            nodes=tuple(node.name for node in nodes),
            views=tuple(node.name for node in views),
            ops=tuple(dict.fromkeys(node.operator for node in nodes)),
            parts=_parts(unit, nodes),
            dynamo=tuple(dict.fromkeys(one for node in nodes for one in sources_of(unit, node))),
            places=places_of(unit, [node.name for node in nodes]),
            view_places=places_of_nodes(unit, views),
            how=how,
            grid=_grid(call, definition),
            cost=cost_of(
                unit.module,
                call,
                () if how == "around" else names,
                unit.graph,
                self._hints.get(unit.compile_id, {}),
                products=definition is None or _is_template(definition, operations),
            ),
            device=_device(unit.module, definition, self._recorded_device),
            cache=cache,
            partition=call.partition,
            fallback=next((one.reason for one in operations if one.reason), None),
            lines=lines,
            around=unit.graph.around(subgraph),
            built=self._builds.of(unit.event, call.kernel) if self._builds and definition else None,
        )

    def _cache(self, event: Event) -> str | None:
        """What the FX graph cache said about this module.

        Its event comes after the module's, before the next module's.
        """
        after = [one.index for one in self._modules if _same(one, event) and one.index > event.index]
        until = min(after, default=1 << 62)
        words = [(one.index, word) for one, word in self._caches if _same(one, event) and one.index < until]
        later = [pair for pair in words if pair[0] > event.index]
        return min(later)[1] if later else max(words)[1] if words else None


def _told(scheduled: Scheduled, dynamo: PrintedGraph) -> set[str]:
    """The nodes whose Dynamo nodes torch reported."""
    names = {node.printed for node in dynamo.nodes.values()}
    return {name for name, made in scheduled.sources.items() if not names.isdisjoint(made)}


def _parts(unit: Unit, nodes: list[PrintedNode]) -> tuple[tuple[str, str], ...]:
    """The operators of nodes, each with the text of its source line, or the line itself when the text is unknown."""
    places = [(node.operator, next(iter(places_of_nodes(unit, [node])), None)) for node in nodes]
    named = [(operator, unit.code.get(place, str(place)) if place else "") for operator, place in places]
    return tuple(dict.fromkeys(named))


def _module(text: str) -> Module:
    return read_wrapper(text) if is_wrapper(text) else parse_module(text)


def _same(one: Event, other: Event) -> bool:
    return one.compile_id == other.compile_id


def _hints(recording: Recorded) -> dict[str, dict[str, int]]:
    """The values that size symbols had when each compile was traced."""
    found: dict[str, dict[str, int]] = {}
    for symbol in recording.symbols():
        if symbol.value is not None and symbol.value.lstrip("-").isdecimal():
            found.setdefault(symbol.compile_id, {})[symbol.name] = int(symbol.value)
    return found


def _grid(call: Call, definition: Definition | None) -> str | None:
    """The sizes that a Triton launch grid is computed from: the numbers among the arguments."""
    if definition is None or definition.language != "triton":
        return None
    pairs = zip(definition.parameters, call.arguments, strict=False)
    sizes = [f"{name}={argument}" for name, argument in pairs if name.endswith("numel")]
    explicit = [one for one in call.arguments if one.startswith("grid=")]
    return ", ".join(sizes + explicit) or None


def _is_template(definition: Definition, operations: list[Operation]) -> bool:
    """Whether a generated kernel comes from a template (such as a matrix product), not from loops."""
    return "_tem_" in definition.name or any("Template" in one.kind for one in operations)


def _device(module: Module, definition: Definition | None, recorded: str | None) -> str | None:
    """The device of a call. A library call runs on the module's: a machine with a GPU also runs modules on its CPU."""
    language = definition.language if definition is not None else None
    if language == "cpp" or (language is None and not module.guards_device):
        return "cpu"
    return recorded
