"""Which nodes each call of the generated code computes.

The recorder writes the operations of Inductor's scheduler. Its list of an operation's origins is too long: it has every
node that was inlined, and for a library call also the nodes that made its input buffers. So the nodes are those on the
way back from what the operation writes, up to the nodes whose buffers it reads.

Code that came out of the FX graph cache never meets the scheduler, and a log of TORCH_TRACE has no record of it. Then
the nodes are inferred from two texts: the code and the graph that it was made from. A buffer is identified with a node
where the texts leave little doubt: inputs by name, outputs by position in the return statement, library calls by
operator and arguments. A kernel computes the nodes between the buffers that it reads and those that it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dynadiag.grouping import reached
from dynadiag.kernels.cost import is_product
from dynadiag.kernels.graph_parser import PrintedGraph
from dynadiag.kernels.module_parser import (
    BufferAccess,
    Comment,
    ModuleCall,
    ParsedModule,
    buffer_access,
    buffer_name,
    memory_chain,
)

NO_SHARED_DATA, NODES_BETWEEN = "no shared data", "intermediate nodes between"  # the scheduler's words
_LAYOUT_KINDS = ("ConcatKernel", "NopKernel")  # kinds without code: they only lay out buffers
_ITEM_KIND = "MultiOutput"  # the kind of one output of an operation with several
_SUBGRAPH_KINDS = ("Conditional", "Switch", "WhileLoop", "InvokeSubgraph")  # kinds that run the kernels of subgraphs


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """One operation of the scheduler. Operations of the same `group` are fused."""

    group: int
    kind: str  # class name in Inductor's IR: "ComputedBuffer", "FallbackKernel", ...
    outputs: tuple[str, ...]
    reads: tuple[str, ...]
    origin: str | None
    origins: tuple[str, ...]
    reason: str | None = None  # why Inductor falls back to ATen

    @property
    def is_loops(self) -> bool:
        """Whether it is generated as loops, not as a library call or a template."""
        return self.kind == "ComputedBuffer"


class FusionRefusal(msgspec.Struct, frozen=True, array_like=True):
    """Two groups of operations that the scheduler considered and did not fuse, and its reason in torch's words."""

    first: int
    second: int
    reason: str


class ScheduledGraph(msgspec.Struct, frozen=True):
    """All operations of a graph in the order of their code, the Dynamo nodes of each node, and what was not fused."""

    operations: tuple[Operation, ...] = ()
    dynamo_sources: dict[str, tuple[str, ...]] = msgspec.field(name="sources", default_factory=dict)
    refused: tuple[FusionRefusal, ...] = ()


def parse_operations(text: str) -> ScheduledGraph:
    """Parse the payload of ``dynadiag_origins``. One that is damaged has no operations."""
    try:
        return msgspec.json.decode(text, type=ScheduledGraph)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return ScheduledGraph()


def match_calls(module: ParsedModule, operations: Sequence[Operation]) -> dict[int, list[Operation]]:
    """Return the operations of each call, by its index in ``module.calls``."""
    return _CallMatcher(module).match(operations)


