"""Finds what else fails in a program whose failing frame runs uncompiled. A search notes what its trials show."""

from __future__ import annotations

from dataclasses import replace

from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan, Switch, hash_bits

FRAME = "frame"  # the kind of decision
_MAX_TRIALS = 4  # Python runs the frame, Dynamo then compiles the functions that it calls, and fails in one of these


def look_for_other_failures(search: TrialSearch, plan: Plan, failure: Outcome) -> None:
    """Run the program with the frame that fails uncompiled, and with the frame that fails then, until it passes or
    fails in another way.

    ``failure`` is the outcome of ``plan``, with the frames that were compiled. The last one failed. After a wrong
    result any of them may be at fault, and after a hang each trial takes long: then all are off in one trial.
    """
    off: dict[str, str] = {}
    all_at_once = failure.signature is not None and failure.signature.kind not in ("exception", "signal")
    for _ in range(1 if all_at_once else _MAX_TRIALS):
        frames = [p for p in failure.points if p.group == FRAME and p.key not in off]
        if search.status(failure) != "same" or not frames:
            return
        off |= {frame.key: frame.name for frame in (frames if all_at_once else frames[-1:])}
        switch = Switch(FRAME, keep=False, suffixes=tuple(map(hash_bits, off)))
        label = f"{', '.join(off.values())} uncompiled"
        failure = search.run(replace(plan, switches=(switch,), record=(FRAME,)), label)
