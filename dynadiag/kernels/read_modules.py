"""Read every generated module of a recording with its kernels: a pure function of the recording.

A `GeneratedModule` is the parsed text of a module with the graph that it was made from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from dynadiag.kernels.align import AlignedStatement, align_call, producer
from dynadiag.kernels.call_nodes import (
    NO_SHARED_DATA,
    NODES_BETWEEN,
    FusionRefusal,
    Operation,
    ScheduledGraph,
    add_inlined_nodes,
    infer_nodes,
    match_calls,
    nodes_of_buffers,
    nodes_of_call,
    nodes_of_calls,
    parse_operations,
)
from dynadiag.kernels.cost import estimate_cost
from dynadiag.kernels.cpp_wrapper import parse_code
from dynadiag.kernels.generated_module import (
    GeneratedModule,
    KernelCall,
    RefusedFusion,
    dynamo_nodes_of,
    own_source_lines,
    source_lines_of,
)
from dynadiag.kernels.graph_parser import PrintedGraph, parse_graph
from dynadiag.kernels.module_parser import KernelDefinition, ModuleCall, ParsedModule, buffer_name
from dynadiag.kernels.source_lines import CompileContext, locate, locate_dynamo
from dynadiag.kernels.triton_artifacts import TritonArtifacts
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Event, Graph, Symbol

MAX_GRAPH_BYTES = 64 << 20  # bytes of one graph's text that are read; the largest seen so far is a tenth of it


def kernel_calls(recording: Recording, compile_id: str | None = None) -> tuple[KernelCall, ...]:
    """Return every call of every kernel of one compile, or of all, in the order of the generated code."""
    return tuple(call for unit in generated_modules(recording, compile_id) for call in unit.calls)


def generated_modules(recording: Recording, compile_id: str | None = None) -> tuple[GeneratedModule, ...]:
    """Return every generated module of one compile, or of all."""
    return tuple(_ModuleReader(recording, compile_id).modules())


class _ModuleReader:
    """The state of reading the modules of one compile, or of all."""

    def __init__(self, recording: Recording, compile_id: str | None) -> None:
        self._recording, self._artifacts = recording, TritonArtifacts(recording, compile_id)
        self._hints = size_hints(recording.symbols(compile_id))
        self._graphs = recording.graphs(compile_id)
        self._origins = list(recording.events("dynadiag_origins", compile_id=compile_id))
        self._modules = list(recording.events("inductor_output_code", compile_id=compile_id))
        self._caches = [
            (event, word)
            for word in ("hit", "miss", "bypass")
            for event in recording.events("artifact", f"fx_graph_cache_{word}", compile_id)
        ]
        self._ids = {kernel.event: kernel.compile_id for kernel in recording.kernels(compile_id)}
        self._parsed: dict[int, PrintedGraph] = {}
        self._call_count = 0

    def modules(self) -> Iterator[GeneratedModule]:
        for event in self._modules:
            yield self.module(event)

    def module(self, event: Event) -> GeneratedModule:
        module = parse_code(self._recording.payload(event.index))
        compile_id = self._ids.get(event.index, event.compile_id)
        # The graph that the module was made from: after the passes, or before them when the code is from a cache.
        since = max(
            (one.index for one in self._modules if _same_compile(one, event) and one.index < event.index), default=0
        )
        lowered = self._last_graph(event, compile_id, ("post_grad",), since) or self._last_graph(
            event, compile_id, (module.stage or "inference", "inference", "forward"), 0
        )
        # The operations that the recorder wrote just before the module, if it did.
        found = [
            one for one in self._origins if _same_compile(one, event) and event.index - 2 <= one.index < event.index
        ]
        scheduled = parse_operations(self._recording.payload(found[-1].index)) if found else ScheduledGraph()
        # The graph that AOTAutograd handed over, of which Inductor's passes made the one that was lowered. Of several
        # backward graphs (one of each part of a graph that DDP splits) nothing says which it belongs to.
        stages = ("inference",) if module.stage == "inference" else ("joint", module.stage or "")
        joint = [one for one in self._graphs if one.compile_id == compile_id and one.stage == "joint"]
        if module.stage == "backward" and len(joint) > 1:
            stages = (module.stage,)
        around = replace(
            self._compile_context(event, compile_id, event, module.stage == "backward"),
            dynamo_sources=scheduled.dynamo_sources,
            before_passes=self._parsed_graph(self._last_graph(event, compile_id, stages, 0)),
        )
        unit = GeneratedModule(
            event.index,
            compile_id,
            module,
            locate(self._parsed_graph(lowered), around),
            lowered.event if lowered else None,
            locate_dynamo(around),
            scheduled.dynamo_sources,
        )
        calls = self._kernel_calls(event, unit, scheduled)
        return replace(unit, calls=tuple(self._with_refusals(unit, scheduled, calls)))

    def _with_refusals(
        self, unit: GeneratedModule, scheduled: ScheduledGraph, calls: Iterable[KernelCall]
    ) -> Iterator[KernelCall]:
        """The calls of a module, each with those that it was not fused with, by the groups of their operations."""
        made = list(calls)
        places = {
            operation.group: place
            for place, operations in match_calls(unit.parsed, scheduled.operations).items()
            for operation in operations
        }
        before = _calls_before(unit, made) if scheduled.refused else []
        found: dict[int, dict[int, RefusedFusion]] = {}
        for refusal in scheduled.refused:
            pair = places.get(refusal.first), places.get(refusal.second)
            for here, other in (pair, pair[::-1]):
                if (
                    here is not None
                    and other is not None
                    and here != other
                    and _is_true(refusal, unit.parsed, here, other)
                ):
                    call, comes = made[other], "after" if other > here else "before"
                    first, last = min(here, other), max(here, other)
                    middle = (at for at in range(first + 1, last) if first in before[at] and at in before[last])
                    between = tuple(made[at].name for at in middle if refusal.reason.startswith(NODES_BETWEEN))
                    named = RefusedFusion(call.index, call.name, call.call_number, comes, refusal.reason, between)
                    found.setdefault(here, {})[other] = named
        for place, call in enumerate(made):
            ranked = sorted(found.get(place, {}).items())
            yield replace(call, refused=tuple(refused for _, refused in ranked)) if ranked else call

    def _compile_context(self, event: Event, compile_id: str, module: Event, is_backward: bool) -> CompileContext:
        """What is known about the graph of an event. `module` is the event of the code generated from it."""
        dynamo = self._last_graph(event, compile_id, ("dynamo",), 0)
        from_cache = self._cache_outcome(module) == "hit"
        forward = self._last_graph(event, compile_id, ("forward",), 0) if from_cache and is_backward else None
        return CompileContext(
            dynamo=self._parsed_graph(dynamo),
            dynamo_nodes=self._recording.nodes(dynamo.index) if dynamo else (),
            forward=self._parsed_graph(forward) if forward else None,
            from_cache=from_cache,
        )

    def _last_graph(self, event: Event, compile_id: str, stages: tuple[str, ...], since: int) -> Graph | None:
        """The last graph before the event, of the first of `stages` that has one."""
        mine = [one for one in self._graphs if one.compile_id == compile_id and since <= one.event <= event.index]
        for stage in stages:
            found = [one for one in mine if one.stage == stage]
            if found:
                return found[-1]
        return None

    def _parsed_graph(self, graph: Graph | None) -> PrintedGraph:
        if graph is None or self._recording.event(graph.event).payload_size > MAX_GRAPH_BYTES:
            return PrintedGraph({}, {})
        if graph.event not in self._parsed:
            self._parsed[graph.event] = parse_graph(self._recording.payload(graph.event))
        return self._parsed[graph.event]

    def _kernel_calls(self, event: Event, unit: GeneratedModule, scheduled: ScheduledGraph) -> Iterator[KernelCall]:
        ties = match_calls(unit.parsed, scheduled.operations)
        exact = nodes_of_calls(unit.parsed, scheduled, unit.graph)
        known = nodes_of_buffers(scheduled, unit.graph)
        inferred: dict[int, tuple[str, ...]] = {}
        if len(exact) < len(unit.parsed.calls):
            inferred, buffers = infer_nodes(unit.parsed, unit.graph)
            known = {**buffers, **known}
        numbers: dict[str, int] = {}
        cache = self._cache_outcome(event)
        for place, call in enumerate(unit.parsed.calls):
            numbers[call.kernel] = numbers.get(call.kernel, 0) + 1
            nodes, how = nodes_of_call(unit.parsed, unit.graph, call, exact.get(place, ()), inferred.get(place, ()))
            nodes = nodes if how == "around" else add_inlined_nodes(unit.parsed, unit.graph, nodes)
            lines = align_call(unit.parsed, call, unit.graph, nodes, known)
            yield self._kernel_call(unit, call, numbers[call.kernel], nodes, how, ties.get(place, []), cache, lines)

    def _kernel_call(
        self,
        unit: GeneratedModule,
        call: ModuleCall,
        number: int,
        names: tuple[str, ...],
        how: str,
        operations: list[Operation],
        cache: str | None,
        lines: tuple[AlignedStatement, ...],
    ) -> KernelCall:
        found = [unit.graph.nodes[name] for name in names if name in unit.graph.nodes]
        nodes = [node for node in found if node.computes] or found
        views = [node for node in found if node not in nodes]
        definition = unit.parsed.definitions.get(call.kernel)
        subgraph = found[0].subgraph if found else call.subgraph
        self._call_count += 1
        # The operators of nodes, each with the text of its source line, or the line itself when the text is unknown.
        places = [(node.operator, next(iter(own_source_lines(unit, [node])), None)) for node in nodes]
        named = [(operator, unit.source_text.get(place, str(place)) if place else "") for operator, place in places]
        # A template, such as a matrix product, is no loops.
        products = definition is None or "_tem_" in definition.name or any("Template" in one.kind for one in operations)
        return KernelCall(
            index=self._call_count - 1,
            compile_id=unit.compile_id,
            stage=unit.parsed.stage,
            event=unit.event,
            name=call.kernel,
            language=definition.language if definition else "extern",
            call_number=number,
            line=call.line,
            text=call.text,
            definition=definition,
            nodes=tuple(node.name for node in nodes),
            views=tuple(node.name for node in views),
            ops=tuple(dict.fromkeys(node.operator for node in nodes)),
            operator_lines=tuple(dict.fromkeys(named)),
            dynamo_nodes=tuple(dict.fromkeys(one for node in nodes for one in dynamo_nodes_of(unit, node))),
            source_lines=source_lines_of(unit, [node.name for node in nodes]),
            view_lines=own_source_lines(unit, views),
            evidence=how,
            grid=_grid(call, definition),
            cost=estimate_cost(
                unit.parsed,
                call,
                () if how == "around" else names,
                unit.graph,
                self._hints.get(unit.compile_id, {}),
                products=products,
            ),
            device=_device(unit.parsed, definition, self._recording.run.device),
            cache=cache,
            partition=call.partition,
            fallback=next((one.reason for one in operations if one.reason), None),
            statements=lines,
            enclosing_nodes=unit.graph.enclosing_nodes(subgraph),
            artifact=self._artifacts.find(unit.event, call.kernel) if definition else None,
        )

    def _cache_outcome(self, event: Event) -> str | None:
        """What the FX graph cache said about this module.

        Its event comes after the module's, before the next module's.
        """
        after = [one.index for one in self._modules if _same_compile(one, event) and one.index > event.index]
        until = min(after, default=1 << 62)
        words = [(one.index, word) for one, word in self._caches if _same_compile(one, event) and one.index < until]
        later = [pair for pair in words if pair[0] > event.index]
        return min(later)[1] if later else max(words)[1] if words else None


def _calls_before(unit: GeneratedModule, calls: Sequence[KernelCall]) -> list[frozenset[int]]:
    """For each call of a module, the places in `calls` of all calls that it depends on."""
    place_of = {name: place for place, call in enumerate(calls) for name in call.nodes}
    found: list[frozenset[int]] = []
    for place, call in enumerate(calls):
        inputs = (name for node in call.nodes for name in unit.graph.nodes[node].inputs)
        needed = {place_of.get(producer(unit.graph, name), place) for name in inputs}
        needed = {one for one in needed if one < place}
        found.append(frozenset(needed).union(*(found[one] for one in needed)))
    return found


def _is_true(refusal: FusionRefusal, module: ParsedModule, here: int, other: int) -> bool:
    """Whether what was said of two nodes holds for their kernels, which may have more: that they share no data."""
    taken = [{buffer_name(argument) for argument in module.calls[place].arguments} - {None} for place in (here, other)]
    return refusal.reason != NO_SHARED_DATA or taken[0].isdisjoint(taken[1])


def _same_compile(one: Event, other: Event) -> bool:
    return one.compile_id == other.compile_id


def size_hints(symbols: Iterable[Symbol]) -> dict[str, dict[str, int]]:
    """The values that size symbols had when each compile was traced."""
    found: dict[str, dict[str, int]] = {}
    for symbol in symbols:
        if symbol.value is not None and symbol.value.lstrip("-").isdecimal():
            found.setdefault(symbol.compile_id, {})[symbol.name] = int(symbol.value)
    return found


def _grid(call: ModuleCall, definition: KernelDefinition | None) -> str | None:
    """The sizes that a Triton launch grid is computed from: the numbers among the arguments."""
    if definition is None or definition.language != "triton":
        return None
    pairs = zip(definition.parameters, call.arguments, strict=False)
    sizes = [f"{name}={argument}" for name, argument in pairs if name.endswith("numel")]
    explicit = [one for one in call.arguments if one.startswith("grid=")]
    return ", ".join(sizes + explicit) or None


def _device(module: ParsedModule, definition: KernelDefinition | None, recorded: str | None) -> str | None:
    """The device of a call. A library call runs on the module's: a machine with a GPU also runs modules on its CPU.

    Unknown for code that was generated for a GPU where there was none.
    """
    language = definition.language if definition is not None else None
    if language == "cpp" or (language is None and not module.selects_gpu):
        return "cpu"
    return None if module.selects_gpu and recorded == "cpu" else recorded
