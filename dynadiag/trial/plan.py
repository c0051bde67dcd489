"""A plan: what one trial changes about the program."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace

from dynadiag.trial.decision_kinds import DECISION_KINDS

RUNGS = ("uncompiled", "eager", "aot_eager", "aot_eager_decomp_partition", "inductor", "triton", "custom")
LOWER_RUNG = {
    "custom": "eager",
    "inductor": "aot_eager_decomp_partition",
    "triton": "aot_eager_decomp_partition",
    "aot_eager_decomp_partition": "aot_eager",
    "aot_eager": "eager",
}  # the rung at which a graph is compiled instead, when it is switched off
_BITS = 64
INTERMEDIATES = "intermediates"  # in `Plan.record`: report where compiled values first diverge from the graph's
_IN_INDUCTOR = frozenset([INTERMEDIATES, *(kind.name for kind in DECISION_KINDS if kind.in_inductor)])


def hash_bits(key: str) -> str:
    """The stable hash of a decision's key as 64 binary digits. Each further digit of a suffix halves a set of
    decisions.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=_BITS // 8).digest()
    return f"{int.from_bytes(digest, 'big'):0{_BITS}b}"


@dataclass(frozen=True, slots=True)
class Switch:
    """Which decisions of one kind stay on.

    With ``keep``, decisions whose hash ends in one of ``suffixes`` stay on and the others go off. Without it, they go
    off and the others stay on. So suffixes also cover decisions that exist only because others are off.
    """

    group: str
    keep: bool
    suffixes: tuple[str, ...]

    def is_on(self, key: str) -> bool:
        return hash_bits(key).endswith(self.suffixes) == self.keep if self.suffixes else not self.keep


@dataclass(frozen=True, slots=True)
class Plan:
    """One candidate: the rung, and the decisions that are switched off below it.

    ``rung`` is ``None`` for the program as written. ``accuracy`` compares each compiled call with the uncompiled one.
    ``caches`` off bypasses the FX graph and AOTAutograd caches, since a cached graph would ignore the switches.
    ``own_caches`` gives the trial empty caches in a folder of its own. ``record`` names the kinds of decisions to
    report. ``fallback_random`` draws eager's random numbers in Inductor, ``precise_casts`` rounds where eager does.
    ``differentiate`` runs the backward of what each compiled call returns. ``task`` is JSON for the hooks: other work
    that the process is to do.
    """

    rung: str | None = None
    accuracy: bool = False
    caches: bool = True
    own_caches: bool = False
    record: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    tolerance: tuple[float, float] | None = None  # (rtol, atol) of the accuracy comparison
    fallback_random: bool = False
    precise_casts: bool = False
    differentiate: bool = False
    task: str | None = None

    def switch(self, group: str) -> Switch | None:
        """The switch for one kind of decision, or ``None``."""
        return next((s for s in self.switches if s.group == group), None)

    def prefix_before_inductor(self) -> Plan | None:
        """The part of the plan that takes effect before the first graph reaches Inductor; ``None`` if the rest takes
        effect elsewhere than in Inductor. Trials that share this part do the same up to that point, so they can be
        forked from there.
        """
        kinds = {*self.record, *(switch.group for switch in self.switches)}
        if self.rung != "inductor" or self.task is not None or not kinds <= _IN_INDUCTOR:
            return None
        return replace(self, record=(), switches=())

    def key(self) -> str:
        """The candidate's identity in a recording, by which a resumed search finds its outcome."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))


AS_WRITTEN = Plan()
