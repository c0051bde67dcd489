"""The compiles of a page: their time, their kernels, and their texts side by side.

The texts are the source, Dynamo's graph, AOTAutograd's, the one after all passes, the code, and the stages of kernels.
The page shows them in panes, and highlights the lines that belong to the same source line. The links are those of the
browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from dynadiag.errors import DynadiagError
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.timing import PARTS, PhaseShare
from dynadiag.grouping import grouped
from dynadiag.kernels.document_links import (
    MAX_LINKED_NODES,
    MAX_MODULE_NODES,
    DocumentLinks,
    RecordedLinks,
    read_origins,
)
from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.graph_parser import SourceLine, parse_graph
from dynadiag.kernels.line_table import Stage
from dynadiag.kernels.read_modules import generated_modules, kernel_calls
from dynadiag.kernels.stages import STAGES, is_in_own_cache, make_stages
from dynadiag.kernels.triton_artifacts import EVENT_KIND
from dynadiag.recording.reader import Recording, by_compile
from dynadiag.recording.records import DYNAMO_STAGES, Compile, Graph, Kernel
from dynadiag.render.clean import clean
from dynadiag.render.dataflow.boxes import DrawableGraph, GraphBox
from dynadiag.render.dataflow.svg import MAX_BOXES, graph_svg
from dynadiag.render.paths import relative_path
from dynadiag.render.readable_graph import graph_titles, readable_lines

_LEFT_OUT = "(left out)"


@dataclass(slots=True)
class Redaction:
    """How names and texts of a recording are shown. A file or a function has the same number everywhere on a page."""

    active: bool = False
    _files: dict[str, str] = field(default_factory=dict)
    _functions: dict[str, str] = field(default_factory=dict)

    def text(self, text: str) -> str:
        """A text that may quote the program."""
        return _LEFT_OUT if self.active and text else text

    def file(self, shown: str) -> str:
        return self._files.setdefault(shown, f"file-{len(self._files) + 1}.py") if self.active else shown

    def function(self, name: str) -> str:
        return self._functions.setdefault(name, f"function-{len(self._functions) + 1}") if self.active else name


@dataclass(slots=True)
class KernelStages:
    """Finds the stages of kernels. ``missing`` says for which kernels there are none, and why."""

    compile_own: bool = False
    on_progress: Callable[[str], None] = lambda _: None
    missing: list[str] = field(default_factory=list)

    def stage_names(self, recording: Recording) -> dict[tuple[int, str], tuple[str, ...]]:
        """The names of the stages of each kernel, by the event of its module and its name.

        The generated code is read only if some kernel may have stages.
        """
        if not (self.compile_own or recording.has_derived() or recording.counts().get(EVENT_KIND)):
            return {}
        calls = {(call.event, call.name): call for call in kernel_calls(recording) if call.language in STAGES}
        found: dict[tuple[int, str], tuple[str, ...]] = {}
        for number, (key, call) in enumerate(calls.items(), 1):
            if self.compile_own:
                self.on_progress(f"assembly of kernel {number} of {len(calls)}")
            if names := tuple(self.stages_of(recording, call, on_error=self.missing.append)):
                found[key] = names
        return found

    def stages_of(
        self, recording: Recording, call: KernelCall, on_error: Callable[[str], None] = lambda _: None
    ) -> Mapping[str, Stage]:
        """The stages of a kernel by name. ``on_error`` gets the reason if they cannot be made."""
        if call.language not in STAGES:
            return {}
        try:
            compiled = make_stages(recording, call, trusted=self.compile_own and is_in_own_cache(recording, call))
        except DynadiagError as error:
            on_error(str(error))
            return {}
        known = STAGES[call.language][1:]  # without the source; the recording of a stranger may have other names
        return {name: stage for name, stage in compiled.stages.items() if name in known}


MAX_DRAWN = 100  # graphs of a recording that are drawn; drawing one takes up to half a second
_ORDER = ("source", "graph", "module", "stage")  # of the kinds: links of later ones rest on those of earlier ones
StageNames = Mapping[tuple[int, str], Sequence[str]]  # the stages of a kernel, by its module's event and its name
NO_STAGES: StageNames = MappingProxyType({})
_AOT = ("joint", "inference", "forward")  # what AOTAutograd made; the joint graph is the one before it is split


@dataclass(frozen=True, slots=True)
class DocumentView:
    """A text of a compile. ``block`` is the name of the text in the page, ``event`` the event that has it.

    ``stage`` is that of a graph, or of the kernel whose name is ``kernel``.
    """

    block: str
    kind: str  # "source" | "graph" | "module" | "stage"
    title: str
    detail: str
    stage: str = ""
    event: int = -1
    is_drawn: bool = False
    kernel: str = ""


def compile_documents(
    item: Compile,
    graphs: Sequence[Graph],
    kernels: Sequence[Kernel],
    drawn: frozenset[int],
    name: str,
    source: str,
    stages: StageNames = NO_STAGES,
) -> tuple[DocumentView, ...]:
    """Return the documents of a compile: its source, every graph, the generated code, and stages of its kernels.

    ``drawn`` has the indices of the graphs that are drawn, ``name`` begins the names of blocks, ``source`` is the block
    of the compile's own file or empty.
    """
    found = [DocumentView(source, "source", "source", item.function)] if source else []
    for graph, title in zip(graphs, graph_titles(graphs), strict=True):
        block, detail = f"{name}graph-{graph.index}", count(graph.ops, "operator")
        found.append(DocumentView(block, "graph", title.text, detail, graph.stage, graph.event, graph.index in drawn))
    events = dict.fromkeys(kernel.event for kernel in kernels if kernel.event is not None)
    for event, called in _module_titles(graphs, events).items():
        size = sum(kernel.event == event for kernel in kernels)
        found.append(DocumentView(f"{name}module-{event}", "module", called, count(size, "kernel"), "", event))
    for kernel in kernels:
        for stage in stages.get((kernel.event or 0, kernel.name), ()):
            block, event = f"{kernel_block(kernel, name)}-{stage}", kernel.event or 0
            found.append(
                DocumentView(block, "stage", f"{stage} of {kernel.name}", "", stage, event, kernel=kernel.name)
            )
    return tuple(found)


def _module_titles(graphs: Sequence[Graph], events: Iterable[int]) -> dict[int, str]:
    """The titles of generated modules. Each has the direction of the last graph before it, if the directions differ."""
    before = list(zip(graphs, graph_titles(graphs), strict=True))
    of = {event: [title.direction for graph, title in before if graph.event < event] for event in events}
    directions = {event: found[-1] if found else "" for event, found in of.items()}
    are_known = all(directions.values()) and len(set(directions.values())) == len(directions) > 1
    return {event: f"generated code, {which}" if are_known else "generated code" for event, which in directions.items()}


def kernel_block(kernel: Kernel, name: str) -> str:
    """Return the anchor of a kernel. The names of the blocks of its stages begin with it."""
    return f"{name}kernel-{kernel.index}"


def compile_texts(
    recording: Recording,
    explanation: Explanation,
    item: Compile,
    documents: Sequence[DocumentView],
    block: str,
    name: str,
    stages: KernelStages,
) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each block of a compile: its texts, drawings, and the links between their lines.

    ``block`` is the name of the last block, which has the links.
    """
    graphs = [graph for graph in explanation.graphs if graph.compile_id == item.compile_id]
    reader = _TextReader(recording, graphs, item, name, stages)
    for each in sorted(documents, key=lambda one: (_ORDER.index(one.kind), one.stage not in DYNAMO_STAGES)):
        yield from reader.texts_of(each)
    kernels = [kernel for kernel in explanation.kernels if kernel.compile_id == item.compile_id]
    # The line of each kernel in its module: that of its definition, or of the first call of a library kernel.
    found = {}
    for kernel in kernels:
        module = reader.modules.get(-1 if kernel.event is None else kernel.event)
        call = next((call for call in module.calls if call.name == kernel.name), None) if module else None
        if call is not None:
            found[kernel_block(kernel, name)] = call.definition.first_line if call.definition else call.line
    places = found
    yield block, _panes_document(item, documents, reader.links, places, partial(relative_path, cwd=recording.run.cwd))


