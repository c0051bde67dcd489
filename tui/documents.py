"""Documents: the texts that the panes of the code screen show, and the list of those of a compile."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING

from dynadiag.kernels.graph_parser import split_lines
from dynadiag.recording.records import DYNAMO_STAGES, Compile, Graph, Kernel, Span
from dynadiag.render.readable_graph import graph_titles, readable_lines
from tui.highlighting import Highlighter, LanguageRegion
from tui.line_links import LineLinks
from tui.styled_text import one_line

if TYPE_CHECKING:
    from dynadiag.explanation.explanation import Explanation
    from dynadiag.explanation.findings import Finding
    from tui.session import Session

# Inductor writes a kernel's code as a string literal into the generated module.
_KERNEL = re.compile(r"^\w+ = async_compile\.(\w+)\(.*(?:'''|\"\"\")$")
_LANGUAGES = {"cpp": "cpp", "cpp_pybinding": "cpp", "cuda": "cuda", "metal": "cpp", "triton": "python"}
_SUFFIXES = {".py": "python", ".pyi": "python", ".cpp": "cpp", ".cc": "cpp", ".h": "cpp", ".cu": "cuda"}

# The comment above the nodes of a source line in a printed graph.
_CODE = re.compile(r"^ *# File: (?P<file>.+):(?P<line>[1-9]\d{0,5}) in .*?, code: (?P<code>.*)$")
_MAX_COMMENT = 1000  # characters of it

# The graph pane starts with the first of these that exists.
_PREFERRED_STAGES = ("post_grad", "forward", "inference", "backward", "joint")


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """A reference to a document that can be read. ``key`` is unique within the recording."""

    key: str  # "source:FILE", "event:INDEX", "diff:INDEX:INDEX"
    kind: str  # "source" | "graph" | "kernel" | "diff" | "event"
    title: str
    compile_id: str | None = None
    stage: str = ""  # of a graph, as the recording calls it
    direction: str = ""  # "forward", "backward" or "inference"; "" of a graph before AOTAutograd split it

    @property
    def event(self) -> int:
        """The event whose payload is the document. Not for a source or a diff."""
        return int(self.key.partition(":")[2])


@dataclass(frozen=True)  # without slots, where its highlighted lines could not be kept
class Document:
    """A text as lines, exactly as in the recording. Control characters are removed where it is drawn."""

    ref: DocumentRef
    lines: Sequence[str]
    regions: tuple[LanguageRegion, ...]
    note: str = ""  # why it is empty, if it is
    part: str = ""  # which part of the whole text it is, if it is one
    margins: Sequence[str] = ()  # what stands at the right margin of each line
    rows: Sequence[int] = ()  # where lines are left out: the line of the whole text that each stands for, from 0

    @cached_property
    def highlighter(self) -> Highlighter:
        return Highlighter(self.lines, self.regions)

    def row_of(self, line: int) -> int:
        """Return the line of the whole text that a line stands for. Both count from 0."""
        return self.rows[line] if line < len(self.rows) else line

    def line_of(self, row: int) -> int:
        """Return the line that stands for a line of the whole text, or the next one that is shown."""
        return min(bisect_left(self.rows, row), len(self.rows) - 1) if self.rows else row


def read_document(session: Session, ref: DocumentRef) -> Document:
    """Read a document. If it has no text, its note says why."""
    kind, _, name = ref.key.partition(":")
    if kind == "source":
        text = session.recording.source(name)
        note = "" if text is not None else "this file is not in the recording"
    else:
        text = session.recording.payload(ref.event)
        note = "" if text else "this event has no payload"
    lines = split_lines(text or "")
    if ref.kind == "kernel":
        return Document(ref, lines, kernel_regions(lines), note)
    languages = {"source": _SUFFIXES.get(PurePath(ref.title).suffix, "python"), "graph": "python", "diff": "diff"}
    return Document(ref, lines, ((0, languages.get(ref.kind, "text")),), note)


def source_in_graphs(source: Document, graphs: Iterable[Document]) -> Document:
    """Return the lines of a source file that printed graphs name, all others empty: a foreign log has no more of it."""
    found = (_CODE.match(line[:_MAX_COMMENT]) for graph in graphs for line in graph.lines)
    known = {int(one["line"]): one["code"] for one in found if one and one["file"] == source.ref.title}
    lines = [known.get(number, "") for number in range(1, max(known, default=0) + 1)]
    return replace(source, lines=lines, note="", part="only the lines that graphs name") if lines else source


def kernel_regions(lines: Sequence[str]) -> tuple[LanguageRegion, ...]:
    """Return the regions of a generated module: Python, and the language of each kernel."""
    regions: list[LanguageRegion] = [(0, "python")]
    inside = False
    for number, line in enumerate(lines):
        if not inside and (found := _KERNEL.match(line)):
            regions.append((number + 1, _LANGUAGES.get(found[1], "cpp")))
            inside = True
        elif inside and line.startswith(("'''", '"""')):
            regions.append((number + 1, "python"))  # behind the quotes: Python's lexer would start a string at them
            inside = False
    return tuple(region for place, region in enumerate(regions) if region[0] not in {r[0] for r in regions[:place]})


