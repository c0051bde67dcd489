"""What the kernels of a compile move, by what `dynadiag.kernels` estimates: read when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynadiag.kernels import KernelCall
from tui.session import Session
from tui.unitlinks import calls_of

__all__ = ["KernelCost", "Kernels", "costs_of"]

_SURVEYED = 100_000  # nodes of all graphs of a compile up to which its generated code is read

Kernels = Mapping[tuple[int | None, str], "KernelCost"]  # by the event of the module and the kernel's name


@dataclass(frozen=True, slots=True)
class KernelCost:
    """All calls of one kernel in its module: how many, and bytes read and written together where that is known."""

    calls: int
    moved: int | None
    lines: tuple[str, ...]  # the user's, ``file:line``


def costs_of(session: Session, compile_ids: Iterable[str]) -> dict[tuple[int | None, str], KernelCost]:
    """The kernels of some compiles."""
    found: dict[tuple[int | None, str], list[KernelCall]] = {}
    for compile_id in compile_ids:
        if sum(graph.nodes for graph in session.graphs(compile_id)) <= _SURVEYED:
            for call in calls_of(session, compile_id):
                found.setdefault((call.event, call.name), []).append(call)
    return {key: _cost(calls) for key, calls in found.items()}


def _cost(calls: list[KernelCall]) -> KernelCost:
    moved = [call.cost.moved for call in calls]
    known = [number for number in moved if number is not None]
    places = dict.fromkeys(f"{place.file}:{place.line}" for call in calls for place in call.places)
    return KernelCost(len(calls), sum(known) if len(known) == len(moved) else None, tuple(places))
