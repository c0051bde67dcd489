"""How a trial ended: its outcome, built from the events of its process and from what the supervisor saw."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dynadiag.trial.decision_kinds import kind_named
from dynadiag.trial.events import (
    BackendUsed,
    DecisionWithdrawn,
    HookEvent,
    KernelLaunched,
    KernelRunning,
    LoweringFailed,
    Note,
    OperatorUsed,
    PassApplied,
    RankEnded,
    RankFailed,
    RankStarted,
    RunFacts,
    TargetUnusable,
    TrialEnded,
    TrialEvent,
    ValuesDiverged,
    WrongResult,
)
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import TargetError
from dynadiag.trial.rank_stacks import describe_stacks, hanging_rank
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import ProcessResult

NOT_RAISED = ", compiled does not: "  # behind it stands what uncompiled code raises, in the words of torch
ROUNDING = "rounding, by a float64 run"  # in the note on a difference that is no fault

E = TypeVar("E", bound=TrialEvent)


@dataclass(frozen=True, slots=True)
class Decision(TrialEvent):
    """One decision of the compiler, which a trial may switch off.

    ``group`` is the kind of decision (``lowering``, ``fusion``, ...). ``key`` is the same in every trial: it is made of
    the compile id, the graph, FX names and an occurrence number, never of buffer names, which shift. ``lines`` are the
    user's lines, as (file, 1-based line). ``rank`` is that of the process in a distributed job. ``nodes`` are what a
    pass removed or changed, ``added`` what it added. ``reads`` are the nodes that a lowering reads.
    """

    group: str
    key: str
    name: str
    compile_id: str | None = None
    graph: str | None = None
    target: str | None = None
    lines: tuple[tuple[str, int], ...] = ()
    rank: int | None = None
    nodes: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one trial showed.

    ``signature`` is ``None`` if the trial passed. ``invalid`` says why the trial could not run at all; then it says
    nothing about the candidate. ``cpu_seconds`` are what a limit of CPU time counts (`Limits`). ``witness`` and
    ``lines`` are the nodes and user lines that the failure named.

    ``diverged`` are the keys of the nodes of one kernel: the first whose values differ from the uncompiled graph's, or
    the one that was running when the trial failed. ``diverged_in`` are the names of the nodes that they came from, for
    a graph that is tried by itself. ``diverged_value`` is the node whose value differs by more than rounding.

    ``points`` are the decisions that were reported, ``tail`` is the end of its output, ``hook_events`` what hooks of
    the search reported.
    """

    signature: Signature | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    pid: int | None = None
    exit_code: int | None = None
    invalid: str | None = None
    witness: tuple[str, ...] = ()
    diverged: tuple[str, ...] = ()
    diverged_in: tuple[str, ...] = ()
    diverged_value: str = ""
    lines: tuple[tuple[str, int], ...] = ()
    points: tuple[Decision, ...] = ()
    facts: RunFacts = field(default_factory=RunFacts)
    notes: tuple[str, ...] = ()
    tail: str = ""
    hook_events: tuple[HookEvent, ...] = ()

    @property
    def ending(self) -> str:
        """How the trial's process ended, in words."""
        return f"ends with {self.exit_code}"

    @property
    def passed(self) -> bool:
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

    def status_across_releases(self, reference: Signature | None) -> str:
        """``pass``, ``same``, ``different`` or ``invalid``, compared with a failure seen with another release of torch.

        While there is no ``reference``, a trial that fails is ``same``.
        """
        if self.invalid is not None:
            return "invalid"
        if self.signature is None:
            return "pass"
        return "same" if reference is None or self.signature.same_across_releases(reference) else "different"


_DEVICE_ERROR = re.compile(r"^\s*what\(\):\s*((?:CUDA|HIP) error: .+)", re.M)


def build_outcome(result: ProcessResult, code: int, pid: int, plan: Plan, printed: str) -> Outcome:
    """The outcome of a trial.

    ``code`` is the exit code of process ``pid``, negative for a signal. ``printed`` is the end of its output. Raises
    `TargetError` where the process reported that the target cannot be used.
    """
    for unusable in _all(result, TargetUnusable):
        raise TargetError(unusable.message)
    end = _end(result)
    signature = _signature(result, end, code, plan, printed)
    decisions = _decisions(result, signature.rank if signature else None)
    diverged = _diverged(result)
    return Outcome(
        signature=signature,
        seconds=result.seconds,
        cpu_seconds=result.cpu_seconds,
        pid=pid,
        exit_code=code,
        invalid="out of memory" if result.stop_reason == "memory" else None,
        witness=_witness(result, decisions, code),
        diverged=diverged.keys if diverged else (),
        diverged_in=diverged.captured if diverged else (),
        diverged_value=diverged.value if isinstance(diverged, ValuesDiverged) else "",
        lines=end.lines if end else (),
        points=decisions,
        facts=_facts(result),
        notes=_notes(result, end, plan),
        tail=printed,
        hook_events=tuple(_all(result, HookEvent)),
    )


