"""A search: trials one after another, each counted, kept as a row, told to whoever watches, and never run twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dynadiag.bisect.hashsearch import Ahead
from dynadiag.bisect.rows import Rows
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

__all__ = ["Candidate", "Search"]

_FRESH = "fresh "  # leads the candidate of a trial in a fresh interpreter: it is another trial than its fork
_HANG_SLACK = 10.0  # seconds; a trial is taken to hang well after ten times what a passing one took
_HANG_FACTOR = 10.0


class Candidate(NamedTuple):
    """What is to be tried, and how a row and the progress name it. ``across_rungs`` as in `Search.status`."""

    plan: Plan
    label: str
    across_rungs: bool = False


Tell = Callable[[int, str, str, float], None]  # trial number, what is tried, its status, seconds


def _silent(_number: int, _label: str, _status: str, _seconds: float) -> None:
    return None


def _ignored(_text: str) -> None:
    return None


@dataclass(slots=True)
class Search:
    """What the ladder and the descent ask for trials.

    ``repeat`` runs each candidate up to that often until it fails the same way, for failures that come and go.
    """

    runner: Runner
    rows: Rows
    tell: Tell = _silent
    announce: Callable[[str], None] = _ignored
    repeat: int = 1
    reference: Signature | None = None
    contradicted: bool = False  # one candidate was seen to end in two ways
    side_finds: dict[str, None] = field(default_factory=dict)
    _memo: dict[str, Outcome] = field(default_factory=dict)
    _beside: Candidate | None = None
    _beside_made: dict[str, Outcome] = field(default_factory=dict)
    _slowest_pass: float = 0.0

    def status(self, outcome: Outcome, across_rungs: bool = False) -> str:
        if self.reference is None:
            return "pass" if outcome.passed else "fail"
        return outcome.against(self.reference, across_rungs)

    def fresh(self, plan: Plan = AS_WRITTEN, label: str = "as written") -> Outcome:
        """One trial in a fresh interpreter; asked again, it is run again."""
        return self._do(_FRESH + plan.key(), lambda: self.runner.fresh(plan), label, across_rungs=False)

    def once(self, plan: Plan, label: str, across_rungs: bool = False) -> Outcome:
        """One trial, whether or not it was made before; one that `beside` was asked for counts as this one."""
        if (made := self._beside_made.pop(plan.key(), None)) is not None:
            return made
        return self._do(plan.key(), lambda: self.runner.run(plan), label, across_rungs)

    def trial(self, plan: Plan, label: str, across_rungs: bool = False) -> Outcome:
        """The outcome of a candidate: the one that was seen before, else a new trial (or ``repeat`` of them)."""
        key = plan.key()
        if key not in self._memo:
            for _ in range(self.repeat):
                outcome = self.once(plan, label, across_rungs)
                if self.status(outcome, across_rungs) == "same":
                    break
            self._memo[key] = outcome
        return self._memo[key]

    def beside(self, candidate: Candidate) -> None:
        """Have `together` make this one too as soon as a core would be idle; `once` is asked for it later."""
        self._beside = candidate

    def together(self, candidates: Iterable[Candidate]) -> None:
        """Make trials that will all be asked for, where the machine can make them at once."""
        new = {one.plan.key(): one for one in candidates if not self._made(one.plan.key())}
        if not new or not self._abreast:
            return
        makes = [(one, self._memo) for one in new.values()]
        if len(new) % 2 and (other := self._beside) is not None and not self._made(other.plan.key()):
            makes, self._beside = [*makes, (other, self._beside_made)], None
        if len(makes) < 2:
            return
        outcomes = self.runner.together([one.plan for one, _ in makes])
        for (one, made), outcome in zip(makes, outcomes, strict=True):
            key = one.plan.key()
            made[key] = self._add(key, outcome, one.label, one.across_rungs)

    def ahead(
        self, candidate: Callable[[frozenset[str]], Candidate], counter: Callable[[frozenset[str]], Candidate]
    ) -> Ahead | None:
        """Makes the trials of several sets of decisions; None where two at once take as long as one after the other.

        ``counter`` is the trial that is asked for next of a set which is the answer.
        """
        if not self._abreast:
            return None
        return lambda sets, answer: self.together([*map(candidate, sets), *(map(counter, sets) if answer else ())])

    @property
    def _abreast(self) -> bool:
        return self.repeat == 1 and self.runner.abreast

    def _made(self, key: str) -> bool:
        return key in self._memo or self.rows.holds(key)

    def forget(self) -> None:
        """What forks showed does not count any more: fresh interpreters go on."""
        self._memo.clear()

    def _do(self, key: str, run: Callable[[], Outcome], label: str, across_rungs: bool) -> Outcome:
        if (known := self.rows.known(key)) is None:
            return self._add(key, run(), label, across_rungs)
        self._learn(known, self.status(known, across_rungs), label)
        return known

    def _add(self, key: str, outcome: Outcome, label: str, across_rungs: bool) -> Outcome:
        """Keep the outcome of a new trial, and tell of it."""
        status = self.status(outcome, across_rungs)
        self.rows.add(key, outcome, status, label)
        self.tell(self.rows.count, label, status, outcome.seconds)
        self._learn(outcome, status, label)
        return outcome

    def _learn(self, outcome: Outcome, status: str, label: str) -> None:
        found = outcome.signature
        if found is not None and (status == "different" or self._has_another_cause(found)):
            first = found.message.splitlines()[:1]
            self.side_finds[f"{label}: {found.type}: {''.join(first)[:200]}"] = None
        if outcome.passed:
            self._slowest_pass = max(self._slowest_pass, outcome.seconds)

    def _has_another_cause(self, found: Signature) -> bool:
        """At another rung an exception at the same line of the program counts as the same: what it is, is told."""
        sought = self.reference
        return sought is not None and sought.kind == found.kind == "exception" and sought.cause != found.cause

    def shorten_limit(self) -> None:
        """After a hang: what passes tells how long a trial may take, so that each hang costs seconds, not minutes."""
        limits = self.runner.limits
        enough = _HANG_SLACK + _HANG_FACTOR * self._slowest_pass
        self.runner.limits = Limits(min(limits.seconds, enough), limits.memory)