class _TextReader:
    """Reads the documents of one compile. ``links`` has the source lines of their lines, by block."""

    def __init__(
        self, recording: Recording, graphs: Sequence[Graph], item: Compile, name: str, stages: KernelStages
    ) -> None:
        self._recording, self._name, self._stages = recording, name, stages
        self._graphs = {graph.event: graph for graph in graphs}
        self._reader = RecordedLinks(recording, tuple(graphs), from_cache="hit" in (item.cache or ""))
        is_small = sum(graph.nodes for graph in graphs) <= MAX_MODULE_NODES
        modules = generated_modules(recording, item.compile_id) if is_small else ()
        self.modules = {module.event: module for module in modules}
        self._linkable_nodes = MAX_LINKED_NODES  # of graphs that are still to be read
        self.links: dict[str, DocumentLinks] = {}

    def texts_of(self, document: DocumentView) -> Iterator[tuple[str, str]]:
        """Yield the blocks of a document. A stage comes after the module of its kernel."""
        if document.kind == "graph":
            yield from self._graph(document)
        elif document.kind == "module":
            text = self._recording.payload(document.event)
            yield document.block, text
            self.links[document.block] = self._reader.module(text, self.modules.get(document.event))
        elif document.kind == "stage":
            yield from self._stage(document)

    def _graph(self, document: DocumentView) -> Iterator[tuple[str, str]]:
        graph, text = self._graphs[document.event], self._recording.payload(document.event)
        yield document.block, text
        self._linkable_nodes -= graph.nodes
        is_linked = self._linkable_nodes >= 0 or graph.is_of_dynamo
        links = self.links[document.block] = self._reader.graph(graph, text) if is_linked else DocumentLinks()
        printed = text.split("\n")
        found = [(line.row + 1, line.margin.replace("\t", " "), line.text) for line in readable_lines(printed)]
        if not any(margin for _, margin, _ in found):
            found = [(row, "", line) for row, line in enumerate(printed, 1)]
        yield f"{document.block}-readable", "\n".join(f"{row}\t{margin}\t{line}" for row, margin, line in found)
        if document.is_drawn:
            modules = {name: origin.modules for name, origin in read_origins(self._recording, graph).items()}
            flow = DrawableGraph(parse_graph(text), modules)
            shown = partial(relative_path, cwd=self._recording.run.cwd)
            for ending, drawn in (("", flow.fold()), ("-all", flow.fold(everything=True))):
                if 0 < len(drawn.boxes) <= MAX_BOXES:
                    lines_of = partial(_lines_of_box, links=links)
                    yield (
                        f"{document.block}-drawing{ending}",
                        graph_svg(drawn, style="", shown_file=shown, lines_of=lines_of),
                    )

    def _stage(self, document: DocumentView) -> Iterator[tuple[str, str]]:
        module = self.modules.get(document.event)
        call = next((call for call in module.calls if call.name == document.kernel), None) if module else None
        stage = self._stages.stages_of(self._recording, call).get(document.stage) if call else None
        if call is not None and stage is not None:
            yield document.block, stage.text
            self.links[document.block] = _stage_links(stage, call, self.links[f"{self._name}module-{document.event}"])


