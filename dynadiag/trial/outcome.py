"""How a trial ended: more than a yes or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.trial.signature import Signature

__all__ = ["Decision", "Outcome"]


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision of the compiler, which a trial may switch off.

    ``group`` is the kind of decision (``lowering``, ``fusion``, ...). ``key`` is the same in every trial: it is made of
    the compile id, the graph, FX names and an occurrence number, never of buffer names, which shift. ``lines`` are the
    user's lines, as (file, 1-based line).
    """

    group: str
    key: str
    name: str
    compile_id: str | None = None
    graph: str | None = None
    target: str | None = None
    lines: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Decision:
        """The decision in a record of the trial's events or of a recording."""
        lines = tuple((str(file), int(line)) for file, line in data.get("lines", ()))
        return cls(
            data["group"],
            data["key"],
            data["name"],
            data.get("compile_id"),
            data.get("graph"),
            data.get("target"),
            lines,
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one trial showed.

    ``signature`` is ``None`` where the trial passed. ``invalid`` says why the trial could not run at all; then it says
    nothing about the candidate. ``witness`` and ``lines`` are the nodes and user lines that the failure named.
    ``diverged`` are the keys of the nodes whose kernel first computed other values than the graph run uncompiled, or
    was running when the trial failed; ``diverged_in`` are the names of the nodes that they came from, for a graph that
    is tried by itself. ``points`` are the decisions that were reported, ``facts`` what the process knew at its end
    (backends, thread count), ``tail`` the end of its output.
    """

    signature: Signature | None
    seconds: float
    pid: int | None = None
    exit_code: int | None = None
    invalid: str | None = None
    witness: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    diverged_in: tuple[str, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    points: tuple[Decision, ...] = ()
    facts: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    tail: str = ""

    @property
    def passed(self) -> bool:
        """Whether the trial ran and did not fail."""
        return self.signature is None and self.invalid is None

    @property
    def is_hang(self) -> bool:
        """Whether the trial was ended because it ran longer than its time limit."""
        return self.signature is not None and self.signature.kind == "hang"

    @property
    def was_killed(self) -> bool:
        """Whether the process was ended before it could report the failure itself."""
        return self.signature is not None and self.signature.kind in ("signal", "hang", "memory")

    def status_against(self, reference: Signature, across_rungs: bool = False) -> str:
        """``pass``, ``same``, ``different``, ``timeout`` or ``invalid``, compared with the failure ``reference``.

        ``across_rungs`` compares as `Signature.same_across_rungs`.
        """
        if self.signature is None:
            return "invalid" if self.invalid else "pass"
        same = self.signature.same_across_rungs if across_rungs else self.signature.same_as
        if same(reference):
            return "same"
        return "timeout" if self.is_hang else "different"
