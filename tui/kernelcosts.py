"""What the kernels of a compile move (estimated) and how long they take (if measured).

This needs the generated code, so it is read on request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynadiag.kernels import KernelCall
from dynadiag.kernels.timing import Scale, kept_timing
from tui.session import Session
from tui.unitlinks import calls_of

__all__ = ["KernelCost", "Kernels", "costs_of"]

_SURVEYED = 100_000  # with more nodes in its graphs, the generated code of a compile is not read

Kernels = Mapping[tuple[int | None, str], "KernelCost"]  # by the event of the module and the kernel's name


@dataclass(frozen=True, slots=True)
class KernelCost:
    """All calls of one kernel in its module.

    ``moved`` counts bytes read and written, or is ``None`` if unknown. ``seconds`` is the time of all calls, ``share``
    the fraction of the device's peak; both are ``None`` unless ``dynadiag kernels --measure`` has measured them.
    """

    calls: int
    moved: int | None
    seconds: float | None
    share: float | None
    lines: tuple[str, ...]  # of the user's source, as ``file:line``


def costs_of(session: Session, compile_ids: Iterable[str]) -> dict[tuple[int | None, str], KernelCost]:
    """Return the costs of the kernels of these compiles."""
    found: dict[tuple[int | None, str], list[KernelCall]] = {}
    scale = Scale(timing=kept_timing(session.recording))
    for compile_id in compile_ids:
        if sum(graph.nodes for graph in session.graphs(compile_id)) <= _SURVEYED:
            for call in calls_of(session, compile_id):
                found.setdefault((call.event, call.name), []).append(call)
    return {key: _cost(calls, scale) for key, calls in found.items()}


def _cost(calls: list[KernelCall], scale: Scale) -> KernelCost:
    moved = [call.cost.moved for call in calls]
    known = [number for number in moved if number is not None]
    places = dict.fromkeys(f"{place.file}:{place.line}" for call in calls for place in call.places)
    whole = sum(known) if len(known) == len(moved) else None
    return KernelCost(len(calls), whole, *_measured(calls, scale), tuple(places))


def _measured(calls: Iterable[KernelCall], scale: Scale) -> tuple[float | None, float | None]:
    """Return the seconds of all calls and the mean share of the peak, weighted by time."""
    timed = [(time.seconds, scale.share(call)) for call in calls if (time := scale.time(call)) is not None]
    weighed = [(seconds, share) for seconds, share in timed if share is not None]
    whole = sum(seconds for seconds, _ in weighed)
    share = sum(seconds * part for seconds, part in weighed) / whole if whole else None
    return (sum(seconds for seconds, _ in timed) if timed else None), share
