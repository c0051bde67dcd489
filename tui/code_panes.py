"""The model of the code screen: the documents of one compile and the links between their lines.

It reads the recording in a worker thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import chain

from dynadiag.kernels.document_links import MAX_LINKED_NODES, MAX_MODULE_NODES, NodeOrigin, RecordedLinks, read_origins
from dynadiag.kernels.generated_module import GeneratedModule
from dynadiag.kernels.graph_parser import parse_graph
from dynadiag.kernels.read_modules import generated_modules
from dynadiag.recording.records import Compile, Frame, Graph
from tui.documents import (
    Document,
    DocumentRef,
    SourceNote,
    compile_documents,
    preferred_stage,
    read_document,
    readable_graph,
    source_in_graphs,
    source_notes,
    stage_before,
    stage_changes,
)
from tui.graph_node import GraphNodes
from tui.kernel_stages import CompiledKernel, line_links, stage_documents
from tui.line_links import CODE, DYNAMO, LOWERED, LineKey, LineLinks, NodeRows, pane_links, source_links
from tui.node_values import NodeValues
from tui.session import Session
from tui.styled_text import one_line

PANES = ("source", "dynamo", "later", "kernel", "stage")
NO_COMPILE = "-"  # of a document that belongs to none, as the recording calls it
UNKNOWN_COMPILE = "this compile is not in the recording"

_SEVERAL, _MAX_COMPILES = 2, 4  # compiles of a line that are named

# The titles of panes without a document.
PANE_TITLES = {"dynamo": "Dynamo's graph", "later": "later graphs", "kernel": "generated code"}

EMPTY_PANE = {
    "source": "no source: torch did not report a file",
    "dynamo": "Dynamo made no graph in this compile",
    "later": "no later graph was recorded",
    "kernel": "no code was generated in this compile",
    "stage": "no kernel was compiled here",
}
MADE_BY_COMPILING = ("dynamo", "later", "kernel")  # the panes of a failed compile that say when it failed
_FIRST_LINES = 60  # lines that a pane may show at once
_MAX_DIFF_LINES = 20_000  # lines of two graphs; the time of a diff grows with the product of their lengths


@dataclass(slots=True)
class CodePaneModel:
    """The documents of one compile, their links, and which document each pane shows (``selected``).

    Before a compile is read, and where there is none, it is empty.
    """

    compile_id: str = ""
    session: Session | None = None  # of the recording that it was read from
    linker: RecordedLinks | None = None
    documents_of: dict[str, list[DocumentRef]] = field(default_factory=lambda: {pane: [] for pane in PANES})
    selected: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PANES, 0))
    graphs: dict[int, Graph] = field(default_factory=dict)  # by event
    documents: dict[str, Document] = field(default_factory=dict)  # by key, as they are shown
    links: dict[str, LineLinks] = field(default_factory=dict)  # by key, of the lines that are shown
    printed: dict[str, tuple[Document, LineLinks]] = field(default_factory=dict)  # graphs as torch printed them, by key
    parsed: dict[str, GraphNodes] = field(default_factory=dict)  # the nodes of graphs, by key
    colors: dict[LineKey, int] = field(default_factory=dict)
    line: int | None = None  # line of the compiled function in the first source file
    in_recording: bool = True  # False for a compile of a trial, which the recording of a search only names
    failure: str = ""  # of one that failed: when that was
    notes: dict[str, Mapping[int, SourceNote]] = field(default_factory=dict)  # findings of a source file, by key
    changes: dict[tuple[str, str], str] = field(default_factory=dict)  # from one graph to the next, by their keys
    forward_graph: DocumentRef | None = None  # shown in the place of Dynamo's, beside the backward graph
    modules: dict[str, GeneratedModule] = field(default_factory=dict)  # by key; empty for a very large compile
    origins: Mapping[str, NodeOrigin] = field(default_factory=dict)  # of Dynamo's nodes
    values: NodeValues | None = None  # None in a recording without values
    last_of: dict[str, Mapping[str, str]] = field(default_factory=dict)  # of later graphs, for `CodeValues.of_node`
    callers: Sequence[Frame] = ()  # the frames that led to the compiled function
    rows: dict[int, NodeRows] = field(default_factory=dict)  # by the event of the module

    def nodes(self, key: str) -> GraphNodes | None:
        """The nodes of a graph. That which code was made of is parsed, as Dynamo's is where it is the only one."""
        if key not in self.parsed and key in self.printed:
            modules = self.modules.values()
            known = next((made.graph for made in modules if key == f"event:{made.graph_event}"), None)
            if known is None and [ref.key for ref in self.documents_of["dynamo"]] == [key]:
                known = next((made.dynamo for made in modules), None)
            self.parsed[key] = GraphNodes(known or parse_graph("\n".join(self.printed[key][0].lines)))
        return self.parsed.get(key)

    def sources(self, key: str) -> Mapping[str, Sequence[str]] | None:
        """Dynamo's nodes of the nodes of a later graph; ``None`` for a graph of Dynamo's itself."""
        graph = self.graphs.get(int(key.partition(":")[2])) if key.startswith("event:") else None
        return None if self.linker is None or graph is None or graph.is_of_dynamo else self.linker.sources(graph)

    @property
    def module(self) -> GeneratedModule | None:
        ref = self.ref("kernel")
        return self.modules.get(ref.key) if ref is not None else None

    @property
    def node_rows(self) -> NodeRows | None:
        """The lines of each node of the module that is shown."""
        if (module := self.module) is None:
            return None
        if module.event not in self.rows:
            known = self.sources(f"event:{module.graph_event}") if module.graph_event is not None else None
            self.rows[module.event] = NodeRows(module, known or {})
        return self.rows[module.event]

    def same_rows(self, at: str, row: int, pane: str) -> tuple[int, ...]:
        """The lines of a pane with the nodes of a line of another one; none where only their source lines are known.

        That is so of a graph other than Dynamo's and the one that the code was made of.
        """
        rows, (here, links), (there, linked) = self.node_rows, self._stage(at), self._stage(pane)
        return rows.rows(there, linked, rows.names(here, links, row)) if rows and here and there and at != pane else ()

    def _stage(self, pane: str) -> tuple[str, LineLinks]:
        ref, module = self.ref(pane), self.module
        graph = self.graphs.get(ref.event) if ref is not None and ref.kind == "graph" else None
        if ref is None or module is None or ref.key not in self.links:
            return "", LineLinks()
        lowered = LOWERED if graph is not None and graph.event == module.graph_event else ""
        stage = CODE if pane == "kernel" else DYNAMO if graph is not None and graph.is_of_dynamo else lowered
        return stage, self.links[ref.key]

    def ref(self, pane: str) -> DocumentRef | None:
        """The document that a pane shows, or ``None`` if it has none."""
        if pane == "dynamo" and self.forward_graph is not None:
            return self.forward_graph
        refs = self.documents_of[pane]
        return refs[self.selected[pane] % len(refs)] if refs else None

    def find(self, key: str) -> str | None:
        """Select a document in the pane that can show it, and return that pane."""
        if self.forward_graph is not None and self.forward_graph.key == key:
            return "dynamo"
        for pane, refs in self.documents_of.items():
            for place, ref in enumerate(refs):
                if ref.key == key:
                    self.select(pane, place)
                    return pane
        return None

    def select(self, pane: str, place: int) -> None:
        """Select a document of a pane. A generated module and its graph are selected together."""
        self.forward_graph = None if pane == "dynamo" else self.forward_graph
        self.selected[pane] = place % len(self.documents_of[pane])
        shown = self.documents_of[pane][self.selected[pane]].key
        other = {"kernel": "later", "later": "kernel"}.get(pane)
        pairs = [(key, f"event:{module.graph_event}") for key, module in self.modules.items()]
        pairs = pairs if pane == "kernel" else [(graph, key) for key, graph in pairs]
        wanted = next((to for key, to in pairs if key == shown), None)
        for number, ref in enumerate(self.documents_of[other] if other else ()):
            if other and ref.key == wanted:
                self.selected[other] = number

    def toggle_directions(self) -> bool:
        """Select the backward graph, with the forward graph of the same stage beside it; or Dynamo's graph again.

        Return whether the compile has both directions.
        """
        if self.forward_graph is not None:
            self.forward_graph = None
            return True
        graphs, here = self.documents_of["later"], self.ref("later")
        found: dict[str, int] = {}
        for number, ref in enumerate(graphs):
            best = graphs[found[ref.direction]] if ref.direction in found else None
            if best is None or here is None or best.stage != here.stage or ref.stage == here.stage:
                found[ref.direction] = number
        if not {"forward", "backward"} <= found.keys():
            return False
        self.select("later", found["backward"])
        self.forward_graph = graphs[found["forward"]]
        return True

    @property
    def is_complete(self) -> bool:
        """Whether every selected document has been read."""
        shown = (self.ref(pane) for pane in self.documents_of)
        return all(ref.key in self.links for ref in shown if ref is not None)


