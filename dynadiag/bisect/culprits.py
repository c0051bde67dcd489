"""Turns the decisions at fault into the culprits of a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dynadiag.bisect.verdict import Culprit
from dynadiag.trial.outcome import Decision

__all__ = ["build_culprits", "kind_name", "kind_plural"]

_MAX_LISTED = 3  # decisions that are listed one by one; more are grouped by operator


def build_culprits(group: str, points: Mapping[str, Decision], sets: Sequence[frozenset[str]]) -> tuple[Culprit, ...]:
    """The culprits for sets of decisions of one kind. Each set of fusions is one culprit; otherwise each decision is
    one.
    """
    if group == "fusion":
        return tuple(_fusion([points[k] for k in points if k in chosen]) for chosen in sets)
    keys = frozenset().union(*sets)
    return _culprits([points[k] for k in points if k in keys])


def _fusion(parts: Sequence[Decision]) -> Culprit:
    names = dict.fromkeys(name for part in parts for name in part.name.split("+"))
    lines = tuple(dict.fromkeys(line for part in parts for line in part.lines))
    return Culprit("fusion", "+".join(names), parts[0].compile_id, _graph(parts[0]), lines)


def _culprits(points: Sequence[Decision]) -> tuple[Culprit, ...]:
    """One culprit per decision. Where they are many, one per operator, with its nodes listed."""
    grouped: dict[str, list[Decision]] = {}
    for point in points:
        grouped.setdefault(point.target or point.key, []).append(point)
    if len(points) <= _MAX_LISTED:
        grouped = {point.key: [point] for point in points}
    return tuple(_culprit(group) for group in grouped.values())


def _culprit(points: Sequence[Decision]) -> Culprit:
    first = points[0]
    lines = tuple(dict.fromkeys(line for point in points for line in point.lines))
    nodes = tuple(point.name for point in points) if len(points) > 1 else ()
    return Culprit(kind_name(first.group), first.name, first.compile_id, _graph(first), lines, nodes)


def _graph(point: Decision) -> str | None:
    return None if point.graph == "dynamo" else point.graph


def kind_plural(group: str) -> str:
    """The kind's name in the plural, for messages."""
    return kind_name(group) + ("es" if group.endswith("s") else "s")


def kind_name(group: str) -> str:
    """The kind's name for users: a Dynamo graph is just a graph."""
    return "graph" if group == "dynamo_graph" else group