def _stage_links(stage: Stage, call: KernelCall, module: DocumentLinks) -> DocumentLinks:
    """The source lines of each line of a stage: those of the line of the kernel's source that it comes from."""
    assert call.definition is not None
    pairs = [(line, call.definition.first_line + source - 1) for line, source in stage.lines]
    found = {line: module.lines[source] for line, source in pairs if source in module.lines}
    inferred = frozenset(line for line, source in pairs if source in module.inferred)
    return DocumentLinks(found, inferred, context=frozenset(line for line, source in pairs if source in module.context))


def _lines_of_box(box: GraphBox, links: DocumentLinks) -> frozenset[SourceLine]:
    """The source lines of a box: those that its nodes are linked to, which are the user's even for library code."""
    rows = (links.nodes.get(name) for name in box.nodes)
    return frozenset(line for row in rows if row is not None for line in links.lines.get(row, ())) or box.sources


def _panes_document(
    item: Compile,
    documents: Sequence[DocumentView],
    links: Mapping[str, DocumentLinks],
    places: Mapping[str, int],
    shown: partial[str],
) -> str:
    """The JSON that the panes read.

    It has the documents, which of them are shown first, the line of the compiled function, the links, and the lines of
    kernels.
    """
    keys: dict[SourceLine, int] = {}
    found = {}
    for block, each in links.items():
        rows = [[row, *_numbers(lines, keys)] for row, lines in each.lines.items()]
        found[block] = {"lines": rows, "inferred": sorted(each.inferred), "context": sorted(each.context)}
    listed = [
        {"block": each.block, "kind": each.kind, "title": clean(each.title), "drawn": each.is_drawn}
        for each in documents
    ]
    names = [f"{clean(shown(key.file))}:{key.line}" for key in keys]
    # The positions of the documents that are shown first: source, and the graphs of three stages.
    stages = [each.stage for each in documents]
    aot = next((stage for stage in _AOT if stage in stages), "")
    wanted = [stage for stage in (*DYNAMO_STAGES, aot, "post_grad") if stage and stage in stages]
    first = [number for number, each in enumerate(documents) if each.kind == "source"]
    panes = {"documents": listed, "panes": [*first[:1], *(stages.index(stage) for stage in wanted)], "line": item.line}
    return json.dumps({**panes, "keys": names, "links": found, "places": places})


