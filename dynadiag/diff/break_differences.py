"""Graph breaks and recompiles that only one of two runs has, or that are at another place.

A break moves if it splits a function between other operators: there are more or fewer of them before it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from dynadiag.diff.canonical_graph import CanonicalNode
from dynadiag.diff.compile_matching import CompilePair, GraphReader, in_both
from dynadiag.diff.difference import Difference
from dynadiag.diff.environment_differences import matching_files, matching_line
from dynadiag.explanation.breaks import group_breaks, operator_error, roots
from dynadiag.explanation.changes import main_changes
from dynadiag.explanation.formatting import brief
from dynadiag.explanation.guard_text import described
from dynadiag.explanation.identity import place_text
from dynadiag.explanation.registry import Registry
from dynadiag.grouping import paired
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Break, Recompile, Span

_MAX_EXPRESSION = 60  # characters of source in a sentence

T = TypeVar("T")
_MAX_NODE = 60  # characters of a node in a sentence


def break_differences(
    recordings: tuple[Recording, Recording],
    runs: tuple[GraphReader, GraphReader],
    pairs: Sequence[CompilePair],
    ids: Mapping[str, str],
) -> list[Difference]:
    """Return the root causes of graph breaks that only one run has, that end the compile of one, or that moved.

    `ids` leads from the second run's compiles to the first's.
    """
    registry = Registry.installed()
    sides = [roots(group_breaks([registry.complete(item) for item in side.breaks()])) for side in recordings]
    texts = {
        item: place_text(_source(side, item), item.span)
        for side, items in zip(recordings, sides, strict=True)
        for item in items
    }

    def kind(item: Break) -> Hashable:
        return item.gb_id or item.gb_type, item.fatal

    gone, new = _unmatched(
        sides[0],
        sides[1],
        lambda item: (kind(item), item.function, texts[item]),
        lambda item: (kind(item), texts[item]) if texts[item] else (kind(item), item.function),
    )
    gone = [item for item in gone if (texts[item], not item.fatal) not in {(texts[now], now.fatal) for now in new}]
    back = {old: now for now, old in ids.items()}
    places = _Places(recordings, pairs)
    return [
        *(_break(item, _source(recordings[1], item), (ids.get(item.compile_id), item.compile_id)) for item in new),
        *(_gone(item, places, (item.compile_id, back.get(item.compile_id))) for item in gone),
        *_moved_breaks([item for item in sides[1] if item not in new], pairs, runs),
    ]


class _Places:
    """The lines of the second program that stand in the place of lines of the first."""

    def __init__(self, recordings: tuple[Recording, Recording], pairs: Sequence[CompilePair]) -> None:
        self.recordings = recordings
        self._files = {was: now for now, was in matching_files(*recordings, pairs).items()}

    def find(self, span: Span) -> tuple[str | None, int | None]:
        """The file and line in the place of a span; None where there is none, or no source."""
        now = self._files.get(span.file or "")
        if span.file is None or span.line is None or now is None:
            return None, None
        was, text = self.recordings[0].source(span.file), self.recordings[1].source(now)
        line = matching_line(was, text, span.line) if was is not None and text is not None else None
        return (now, line) if line is not None else (None, None)


def _source(recording: Recording, item: Break) -> str | None:
    return recording.source(item.span.file) if item.span.file else None


def _break(item: Break, source: str | None, ids: tuple[str | None, str | None]) -> Difference:
    id_ = f" {item.gb_id}" if item.gb_id else ""
    written = f" (`{text}`)" if (text := _expression(source, item.span)) else ""
    text = f"a new graph break{id_} in {item.function}: {item.gb_type}{written}"
    if item.fatal:
        text = f"{item.function} fails to compile here: {operator_error(item) or f'{id_} {item.gb_type}'.strip()}"
    return Difference("break", ids, item.span.file, item.span.line, text)


def _gone(item: Break, places: _Places, ids: tuple[str | None, str | None]) -> Difference:
    written = f", `{text}`," if (text := _expression(_source(places.recordings[0], item), item.span)) else ""
    what = "ends the compile" if item.fatal else "breaks the graph"
    id_ = f" {item.gb_id}" if item.gb_id else ""
    text = f"line {item.span.line} of the first run{written} no longer {what} of {item.function}:{id_} {item.gb_type}"
    return Difference("break", ids, *places.find(item.span), text)


def _expression(source: str | None, span: Span) -> str:
    """What stands at a place, as it is written; the whole line where its columns are not known."""
    if source is None or span.line is None or len(lines := source.splitlines()) < span.line:
        return ""
    line = lines[span.line - 1]
    ends_here = span.column is not None and span.end_line in (None, span.line)
    return brief(line[span.column : span.end_column] if ends_here else line.strip(), _MAX_EXPRESSION)


def recompile_differences(before: Recording, after: Recording, ids: Mapping[str, str]) -> list[Difference]:
    """Return the recompiles that only one run has."""
    gone, new = _unmatched(before.recompiles(), after.recompiles(), _recompile_key, _recompile_values)
    gone, new = (sorted(side, key=lambda item: not item.limit_reached) for side in (gone, new))
    back = {old: now for now, old in ids.items()}
    return [
        *(_recompile(item, "a new recompile", (ids.get(item.compile_id), item.compile_id), item.line) for item in new),
        *(
            _recompile(item, "no longer a recompile", (item.compile_id, back.get(item.compile_id)), None)
            for item in gone
        ),
    ]


def _recompile(item: Recompile, what: str, ids: tuple[str | None, str | None], line: int | None) -> Difference:
    change = next(iter(main_changes(item.reasons)), None)
    file = item.file if line is not None else None
    if line is not None and change is not None and change.fact.line:
        file, line = change.fact.file, change.fact.line
    why = described(change) if change is not None else "torch gave no reason"
    limit = ", and the recompile limit is reached" if item.limit_reached else ""
    return Difference("recompile", ids, file, line, f"{what} of {original_name(item.function)}: {why}{limit}")


def _recompile_key(item: Recompile) -> Hashable:
    return original_name(item.function), item.limit_reached, frozenset((r.source, r.was, r.now) for r in item.reasons)


def _recompile_values(item: Recompile) -> Hashable:
    """A recompile without the names of the function and of what changed."""
    return item.limit_reached, frozenset((r.part, r.index, r.was, r.now) for r in item.reasons)


def _unmatched(
    before: Sequence[T], after: Sequence[T], *keys: Callable[[T], Hashable]
) -> tuple[Sequence[T], Sequence[T]]:
    """The items of each side that have no partner of the same key on the other, by each key in turn."""
    for key in keys:
        pairs = paired(*([(key(item), item) for item in side] for side in (before, after)))
        known = {id(item) for pair in pairs for item in pair}
        before, after = ([item for item in side if id(item) not in known] for side in (before, after))
    return before, after


def _moved_breaks(
    breaks: Sequence[Break], pairs: Sequence[CompilePair], runs: tuple[GraphReader, GraphReader]
) -> Iterator[Difference]:
    """The breaks of the second run, among those that both have, that are at another place between operators."""
    by_id = {second.compile_id: first for first, second in in_both(pairs)}
    totals = [_operators_by_function(reader) for reader in runs]
    for item in breaks:
        before = by_id.get(item.compile_id)
        function = original_name(item.function)
        if before is None or totals[0].get(function) != totals[1].get(function):
            continue
        counts = runs[0].operators(before.compile_id), runs[1].operators(item.compile_id)
        if earlier := _first_of(counts[1] - counts[0], runs[1], item.compile_id):
            text = f"after {brief(earlier.text, _MAX_NODE)}, was before it"
        elif later := _first_of(counts[0] - counts[1], runs[0], before.compile_id):
            text = f"before {brief(later.text, _MAX_NODE)}, was after it"
        else:
            continue
        id_ = f" {item.gb_id}" if item.gb_id else ""
        ids = before.compile_id, item.compile_id
        told = f"the graph break{id_} in {item.function} moved: it is {text}"
        yield Difference("break", ids, item.span.file, item.span.line, told)


def _operators_by_function(reader: GraphReader) -> dict[str, Counter[str]]:
    """How often a function, with the rest of it after each break, computes with each operator."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for item in reader.compiles:
        found[original_name(item.function)] += reader.operators(item.compile_id)
    return found


def _first_of(targets: Counter[str], reader: GraphReader, compile_id: str) -> CanonicalNode | None:
    """The first node of a compile's graphs with one of these operators."""
    nodes = (node for graph in reader.graphs(compile_id, "dynamo") for node in reader.read(graph).nodes)
    return next((node for node in nodes if targets[node.target]), None)