def read_panes(
    session: Session, compile_id: str, wanted: str | None = None, before: CodePaneModel | None = None
) -> CodePaneModel:
    """Read the documents of a compile. `wanted` is the key of a document to select.

    Source files that `before` has read are taken from it, so that the pane keeps its place in them.
    """
    item, graphs = session.compile(compile_id), session.recording.graphs(compile_id)
    board = CodePaneModel(compile_id, session, graphs={graph.event: graph for graph in graphs})
    board.in_recording = item is not None
    if item is not None:
        board.documents_of |= compile_documents(item, graphs, session.recording.kernels(compile_id))
        board.line, board.callers = item.line, item.callers
        board.failure = failure_text(item, board.documents_of)
    board.selected["later"] = preferred_stage(board.documents_of["later"])
    is_small = sum(graph.nodes for graph in graphs) <= MAX_MODULE_NODES
    modules = generated_modules(session.recording, compile_id) if board.documents_of["kernel"] and is_small else ()
    origins = {graph.index: read_origins(session.recording, graph) for graph in graphs if graph.is_of_dynamo}
    board.linker = RecordedLinks(
        session.recording,
        graphs,
        from_cache=item is not None and "hit" in (item.cache or ""),
        origins=origins,
        callers=board.callers,
        modules=modules,
    )
    board.values = session.node_values()
    board.origins = {name: origin for nodes in origins.values() for name, origin in nodes.items()}
    known = before.documents.items() if before is not None else ()
    board.documents |= {key: each for key, each in known if each.ref.kind == "source" and not each.note}
    _link_all_graphs(session, board)
    # Add the recorded files that lines of the compile are in, after the file of the compiled function.
    recorded = frozenset(session.recording.source_files())
    named = {place: None for key in board.printed for place in _all_lines(board.printed[key][1])}
    own = {ref.title for ref in board.documents_of["source"]}
    files = dict.fromkeys(file for file, _ in named if file in recorded and file not in own)
    packages = session.explanation().packages
    ranked = sorted(files, key=lambda file: packages.inside(file) is not None)
    board.documents_of["source"] += [DocumentRef(f"source:{file}", "source", file) for file in ranked]
    board.modules = {f"event:{module.event}": module for module in modules}
    if board.modules:
        board.select("kernel", 0)
    is_recorded = (wanted or "").startswith(("source:", "event:"))  # neither a stage that was compiled here, nor a diff
    if wanted and board.find(wanted) is None and is_recorded:
        kind, _, name = wanted.partition(":")
        pane, title = ("source", name) if kind == "source" else ("later", f"event {name}")
        board.documents_of[pane].append(DocumentRef(wanted, kind, title, board.compile_id))
        board.selected[pane] = len(board.documents_of[pane]) - 1
    return read_documents(session, board)


