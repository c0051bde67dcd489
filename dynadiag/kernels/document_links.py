"""The user's source lines behind each line of a printed graph or of a generated module.

Graphs of every stage are linked, not only those that a module was made from. A link that torch states is exact. One
that follows from operators or names, or that several source lines share, is inferred.

The recorder writes where each node of Dynamo's graph was made: the frames of its stack, and the modules that were being
called. A log that torch wrote has neither.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from dynadiag.kernels.generated_module import GeneratedModule, dynamo_nodes_of, source_lines_of
from dynadiag.kernels.graph_parser import SourceLine, graph_lines, operator_of, parse_graph
from dynadiag.kernels.module_parser import Comment, KernelDefinition, ModuleCall, parse_module
from dynadiag.kernels.source_lines import CompileContext, locate_cache_hit
from dynadiag.recording.code_origin import is_user_file
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Frame, Graph, Node

_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ([^\n]*)')
_ROOT = re.compile(r"[LG]\['(\w+)'\]\.?")  # Dynamo's name of the variable that holds a model
_ITEM = re.compile(r"\[(\d+)\]|\._modules\['(\w+)'\]")  # `layers[0]` and `_modules['layers']` are `layers.0`


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """The frames on the way to a node, and the modules around it, the outermost first. Nodes of one line share them."""

    frames: tuple[Frame, ...] = ()
    modules: tuple[str, ...] = ()  # "transformer.h.0", "transformer.h.0.attn"


def read_origins(recording: Recording, graph: Graph) -> dict[str, NodeOrigin]:
    """Return the origin of each node by its name.

    It is empty for a graph of a later stage, whose nodes have none, and for a log that torch wrote.
    """
    if not graph.is_of_dynamo:
        return {}
    events = [event.index for event in recording.events("dynadiag_graph", None, graph.compile_id)]
    before = [index for index in events if index < graph.event]
    return dict(_read(recording.payload(before[-1]))) if before else {}


def _read(text: str) -> Iterator[tuple[str, NodeOrigin]]:
    try:
        graph = orjson.loads(text)
        stacks = [_frames(str(stack)) for stack in graph["stacks"]]
        modules = [tuple(_short(str(path)) for path in paths) for paths in graph["modules"]]
        known: dict[tuple[Any, Any], NodeOrigin] = {}
        for node in graph["nodes"]:
            key = stack, module = node.get("stack"), node.get("modules")
            if key not in known:
                frames = stacks[stack] if isinstance(stack, int) else ()
                known[key] = NodeOrigin(frames, modules[module] if isinstance(module, int) else ())
            yield str(node["name"]), known[key]
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        return  # made by an older version, or damaged


def _frames(stack: str) -> tuple[Frame, ...]:
    return tuple(Frame(file, int(line), function) for file, line, function in _FRAME.findall(stack))


def _short(path: str) -> str:
    """``L['self'].blocks[0]`` as ``blocks.0``; a model itself, or its ``model.0``, by the name of its variable."""
    dotted = _ITEM.sub(lambda found: f".{found[1] or found[2]}", path)
    inner = _ROOT.sub("", dotted, count=1)
    return inner if inner[:1].isidentifier() else _ROOT.sub(r"\1.", dotted, count=1).removesuffix(".")


_FUSED = re.compile(r"_fused_(.+?)_\d+$")
_MIN_OPERATOR = 2  # letters; a shorter operator is not looked for in the name of a kernel
_TANGENT = "tangents_"  # the prefix of inputs that only backward and joint graphs have


@dataclass(frozen=True, slots=True)
class DocumentLinks:
    """The links of one document. Lines are counted from 1.

    `lines` has the source lines of each linked line, `inferred` the lines whose link is inferred, `nodes` the line of
    each node of a graph. `context` has the lines of a kernel's body that belong to no node although other lines do:
    they get the source lines of the whole kernel. `callers` has the lines of all frames on the way to a line's nodes:
    those that called a library or another function, and those of the library.
    """

    lines: Mapping[int, frozenset[SourceLine]] = field(default_factory=dict)
    inferred: frozenset[int] = frozenset()
    nodes: Mapping[str, int] = field(default_factory=dict)
    context: frozenset[int] = frozenset()
    callers: Mapping[int, frozenset[SourceLine]] = field(default_factory=dict)


class CompileLinker:
    """Links the documents of one compile.

    Dynamo's graphs must be linked first: their recorded nodes know the user's lines that called a library.
    """

    def __init__(self) -> None:
        # The user's lines behind a line of a library, which graphs name where a library was called.
        self._callers: dict[SourceLine, set[SourceLine]] = {}
        # One set for each line, because 100,000 lines of a graph may share it.
        self._sets: dict[SourceLine, frozenset[SourceLine]] = {}
        self._nodes: dict[str, frozenset[SourceLine]] = {}  # of Dynamo's nodes
        self._frames: dict[str, frozenset[SourceLine]] = {}  # of all frames on the way to each of Dynamo's nodes
        self._frames_of_line: dict[SourceLine, frozenset[SourceLine]] = {}  # the same of all nodes of a line
        self._operators: dict[str, set[SourceLine]] = {}

    def dynamo_graph(
        self,
        text: str,
        nodes: Mapping[str, SourceLine],
        origins: Mapping[str, NodeOrigin] | None = None,
        callers: Iterable[SourceLine] = (),
    ) -> DocumentLinks:
        """Link one of Dynamo's graphs. `nodes` are the source lines of its recorded nodes, `origins` their frames.

        `callers` are the lines that led to the compiled function.
        """
        sets: dict[NodeOrigin, frozenset[SourceLine]] = {}
        above = frozenset(callers)
        for name, origin in (origins or {}).items():
            if origin not in sets:
                lines = (SourceLine(frame.file, frame.line) for frame in origin.frames if frame.line is not None)
                sets[origin] = above.union(lines)
            self._frames[name] = self._frames.get(name, sets[origin]) | sets[origin]
        links = self._graph(text, {name: self._one(place) for name, place in nodes.items()}, is_dynamo=True)
        rows = {row: self._frames.get(name, above) for name, row in links.nodes.items()}
        for row, frames in rows.items():
            for place in links.lines.get(row, ()):
                self._frames_of_line[place] = self._frames_of_line.get(place, frozenset()) | frames
        return replace(links, callers=self._callers_of(links, rows))

    def later_graph(
        self,
        text: str,
        sources: Mapping[str, Iterable[str]] | None = None,
        replaced: Mapping[str, Iterable[SourceLine]] | None = None,
    ) -> DocumentLinks:
        """Link a graph of a later stage by its comments.

        `sources` are Dynamo's nodes of a node, as torch reported, `replaced` the lines of what a node was put in the
        place of by a pass, for those that torch prints no line of.
        """
        links = self._graph(text, {name: frozenset(lines) for name, lines in (replaced or {}).items()})
        rows = {
            row: self._frames_of(found) for name, row in links.nodes.items() if (found := (sources or {}).get(name))
        }
        return replace(links, callers=self._callers_of(links, rows))

    def cached_graph(self, title: str, text: str, dynamo: str, forward: str | None) -> DocumentLinks:
        """Link a graph that may come from the FX graph cache, with the lines of the program that filled it.

        `dynamo` is the text of Dynamo's graph, `forward` that of the forward graph.
        """
        graph = parse_graph(text)
        is_backward = not title.startswith("joint") and any(name.startswith(_TANGENT) for name in graph.nodes)
        before = parse_graph(forward) if is_backward and forward is not None else None
        own = locate_cache_hit(graph, CompileContext(parse_graph(dynamo), forward=before, from_cache=True))
        if own is graph:
            return self.later_graph(text)
        lines = {name: self._one(node.source_line) for name, node in own.nodes.items() if node.source_line is not None}
        links = self._graph(text, lines, trusts_comments=False)
        return replace(links, callers=self._callers_of(links, {}))

    def module(self, text: str, generated: GeneratedModule | None) -> DocumentLinks:
        known = _call_links(generated) if generated is not None else DocumentLinks()
        module = generated.parsed if generated is not None else parse_module(text)
        lines: dict[int, frozenset[SourceLine]] = {}
        inferred: set[int] = set(known.inferred)
        for definition in module.definitions.values():
            own, guessed = self._definition(definition, guesses=not known.lines)
            spread = [definition.line, *range(definition.first_line, definition.last_line + 1)]
            spread += [call.line for call in module.calls if call.kernel == definition.name]
            lines.update(dict.fromkeys(spread, own) if own else {})
            inferred.update(spread if guessed and own else ())
        statements: list[KernelDefinition | ModuleCall] = [*module.definitions.values(), *module.calls]
        for statement in statements:
            named = self._sources(statement.comment)
            if statement.comment is not None and named:
                lines.update(dict.fromkeys(range(statement.comment.line, statement.line), named))
                lines.setdefault(statement.line, named)
        links = DocumentLinks({**lines, **known.lines}, frozenset(inferred), context=known.context)
        return replace(links, callers=self._callers_of(links, self._frames_of_calls(generated)))

    def _frames_of_calls(self, generated: GeneratedModule | None) -> dict[int, frozenset[SourceLine]]:
        """The lines of all frames on the way to what each line of a module computes, by Dynamo's nodes."""
        found: dict[int, frozenset[SourceLine]] = {}
        exact: dict[int, frozenset[SourceLine]] = {}
        if generated is None:
            return found
        for call in generated.calls:
            own, body = self._frames_of(call.dynamo_nodes), call.definition
            for line in [call.line, *([body.line, *range(body.first_line, body.last_line + 1)] if body else [])]:
                found[line] = found.get(line, frozenset()) | own
            for statement in call.statements:
                nodes = [generated.graph.nodes[name] for name in statement.nodes if name in generated.graph.nodes]
                exact[statement.line] = self._frames_of(
                    name for node in nodes for name in dynamo_nodes_of(generated, node)
                )
        return {**found, **{line: frames for line, frames in exact.items() if frames}}

    def _frames_of(self, names: Iterable[str]) -> frozenset[SourceLine]:
        return frozenset[SourceLine]().union(*(self._frames.get(name, ()) for name in names))

    def _callers_of(
        self, links: DocumentLinks, known: Mapping[int, frozenset[SourceLine]]
    ) -> dict[int, frozenset[SourceLine]]:
        """The frames of each line: of its own nodes where they are known, else of all nodes of its source lines."""
        sets: dict[frozenset[SourceLine], frozenset[SourceLine]] = {}
        found: dict[int, frozenset[SourceLine]] = {}
        for row, places in links.lines.items():
            if places not in sets:
                sets[places] = frozenset[SourceLine]().union(*(self._frames_of_line.get(one, ()) for one in places))
            if frames := known.get(row) or sets[places]:
                found[row] = frames
        found.update((row, frames) for row, frames in known.items() if frames)
        return found

    def _graph(
        self,
        text: str,
        known: Mapping[str, frozenset[SourceLine]],
        *,
        is_dynamo: bool = False,
        trusts_comments: bool = True,
    ) -> DocumentLinks:
        lines: dict[int, frozenset[SourceLine]] = {}
        defined: dict[str, int] = {}
        inferred: set[int] = set()
        comment: SourceLine | None = None
        head, under = 0, set[SourceLine]()
        for number, line in enumerate(graph_lines(text), 1):
            if line.kind == "comment":
                comment, head, under = line.source_line, number, set()
                if trusts_comments and comment is not None:
                    lines[number] = self._of_comment(comment)
            elif line.kind == "blank":
                comment = None
            elif line.kind == "node":
                defined.setdefault(line.name, number)
                own = known.get(line.name)
                found = own or (self._of_comment(comment) if comment and trusts_comments else None)
                if not found:
                    continue
                lines[number] = found
                if own and comment:
                    under |= own
                    lines[head] = self._learn(comment, under) if is_dynamo else frozenset(under)
                    inferred.update(() if trusts_comments else (head, number))
                elif len(found) > 1 or (own and not is_dynamo):
                    inferred.add(number)
                self._operators.setdefault(operator_of(line.target), set()).update(found)
                if is_dynamo:
                    self._nodes[line.name] = self._nodes.get(line.name, found) | found
            elif line.kind == "statement" and comment and lines.get(head):
                lines[number] = lines[head]
        return DocumentLinks(lines, frozenset(inferred), defined)

    def _one(self, place: SourceLine) -> frozenset[SourceLine]:
        return self._sets.setdefault(place, frozenset({place}))

    def _of_comment(self, place: SourceLine) -> frozenset[SourceLine]:
        """The user's lines behind a comment, which may name a line of a library that several lines called."""
        found = self._callers.get(place)
        return frozenset(found) if found else self._one(place)

    def _learn(self, comment: SourceLine, places: set[SourceLine]) -> frozenset[SourceLine]:
        if places != {comment}:
            self._callers.setdefault(comment, set()).update(places)
        return frozenset(places)

    def _definition(self, definition: KernelDefinition, *, guesses: bool) -> tuple[frozenset[SourceLine], bool]:
        """The source lines of a kernel by its comment; if `guesses`, otherwise by the operators in its name."""
        found = self._sources(definition.comment)
        if found or not guesses:
            return found, False
        fused = _FUSED.search(definition.name)
        name = f"_{fused[1]}_" if fused else ""
        hits = [op for op in self._operators if len(op) >= _MIN_OPERATOR and f"_{op.strip('_')}_" in name]
        return frozenset(place for op in hits for place in self._operators[op]), True

    def _sources(self, comment: Comment | None) -> frozenset[SourceLine]:
        """The source lines of the Dynamo nodes that a comment names."""
        names = comment.sources if comment is not None else ()
        return frozenset(place for name in names for place in self._nodes.get(name, ()))


