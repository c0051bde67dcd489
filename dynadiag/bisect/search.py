"""Runs the trials of a search: counts them, writes them to the log, reports progress, and runs none twice."""

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

_FRESH = "fresh "  # prefix of a candidate in a fresh interpreter, which is another trial than a fork
_HANG_SLACK = 10.0  # seconds; a trial hangs if it takes this plus ten times the slowest that passed
_HANG_FACTOR = 10.0


class Candidate(NamedTuple):
    """A plan to try, and its label for the log and the progress. ``across_rungs`` as in `TrialSearch.status`."""

    plan: Plan
    label: str
    across_rungs: bool = False


Tell = Callable[[int, str, str, float], None]  # (trial number, label, status, seconds)


def _silent(_number: int, _label: str, _status: str, _seconds: float) -> None:
    return None


def _ignored(_text: str) -> None:
    return None


@dataclass(slots=True)
class Search:
    """Runs trials for the ladder and the descent, and remembers their outcomes.

    ``repeat`` runs each candidate up to that many times until it fails the same way, for failures that come and go.
    ``reference`` is the failure that is searched for.
    """

    runner: Runner
    rows: Rows
    tell: Tell = _silent
    announce: Callable[[str], None] = _ignored
    repeat: int = 1
    reference: Signature | None = None
    contradicted: bool = False  # the same candidate ended in two ways
    side_finds: dict[str, None] = field(default_factory=dict)
    _memo: dict[str, Outcome] = field(default_factory=dict)
    _beside: Candidate | None = None
    _beside_made: dict[str, Outcome] = field(default_factory=dict)
    _slowest_pass: float = 0.0

    def status(self, outcome: Outcome, across_rungs: bool = False) -> str:
        """The outcome compared with ``reference``, as in `Outcome.status_against`; ``pass`` or ``fail`` while there is
        none.
        """
        if self.reference is None:
            return "pass" if outcome.passed else "fail"
        return outcome.against(self.reference, across_rungs)

    def fresh(self, plan: Plan = AS_WRITTEN, label: str = "as written") -> Outcome:
        """One trial in a fresh interpreter. It is run again each time."""
        return self._do(_FRESH + plan.key(), lambda: self.runner.fresh(plan), label, across_rungs=False)

    def once(self, plan: Plan, label: str, across_rungs: bool = False) -> Outcome:
        """One trial. It is run again each time, unless `fill_idle_core` has run it already."""
        if (made := self._beside_made.pop(plan.key(), None)) is not None:
            return made
        return self._do(plan.key(), lambda: self.runner.run(plan), label, across_rungs)

    def trial(self, plan: Plan, label: str, across_rungs: bool = False) -> Outcome:
        """The outcome of a candidate: the known one, else that of a new trial (or of up to ``repeat`` trials)."""
        key = plan.key()
        if key not in self._memo:
            for _ in range(self.repeat):
                outcome = self.once(plan, label, across_rungs)
                if self.status(outcome, across_rungs) == "same":
                    break
            self._memo[key] = outcome
        return self._memo[key]

    def beside(self, candidate: Candidate) -> None:
        """Have `run_many` run this candidate too when a core would be idle. `run_once` returns its outcome later."""
        self._beside = candidate

    def together(self, candidates: Iterable[Candidate]) -> None:
        """Run trials that will all be asked for in parallel, where the machine can."""
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
        """A function that runs the trials of several sets of decisions in parallel; ``None`` where that is not
        possible.

        ``counter`` makes the trial that follows where a set is the answer.
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
        """Forget all outcomes: forks have shown another failure than fresh interpreters."""
        self._memo.clear()

    def _do(self, key: str, run: Callable[[], Outcome], label: str, across_rungs: bool) -> Outcome:
        if (known := self.rows.known(key)) is None:
            return self._add(key, run(), label, across_rungs)
        self._learn(known, self.status(known, across_rungs), label)
        return known

    def _add(self, key: str, outcome: Outcome, label: str, across_rungs: bool) -> Outcome:
        """Log the outcome of a new trial and report it."""
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
        """Whether the same line failed with another exception. At another rung that counts as the same failure."""
        sought = self.reference
        return sought is not None and sought.kind == found.kind == "exception" and sought.cause != found.cause

    def shorten_limit(self) -> None:
        """After a hang, shorten the time limit to what passing trials need, so that the next hang costs seconds."""
        limits = self.runner.limits
        enough = _HANG_SLACK + _HANG_FACTOR * self._slowest_pass
        self.runner.limits = Limits(min(limits.seconds, enough), limits.memory)