def _all_lines(links: LineLinks) -> Iterable[LineKey]:
    """The source lines of a document, and those of the frames that led to them."""
    return chain(links.lines, *frozenset(links.callers.values()))


def set_stages(board: CodePaneModel, made: CompiledKernel) -> None:
    """Show the stages of this kernel instead of those of another one."""
    module = line_links(made, board.links[made.module])
    board.links[made.module] = module
    found = stage_documents(made, module)
    board.documents_of["stage"] = [document.ref for document, _ in found]
    board.selected["stage"] = len(found) - 1
    for document, links in found:
        board.documents[document.ref.key], board.links[document.ref.key] = document, links


def read_documents(session: Session, board: CodePaneModel) -> CodePaneModel:
    """Read the selected documents that have not been read yet, and link them."""
    for pane in ("dynamo", "later", "kernel"):
        if (ref := board.ref(pane)) is not None and ref.key not in board.links:
            _link_document(session, board, ref)
        if pane != "kernel" and ref is not None:
            board.nodes(ref.key)  # parsed here, in a worker
    if (ref := board.ref("source")) is not None:
        document = board.documents.get(ref.key) or read_document(session, ref)
        if document.note:
            document = source_in_graphs(document, (graph for graph, _ in board.printed.values()))
        board.documents[ref.key] = document
        linked = {**board.links, **{key: links for key, (_, links) in board.printed.items()}}
        others = [links for key, links in linked.items() if not key.startswith("source:")]
        mapped = {place for links in others for place in links.lines}
        board.links[ref.key] = source_links(
            ref.title, len(document.lines), mapped, chain.from_iterable(map(_all_lines, others))
        )
        if ref.key not in board.notes:
            board.notes[ref.key] = source_notes(session.explanation(), ref.title)
    lex_ahead(board, _FIRST_LINES)
    return board


