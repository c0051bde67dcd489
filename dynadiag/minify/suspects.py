"""What the trial of the whole graph tells its reduction: the nodes to try first, and how far a candidate has to run."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.minify.reduction_task import FAILED_LOWERING, KERNEL_REACHED, LOWERING_STARTED
from dynadiag.trial.outcome import Outcome

_KEPT = (FAILED_LOWERING, KERNEL_REACHED)
_MAX_SINGLE_SUSPECTS = 3  # with more suspects than this, all are first tried together


def outcome_to_keep(outcome: Outcome) -> Outcome:
    """The part of an outcome that the trial log keeps, with the points that a resumed search needs."""
    begun = [point for point in outcome.points if point.group == LOWERING_STARTED]
    pointing = (*(point for point in outcome.points if point.group in _KEPT), *begun[-1:])
    return replace(outcome, points=pointing, tail=outcome.tail[-1000:])


def reaches_kernel(outcome: Outcome) -> bool:
    """Whether the source of a kernel was compiled before the failure. If not, a candidate that gets so far passes."""
    return any(point.group == KERNEL_REACHED for point in outcome.points)


def nodes_to_try(outcome: Outcome) -> list[list[str]]:
    """Sets of nodes that the failure points to, to be tried first; several are also tried together.

    They come from the operator whose lowering failed, from the kernel that did not compile or had the first wrong
    values, and from names in the message.
    """
    origins = [point.name for point in outcome.points if point.group == FAILED_LOWERING]
    begun = [point.name.split() for point in outcome.points if point.group == LOWERING_STARTED]
    if outcome.was_killed and begun:
        origins += begun[-1]
    named = list(dict.fromkeys([*reversed(origins), *reversed(outcome.diverged_in), *outcome.witness]))
    together = [named] if len(named) > _MAX_SINGLE_SUSPECTS else []
    return [*together, *([name] for name in named)]