def _call_links(generated: GeneratedModule) -> DocumentLinks:
    """The links of the kernel calls, of the definitions that they call, and of the statements in those."""
    lines: dict[int, frozenset[SourceLine]] = {}
    inferred: set[int] = set()
    exact: dict[int, frozenset[SourceLine]] = {}
    for call in generated.calls:
        found = frozenset(call.source_lines or call.view_lines)
        own = call.definition
        spread = [call.line, *([own.line, *range(own.first_line, own.last_line + 1)] if own is not None else [])]
        for line in spread if found else ():
            lines[line] = lines.get(line, frozenset()) | found
        inferred.update(spread if found and call.evidence == "dataflow" else ())
        for statement in call.statements:
            if places := frozenset(source_lines_of(generated, statement.nodes)):
                exact[statement.line] = exact.get(statement.line, frozenset()) | places
            nodes = (generated.graph.nodes.get(name) for name in statement.nodes)
            inferred.update([statement.line] if any(node and node.replaced_lines for node in nodes) else ())
    context = {
        line
        for call in generated.calls
        if call.definition is not None and any(statement.line in exact for statement in call.statements)
        for line in range(call.definition.first_line, call.definition.last_line + 1)
    }
    return DocumentLinks({**lines, **exact}, frozenset(inferred), context=frozenset(context - exact.keys()))


