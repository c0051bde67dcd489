"""What a trial is to do differently from the program as it is written."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

__all__ = ["AS_WRITTEN", "BELOW", "INTERMEDIATES", "RUNGS", "Plan", "Switch", "bits"]

RUNGS = ("uncompiled", "eager", "aot_eager", "aot_eager_decomp_partition", "inductor", "triton", "custom")
BELOW = {
    "custom": "eager",
    "inductor": "aot_eager_decomp_partition",
    "triton": "aot_eager_decomp_partition",
    "aot_eager_decomp_partition": "aot_eager",
    "aot_eager": "eager",
}  # the rung at which a graph is compiled that is left out at another
_BITS = 64
INTERMEDIATES = "intermediates"  # in a plan's record: where the compiled values first leave the graph's own
_IN_INDUCTOR = frozenset({"kernel", "fusion", "lowering", "graph", INTERMEDIATES})  # of no consequence before it


def bits(key: str) -> str:
    """The stable hash of a decision's key, as 64 binary digits. Halving a set of decisions is taking one digit more."""
    digest = hashlib.blake2b(key.encode(), digest_size=_BITS // 8).digest()
    return f"{int.from_bytes(digest, 'big'):0{_BITS}b}"


@dataclass(frozen=True, slots=True)
class Switch:
    """Which decisions of one class stay on.

    With ``keep`` those whose hash ends in one of ``suffixes`` stay on and all others go off; without it those go
    off and all others stay. A suffix decides also for decisions that show up only because others were turned off.
    """

    group: str
    keep: bool
    suffixes: tuple[str, ...]

    def on(self, key: str) -> bool:
        return bits(key).endswith(self.suffixes) == self.keep if self.suffixes else not self.keep


@dataclass(frozen=True, slots=True)
class Plan:
    """One candidate: the rung, and below it the decisions that are switched.

    ``rung`` ``None`` is the program as written. ``record`` names the classes whose decisions are reported.
    ``accuracy`` compares each compiled call with its uncompiled self. ``caches`` off bypasses the FX graph and
    AOTAutograd caches, without which a switched compile would be served from an earlier one. ``own_caches`` has them
    begin empty, in a folder of the trial's own. ``task`` is for the hooks of who asks for the trial: what else its
    process is to do, as JSON.
    """

    rung: str | None = None
    accuracy: bool = False
    caches: bool = True
    own_caches: bool = False
    record: tuple[str, ...] = ()
    switches: tuple[Switch, ...] = ()
    tolerance: tuple[float, float] | None = None  # (rtol, atol) of the accuracy comparison
    fallback_random: bool = False
    task: str | None = None

    def switch(self, group: str) -> Switch | None:
        return next((s for s in self.switches if s.group == group), None)

    def before_inductor(self) -> Plan | None:
        """What the plan says of the program up to its first graph in Inductor, or None where it does not come there.

        All plans that agree in it go the same way until then.
        """
        asked = {*self.record, *(switch.group for switch in self.switches)}
        if self.rung != "inductor" or self.task is not None or not asked <= _IN_INDUCTOR:
            return None
        return replace(self, record=(), switches=())

    def key(self) -> str:
        """The candidate's identity in a recording; a resumed search looks it up."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Plan:
        switches = tuple(Switch(s["group"], s["keep"], tuple(s["suffixes"])) for s in data["switches"])
        tolerance = tuple(data["tolerance"]) if data["tolerance"] else None
        return cls(**{**data, "record": tuple(data["record"]), "switches": switches, "tolerance": tolerance})


AS_WRITTEN = Plan()