class _CallMatcher:
    """One matching of operations with calls, in the order of the code."""

    def __init__(self, module: ParsedModule) -> None:
        self._module = module
        self._calls_using: dict[str, list[int]] = {}  # the calls that take or return each buffer
        self._calls_writing: dict[str, list[int]] = {}  # the calls that write each buffer
        self._made_by: dict[str, int] = {}  # the call that makes each buffer, so far
        self._items: dict[str, list[str]] = {}  # the outputs of each buffer with several
        self._last = 0
        for place, call in enumerate(module.calls):
            role = buffer_access(module, call)
            for name in dict.fromkeys([*(buffer_name(one) for one in call.arguments), *call.outputs]):
                if name is not None:
                    self._calls_using.setdefault(name, []).append(place)
            for name in dict.fromkeys([*role.writes, *role.updates]):
                self._calls_writing.setdefault(name, []).append(place)

    def match(self, operations: Sequence[Operation]) -> dict[int, list[Operation]]:
        tied: dict[int, list[Operation]] = {}
        groups: dict[int, int] = {}
        waiting: list[Operation] = []
        for operation in operations:
            if operation.kind == _ITEM_KIND:
                for source in operation.reads:
                    self._items.setdefault(source, []).extend(operation.outputs)
        for operation in operations:
            if operation.kind in _LAYOUT_KINDS + _SUBGRAPH_KINDS:
                continue
            place = self._call_of(operation)
            place = groups.get(operation.group) if place is None else place
            if place is None:
                waiting.append(operation)
                continue
            groups.setdefault(operation.group, place)
            self._last = place
            self._made_by.update(dict.fromkeys(operation.outputs, place))
            tied.setdefault(place, []).append(operation)
        for operation in waiting:  # its buffer is not in the text because it never leaves the fused kernel
            if operation.group in groups:
                tied[groups[operation.group]].append(operation)
        return tied

    def _call_of(self, operation: Operation) -> int | None:
        """The call of an operation: the first that has its output buffer, or one that writes it when it already exists.

        In a C++ wrapper, a library call writes the items of its result.
        """
        for output in (*operation.outputs, *(one for name in operation.outputs for one in self._items.get(name, ()))):
            if output in self._made_by or not output.startswith("buf"):
                # A call that writes a buffer again after the call that made it, or that call itself.
                writers = [place for place in self._calls_writing.get(output, ()) if place >= self._last]
                later = [place for place in writers if place > self._made_by.get(output, -1)]
                place = next(iter(later or writers), None)
            else:
                place = self._first_call(output)
            if place is not None:
                return place
        return None

    def _first_call(self, output: str) -> int | None:
        name = self._module.items.get(output, (output, 0))[0]
        name = self._module.aliases.get(name, name)
        found = (self._calls_using[one][0] for one in memory_chain(self._module, name) if one in self._calls_using)
        return next(found, None)


def nodes_of_calls(module: ParsedModule, scheduled: ScheduledGraph, graph: PrintedGraph) -> dict[int, tuple[str, ...]]:
    """Return the nodes that each call computes, in graph order, by the call's index."""
    libraries = _library_nodes(scheduled, graph)
    made = nodes_of_buffers(scheduled, graph)
    joined = _concatenations(module, scheduled)
    order = {name: place for place, name in enumerate(graph.nodes)}
    found = {}
    for place, operations in match_calls(module, scheduled.operations).items():
        nodes = _computed_nodes(operations, made, graph, libraries) | joined.get(place, set())
        found[place] = tuple(sorted(nodes, key=lambda name: order.get(name, len(order))))
    return found


def nodes_of_buffers(scheduled: ScheduledGraph, graph: PrintedGraph) -> dict[str, frozenset[str]]:
    """Return the nodes whose values each buffer holds."""
    libraries = _library_nodes(scheduled, graph)
    found: dict[str, frozenset[str]] = {}
    for one in scheduled.operations:
        new = [name for name in one.outputs if name not in found and name not in graph.nodes]
        found |= dict.fromkeys(new, frozenset(written_nodes(one, graph, libraries)))
    return found


def _library_nodes(scheduled: ScheduledGraph, graph: PrintedGraph) -> set[str]:
    return {node for one in scheduled.operations if not one.is_loops for node in _end_nodes(one, graph)}


def _concatenations(module: ParsedModule, scheduled: ScheduledGraph) -> dict[int, set[str]]:
    """The concatenations that each call writes a part of. They have no code of their own."""
    wholes = {name: one.origin for one in scheduled.operations for name in one.outputs if one.kind in _LAYOUT_KINDS}
    found: dict[int, set[str]] = {}
    for place, call in enumerate(module.calls):
        role = buffer_access(module, call)
        for name in (*role.writes, *role.updates):
            if origin := wholes.get(module.slices.get(name, "")):
                found.setdefault(place, set()).add(origin)
    return found


def _computed_nodes(
    operations: Sequence[Operation], made: Mapping[str, frozenset[str]], graph: PrintedGraph, libraries: set[str]
) -> set[str]:
    written = {name for one in operations for name in one.outputs}
    inputs = [name for name, node in graph.nodes.items() if not node.target]
    readers = {user for name in inputs for user in graph.users.get(name, ())}
    found: set[str] = set()
    for operation in operations:
        if operation.kind == _ITEM_KIND:
            found |= {operation.origin} if operation.origin else set()
            continue
        stops = {node for name in operation.reads if name not in written for node in made.get(name, ())}
        stops |= {name for name in operation.reads if name in graph.nodes}
        nodes = backward_slice(graph, written_nodes(operation, graph, libraries), set(operation.origins), stops)
        if operation.is_loops and not operation.reads:  # it fills a buffer for another operation
            nodes = {name for name in nodes if not backward_slice(graph, [name], None, set()) & readers} or nodes
        found |= nodes
    return found