def _numbers(lines: Iterable[SourceLine], keys: dict[SourceLine, int]) -> list[int]:
    return [keys.setdefault(line, len(keys)) for line in sorted(lines, key=lambda line: (line.file, line.line))]


@dataclass(frozen=True, slots=True)
class KernelView:
    """A kernel. ``module`` is the block of its generated code, ``stages`` has the names and blocks of later stages."""

    anchor: str
    name: str
    language: str
    module: str = ""
    stages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CompileView:
    """A compile. ``parts`` are the parts of its time: (part, start, width), in percent of the time of all compiles."""

    compile_id: str
    function: str
    place: str
    outcome: str
    seconds: str
    guards: int
    parts: tuple[tuple[str, float, float], ...]
    start: float
    graphs: int
    kernels: tuple[KernelView, ...]
    documents: tuple[DocumentView, ...]
    stages: str  # the block that has the documents side by side; empty where the page has no texts


def compile_views(
    explanation: Explanation, name: str, redaction: Redaction, stages: StageNames
) -> tuple[CompileView, ...]:
    """Return the view of each compile. ``name`` begins the anchors of the recording."""
    total = sum(each.seconds.total or 0.0 for each in explanation.compiles) or 1.0
    documents, kernels = documents_of(explanation, name, stages), by_compile(explanation.kernels)
    spent = {each.compile.index: each.shares for each in explanation.timing.spent} if explanation.timing else {}
    found, before = [], 0.0
    for item in explanation.compiles:
        shown = documents.get(item.index, ())
        file = redaction.file(relative_path(item.file, explanation.run.cwd))
        found.append(
            CompileView(
                compile_id=item.compile_id,
                function=redaction.function(item.function),
                place=file if item.line is None else f"{file}:{item.line}",
                outcome=item.outcome,
                seconds="" if item.seconds.total is None else duration(item.seconds.total),
                guards=item.guards,
                parts=tuple(_parts(spent.get(item.index, ()), total)),
                start=round(100 * before / total, 2),
                graphs=sum(each.kind == "graph" for each in shown),
                kernels=_kernels(kernels.get(item.compile_id, ()), shown, name, redaction),
                documents=tuple(each for each in shown if each.kind in ("graph", "module")),
                stages="" if redaction.active or not shown else stages_block(item, name),
            )
        )
        before += item.seconds.total or 0.0
    return tuple(found)


def _parts(shares: Iterable[PhaseShare], total: float) -> Iterator[tuple[str, float, float]]:
    start = 0.0
    for share in sorted(shares, key=lambda each: PARTS.index(each.part)):
        width = 100 * share.seconds / total
        yield share.part, round(start, 2), round(width, 2)
        start += width


def _kernels(
    kernels: Sequence[Kernel], documents: Sequence[DocumentView], name: str, redaction: Redaction
) -> tuple[KernelView, ...]:
    if redaction.active:
        return tuple(KernelView("", f"kernel {number}", each.language) for number, each in enumerate(kernels))
    modules = {each.event: each.block for each in documents if each.kind == "module"}
    made = (each for each in documents if each.kind == "stage")
    stages = grouped(((each.event, each.kernel), (each.stage, each.block)) for each in made)
    found = []
    for kernel in kernels:
        event = -1 if kernel.event is None else kernel.event
        own = tuple(stages.pop((event, kernel.name), ()))
        found.append(KernelView(kernel_block(kernel, name), kernel.name, kernel.language, modules.get(event, ""), own))
    return tuple(found)


def documents_of(
    explanation: Explanation, name: str, stages: StageNames = NO_STAGES
) -> dict[int, tuple[DocumentView, ...]]:
    """Return the documents of each compile by its index. If torch reused an id, only its last compile has documents."""
    graphs, kernels = by_compile(explanation.graphs), by_compile(explanation.kernels)
    drawn = frozenset(graph.index for graph in explanation.graphs[:MAX_DRAWN])
    sources = {file: f"{name}source-{index}" for index, file in enumerate(explanation.sources)}
    last = {item.compile_id: item for item in explanation.compiles}
    return {
        item.index: compile_documents(
            item, graphs.get(id_, ()), kernels.get(id_, ()), drawn, name, sources.get(item.file or "", ""), stages
        )
        for id_, item in last.items()
    }


def stages_block(item: Compile, name: str) -> str:
    """The name of the block that has the documents of a compile side by side."""
    return f"{name}stages-{item.index}"
