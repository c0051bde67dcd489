"""Runs the trials of a search: counts them, writes them to the log, reports progress, and runs none twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dynadiag.bisection.budget import AnswersContradictError, SearchBudget, SearchStoppedError
from dynadiag.bisection.hash_search import Speculate
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.recording.torch_text.failures import unwrapped_error
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.runner import Runner
from dynadiag.trial.signature import Signature

_HANG_SLACK = 10.0  # seconds; a trial hangs if it takes this plus ten times the slowest that passed
_HANG_FACTOR = 10.0
_MIN_HANG_FACTOR = 2.0  # at least this times the slowest that passed since: trials lower down compile more
_MIN_TIMED = 4  # trials that fail, and that pass, before their seconds say anything
_TRIALS_PER_CHECK = 30  # new trials before known answers are checked again; most searches take fewer


def fresh_key(plan: Plan) -> str:
    """The key of a candidate in a fresh interpreter, which is another trial than a fork."""
    return "fresh " + plan.key()


class LabeledPlan(NamedTuple):
    """A plan to try, and its label for the log and the progress. ``across_rungs`` as in `TrialSearch.status`."""

    plan: Plan
    label: str
    across_rungs: bool = False


OnTrial = Callable[[int, str, str, float], None]  # (trial number, label, status, seconds)


@dataclass(slots=True)
class TrialSearch:
    """Runs trials for the ladder and the descent, and remembers their outcomes.

    ``repeat`` runs each candidate up to that many times until it fails the same way, for failures that come and go.
    ``reference`` is the failure that is searched for; with ``any_failure`` each other one counts as it. Running a trial
    raises `SearchStoppedError` where the budget is spent, or where known answers turn out to be others when their
    trials run again.
    """

    runner: Runner
    log: TrialLog
    on_trial: OnTrial = lambda *_: None
    on_message: Callable[[str], None] = lambda _: None
    repeat: int = 1
    reference: Signature | None = None
    any_failure: bool = False
    inconsistent: bool = False  # the same candidate ended in two ways
    budget: SearchBudget = field(default_factory=SearchBudget)
    last_answers: dict[str, LabeledPlan] = field(default_factory=dict)  # the last trial of each status
    left_out: dict[str, list[str]] = field(default_factory=dict)  # why parts of the search did not run, and which
    _other_failures: dict[tuple[object, ...], str] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set)
    _trials_since_check: int = 0
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _idle_core_plan: LabeledPlan | None = None
    _idle_core_outcomes: dict[str, Outcome] = field(default_factory=dict)
    _slowest_pass: float = 0.0
    _seconds: dict[str, list[float]] = field(default_factory=dict)  # of the trials with each status
    _whole_limit: float | None = None  # seconds, before a hang shortened it

    def status(self, outcome: Outcome, across_rungs: bool = False) -> str:
        """The outcome compared with ``reference``, as in `Outcome.status_against`; ``pass`` or ``fail`` while there is
        none.
        """
        if self.reference is None:
            return "pass" if outcome.passed else "fail"
        status = outcome.status_against(self.reference, across_rungs)
        return "same" if status == "different" and self.any_failure else status

    def run_fresh(self, plan: Plan = AS_WRITTEN, label: str = "as written") -> Outcome:
        """One trial in a fresh interpreter. It is run again each time."""
        return self._replay_or_run(fresh_key(plan), lambda: self.runner.run_fresh(plan), label, across_rungs=False)

    def run_other(self, runner: Runner, plan: Plan, label: str) -> Outcome:
        """Run the program of another runner once, in a fresh interpreter."""
        key = f"{label} {plan.key()}"
        return self._replay_or_run(key, lambda: runner.run_fresh(plan), label, across_rungs=True)

    def start_fresh(self, plans: Iterable[Plan]) -> None:
        """Start the trials of `run_fresh` that no resumed search has made, side by side with what runs meanwhile."""
        self.runner.start_fresh([plan for plan in plans if not self.log.has_recorded(fresh_key(plan))])

    def run_once(self, plan: Plan, label: str, across_rungs: bool = False) -> Outcome:
        """One trial. It is run again each time, unless `fill_idle_core` has run it already."""
        if (made := self._idle_core_outcomes.pop(plan.key(), None)) is not None:
            return made
        return self._replay_or_run(plan.key(), lambda: self.runner.run(plan), label, across_rungs)

    def run(self, plan: Plan, label: str, across_rungs: bool = False) -> Outcome:
        """The outcome of a candidate: the known one, else that of a new trial (or of up to ``repeat`` trials)."""
        key = plan.key()
        if key not in self._outcomes:
            self._check_answers_sometimes()
            for _ in range(self.repeat):
                outcome = self.run_once(plan, label, across_rungs)
                if self.status(outcome, across_rungs) == "same":
                    break
            self._outcomes[key] = outcome
        self.last_answers[self.status(self._outcomes[key], across_rungs)] = LabeledPlan(plan, label, across_rungs)
        return self._outcomes[key]

    def known_status(self, candidate: LabeledPlan) -> str | None:
        """The status of a trial that has run; ``None`` if it has not."""
        outcome = self._outcomes.get(candidate.plan.key())
        return self.status(outcome, candidate.across_rungs) if outcome is not None else None

    def leave_out(self, why: SearchStoppedError, what: str) -> None:
        """Note that a part of the search did not run, and why."""
        self.left_out.setdefault(str(why), []).append(what)

    def _check_answers_sometimes(self) -> None:
        """In a long search, check the last answers: a program that measures time may fail otherwise in each trial."""
        if self._trials_since_check >= _TRIALS_PER_CHECK and self.reference is not None:
            self._trials_since_check = 0
            last = (self.last_answers.get(status) for status in ("same", "pass"))
            self.check_answers(filter(None, last))

    def check_answers(self, candidates: Iterable[LabeledPlan]) -> None:
        """Run trials whose outcomes are known again, each at most once. Raises `AnswersContradictError` if one ends
        otherwise than before.

        It does nothing if the user expects that (``repeat``).
        """
        for one in candidates:
            known, key = self.known_status(one), one.plan.key()
            if known is None or key in self._checked or self.repeat > 1:
                continue
            self._checked.add(key)
            again = self.status(self.run_once(one.plan, f"{one.label}, again", one.across_rungs), one.across_rungs)
            if again != known:
                self.inconsistent = True
                raise AnswersContradictError(f"the same trial ended in two ways ({one.label}: {known}, then {again})")

    def fill_idle_core(self, candidate: LabeledPlan) -> None:
        """Have `run_many` run this candidate too when a core would be idle. `run_once` returns its outcome later."""
        self._idle_core_plan = candidate

    def run_many(self, candidates: Iterable[LabeledPlan]) -> None:
        """Run trials whose outcomes are all needed, in parallel if the machine can."""
        new = {one.plan.key(): one for one in candidates if not self._has_outcome(one.plan.key())}
        if not new or not self._runs_in_parallel:
            return
        self._check_answers_sometimes()
        makes = [(one, self._outcomes) for one in new.values()]
        if len(new) % 2 and (other := self._idle_core_plan) is not None and not self._has_outcome(other.plan.key()):
            makes, self._idle_core_plan = [*makes, (other, self._idle_core_outcomes)], None
        if len(makes) < 2:
            return
        outcomes = self._within_budget(lambda: self.runner.run_many([one.plan for one, _ in makes]), len(makes))
        for (one, made), outcome in zip(makes, outcomes, strict=True):
            key = one.plan.key()
            made[key] = self._add(key, outcome, one.label, one.across_rungs)

    def speculate(
        self, candidate: Callable[[frozenset[str]], LabeledPlan], counter: Callable[[frozenset[str]], LabeledPlan]
    ) -> Speculate | None:
        """A function that runs the trials of several sets of decisions in parallel; ``None`` if that is not
        possible.

        ``counter`` makes the trial that follows where a set is the answer.
        """
        if not self._runs_in_parallel:
            return None
        return lambda sets, answer: self.run_many([*map(candidate, sets), *(map(counter, sets) if answer else ())])

    @property
    def _runs_in_parallel(self) -> bool:
        return self.repeat == 1 and self.runner.runs_in_parallel

    def _has_outcome(self, key: str) -> bool:
        return key in self._outcomes or self.log.has_recorded(key)

    @property
    def fails_by_time(self) -> bool:
        """Whether each trial that failed took longer than each that passed: it may fail because it takes long."""
        failed, passed = (self._seconds.get(status, []) for status in ("same", "pass"))
        return min(len(failed), len(passed)) >= _MIN_TIMED and min(failed) > max(passed)

    def clear_cache(self) -> None:
        """Forget all outcomes: forks have shown another failure than fresh interpreters, which take longer to start."""
        self._outcomes.clear()
        self._seconds.clear()
        self.left_out.clear()
        self._slowest_pass = 0.0
        if self._whole_limit is not None:
            self._set_limit(self._whole_limit)
        self._checked.clear()
        self.last_answers.clear()

    def _replay_or_run(self, key: str, run: Callable[[], Outcome], label: str, across_rungs: bool) -> Outcome:
        if (known := self.log.next_recorded(key)) is None:
            (outcome,) = self._within_budget(lambda: [run()])
            return self._add(key, outcome, label, across_rungs)
        self._note_outcome(known, self.status(known, across_rungs), label)
        return known

    def _within_budget(self, run: Callable[[], list[Outcome]], count: int = 1) -> list[Outcome]:
        """The outcomes of new trials. Raises `SearchStoppedError` if the budget ends before them, or in them."""
        self.budget.take(count, fails_by_time=self.fails_by_time)
        return self.budget.run(self.runner, run)

    def _add(self, key: str, outcome: Outcome, label: str, across_rungs: bool) -> Outcome:
        """Log the outcome of a new trial and report it."""
        status = self.status(outcome, across_rungs)
        self.log.add(key, outcome, status, label)
        self.on_trial(self.log.count, label, status, outcome.seconds)
        self._note_outcome(outcome, status, label)
        return outcome

    def _note_outcome(self, outcome: Outcome, status: str, label: str) -> None:
        self._trials_since_check += 1
        self._seconds.setdefault(status, []).append(outcome.seconds)
        found = outcome.signature
        if found is not None and (status == "different" or self._has_another_cause(found)):
            self.note_other_failure(found, label)
        if outcome.passed and outcome.seconds > self._slowest_pass:
            self._slowest_pass = outcome.seconds
            self._lengthen_limit()

    def note_other_failure(self, found: Signature, label: str) -> None:
        """Keep a failure other than the one that is searched for, unless it was seen before. A wrong result is what an
        assertion of the program is about.
        """
        if found.is_wrong_result and self.reference is not None and self.reference.type == "AssertionError":
            return
        error, message = unwrapped_error(found.type, found.message)
        first = "".join(message.splitlines()[:1])
        self._other_failures.setdefault(found.identity(), f"{label}: {error}: {first[:200]}")

    @property
    def other_failures(self) -> tuple[str, ...]:
        """Each other failure once, with the trial that showed it first."""
        return tuple(self._other_failures.values())

    def _has_another_cause(self, found: Signature) -> bool:
        """Whether the same line failed with another exception. At another rung that counts as the same failure."""
        expected = self.reference
        return expected is not None and expected.kind == found.kind == "exception" and expected.cause != found.cause

    def shorten_limit(self, outcome: Outcome) -> None:
        """After a hang and a trial that passed, shorten the time limit to what passing trials need, so that the next
        hang costs seconds.
        """
        if not outcome.passed or self.reference is None or self.reference.kind != "hang":
            return
        self._whole_limit = self._whole_limit or self.runner.limits.seconds
        self._set_limit(_HANG_SLACK + _HANG_FACTOR * self._slowest_pass)

    def _lengthen_limit(self) -> None:
        """After a slow trial that passed, lengthen a shortened limit. Hangs at the limit before may not be any."""
        enough = _HANG_SLACK + _MIN_HANG_FACTOR * self._slowest_pass
        if self._whole_limit is None or enough <= self.runner.limits.seconds:
            return
        self._set_limit(enough)
        for key in [key for key, outcome in self._outcomes.items() if outcome.is_hang]:
            del self._outcomes[key]

    def _set_limit(self, seconds: float) -> None:
        limits = self.runner.limits
        self.runner.limits = replace(limits, seconds=min(seconds, self._whole_limit or seconds))