def _all(result: ProcessResult, kind: type[E]) -> Iterator[E]:
    return (event for event in result.events if isinstance(event, kind))


def _end(result: ProcessResult) -> TrialEnded | None:
    """How the program ended. The failure of a launcher is that of the first rank that failed."""
    end, rank = next(_all(result, TrialEnded), None), next(_all(result, RankFailed), None)
    if end is None or rank is None or end.failure is None or end.failure.rank is not None:
        return end
    return TrialEnded(rank.failure, rank.facts, rank.witness, rank.lines)


def _ends(result: ProcessResult) -> Iterator[TrialEnded | WrongResult]:
    yield from _all(result, WrongResult)
    if (end := _end(result)) is not None:
        yield end


def _decisions(result: ProcessResult, rank: int | None) -> tuple[Decision, ...]:
    """The reported decisions, without those that were withdrawn later; if a rank failed, those of that rank."""
    withdrawn = {event.key for event in _all(result, DecisionWithdrawn)}
    applied = {event.key: event for event in _all(result, PassApplied)}
    reported = [
        _with_changes(decision, applied.get(decision.key))
        for decision in _all(result, Decision)
        if decision.key not in withdrawn
    ]
    return tuple(decision for decision in reported if rank is None or decision.rank in (None, rank))


def _with_changes(decision: Decision, applied: PassApplied | None) -> Decision:
    """A decision on a pass, with what the pass changed. The line that defines a pass of the user's comes last."""
    if applied is None:
        return decision
    lines = tuple(dict.fromkeys((*applied.lines, *decision.lines)))
    return replace(decision, nodes=applied.nodes, added=applied.added, lines=lines)


def _witness(result: ProcessResult, decisions: Sequence[Decision], code: int) -> tuple[str, ...]:
    """The nodes that the failure names: that of the failed lowering (its key, then its name), then those in its text.

    A killed process names nothing. For it the last reported decision is taken, because a decision is reported before it
    takes effect. Kernels are reported long before they run, so for them the last one means nothing.
    """
    first = list[LoweringFailed | Decision]([*_all(result, LoweringFailed)][:1])
    if (code < 0 or result.stop_reason) and decisions and kind_named(decisions[-1].group).applied_at_once:
        first.append(decisions[-1])
    named = [name for event in first for name in (event.key, event.name)]
    return tuple(dict.fromkeys([*named, *(name for each in _ends(result) for name in each.witness)]))


def _diverged(result: ProcessResult) -> KernelRunning | ValuesDiverged | None:
    """The kernel that was still running at the end, else the first with the largest divergence."""
    running = next(reversed(list(_all(result, KernelRunning))), None)
    if running is not None and running.keys:
        return running
    return max(_all(result, ValuesDiverged), key=lambda event: event.jump, default=None)


def _facts(result: ProcessResult) -> RunFacts:
    facts = next((each.facts for each in _ends(result)), RunFacts())
    backends = [
        *facts.backends,
        *(name for event in _all(result, RankEnded) for name in event.facts.backends),
        *(event.name for event in _all(result, BackendUsed)),
    ]
    return replace(
        facts,
        backends=tuple(dict.fromkeys(backends)),
        launches=tuple(event.name for event in _all(result, KernelLaunched)),
        operators=tuple(dict.fromkeys(event.name for event in _all(result, OperatorUsed))),
        job=next((event.job for event in _all(result, RankStarted)), None),
    )


def describe_end(failure: Signature) -> str:
    """How a program ended whose compiled calls are compared, as a note on the trial."""
    return f"the program itself ended with {failure.text}"


def _notes(result: ProcessResult, end: TrialEnded | None, plan: Plan) -> tuple[str, ...]:
    notes = [event.text for event in _all(result, Note)]
    notes += [describe_stacks(result.stacks)] if result.stacks else []
    if plan.accuracy and end is not None and end.failure:
        notes.append(describe_end(end.failure))
    return tuple(notes)


def _signature(result: ProcessResult, end: TrialEnded | None, code: int, plan: Plan, printed: str) -> Signature | None:
    rung = plan.rung
    if result.stop_reason == "hang":
        rank = hanging_rank(result.stacks)
        return Signature("hang", "timeout", "did not end in time", rung=rung, rank=rank.rank if rank else None)
    if result.stop_reason == "memory":
        return Signature("memory", "memory", "used more memory than the machine has free", rung=rung)
    for wrong in _all(result, WrongResult):
        return replace(wrong.failure, rung=rung)
    if end is not None and end.failure and not plan.accuracy:  # however the process died after reporting it
        return replace(end.failure, rung=rung)
    if code < 0:
        return _killed_by(signal.Signals(-code).name, printed, rung)
    if plan.accuracy and end is not None:
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