def written_nodes(operation: Operation, graph: PrintedGraph, libraries: set[str]) -> set[str]:
    """The nodes whose value an operation writes.

    A loop that prepares an argument of a library call has that call among its origins. It writes the argument, not the
    call's result.
    """
    ends = _end_nodes(operation, graph)
    mine = ends - libraries
    if not operation.is_loops or not ends & libraries:
        return ends
    origins = set(operation.origins)
    arguments = {
        graph.root(source)
        for name in ends & libraries
        if name in graph.nodes
        for source in graph.nodes[name].inputs
        if graph.root(source) in origins
    }
    return (mine | arguments) or ends


def _end_nodes(operation: Operation, graph: PrintedGraph) -> set[str]:
    """The operation's origin node. If Inductor names none, the origins that no other origin reads."""
    if operation.origin is not None:
        return {operation.origin}
    origins = set(operation.origins)
    return {name for name in origins if not origins.intersection(graph.users.get(name, ()))}


def backward_slice(graph: PrintedGraph, start: Iterable[str], within: set[str] | None, stops: set[str]) -> set[str]:
    """Return the backward slice of `start`: its ancestors and itself, only through `within`, not into `stops`."""

    def goes_on(source: str) -> bool:
        return source not in stops and bool(graph.nodes[source].target) and (within is None or source in within)

    known = (name for name in start if name in graph.nodes)
    return reached(known, lambda name: filter(goes_on, graph.nodes[name].inputs))


def infer_nodes(
    module: ParsedModule, graph: PrintedGraph
) -> tuple[dict[int, tuple[str, ...]], dict[str, frozenset[str]]]:
    """Return the nodes of each call (by index in ``module.calls``) and of each buffer. Unknown ones are left out."""
    flow = _DataFlow(module, graph)
    flow.identify_buffers()
    order = {name: place for place, name in enumerate(graph.nodes)}
    found: dict[int, tuple[str, ...]] = {}
    for place, call in enumerate(module.calls):
        nodes = flow.nodes_of_call(place, call)
        if nodes:
            found[place] = tuple(sorted(nodes, key=lambda name: order.get(name, len(order))))
    return found, flow.nodes_of_buffers()