def lex_ahead(board: CodePaneModel, count: int = 2000) -> None:
    """Lex the first lines of each selected document that has been read, so that the screen does not wait for it."""
    for pane in board.documents_of:
        if (ref := board.ref(pane)) is not None and (document := board.documents.get(ref.key)) is not None:
            document.highlighter.lex_ahead(count)


def _link_document(session: Session, board: CodePaneModel, ref: DocumentRef) -> None:
    assert board.linker is not None
    document = board.documents.get(ref.key) or read_document(session, ref)
    board.documents[ref.key] = document
    if ref.kind == "kernel":
        module = board.modules.get(ref.key)
        links = pane_links(board.linker.module("\n".join(document.lines), module))
        count = len(document.lines)
        calls = module.calls if module is not None else ()
        times = Counter(call.name for call in calls if call.definition is not None)
        said: dict[int, str] = {}
        for call in calls:
            which = f"call {call.call_number} of {times[call.name]}" if times[call.name] > 1 else ""
            fused = f"not fused with {len(call.refused)}" if call.refused else ""
            said[call.line] = ", ".join(filter(None, (which, fused)))
        board.documents[ref.key] = replace(document, margins=[said.get(line, "") for line in range(1, count + 1)])
    elif ref.kind == "graph":
        links = pane_links(board.linker.graph(board.graphs[ref.event], "\n".join(document.lines)))
    else:
        links = LineLinks()
    if ref.kind == "graph":
        board.printed[ref.key] = document, links
        board.documents[ref.key], links = readable_graph(document, links)
    board.links[ref.key] = links
    for place in chain(sorted(links.lines), sorted(frozenset(_all_lines(links)).difference(links.lines))):
        board.colors.setdefault(place, len(board.colors))


