"""How a trial ended, put together from what its process reported and what its supervisor saw."""

from __future__ import annotations

import re
import signal
from typing import Any

from dynadiag.trial.outcome import Outcome, Point
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import TargetError
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Watched

__all__ = ["outcome_of"]

_DEVICE_ERROR = re.compile(r"^\s*what\(\):\s*((?:CUDA|HIP) error: .+)", re.M)
_CARRIED_OUT_AT_ONCE = ("lowering", "pattern", "pass", "decomposition")  # classes whose work follows the decision


def outcome_of(seen: Watched, code: int, pid: int, plan: Plan, printed: str) -> Outcome:
    """Puts together what the process reported and how it ended."""
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
        invalid="out of memory" if seen.stopped == "memory" else None,
        witness=_witness(seen, code),
        diverged=tuple(diverged.get("keys", ())),
        diverged_in=tuple(diverged.get("captured", ())),
        lines=tuple((str(file), int(line)) for file, line in end.get("lines", ())),
        points=tuple(Point.from_json(e) for e in _points(seen)),
        facts=_facts(seen),
        notes=_notes(seen, end, plan),
        tail=printed,
    )


def _points(seen: Watched) -> list[dict[str, Any]]:
    """The decisions that it told of, without those that turned out to be none."""
    none = set(_told(seen, "no point", "key"))
    return [e for e in seen.events if e["event"] == "point" and e["key"] not in none]


def _witness(seen: Watched, code: int) -> tuple[str, ...]:
    """What the failure names: the node that was being lowered first, by key and name, then what stands in its text.

    A process that was killed names nothing: there it is the last decision that it told of, since the decision was
    told before it was carried out. Kernels are told of long before they run, so the last of them says nothing.
    """
    met = [e for e in seen.events if e["event"] == "witness"][:1]
    points = _points(seen)
    if (code < 0 or seen.stopped) and points and points[-1]["group"] in _CARRIED_OUT_AT_ONCE:
        met.append(points[-1])
    told = [str(name) for e in seen.events for name in e.get("witness", ())]
    return tuple(dict.fromkeys([*(str(e[name]) for e in met for name in ("key", "name")), *told]))


def _diverged(seen: Watched) -> dict[str, Any]:
    """The kernel that was running last and did not end, else the one at which the distance grew most, the first."""
    running: dict[str, Any] = next((e for e in reversed(seen.events) if e["event"] == "running"), {"keys": ()})
    told = [e for e in seen.events if e["event"] == "diverged"]
    return running if running["keys"] else max(told, key=lambda e: float(e["jump"]), default={})


def _facts(seen: Watched) -> dict[str, Any]:
    facts: dict[str, Any] = next((e["facts"] for e in seen.events if "facts" in e), {})
    backends = [*facts.get("backends", ()), *_told(seen, "backend")]
    operators = list(dict.fromkeys(_told(seen, "operator")))
    return {**facts, "backends": backends, "launches": _told(seen, "launch"), "operators": operators}


def _told(seen: Watched, event: str, what: str = "name") -> list[str]:
    return [str(e[what]) for e in seen.events if e["event"] == event]


def _notes(seen: Watched, end: dict[str, Any], plan: Plan) -> tuple[str, ...]:
    notes = [str(e["text"]) for e in seen.events if e["event"] == "note"]
    if plan.accuracy and end.get("failure"):
        message = str(end["failure"]["message"]).strip().splitlines()
        notes.append(f"the program itself ended with {end['failure']['type']}: {''.join(message[:1])}")
    return tuple(notes)


def _signature(seen: Watched, end: dict[str, Any], code: int, plan: Plan, printed: str) -> Signature | None:
    rung = plan.rung
    if seen.stopped == "hang":
        return Signature("hang", "timeout", "did not end in time", rung=rung)
    if seen.stopped == "memory":
        return Signature("memory", "memory", "used more memory than the machine has free", rung=rung)
    wrong = next((e for e in seen.events if e["event"] == "wrong"), None)
    if wrong is not None:
        return Signature.from_json({**wrong["failure"], "rung": rung})
    if end.get("failure") and not plan.accuracy:  # whatever its process died of on the way out
        return Signature.from_json({**end["failure"], "rung": rung})
    if code < 0:
        return _killed(signal.Signals(-code).name, printed, rung)
    if plan.accuracy and end:
        return None  # the program's own comparisons are reported, not obeyed
    if code != 0:
        return Signature("exit", str(code), f"exit code {code}", rung=rung)
    return None


def _killed(name: str, printed: str, rung: str | None) -> Signature:
    """By a signal. An error of a device that met a destructor aborts the process, and is told all the same."""
    error = _DEVICE_ERROR.search(printed) if name == "SIGABRT" else None
    message = f"killed by {name}: {error[1]}" if error else f"killed by {name}"
    return Signature("signal", name, message, rung=rung)
