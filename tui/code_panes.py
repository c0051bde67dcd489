"""The model of the code screen: the documents of one compile and the links between their lines.

It reads the recording in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tui.documents import Document, DocumentRef, compile_documents, language_regions, preferred_stage, split_lines
from tui.kernel_stages import CompiledKernel, line_links, stage_documents
from tui.line_links import LineKey, LineLinks, NodeNames, graph_links, kernel_links, source_links
from tui.module_links import module_links
from tui.session import Session

__all__ = ["PANES", "CodePaneModel", "read_diff", "read_document", "read_documents", "read_panes", "set_stages"]

PANES = ("source", "dynamo", "later", "kernel", "stage")
_MAX_LINKED_NODES = 30_000  # nodes of graphs that are linked although no pane shows them
_MAX_NODES = 100_000  # with more nodes in its graphs, the generated code is not read by `dynadiag.kernels`
_PAGE_ROWS = 5_000  # rows of nodes read at once
_MAX_SPANS = 200_000  # nodes whose source lines are kept
_MAX_DIFF_LINES = 20_000  # lines of two graphs; the time of a diff grows with the product of their lengths


@dataclass(slots=True)
class CodePaneModel:
    """The documents of one compile, their links, and which document each pane shows (``selected``)."""

    compile_id: str
    documents_of: dict[str, list[DocumentRef]]
    selected: dict[str, int]
    documents: dict[str, Document] = field(default_factory=dict)  # by key
    links: dict[str, LineLinks] = field(default_factory=dict)  # by key
    colors: dict[LineKey, int] = field(default_factory=dict)
    names: NodeNames = field(default_factory=NodeNames)
    line: int | None = None  # line of the compiled function in the first source file
    in_recording: bool = True  # False for a compile of a trial, which the recording of a search only names
    from_cache: bool = False  # graphs from the FX graph cache bear the lines of the program that filled it
    module_links: dict[str, LineLinks] = field(
        default_factory=dict
    )  # the links of generated modules, from `dynadiag.kernels`
    graph_of_module: dict[str, str] = field(
        default_factory=dict
    )  # the graph that each generated module was made of, by key

    def ref(self, pane: str) -> DocumentRef | None:
        """The document that a pane shows, or ``None`` if it has none."""
        refs = self.documents_of[pane]
        return refs[self.selected[pane] % len(refs)] if refs else None

    def find(self, key: str) -> str | None:
        """Select a document in the pane that can show it, and return that pane."""
        for pane, refs in self.documents_of.items():
            for place, ref in enumerate(refs):
                if ref.key == key:
                    self.select(pane, place)
                    return pane
        return None

    def select(self, pane: str, place: int) -> None:
        """Select a document of a pane. A generated module and its graph are selected together."""
        self.selected[pane] = place % len(self.documents_of[pane])
        shown = self.documents_of[pane][self.selected[pane]].key
        other = {"kernel": "later", "later": "kernel"}.get(pane)
        pairs = (
            self.graph_of_module.items()
            if pane == "kernel"
            else ((graph, made) for made, graph in self.graph_of_module.items())
        )
        wanted = next((to for key, to in pairs if key == shown), None)
        for number, ref in enumerate(self.documents_of[other] if other else ()):
            if other and ref.key == wanted:
                self.selected[other] = number

    @property
    def is_complete(self) -> bool:
        """Whether every selected document has been read."""
        shown = (self.ref(pane) for pane in self.documents_of)
        return all(ref.key in self.links for ref in shown if ref is not None)


def read_panes(session: Session, compile_id: str, wanted: str | None = None) -> CodePaneModel:
    """Read the documents of a compile. `wanted` is the key of a document to select."""
    item = session.compile(compile_id)
    graphs = session.graphs(compile_id)
    kernels = session.kernels(compile_id)
    if item is None:
        refs: dict[str, list[DocumentRef]] = {pane: [] for pane in PANES}
    else:
        refs = compile_documents(item, graphs, kernels)
    refs["stage"] = []  # filled when the user compiles a kernel
    board = CodePaneModel(compile_id, refs, dict.fromkeys(PANES, 0), line=item.line if item else None)
    board.selected["later"] = preferred_stage(refs["later"])
    board.in_recording = item is not None
    board.from_cache = item is not None and "hit" in (item.cache or "")
    _link_all_graphs(session, board, {graph.event: graph.nodes for graph in graphs})
    if board.documents_of["kernel"] and sum(graph.nodes for graph in graphs) <= _MAX_NODES:
        found, board.graph_of_module = module_links(session, compile_id)
        board.module_links = {key: links for key, links in found.items() if links.keys}
        board.select("kernel", 0)
    if wanted and board.find(wanted) is None:
        _add_document(board, wanted)
    return read_documents(session, board)


def _add_document(board: CodePaneModel, wanted: str) -> None:
    """Add a document that does not belong to the compile: another source file, or an event."""
    kind, _, name = wanted.partition(":")
    if kind == "source":
        board.documents_of["source"].append(DocumentRef(wanted, "source", name))
        board.selected["source"] = len(board.documents_of["source"]) - 1
    else:
        board.documents_of["later"].append(DocumentRef(wanted, "event", f"event {name}", board.compile_id))
        board.selected["later"] = len(board.documents_of["later"]) - 1


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
    if (ref := board.ref("source")) is not None:
        _link_source(session, board, ref)
    return board


def _link_document(session: Session, board: CodePaneModel, ref: DocumentRef) -> None:
    document = board.documents.get(ref.key) or read_document(session, ref)
    board.documents[ref.key] = document
    if ref.kind == "kernel":
        links = board.module_links.get(ref.key) or kernel_links(document.lines, board.names)
    elif ref.kind == "graph":
        links = _graph_links(session, board, ref, document)
    else:
        links = LineLinks()
    board.links[ref.key] = links
    _assign_colors(board, sorted(links.lines))


def _graph_links(session: Session, board: CodePaneModel, ref: DocumentRef, document: Document) -> LineLinks:
    if ref in board.documents_of["dynamo"]:
        spans = _node_lines(session, ref) if ref.graph_index is not None else {}
        return graph_links(document.lines, board.names, spans, dynamo=True)
    own = _own_lines(session, board, ref, document) if board.from_cache else None
    return graph_links(document.lines, board.names, own, believed=own is None)


def _own_lines(
    session: Session, board: CodePaneModel, ref: DocumentRef, document: Document
) -> dict[str, LineKey] | None:
    from tui.cache_hit_lines import cache_hit_lines

    if not board.documents_of["dynamo"]:
        return None
    forward = next((one for one in board.documents_of["later"] if one.title == "forward graph"), None)
    before = read_document(session, forward).lines if forward is not None else None
    return cache_hit_lines(
        ref.title, document.lines, read_document(session, board.documents_of["dynamo"][0]).lines, before
    )


def _link_source(session: Session, board: CodePaneModel, ref: DocumentRef) -> None:
    """Link a source file. This comes last: a source line has links if any other document refers to it."""
    document = board.documents.get(ref.key) or read_document(session, ref)
    board.documents[ref.key] = document
    mapped = {place for key, links in board.links.items() if key != ref.key for place in links.lines}
    board.links[ref.key] = source_links(ref.title, len(document.lines), mapped)


def _assign_colors(board: CodePaneModel, places: Iterable[LineKey]) -> None:
    for place in places:
        board.colors.setdefault(place, len(board.colors))


def _link_all_graphs(session: Session, board: CodePaneModel, sizes: Mapping[int, int]) -> None:
    """Link the graphs of a compile so that generated code can be linked by node names and operator names."""
    room = _MAX_LINKED_NODES
    for ref in [*board.documents_of["dynamo"], *board.documents_of["later"]]:
        if ref.kind != "graph":
            continue
        size = sizes.get(int(ref.key.partition(":")[2]), 0)
        if size <= room or ref in board.documents_of["dynamo"]:
            room -= size
            _link_document(session, board, ref)


def _node_lines(session: Session, ref: DocumentRef) -> dict[str, LineKey]:
    """Return the source line of each node that was recorded as data. Nodes are read in pages to save memory."""
    found: dict[str, LineKey] = {}
    files: dict[str, str] = {}
    start = 0
    while len(found) < _MAX_SPANS:
        page = session.count_rows(session.recording.nodes(ref.graph_index or 0, start, _PAGE_ROWS))
        for node in page:
            if node.span.file and node.span.line:
                found[node.name] = (files.setdefault(node.span.file, node.span.file), node.span.line)
        if len(page) < _PAGE_ROWS:
            break
        start += _PAGE_ROWS
    return found


def read_document(session: Session, ref: DocumentRef) -> Document:
    """Read a document. If it has no text, its note says why."""
    kind, _, name = ref.key.partition(":")
    if kind == "source":
        text = session.recording.source(name)
        note = "" if text is not None else "this file is not in the recording"
    else:
        text = session.payload(int(name))
        note = "" if text else "this event has no payload"
    lines = split_lines(text or "")
    return Document(ref, lines, language_regions(ref, lines), note)


def read_diff(session: Session, board: CodePaneModel, pane: str) -> Document | None:
    """Return the diff of a pane's document against the previous stage, or ``None`` for the first stage."""
    from difflib import unified_diff

    refs, place = board.documents_of[pane], board.selected[pane] % max(len(board.documents_of[pane]), 1)
    before = refs[place - 1] if place > 0 else (board.ref("dynamo") if pane == "later" else None)
    after = board.ref(pane)
    if before is None or after is None:
        return None
    ref = replace(after, kind="diff", key=f"diff:{before.key}:{after.key}", title=f"{before.title} → {after.title}")
    old, new = read_document(session, before).lines, read_document(session, after).lines
    if len(old) + len(new) > _MAX_DIFF_LINES:
        return Document(ref, [], ((0, "text"),), f"too long for a diff: {len(old):,} and {len(new):,} lines")
    lines = list(unified_diff(old, new, before.title, after.title, lineterm="", n=3))
    return Document(ref, lines, ((0, "diff"),), "" if lines else "nothing changed")
