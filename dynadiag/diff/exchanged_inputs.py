"""Exchanged inputs: a graph reads another layer, parameter or argument, and is the same otherwise.

The canonical form has no names of inputs, because a new name is no difference. It is one if both programs have both
names: a class that sets both attributes, or a function with both arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from dynadiag.diff.canonical_graph import CanonicalGraph, with_inputs_in_order_of
from dynadiag.diff.compile_matching import CompilePair, GraphReader, in_both
from dynadiag.diff.difference import Difference
from dynadiag.explanation.identity import parsed
from dynadiag.recording.code_origin import path_in_packages
from dynadiag.recording.reader import Recording
from dynadiag.recording.torch_text.sources import input_names

_Scopes = Sequence[frozenset[str]]  # the attributes of each class, and the arguments of each function


def exchanged_inputs(
    before: Recording, after: Recording, pairs: Sequence[CompilePair], graphs: tuple[GraphReader, GraphReader]
) -> Iterator[Difference]:
    """A difference for each input that the second run's graph reads in the place of another one.

    Only graphs that are otherwise the same are compared.
    """
    scopes: tuple[_Scopes, _Scopes] | None = None
    for first, second in in_both(pairs):
        ids = first.compile_id, second.compile_id
        stages = (side.graphs(id_, "dynamo") for side, id_ in zip(graphs, ids, strict=True))
        for old, new in zip(*stages, strict=False):
            if before.payload(old.event) == after.payload(new.event):
                continue
            graph = graphs[0].read(old)
            other = with_inputs_in_order_of(graph, graphs[1].read(new))
            names = _input_names(graph, before, ids[0]), _input_names(other, after, ids[1])
            if graph.digest == other.digest and names[0] != names[1]:
                scopes = scopes or (_scopes(before), _scopes(after))
                yield from _exchanges(other, names, scopes, ids)


def _input_names(graph: CanonicalGraph, recording: Recording, compile_id: str) -> list[str]:
    sources = (guard.source for guard in recording.guards(compile_id))
    return input_names((node.name for node in graph.nodes if node.target == "placeholder"), sources)


def _exchanges(
    graph: CanonicalGraph,
    names: tuple[Sequence[str], Sequence[str]],
    scopes: tuple[_Scopes, _Scopes],
    ids: tuple[str, str],
) -> Iterator[Difference]:
    inputs = (place for place, node in enumerate(graph.nodes) if node.target == "placeholder")
    for place, was, now in zip(inputs, *names, strict=False):
        changed = {pair for pair in zip(was.split("."), now.split("."), strict=False) if pair[0] != pair[1]}
        if was.count(".") == now.count(".") and changed and all(_both_have(pair, scopes) for pair in changed):
            readers = (node.source_line for node in graph.nodes if place in node.inputs)
            line = next((each for each in readers if each is not None), None)
            text = f"Dynamo's graph reads `{now}` where it read `{was}`"
            yield Difference("dynamo", ids, line.file if line else None, line.line if line else None, text, "dynamo")


def _both_have(names: tuple[str, str], scopes: tuple[_Scopes, _Scopes]) -> bool:
    return all(any(scope.issuperset(names) for scope in side) for side in scopes)


def _scopes(recording: Recording) -> _Scopes:
    own = (text for file, text in recording.sources().items() if path_in_packages(file) is None)
    trees = map(parsed, own)
    return [_scope(node) for tree in trees if tree is not None for node in ast.walk(tree)]


def _scope(node: ast.AST) -> frozenset[str]:
    if isinstance(node, ast.ClassDef):
        return frozenset(_attributes(ast.walk(node)))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return frozenset(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
    return frozenset()


def _attributes(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The attributes that are set."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
