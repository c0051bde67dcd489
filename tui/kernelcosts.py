"""What the kernels of a compile move, by what `dynadiag.kernels` estimates, and how long they take, where it measured.

Read when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dynadiag.kernels import KernelCall
from dynadiag.kernels.timing import Scale, kept_timing
from tui.session import Session
from tui.unitlinks import calls_of

__all__ = ["KernelCost", "Kernels", "costs_of"]

_SURVEYED = 100_000  # nodes of all graphs of a compile up to which its generated code is read

Kernels = Mapping[tuple[int | None, str], "KernelCost"]  # by the event of the module and the kernel's name


@dataclass(frozen=True, slots=True)
class KernelCost:
    """All calls of one kernel in its module: how many, and bytes read and written together where that is known.

    ``seconds`` is the time of all calls, ``share`` what part of the device's peak they reach: ``None`` where
    ``dynadiag kernels --measure`` has not measured it.
    """

    calls: int
    moved: int | None
    seconds: float | None
    share: float | None
    lines: tuple[str, ...]  # the user's, ``file:line``


def costs_of(session: Session, compile_ids: Iterable[str]) -> dict[tuple[int | None, str], KernelCost]:
    """The kernels of some compiles."""
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
    """Seconds of all calls together, and their share of the peak, each call weighed by its time."""
    timed = [(time.seconds, scale.share(call)) for call in calls if (time := scale.time(call)) is not None]
    weighed = [(seconds, share) for seconds, share in timed if share is not None]
    whole = sum(seconds for seconds, _ in weighed)
    share = sum(seconds * part for seconds, part in weighed) / whole if whole else None
    return (sum(seconds for seconds, _ in timed) if timed else None), share
