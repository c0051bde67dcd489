"""The two sides of a difference: a graph or a source file of both runs, in rows that belong together."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import takewhile

from dynadiag.diff.difference import SIGNS, Difference, NodeDifference
from dynadiag.kernels.graph_parser import parse_graph
from dynadiag.recording.records import Graph
from dynadiag.render.diff import without_alike
from dynadiag.render.readable_graph import graph_titles
from tui.documents import Document, DocumentRef, read_document, readable_graph
from tui.line_links import LineLinks
from tui.location import Location
from tui.session import Session
from tui.styled_text import Line, line, one_line, printable_code

_ROLES = {"+": "add", "-": "remove", "~": "break", ">": "recompile", "": ""}
_MAX_COMPARED = 5_000  # lines of two sources that are compared; the time grows with the product of their lengths
_EQUAL = "equal"
_VALUE = re.compile(r"(\w+\[[^\]]*\])(\[[^\]]*\])?(.*)")  # dtype and sizes, strides, device
Signs = Mapping[int, str]  # of lines, from 0
Pair = tuple[int | None, int | None]  # a line of each side, from 0


@dataclass(frozen=True, slots=True)
class Sides:
    """Rows of both sides, as many of each; a row that only one side has is empty on the other."""

    titles: tuple[str, str]
    before: Sequence[Line]
    after: Sequence[Line]
    changed: Sequence[int]  # rows that differ


def read_sides(before: Session, after: Session, item: Difference) -> Sides | None:
    """Return the graphs that differ, or else the source at the difference; `None` where a run has neither."""
    pair = _graphs(before, after, item) if item.graph else None
    if pair is not None:
        texts, signs = pair, _node_signs(pair, item.nodes)
        if item.stage == "values":  # the text of a node is its recorded value
            known = [(one.before, one.after) for one in item.nodes if one.before and one.after]
            told = [without_alike(*both, 0, both[0].find(" = ") + len(" = ")) for both in known]
            texts = _with_lines(pair[0], [old for old, _ in told]), _with_lines(pair[1], [new for _, new in told])
    else:
        ref = DocumentRef(f"source:{item.file}", "source", item.file or "")
        found = [read_document(each, ref) for each in (before, after)] if item.file else []
        if all(text.note for text in found):
            return None
        texts = found[0], found[1]
        signs = _text_signs(texts)
    return _sides(texts, signs, item, (before, after))


def _sides(
    texts: tuple[Document, Document], signs: tuple[Signs, Signs], item: Difference, sessions: tuple[Session, Session]
) -> Sides:
    rows = list(aligned_rows((len(texts[0].lines), len(texts[1].lines)), signs))
    values = [_values(texts, pair) if pair[0] in signs[0] and pair[1] in signs[1] else ("", "") for pair in rows]
    made = [
        [
            _row(texts[side], pair[side], signs[side], item.compile_ids[side], value[side])
            for pair, value in zip(rows, values, strict=True)
        ]
        for side in (0, 1)
    ]
    for side, text in zip(made, texts, strict=True):
        if text.note and side:
            side[0] = line((text.note, "dim"))
    changed = [number for number, (old, new) in enumerate(rows) if old in signs[0] or new in signs[1]]
    if not changed and item.line:
        changed = [number for number, (_, new) in enumerate(rows) if new == item.line - 1]
    shown = [text.ref.title.rpartition("/")[2] for text in texts]
    names = [one_line(f"{each.path.name} · {title}") for each, title in zip(sessions, shown, strict=True)]
    return Sides((names[0], names[1]), made[0], made[1], changed)


def _values(texts: tuple[Document, Document], pair: Pair) -> tuple[str, str]:
    """What differs in the values of two nodes whose lines read alike."""
    old, new = pair
    if old is None or new is None or texts[0].lines[old] != texts[1].lines[new] or not texts[0].margins:
        return "", ""
    parts = [_VALUE.match(text.margins[number]) for text, number in zip(texts, (old, new), strict=True)]
    groups = [part.groups("") if part else () for part in parts]
    differing = [both for both in zip(*groups, strict=False) if both[0] != both[1]]
    return " ".join(was for was, _ in differing), " ".join(now for _, now in differing)


def _row(text: Document, number: int | None, signs: Signs, compile_id: str | None, value: str) -> Line:
    if number is None:
        return Line()
    sign = signs.get(number, "")
    target = Location("code", text.ref.compile_id or compile_id, document=text.ref.key, line=text.row_of(number) + 1)
    code, aside = printable_code(text.lines[number]), f"  {one_line(value)}".rstrip()
    return line((f"{sign or ' '} ", _ROLES[sign]), (code, _ROLES[sign]), (aside, "dim"), to=target)


def aligned_rows(counts: tuple[int, int], signs: tuple[Signs, Signs]) -> Iterator[Pair]:
    """Yield the lines of both sides that stand in one row. Lines without a sign belong together in their order."""
    old = new = 0
    while old < counts[0] or new < counts[1]:
        olds = list(takewhile(signs[0].__contains__, range(old, counts[0])))
        news = list(takewhile(signs[1].__contains__, range(new, counts[1])))
        old, new = old + len(olds), new + len(news)
        yield from _paired(deque(olds), deque(news), signs)
        if old < counts[0] or new < counts[1]:
            yield (old if old < counts[0] else None, new if new < counts[1] else None)
            old, new = old + 1, new + 1


def _paired(olds: deque[int], news: deque[int], signs: tuple[Signs, Signs]) -> Iterator[Pair]:
    """Yield the rows of lines that differ: those of one side alone, the others beside each other."""
    while olds or news:
        gone = olds and signs[0][olds[0]] == SIGNS["removed"]
        new = news and not gone and signs[1][news[0]] == SIGNS["added"]
        yield (olds.popleft() if olds and not new else None, news.popleft() if news and not gone else None)


def _graphs(before: Session, after: Session, item: Difference) -> tuple[Document, Document] | None:
    """The graphs of the stage whose nodes differ as the difference says; a compile may have several of a stage."""
    if item.compile_ids[0] is None or item.compile_ids[1] is None:
        return None
    olds, news = _of_stage(before, item.compile_ids[0], item), _of_stage(after, item.compile_ids[1], item)
    pairs = list(zip(olds, news, strict=False))
    return max(pairs, key=lambda pair: sum(map(len, _node_signs(pair, item.nodes)))) if pairs else None


def _of_stage(session: Session, compile_id: str, item: Difference) -> list[Document]:
    graphs = session.recording.graphs(compile_id)
    titled = zip(graphs, graph_titles(graphs), strict=True)
    return [_graph(session, graph, title.text) for graph, title in titled if graph.stage == item.graph]


def _graph(session: Session, graph: Graph, title: str) -> Document:
    """A graph, with what torch printed of the nodes' values at the margin."""
    ref = DocumentRef(f"event:{graph.event}", "graph", title, graph.compile_id)
    printed = read_document(session, ref)
    shown = readable_graph(printed, LineLinks())[0]
    values = {
        node.line: node.annotation for node in parse_graph("\n".join(printed.lines)).nodes.values() if node.target
    }
    return replace(shown, margins=[values.get(shown.row_of(at) + 1, "") for at in range(len(shown.lines))])


