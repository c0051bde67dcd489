"""What the kernels of a compile move (estimated) and how long they take (if measured).

This needs the generated code, so it is read on request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dynadiag.kernels.generated_module import KernelCall
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.kernels.timing import Roofline, saved_times
from dynadiag.render.paths import source_location
from tui.session import Session

__all__ = ["MAX_AUTOMATIC", "KernelCost", "read_kernel_costs"]

MAX_AUTOMATIC = 60  # with more kernels, costs are read on request only
_MAX_NODES = 100_000  # with more nodes in its graphs, the generated code of a compile is not read


@dataclass(frozen=True, slots=True)
class KernelCost:
    """All calls of one kernel in its module.

    ``bytes_moved`` counts bytes read and written, or is ``None`` if unknown. ``seconds`` is the time of all calls,
    ``peak_share`` the fraction of the device's peak; both are ``None`` unless ``dynadiag kernels --measure`` has
    measured them.
    """

    calls: int
    bytes_moved: int | None
    seconds: float | None
    peak_share: float | None
    lines: tuple[str, ...]  # of the user's source, as ``file:line``, with a question mark if inferred from the code
    stage: str = ""  # "forward", "backward" or "inference"
    flops: int | None = None
    operators: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The first of the lines, and how many more there are; empty without lines."""
        more = f" +{len(self.lines) - 1}" if len(self.lines) > 1 else ""
        return f"{self.lines[0]}{more}" if self.lines else ""


def read_kernel_costs(session: Session, compile_ids: Iterable[str]) -> dict[tuple[int | None, str], KernelCost]:
    """Return the costs of the kernels of these compiles."""
    found: dict[tuple[int | None, str], list[KernelCall]] = {}
    scale = Roofline(times=saved_times(session.recording))
    for compile_id in compile_ids:
        if sum(graph.nodes for graph in session.graphs(compile_id)) <= _MAX_NODES:
            for call in kernel_calls(session.recording, compile_id):
                found.setdefault((call.event, call.name), []).append(call)
    return {key: _cost(calls, scale, session.run.cwd) for key, calls in found.items()}


def _cost(calls: list[KernelCall], scale: Roofline, cwd: str | None) -> KernelCost:
    moved = [call.cost.bytes_moved for call in calls]
    known = [number for number in moved if number is not None]
    whole = sum(known) if len(known) == len(moved) else None
    flops = [call.cost.flops for call in calls]
    return KernelCost(
        len(calls),
        whole,
        *_measured(calls, scale),
        _source_lines(calls, cwd),
        calls[0].stage or "",
        sum(number for number in flops if number is not None) if None not in flops else None,
        tuple(dict.fromkeys(operator for call in calls for operator in call.ops)),
    )


def _source_lines(calls: Iterable[KernelCall], cwd: str | None) -> tuple[str, ...]:
    """The lines that the calls compute; one is inferred if no call says that the recording states it."""
    inferred: dict[str, bool] = {}
    for call in calls:
        for place in call.source_lines:
            text = source_location(place.file, place.line, None, cwd)
            inferred[text] = inferred.get(text, True) and call.evidence == "dataflow"
    return tuple(f"{text}?" if guess else text for text, guess in inferred.items())


def _measured(calls: Iterable[KernelCall], scale: Roofline) -> tuple[float | None, float | None]:
    """Return the seconds of all calls and the mean share of the peak, weighted by time."""
    timed = [(time.seconds, scale.peak_share(call)) for call in calls if (time := scale.time_of(call)) is not None]
    weighed = [(seconds, share) for seconds, share in timed if share is not None]
    whole = sum(seconds for seconds, _ in weighed)
    share = sum(seconds * part for seconds, part in weighed) / whole if whole else None
    return (sum(seconds for seconds, _ in timed) if timed else None), share
