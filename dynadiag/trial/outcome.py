"""How a trial ended: its outcome, built from the events of its process and from what the supervisor saw."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import Any

from dynadiag.trial.plan import Plan
from dynadiag.trial.program import TargetError
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import ProcessResult

__all__ = ["Decision", "Outcome", "build_outcome"]


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


_DEVICE_ERROR = re.compile(r"^\s*what\(\):\s*((?:CUDA|HIP) error: .+)", re.M)
_KINDS_APPLIED_AT_ONCE = (
    "lowering",
    "pattern",
    "pass",
    "decomposition",
)  # kinds whose decision takes effect as soon as it is reported


def build_outcome(seen: ProcessResult, code: int, pid: int, plan: Plan, printed: str) -> Outcome:
    """The outcome of a trial.

    ``code`` is the exit code of process ``pid``, negative for a signal. ``printed`` is the end of its output. Raises
    `TargetError` where the process reported that the target cannot be used.
    """
    end = next((e for e in seen.events if e["event"] == "end"), {})
    unusable = next((str(e["message"]) for e in seen.events if e["event"] == "unusable"), None)
    if unusable is not None:
        raise TargetError(unusable)
    diverged = _diverged(seen)
    return Outcome(
        signature=_signature(seen, end, code, plan, printed),
        seconds=seen.seconds,
        pid=pid,
        exit_code=code,
        invalid="out of memory" if seen.stop_reason == "memory" else None,
        witness=_witness(seen, code),
        diverged=tuple(diverged.get("keys", ())),
        diverged_in=tuple(diverged.get("captured", ())),
        lines=tuple((str(file), int(line)) for file, line in end.get("lines", ())),
        points=tuple(Decision.from_json(e) for e in _points(seen)),
        facts=_facts(seen),
        notes=_notes(seen, end, plan),
        tail=printed,
    )


def _points(seen: ProcessResult) -> list[dict[str, Any]]:
    """The reported decisions, without those that were withdrawn later ("no point")."""
    none = set(_values_of(seen, "no point", "key"))
    return [e for e in seen.events if e["event"] == "point" and e["key"] not in none]


def _witness(seen: ProcessResult, code: int) -> tuple[str, ...]:
    """The nodes that the failure names: the node that was being lowered (its key, then its name), then those in its
    message.

    A killed process names nothing. There it is the last reported decision, since a decision is reported before it takes
    effect. Kernels are reported long before they run, so for them the last one means nothing.
    """
    met = [e for e in seen.events if e["event"] == "witness"][:1]
    points = _points(seen)
    if (code < 0 or seen.stop_reason) and points and points[-1]["group"] in _KINDS_APPLIED_AT_ONCE:
        met.append(points[-1])
    told = [str(name) for e in seen.events for name in e.get("witness", ())]
    return tuple(dict.fromkeys([*(str(e[name]) for e in met for name in ("key", "name")), *told]))


def _diverged(seen: ProcessResult) -> dict[str, Any]:
    """The event of the kernel that was still running at the end, else of the first largest divergence."""
    running: dict[str, Any] = next((e for e in reversed(seen.events) if e["event"] == "running"), {"keys": ()})
    told = [e for e in seen.events if e["event"] == "diverged"]
    return running if running["keys"] else max(told, key=lambda e: float(e["jump"]), default={})


def _facts(seen: ProcessResult) -> dict[str, Any]:
    facts: dict[str, Any] = next((e["facts"] for e in seen.events if "facts" in e), {})
    backends = [*facts.get("backends", ()), *_values_of(seen, "backend")]
    operators = list(dict.fromkeys(_values_of(seen, "operator")))
    return {**facts, "backends": backends, "launches": _values_of(seen, "launch"), "operators": operators}


def _values_of(seen: ProcessResult, event: str, what: str = "name") -> list[str]:
    return [str(e[what]) for e in seen.events if e["event"] == event]


def _notes(seen: ProcessResult, end: dict[str, Any], plan: Plan) -> tuple[str, ...]:
    notes = [str(e["text"]) for e in seen.events if e["event"] == "note"]
    if plan.accuracy and end.get("failure"):
        message = str(end["failure"]["message"]).strip().splitlines()
        notes.append(f"the program itself ended with {end['failure']['type']}: {''.join(message[:1])}")
    return tuple(notes)


def _signature(seen: ProcessResult, end: dict[str, Any], code: int, plan: Plan, printed: str) -> Signature | None:
    rung = plan.rung
    if seen.stop_reason == "hang":
        return Signature("hang", "timeout", "did not end in time", rung=rung)
    if seen.stop_reason == "memory":
        return Signature("memory", "memory", "used more memory than the machine has free", rung=rung)
    wrong = next((e for e in seen.events if e["event"] == "wrong"), None)
    if wrong is not None:
        return Signature.from_json({**wrong["failure"], "rung": rung})
    if end.get("failure") and not plan.accuracy:  # however the process died after reporting it
        return Signature.from_json({**end["failure"], "rung": rung})
    if code < 0:
        return _killed_by(signal.Signals(-code).name, printed, rung)
    if plan.accuracy and end:
        return None  # a failing comparison of the program's own becomes a note
    if code != 0:
        return Signature("exit", str(code), f"exit code {code}", rung=rung)
    return None


def _killed_by(name: str, printed: str, rung: str | None) -> Signature:
    """The failure of a process that a signal ended. A device error that reaches a destructor aborts the process: its
    text is in the output.
    """
    error = _DEVICE_ERROR.search(printed) if name == "SIGABRT" else None
    message = f"killed by {name}: {error[1]}" if error else f"killed by {name}"
    return Signature("signal", name, message, rung=rung)