MAX_LINKED_NODES = 30_000  # nodes of the graphs of a compile that are linked before anybody looks at them
MAX_MODULE_NODES = 100_000  # with more nodes in its graphs, kernels are only linked by comments and names
_PAGE_ROWS = 5_000  # rows of nodes read at once
_MAX_SPANS = 200_000  # nodes whose source lines are kept


class CompileTexts(Protocol):
    """What is read of a recording."""

    def payload(self, event: int) -> str: ...

    def nodes(self, graph: int, start: int = 0, limit: int | None = None) -> Sequence[Node]:
        """The nodes of a graph that were recorded as data."""
        ...


class RecordedLinks:
    """Links the documents of one compile. Dynamo's graphs must be linked first."""

    def __init__(
        self,
        texts: CompileTexts,
        graphs: Sequence[Graph],
        *,
        from_cache: bool,
        origins: Mapping[int, Mapping[str, NodeOrigin]] | None = None,
        callers: Sequence[Frame] = (),
        modules: Sequence[GeneratedModule] = (),
    ) -> None:
        """``from_cache``: graphs from the FX graph cache bear the lines of the program that filled it.

        ``origins`` has those of the nodes of each of Dynamo's graphs, by its index, and ``callers`` the frames that led
        to the compiled function: without them only the innermost line of a node is linked. ``modules`` know which of
        Dynamo's nodes a node was made of.
        """
        self._texts, self._linker = texts, CompileLinker()
        self._origins, self._modules = origins or {}, modules
        self._sources: dict[int, Mapping[str, Sequence[str]]] = {}  # by the event of the module
        self._callers = [SourceLine(one.file, one.line) for one in callers if one.line and is_user_file(one.file)]
        self._dynamo = next((graph for graph in graphs if graph.stage == "dynamo"), None) if from_cache else None
        self._forward = next((graph for graph in graphs if graph.stage == "forward"), None)

    def graph(self, graph: Graph, text: str) -> DocumentLinks:
        """Link a graph of the compile, whose text is that of its payload."""
        if graph.is_of_dynamo:
            lines, origins = self._node_lines(graph.index), self._origins.get(graph.index)
            return self._linker.dynamo_graph(text, lines, origins, self._callers)
        if self._dynamo is None:
            return self._linker.later_graph(text, self.sources(graph), self._replaced(graph))
        forward = self._texts.payload(self._forward.event) if self._forward is not None else None
        return self._linker.cached_graph(graph.stage, text, self._texts.payload(self._dynamo.event), forward)

    def sources(self, graph: Graph) -> Mapping[str, Sequence[str]]:
        """Return Dynamo's nodes of each node, as they are known for the code that was made of the graph.

        Until the passes after AOTAutograd a node keeps its name, so they hold for the graph that was split, too.
        """
        made = next((one for one in self._modules if one.graph_event == graph.event), None)
        made = made or next((one for one in self._modules if one.parsed.stage == graph.stage), None)
        if made is None:
            return {}
        if made.event not in self._sources:
            nodes = made.graph.nodes.values()
            self._sources[made.event] = {node.name: names for node in nodes if (names := dynamo_nodes_of(made, node))}
        return self._sources[made.event]

    def _replaced(self, graph: Graph) -> dict[str, tuple[SourceLine, ...]]:
        """The lines of what passes replaced, by the names of the new nodes, which are those of the last graph."""
        nodes = (node for made in self._modules if made.event > graph.event for node in made.graph.nodes.values())
        return {node.name: node.replaced_lines for node in nodes if node.replaced_lines}

    def module(self, text: str, generated: GeneratedModule | None) -> DocumentLinks:
        return self._linker.module(text, generated)

    def _node_lines(self, graph: int) -> dict[str, SourceLine]:
        """The source line of each node that was recorded as data. Nodes are read in pages to save memory."""
        found: dict[str, SourceLine] = {}
        start = 0
        while len(found) < _MAX_SPANS:
            page = self._texts.nodes(graph, start, _PAGE_ROWS)
            for node in page:
                if node.span.file and node.span.line:
                    found[node.name] = SourceLine(node.span.file, node.span.line)
            if len(page) < _PAGE_ROWS:
                break
            start += _PAGE_ROWS
        return found