def _link_all_graphs(session: Session, board: CodePaneModel) -> None:
    """Link the graphs of a compile so that generated code can be linked by node names and operator names."""
    room = MAX_LINKED_NODES
    for ref in [*board.documents_of["dynamo"], *board.documents_of["later"]]:
        if ref.kind != "graph":
            continue
        size = board.graphs[ref.event].nodes
        if size <= room or ref in board.documents_of["dynamo"]:
            room -= size
            _link_document(session, board, ref)


def made_of(board: CodePaneModel, pane: str) -> DocumentRef | None:
    """The graph that the selected one of a pane was made of, or the previous one of Dynamo's."""
    refs = board.documents_of[pane]
    before = stage_before(refs, board.selected[pane] % len(refs)) if refs else None
    return before or (board.ref("dynamo") if refs and pane == "later" else None)


def failure_text(item: Compile, made: Mapping[str, Sequence[DocumentRef]]) -> str:
    """Return when a compile failed, or the program ended in it, or that it left all of its function to Python.

    Empty if none of these. `made` are the documents that it left.
    """
    has_graph = any(ref.stage == "dynamo" for ref in made["dynamo"])
    if item.outcome == "skipped" and not has_graph:
        return f"left all of {one_line(item.function)} to Python"
    if item.outcome != "error":
        return ""
    when = f"{'after' if made['kernel'] else 'before'} code was generated" if has_graph else "while Dynamo traced it"
    return f"failed {when}" if item.error else f"did not end: the recording ends {when}"


def compiles_text(ids: Sequence[str]) -> str:
    """Return in which compiles something was made of a line, if there are several."""
    if len(ids) < _SEVERAL:
        return ""
    more = f" and {len(ids) - _MAX_COMPILES:,} more" if len(ids) > _MAX_COMPILES else ""
    return f"compiled in {', '.join(map(one_line, ids[:_MAX_COMPILES]))}{more} (J: next)"


def changes_text(board: CodePaneModel, pane: str) -> str:
    """What the passes before the selected graph of a pane changed, in words; empty where nothing is known."""
    before, after = made_of(board, pane) if pane == "later" else None, board.ref(pane)
    if before is None or after is None or not {before.key, after.key} <= board.printed.keys():
        return ""
    if (before.key, after.key) not in board.changes:
        lines = (board.documents[ref.key].lines for ref in (before, after))
        board.changes[before.key, after.key] = stage_changes(*lines)
    return f"{board.changes[before.key, after.key]} since {before.title}"


def gone_text(board: CodePaneModel, places: Set[LineKey]) -> str:
    """What became of source lines that no generated code is linked to: the last graph that has something of them."""
    code = board.ref("kernel")
    if not places or code is None or code.key not in board.links or board.links[code.key].made_of(places):
        return ""
    graphs = [ref for ref in (*board.documents_of["dynamo"], *board.documents_of["later"]) if ref.key in board.links]
    has = [bool(board.links[ref.key].made_of(places)) for ref in graphs]
    last = max((place for place, known in enumerate(has) if known), default=None)
    if last is None:
        return ""
    after = f", gone in {graphs[last + 1].title}" if last + 1 < len(graphs) else ": no kernel computes it"
    return one_line(f"not in the generated code: last in {graphs[last].title}{after}")


def read_diff(session: Session, board: CodePaneModel, pane: str) -> Document | None:
    """Return the diff of a pane's document against the previous stage, or ``None`` for the first stage."""
    from difflib import unified_diff

    before, after = made_of(board, pane), board.ref(pane)
    if before is None or after is None:
        return None
    ref = replace(after, kind="diff", key=f"diff:{before.key}:{after.key}", title=f"{before.title} → {after.title}")
    old, new = (readable_graph(read_document(session, each), LineLinks())[0].lines for each in (before, after))
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return Document(ref, [], ((0, "text"),), f"too long for a diff: {len(old):,} and {len(new):,} lines")
    lines = list(unified_diff(old, new, before.title, after.title, lineterm="", n=3))
    return Document(ref, lines, ((0, "diff"),), "" if lines else "nothing changed")
