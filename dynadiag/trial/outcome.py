"""How a trial ended: never a bare yes or no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dynadiag.trial.signature import Signature

__all__ = ["Outcome", "Point"]


@dataclass(frozen=True, slots=True)
class Point:
    """One decision that the compiler took and that a trial may turn off.

    ``group`` is the class of a culprit (``lowering``, ``fusion``, ...). ``key`` is stable from trial to trial: it is
    made of the compile, the graph, FX names and an occurrence, never of buffer names, which shift.
    """

    group: str
    key: str
    name: str
    compile_id: str | None = None
    graph: str | None = None
    target: str | None = None
    lines: tuple[tuple[str, int], ...] = ()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Point:
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

    ``signature`` is ``None`` where it passed. ``invalid`` says why the trial could not be run at all, which
    says nothing about the candidate. ``witness`` and ``lines`` are nodes and user lines that the failure named,
    ``diverged`` the keys of the nodes in whose kernel the values first went astray, or that ran when it failed,
    where the trial compared them, and ``diverged_in`` the names of the nodes of a graph tried by itself that they came
    from, ``facts`` what the worker saw on the way (backends, thread count), ``tail`` the end of what was printed.
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
    points: tuple[Point, ...] = ()
    facts: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()
    tail: str = ""

    @property
    def passed(self) -> bool:
        return self.signature is None and self.invalid is None

    @property
    def hung(self) -> bool:
        return self.signature is not None and self.signature.kind == "hang"

    @property
    def killed(self) -> bool:
        """Whether the process had no time to say what went wrong."""
        return self.signature is not None and self.signature.kind in ("signal", "hang", "memory")

    def against(self, reference: Signature, across_rungs: bool = False) -> str:
        """``pass``, ``same``, ``different``, ``timeout`` or ``invalid``, in comparison with the failure sought."""
        if self.signature is None:
            return "invalid" if self.invalid else "pass"
        same = self.signature.same_across_rungs if across_rungs else self.signature.same_as
        if same(reference):
            return "same"
        return "timeout" if self.hung else "different"
