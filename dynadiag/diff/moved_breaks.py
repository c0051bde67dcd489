"""Graph breaks that split a function at another place: the same operators, more or fewer of them before the break."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from dynadiag.diff.canonical_graph import CanonicalNode
from dynadiag.diff.compile_matching import CompilePair, GraphReader
from dynadiag.diff.difference import Difference
from dynadiag.explanation.formatting import brief
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import Break, Compile

__all__ = ["moved_breaks"]

_MAX_NODE = 60  # characters of a node in a sentence
_DYNAMO = "dynamo"


def moved_breaks(
    breaks: Sequence[Break], pairs: Sequence[CompilePair], runs: tuple[GraphReader, GraphReader]
) -> Iterator[Difference]:
    """Yield the breaks of the second run, among those that both have, that are at another place between operators."""
    by_id = {pair.after.compile_id: pair.before for pair in pairs if pair.after and pair.before}
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
        found[_name(item)] += reader.operators(item.compile_id)
    return found


def _name(item: Compile) -> str:
    return original_name(item.function)


def _first_of(targets: Counter[str], reader: GraphReader, compile_id: str) -> CanonicalNode | None:
    """The first node of a compile's graphs with one of these operators."""
    nodes = (node for graph in reader.graphs(compile_id, _DYNAMO) for node in reader.read(graph).nodes)
    return next((node for node in nodes if targets[node.target]), None)