def _with_lines(document: Document, told: Sequence[str]) -> Document:
    """A graph with other texts in place of the lines that define the same nodes."""
    named = {_defined(text): text for text in told}
    return replace(document, lines=[named.get(_defined(text), text) for text in document.lines])


def _node_signs(texts: tuple[Document, Document], nodes: Sequence[NodeDifference]) -> tuple[Signs, Signs]:
    """The signs of the lines that define the nodes that differ."""
    sides = [[(node.before, node.kind) for node in nodes], [(node.after, node.kind) for node in nodes]]
    signs = [{_defined(text): SIGNS[kind] for text, kind in side if text} for side in sides]
    found = [
        {place: named[name] for place, text in enumerate(document.lines) if (name := _defined(text)) in named}
        for document, named in zip(texts, signs, strict=True)
    ]
    return found[0], found[1]


def _defined(text: str) -> str:
    """The name that a line of a graph defines; all that return are one."""
    name, equals, _ = text.strip().partition(" = ")
    return name if equals else name.partition(" ")[0].partition("(")[0]


def _text_signs(texts: tuple[Document, Document]) -> tuple[Signs, Signs]:
    """The signs of the lines of two sources that differ; none where only one run has the source."""
    old, new = (list(text.lines) for text in texts)
    if any(text.note for text in texts) or len(old) + len(new) > _MAX_COMPARED:
        return {}, {}
    before, after = dict[int, str](), dict[int, str]()
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != _EQUAL:
            before |= dict.fromkeys(range(a, b), "~" if c < d else "-")
            after |= dict.fromkeys(range(c, d), "~" if a < b else "+")
    return before, after