class _DataFlow:
    """The state of one inference: which node each buffer is."""

    def __init__(self, module: ParsedModule, graph: PrintedGraph) -> None:
        self._module, self._graph = module, graph
        self._roles = [buffer_access(module, call) for call in module.calls]
        self._reused_from = {after: name for name, after in module.reuses.items()}
        self._node: dict[str, str] = {}
        self._matched_nodes: set[str] = set()
        self._tentative_nodes: dict[str, set[str]] = {}  # buffer without a node -> nodes of the call that wrote it

    def identify_buffers(self) -> None:
        """Find the node of each buffer that the texts name."""
        graph, module = self._graph, self._module
        self._node.update({name: name for name, node in graph.nodes.items() if not node.target})
        for subgraph, returned in module.returns.items():
            for buffer, node in zip(returned, graph.returns.get(subgraph, ()), strict=False):
                if buffer and node:
                    self._set_node(buffer, graph.root(node))
        self._match_subgraphs()
        for _ in range(2):  # the arguments of a later call can identify the output of an earlier one
            for call, role in zip(module.calls, self._roles, strict=True):
                if not call.is_generated:
                    self._match_library_call(call, role)
            for name, (source, index) in module.items.items():
                self._match_item(name, source, index)
        self._read_comments()

    def _match_subgraphs(self) -> None:
        """Identify inputs and outputs of subgraphs. The last inputs of an operator are the inputs of its subgraphs."""
        graph = self._graph
        for buffer, subgraph in self._module.subgraph_results.items():
            for node in graph.users.get(subgraph, ()):
                self._set_node(buffer, node)
        for subgraph, given in self._module.subgraph_inputs.items():
            for node in graph.users.get(subgraph, ()):
                operands = [name for name in graph.nodes[node].inputs if name not in graph.returns]
                if len(given) <= len(operands):
                    for buffer, operand in zip(reversed(given), reversed(operands), strict=False):
                        self._set_node(buffer, graph.root(operand))

    def nodes_of_buffers(self) -> dict[str, frozenset[str]]:
        """The node of each identified buffer."""
        return {buffer: frozenset([node]) for buffer, node in self._node.items()}

    def _set_node(self, buffer: str, node: str) -> None:
        """Set the node of a buffer and of its aliases. The first answer stays."""
        while buffer not in self._node:
            self._node[buffer] = node
            buffer = self._module.aliases.get(buffer, buffer)

    def _node_of(self, buffer: str) -> str | None:
        seen: set[str] = set()
        while buffer not in self._node and buffer in self._module.aliases and buffer not in seen:
            seen.add(buffer)
            buffer = self._module.aliases[buffer]
        return self._node.get(buffer)

    def _match_library_call(self, call: ModuleCall, role: BufferAccess) -> None:
        """Match a library call with the first node of its operator whose known arguments agree."""
        known = next((node for out in call.outputs if (node := self._node_of(out))), None)
        candidates = [known] if known else self._candidates(call)
        scored = [(self._matching_arguments(name, role.reads), -place) for place, name in enumerate(candidates)]
        best = max(scored, default=(-1, 0))
        if best[0] < 0:
            return
        node = candidates[-best[1]]
        self._matched_nodes.add(node)
        for out in call.outputs:
            self._set_node(out, node)
        for buffer, source in zip(role.reads, self._inputs(node), strict=False):
            self._set_node(buffer, source)

    def _inputs(self, node: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._graph.root(name) for name in self._graph.nodes[node].inputs))

    def _candidates(self, call: ModuleCall) -> list[str]:
        operator = call.kernel.split(".")[1] if "." in call.kernel else call.kernel
        used = self._matched_nodes.union(self._node.values())
        nodes = [one for one in self._graph.nodes.values() if one.subgraph == call.subgraph]
        return [one.name for one in nodes if one.operator == operator and one.name not in used]

    def _matching_arguments(self, name: str, buffers: Iterable[str]) -> int:
        """How many arguments agree, or -1 when one disagrees."""
        same = 0
        for buffer, source in zip(buffers, self._inputs(name), strict=False):
            node = self._node_of(buffer)
            if node is not None and self._graph.root(node) != source:
                return -1
            same += node is not None
        return same

    def _match_item(self, name: str, source: str, index: int) -> None:
        for user in self._graph.users.get(self._node_of(source) or "", ()):
            node = self._graph.nodes[user]
            if node.operator == "getitem" and node.text.endswith(f"[{index}]"):
                self._set_node(name, user)

    def _read_comments(self) -> None:
        """Read a Triton kernel's comment: it names the returned nodes in the order of the written buffers."""
        for definition in self._module.definitions.values():
            calls = [place for place, call in enumerate(self._module.calls) if call.kernel == definition.name]
            if definition.comment and len(calls) == 1 and not self._roles[calls[0]].updates:
                for buffer, node in zip(self._roles[calls[0]].writes, definition.comment.returns, strict=False):
                    if node in self._graph.nodes:
                        self._set_node(buffer, node)

    def nodes_of_call(self, place: int, call: ModuleCall) -> set[str]:
        """The nodes between what a call reads and what it writes. Ask for the calls in their order."""
        role = self._roles[place]
        if not call.is_generated:
            ends = {node for out in call.outputs if (node := self._node_of(out))}
            return backward_slice(self._graph, ends, None, self._stops(role))
        stops = self._stops(role)
        ends = self._ends(role) - {node for name in role.reads if (node := self._node_of(name))}
        nodes = backward_slice(self._graph, ends, None, stops) if ends else self._nodes_of_unnamed(place, role, stops)
        for name in (*role.writes, *role.updates):
            if self._node_of(name) is None:
                self._tentative_nodes.setdefault(self._module.slices.get(name, name), set()).update(nodes)
        return nodes

    def _buffers_read(self, role: BufferAccess) -> list[str]:
        """The buffers that a call reads. For a buffer updated in place, the buffer whose memory it reuses."""
        return [*role.reads, *(self._reused_from.get(name, "") for name in role.updates)]

    def _stops(self, role: BufferAccess) -> set[str]:
        found: set[str] = set()
        for name in self._buffers_read(role):
            node = self._node_of(name)
            found |= {node} if node else self._tentative_nodes.get(name, set())
        return found

    def _ends(self, role: BufferAccess) -> set[str]:
        """The nodes that a call writes. An input of the graph is written by the copy at the graph's end."""
        found = set()
        for name in (*role.writes, *role.updates):
            node = self._node_of(name) or self._node_of(self._module.slices.get(name, ""))
            if node and not self._graph.nodes[node].target:
                copies = [user for user in self._graph.users.get(node, ()) if self._copies_to(user, node)]
                found.update(copies)
            elif node:
                found.add(node)
        return found

    def _copies_to(self, user: str, node: str) -> bool:
        one = self._graph.nodes[user]
        return one.operator == "copy_" and bool(one.inputs) and one.inputs[0] == node

    def _nodes_of_unnamed(self, place: int, role: BufferAccess, stops: set[str]) -> set[str]:
        """The nodes of a call whose output buffer has no known node.

        A later call reads that buffer, so the nodes lead to the later call's output.
        """
        mine = {self._module.slices.get(name, name) for name in (*role.writes, *role.updates)}
        mine |= {self._module.reuses.get(name, name) for name in mine}
        for call, later in zip(self._module.calls[place + 1 :], self._roles[place + 1 :], strict=True):
            if not mine.intersection([*self._buffers_read(later), *later.updates]):
                continue
            if not call.is_generated:
                return self._argument_nodes(call, later, mine, stops)
            ends = self._ends(later)
            between = backward_slice(self._graph, ends, None, self._stops(later))
            return backward_slice(self._graph, (between - ends) or ends, None, stops)
        return set()

    def _argument_nodes(self, call: ModuleCall, role: BufferAccess, mine: set[str], stops: set[str]) -> set[str]:
        """The nodes that compute an argument of a library call, or the call's own nodes when there are none."""
        nodes = {node for out in call.outputs if (node := self._node_of(out))}
        for node in nodes:
            pairs = zip(role.reads, self._inputs(node), strict=False)
            made = {source for buffer, source in pairs if buffer in mine and self._graph.nodes[source].target}
            if found := backward_slice(self._graph, made - stops, None, stops):
                return found
        return nodes