def compile_documents(
    item: Compile, graphs: Sequence[Graph], kernels: Sequence[Kernel]
) -> dict[str, list[DocumentRef]]:
    """Return what each pane can show of a compile: source, Dynamo's graphs, later graphs, generated modules."""
    source = [DocumentRef(f"source:{item.file}", "source", item.file)] if item.file else []
    made = [
        DocumentRef(f"event:{graph.event}", "graph", title.text, graph.compile_id, graph.stage, title.direction)
        for graph, title in zip(graphs, graph_titles(graphs), strict=True)
    ]
    dynamo = [ref for ref in made if ref.stage in DYNAMO_STAGES]
    later = [ref for ref in made if ref.stage not in DYNAMO_STAGES]
    events = dict.fromkeys(kernel.event for kernel in kernels if kernel.event is not None)
    modules = [DocumentRef(f"event:{event}", "kernel", "generated code", kernels[0].compile_id) for event in events]
    return {"source": source, "dynamo": dynamo, "later": later, "kernel": modules}


def stage_before(refs: Sequence[DocumentRef], place: int) -> DocumentRef | None:
    """The graph that a later graph was made of, if it is among the later graphs, too."""
    after = refs[place]
    before = (ref for ref in reversed(refs[:place]) if ref.kind == "graph" and ref.direction in ("", after.direction))
    return next(before, None)


def stage_changes(before: Sequence[str], after: Sequence[str]) -> str:
    """What a pass changed, in words: "3 new, 2 gone, 12 changed, 1 only moved". Lines are those of readable graphs.

    Moved are the lines that do not belong to the longest run of equal lines in the same order.
    """
    old, new = (dict(line.strip().split(" = ", 1) for line in lines if " = " in line) for lines in (before, after))
    changed = sum(old[name] != value for name, value in new.items() if name in old)
    places = {name: number for number, name in enumerate(old)}
    kept = [places[name] for name, value in new.items() if old.get(name) == value]
    ends: list[int] = []  # the least last place of an increasing run of each length
    for place in kept:
        at = bisect_left(ends, place)
        ends[at : at + 1] = [place]
    counts = {
        "new": len(new.keys() - old.keys()),
        "gone": len(old.keys() - new.keys()),
        "changed": changed,
        "only moved": len(kept) - len(ends),
    }
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count) or "nothing changed"


def preferred_stage(later: Sequence[DocumentRef]) -> int:
    """Return the index of the later graph to show first: the last one that all kernels come from."""
    for stage in _PREFERRED_STAGES:
        for place, ref in enumerate(later):
            if ref.stage == stage:
                return place
    return 0


def readable_graph(printed: Document, links: LineLinks) -> tuple[Document, LineLinks]:
    """Return the readable form of a printed graph, and its links. Lines of the result have a row in `printed`.

    A text in which no node is recognized is returned as it is.
    """
    lines = list(readable_lines(printed.lines))
    if not any(line.margin for line in lines):
        return printed, links
    shown = {line.row: number for number, line in enumerate(lines)}
    keys = {shown[row]: found for row, found in links.keys.items() if row in shown}
    inferred = frozenset(shown[row] for row in links.inferred if row in shown)
    defined = {name: shown[row] for name, row in links.defined.items() if row in shown}
    callers = {shown[row]: found for row, found in links.callers.items() if row in shown}
    document = replace(
        printed,
        lines=[line.text for line in lines],
        margins=tuple(line.margin for line in lines),
        rows=tuple(line.row for line in lines),
    )
    return document, LineLinks(keys, inferred, defined=defined, callers=callers)


@dataclass(frozen=True, slots=True)
class SourceNote:
    """What a source line has: the sign, the role and the name of its worst finding, and the texts of all."""

    sign: str
    role: str
    text: str
    name: str = ""  # torch's id of a break, or the compile


def source_notes(explanation: Explanation, file: str) -> Mapping[int, SourceNote]:
    """Return the notes of a source file by line, from 0. Of several findings on a line the worst gives the sign."""
    found: dict[int, list[SourceNote]] = {}
    for finding in explanation.findings:
        view, label = finding.rule.view, one_line(finding.label or "")
        for span, text in _places(finding):
            if span.file == file and span.line:
                found.setdefault(span.line - 1, []).append(SourceNote(view.sign, view.role, one_line(text), label))
    return {
        line: replace(notes[0], text="  ".join(dict.fromkeys(note.text for note in notes)))
        for line, notes in found.items()
    }


def _places(finding: Finding) -> Iterator[tuple[Span, str]]:
    """The places of a finding with a short text for each: that of a recompile is where the failed guard was made."""
    guards = [(fact.span, fact.note or fact.text) for fact in finding.evidence if fact.span is not None]
    if finding.rule.is_recompile and guards:
        yield from guards
        return
    for span in dict.fromkeys((finding.own_span, finding.span, *finding.places)):
        yield span, f"{finding.id} {finding.title}" if finding.id else finding.title
