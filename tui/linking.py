"""The model of the code screen: the documents of one compile and the links between their lines.

It reads the recording in a worker thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tui.documents import Document, Ref, preferred, refs_of, regions_of, split
from tui.links import Links, Names, Place, graph_links, kernel_links, source_links
from tui.session import Session
from tui.stages import Made, add_stages, fine
from tui.unitlinks import unit_links

__all__ = ["PANES", "Board", "board_of", "diff_of", "document_of", "fill", "take_stages"]

PANES = ("source", "dynamo", "later", "kernel", "stage")
_NAMED = 30_000  # nodes of graphs that are linked although no pane shows them
_SURVEYED = 100_000  # with more nodes in its graphs, the generated code is not read by `dynadiag.kernels`
_PAGE = 5_000  # rows of nodes read at once
_SPANS = 200_000  # nodes whose source lines are kept
_DIFFED = 20_000  # lines of two graphs; the time of a diff grows with the product of their lengths


@dataclass(slots=True)
class Board:
    """The documents of one compile, their links, and which document each pane shows (``index``)."""

    compile_id: str
    refs: dict[str, list[Ref]]
    index: dict[str, int]
    documents: dict[str, Document] = field(default_factory=dict)  # by key
    links: dict[str, Links] = field(default_factory=dict)  # by key
    colours: dict[Place, int] = field(default_factory=dict)
    names: Names = field(default_factory=Names)
    line: int | None = None  # line of the compiled function in the first source file
    recorded: bool = True  # False for a compile of a trial, which the recording of a search only names
    cached: bool = False  # graphs from the FX graph cache bear the lines of the program that filled it
    known: dict[str, Links] = field(default_factory=dict)  # the links of generated modules, from `dynadiag.kernels`
    graphs: dict[str, str] = field(default_factory=dict)  # the graph that each generated module was made of, by key

    def ref(self, pane: str) -> Ref | None:
        """The document that a pane shows, or ``None`` if it has none."""
        refs = self.refs[pane]
        return refs[self.index[pane] % len(refs)] if refs else None

    def find(self, key: str) -> str | None:
        """Select a document in the pane that can show it, and return that pane."""
        for pane, refs in self.refs.items():
            for place, ref in enumerate(refs):
                if ref.key == key:
                    self.turn(pane, place)
                    return pane
        return None

    def turn(self, pane: str, place: int) -> None:
        """Select a document of a pane. A generated module and its graph are selected together."""
        self.index[pane] = place % len(self.refs[pane])
        shown = self.refs[pane][self.index[pane]].key
        other = {"kernel": "later", "later": "kernel"}.get(pane)
        pairs = self.graphs.items() if pane == "kernel" else ((graph, made) for made, graph in self.graphs.items())
        wanted = next((to for key, to in pairs if key == shown), None)
        for number, ref in enumerate(self.refs[other] if other else ()):
            if other and ref.key == wanted:
                self.index[other] = number

    @property
    def is_filled(self) -> bool:
        """Whether every selected document has been read."""
        shown = (self.ref(pane) for pane in self.refs)
        return all(ref.key in self.links for ref in shown if ref is not None)


def board_of(session: Session, compile_id: str, wanted: str | None = None) -> Board:
    """Read the documents of a compile. `wanted` is the key of a document to select."""
    item = session.compile(compile_id)
    graphs = session.graphs(compile_id)
    kernels = session.kernels(compile_id)
    if item is None:
        refs: dict[str, list[Ref]] = {pane: [] for pane in PANES}
    else:
        refs = refs_of(item, graphs, kernels)
    refs["stage"] = []  # filled when the user compiles a kernel
    board = Board(compile_id, refs, dict.fromkeys(PANES, 0), line=item.line if item else None)
    board.index["later"] = preferred(refs["later"])
    board.recorded = item is not None
    board.cached = item is not None and "hit" in (item.cache or "")
    _learn(session, board, {graph.event: graph.nodes for graph in graphs})
    if board.refs["kernel"] and sum(graph.nodes for graph in graphs) <= _SURVEYED:
        found, board.graphs = unit_links(session, compile_id)
        board.known = {key: links for key, links in found.items() if links.places}
        board.turn("kernel", 0)
    if wanted and board.find(wanted) is None:
        _add(board, wanted)
    return fill(session, board)


def _add(board: Board, wanted: str) -> None:
    """Add a document that does not belong to the compile: another source file, or an event."""
    kind, _, name = wanted.partition(":")
    if kind == "source":
        board.refs["source"].append(Ref(wanted, "source", name))
        board.index["source"] = len(board.refs["source"]) - 1
    else:
        board.refs["later"].append(Ref(wanted, "event", f"event {name}", board.compile_id))
        board.index["later"] = len(board.refs["later"]) - 1


def take_stages(board: Board, made: Made) -> None:
    """Show the stages of this kernel instead of those of another one."""
    module = fine(made, board.links[made.module])
    board.links[made.module] = module
    found = add_stages(made, module)
    board.refs["stage"] = [document.ref for document, _ in found]
    board.index["stage"] = len(found) - 1
    for document, links in found:
        board.documents[document.ref.key], board.links[document.ref.key] = document, links


def fill(session: Session, board: Board) -> Board:
    """Read the selected documents that have not been read yet, and link them."""
    for pane in ("dynamo", "later", "kernel"):
        if (ref := board.ref(pane)) is not None and ref.key not in board.links:
            _tie(session, board, ref)
    if (ref := board.ref("source")) is not None:
        _tie_source(session, board, ref)
    return board


def _tie(session: Session, board: Board, ref: Ref) -> None:
    document = board.documents.get(ref.key) or document_of(session, ref)
    board.documents[ref.key] = document
    if ref.kind == "kernel":
        links = board.known.get(ref.key) or kernel_links(document.lines, board.names)
    elif ref.kind == "graph":
        links = _graph(session, board, ref, document)
    else:
        links = Links()
    board.links[ref.key] = links
    _number(board, sorted(links.lines))


def _graph(session: Session, board: Board, ref: Ref, document: Document) -> Links:
    if ref in board.refs["dynamo"]:
        spans = _spans(session, ref) if ref.graph is not None else {}
        return graph_links(document.lines, board.names, spans, dynamo=True)
    own = _own_lines(session, board, ref, document) if board.cached else None
    return graph_links(document.lines, board.names, own, believed=own is None)


def _own_lines(session: Session, board: Board, ref: Ref, document: Document) -> dict[str, Place] | None:
    from tui.ownlines import own_lines

    if not board.refs["dynamo"]:
        return None
    forward = next((one for one in board.refs["later"] if one.title == "forward graph"), None)
    before = document_of(session, forward).lines if forward is not None else None
    return own_lines(ref.title, document.lines, document_of(session, board.refs["dynamo"][0]).lines, before)


def _tie_source(session: Session, board: Board, ref: Ref) -> None:
    """Link a source file. This comes last: a source line has links if any other document refers to it."""
    document = board.documents.get(ref.key) or document_of(session, ref)
    board.documents[ref.key] = document
    mapped = {place for key, links in board.links.items() if key != ref.key for place in links.lines}
    board.links[ref.key] = source_links(ref.title, len(document.lines), mapped)


def _number(board: Board, places: Iterable[Place]) -> None:
    for place in places:
        board.colours.setdefault(place, len(board.colours))


def _learn(session: Session, board: Board, sizes: Mapping[int, int]) -> None:
    """Link the graphs of a compile so that generated code can be linked by node names and operator names."""
    room = _NAMED
    for ref in [*board.refs["dynamo"], *board.refs["later"]]:
        if ref.kind != "graph":
            continue
        size = sizes.get(int(ref.key.partition(":")[2]), 0)
        if size <= room or ref in board.refs["dynamo"]:
            room -= size
            _tie(session, board, ref)


def _spans(session: Session, ref: Ref) -> dict[str, Place]:
    """Return the source line of each node that was recorded as data. Nodes are read in pages to save memory."""
    found: dict[str, Place] = {}
    files: dict[str, str] = {}
    start = 0
    while len(found) < _SPANS:
        page = session.counted(session.recording.nodes(ref.graph or 0, start, _PAGE))
        for node in page:
            if node.span.file and node.span.line:
                found[node.name] = (files.setdefault(node.span.file, node.span.file), node.span.line)
        if len(page) < _PAGE:
            break
        start += _PAGE
    return found


def document_of(session: Session, ref: Ref) -> Document:
    """Read a document. If it has no text, its note says why."""
    kind, _, name = ref.key.partition(":")
    if kind == "source":
        text = session.recording.source(name)
        note = "" if text is not None else "this file is not in the recording"
    else:
        text = session.payload(int(name))
        note = "" if text else "this event has no payload"
    lines = split(text or "")
    return Document(ref, lines, regions_of(ref, lines), note)


def diff_of(session: Session, board: Board, pane: str) -> Document | None:
    """Return the diff of a pane's document against the previous stage, or ``None`` for the first stage."""
    from difflib import unified_diff

    refs, place = board.refs[pane], board.index[pane] % max(len(board.refs[pane]), 1)
    before = refs[place - 1] if place > 0 else (board.ref("dynamo") if pane == "later" else None)
    after = board.ref(pane)
    if before is None or after is None:
        return None
    ref = replace(after, kind="diff", key=f"diff:{before.key}:{after.key}", title=f"{before.title} → {after.title}")
    old, new = document_of(session, before).lines, document_of(session, after).lines
    if len(old) + len(new) > _DIFFED:
        return Document(ref, [], ((0, "text"),), f"too long for a diff: {len(old):,} and {len(new):,} lines")
    lines = list(unified_diff(old, new, before.title, after.title, lineterm="", n=3))
    return Document(ref, lines, ((0, "diff"),), "" if lines else "nothing changed")