def nodes_of_call(
    module: ParsedModule, graph: PrintedGraph, call: ModuleCall, scheduled: tuple[str, ...], inferred: tuple[str, ...]
) -> tuple[tuple[str, ...], str]:
    """Return the nodes of a call and the evidence for them (`KernelCall.evidence`)."""
    if scheduled:
        return scheduled, "scheduler"
    definition = module.definitions.get(call.kernel)
    alone = definition is not None and sum(one.kernel == call.kernel for one in module.calls) == 1
    if definition is not None and alone and definition.comment and definition.comment.nodes:
        joined = tuple(name for name in inferred if graph.nodes[name].operator == "cat")
        return tuple(dict.fromkeys(_comment_nodes(definition.name, definition.comment, graph) + joined)), "comment"
    if inferred:
        return inferred, "dataflow"
    if call.comment and call.comment.sources:
        return tuple(name for name in call.comment.sources if name in graph.nodes), "comment"
    around = tuple(graph.users.get(call.subgraph, ()))
    return around, "around" if around else "none"


def add_inlined_nodes(module: ParsedModule, graph: PrintedGraph, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return `nodes` plus the nodes of their subgraphs that have no code of their own, such as a score function."""
    given = {name for node in nodes if node in graph.nodes for name in graph.nodes[node].inputs}
    inlined = graph.returns.keys() & given - {call.subgraph for call in module.calls}
    return (*nodes, *(name for name, node in graph.nodes.items() if node.target and node.subgraph in inlined))


def _comment_nodes(name: str, comment: Comment, graph: PrintedGraph) -> tuple[str, ...]:
    """The nodes of a kernel's comment that the kernel computes.

    Inductor also lists nodes that were inlined from elsewhere. The result has the nodes between what the kernel reads
    and what it returns, without the library call whose argument it prepares.
    """
    ends, reads = set(comment.returns), set(comment.reads)
    nodes = [node for node in comment.nodes if node in graph.nodes]
    if ends and ends.issubset(graph.nodes):
        found = backward_slice(graph, ends, set(nodes), reads - ends)
        nodes = [node for node in nodes if node in found]
    if not reads:  # the kernel fills a buffer
        nodes = [node for node in nodes if not graph.nodes[node].inputs] or nodes
    if "_tem_" in name:
        return tuple(nodes)
    own = [node for node in nodes if not is_product(graph.nodes[node])]
    return tuple(own if any(graph.nodes[node].computes for node in own) else nodes)
