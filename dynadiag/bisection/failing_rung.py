"""Finds the first rung at which a program fails: the first run, the choice between forks and fresh interpreters, the
ladder.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace

from dynadiag.bisection.ladder import (
    TRITON,
    LadderResult,
    labeled_rung,
    missing_reason,
    not_run_reason,
    run_ladder,
    rung_plan,
    rungs_to_try,
    top_rung,
)
from dynadiag.bisection.machine import machine_fault
from dynadiag.bisection.trial_search import LabeledPlan, TrialSearch
from dynadiag.bisection.verdict import Verdict
from dynadiag.explanation.registry import installed_torch
from dynadiag.trial.decision_kinds import REPORTED_KINDS
from dynadiag.trial.outcome import ROUNDING, Outcome, describe_end
from dynadiag.trial.plan import RUNGS, Plan

_FRESH_REPEATS = 3  # further fresh runs, to distinguish a flaky failure from one that forks do not show
_NEVER_COMPILED = "it fails before anything is compiled"
_STALE_CACHES = "it fails only with what earlier runs left in the compiler's caches"
_ROUNDING = "not a fault of the compiler: the program compares values that differ by rounding"
_AT_NO_RUNG = "it fails in each run as it is written, and in the same way at no rung"
_STALE_CACHE_NOTE = "it passes with empty caches: --fresh runs with them"
_CONFUSED_CACHE_NOTE = (
    "it fails only with the compiler's caches on, even if they are empty at first: one graph gets the cache entry of "
    "another "
    "(TORCHINDUCTOR_AUTOGRAD_CACHE=0 TORCHINDUCTOR_FX_GRAPH_CACHE=0 turns them off)"
)
_PRECISE_CASTS_NOTE = (
    "it passes with torch._inductor.config.emulate_precision_casts = True: Inductor then rounds where eager does"
)
_NO_PRECISE_CASTS_NOTE = "torch._inductor.config.emulate_precision_casts = True does not make it pass"
_NO_INPUT_NOTE = "no trial has an input: what the program reads from stdin is empty"
_THREAD_ENDED = re.compile(r"^Exception in thread ", re.M)
_THREAD_NOTE = (
    "an exception ended a thread, and not the program: it counts where the main thread raises it (`Future.result()`)"
)
_DISABLED_NOTE = "the compiler is turned off (TORCHDYNAMO_DISABLE=1, or torch._dynamo.config.disable)"


@dataclass(frozen=True, slots=True)
class BisectOptions:
    """The options of the user.

    ``rungs`` is ``None`` for the ladder of the program's own backends. ``tolerance`` is (rtol, atol). ``record`` are
    the kinds of decisions that each rung reports: reporting costs no trial of its own. ``remarks`` says whether trials
    run of which nothing but a note comes, and whether a failure that raises no doubt is run once more at the end.
    """

    accuracy: bool = False
    rungs: tuple[str, ...] | None = None
    repeat: int = 1
    tolerance: tuple[float, float] | None = None
    record: tuple[str, ...] = REPORTED_KINDS
    remarks: bool = True


@dataclass(slots=True)
class Bisection:
    """The state of one bisection. ``base`` is the plan that all others are made from.

    ``first`` is the first run and ``rung`` the failing one, once they are known. ``fresh`` runs no trial in a fork.
    """

    search: TrialSearch
    options: BisectOptions
    base: Plan
    notes: list[str]
    first: Outcome | None = None
    rung: str | None = None
    fresh: bool = False

    def announce(self, text: str) -> None:
        self.search.on_message(text)

    def labeled_rung(self, rung: str) -> LabeledPlan:
        return labeled_rung(self.base, rung, self.options.record)


@dataclass(frozen=True, slots=True)
class FailingRung:
    """The first run, and the first ``rung`` at which the program fails: with its ``outcome``, and the status of all.

    ``verdict`` is set where no such rung was found, and the search ends here. ``cached`` says that it fails there only
    with the compiler's caches, even if they are empty at first.
    """

    first: Outcome
    rung: str = ""
    outcome: Outcome = field(default_factory=Outcome)
    rungs: dict[str, str] = field(default_factory=dict)
    verdict: Verdict | None = None
    cached: bool = False
    notes: tuple[str, ...] = ()

    @property
    def torch(self) -> str | None:
        """torch's version."""
        return self.first.facts.torch or installed_torch()


def find_failing_rung(search: TrialSearch, options: BisectOptions) -> FailingRung:
    """Find the first rung at which the program fails. Raises `TargetError` if the target cannot be used."""
    bisection = Bisection(search, options, Plan(accuracy=options.accuracy, tolerance=options.tolerance), [])
    return replace(search_rungs(bisection), notes=tuple(bisection.notes))


def search_rungs(bisection: Bisection) -> FailingRung:
    """As `find_failing_rung`, for a bisection that continues from there. Adds to its notes."""
    first = bisection.first = _first_run(bisection)
    if _ends_before_it_compiles(first):
        bisection.base = replace(bisection.base, accuracy=False)  # there is nothing to compare
        first = bisection.first = _first_run(bisection)
    if first.passed:
        rungs, first = _passes_at_triton(bisection, first)
        if rungs is not None:
            verdict = _fails_by_itself(bisection, first) or _passing_verdict(bisection, first, rungs)
            return FailingRung(first, verdict=verdict)
    bisection.first = first
    search = bisection.search
    search.reference = first.signature
    bisection.announce(_warning(first))
    if first.signature is not None and first.signature.type == "EOFError":
        bisection.notes.append(_NO_INPUT_NOTE)
    _use_forks_if_same_failure(bisection, first)
    result = run_ladder(
        search,
        bisection.base,
        rungs_to_try(_top_rung(bisection, first), _available_rungs(bisection)),
        bisection.options.record,
    )
    bisection.notes += result.notes
    if result.rungs["uncompiled"] == "same":
        verdict = Verdict("fails_uncompiled", result.rungs, "uncompiled", first.signature)
        return FailingRung(first, verdict=replace(verdict, headline=_uncompiled(first)))
    if result.first is None or result.outcome is None:
        return _crashes_in_many_ways(bisection, first, result) or _fails_at_no_rung(bisection, first, result)
    if (fault := machine_fault(search, bisection.base, result.outcome)) is not None:
        failure = result.outcome.signature
        verdict = Verdict(
            "found", result.rungs, result.first, failure, notes=fault.notes, shows_machine_fault=fault.program
        )
        return FailingRung(first, verdict=verdict)
    return FailingRung(first, result.first, result.outcome, result.rungs)


def _available_rungs(bisection: Bisection) -> tuple[str, ...] | None:
    """The rungs that were asked for, without Triton's where Triton is missing."""
    rungs = bisection.options.rungs
    missing = missing_reason() if TRITON in (rungs or ()) else None
    if rungs is None or missing is None:
        return rungs
    bisection.notes.append(missing)
    return tuple(rung for rung in rungs if rung != TRITON)


def _passes_at_triton(bisection: Bisection, first: Outcome) -> tuple[dict[str, str] | None, Outcome]:
    """Try the triton rung for a program that passes as written, where that rung was asked for.

    Returns the rungs of the verdict and the first run. If it fails, returns ``None`` and that outcome, which is then
    the failure to explain.
    """
    statuses = dict.fromkeys(RUNGS, "not_run")
    if TRITON not in (_available_rungs(bisection) or ()) or not first.facts.backends:
        return statuses, first
    bisection.search.runner.interpret = not first.facts.cuda
    bisection.search.runner.start_forks(threads=_threads(first))
    outcome = bisection.search.run(*bisection.labeled_rung(TRITON))
    if not outcome.passed:
        bisection.base = replace(bisection.base, rung=TRITON)
        bisection.notes.append("as it is written it passes; it fails at the triton rung")
        return None, outcome
    reason = not_run_reason(outcome)
    bisection.notes += [reason] if reason else []
    return {**statuses, TRITON: "not_run" if reason else "pass"}, first


def _first_run(bisection: Bisection) -> Outcome:
    """The program as written, in a fresh interpreter; up to ``repeat`` times until it fails."""
    if not bisection.fresh:
        bisection.search.runner.warm_up()
    for _ in range(bisection.options.repeat):
        outcome = bisection.search.run_fresh(bisection.base)
        if not outcome.passed:
            break
    return outcome


def _ends_before_it_compiles(first: Outcome) -> bool:
    """Whether no call was compared, because the program failed before it compiled anything."""
    return first.passed and bool(first.exit_code) and not first.facts.backends


def _uncompiled(first: Outcome) -> str:
    """The headline for a first run that compiled nothing. It is empty where the run could not report that."""
    reports = first.facts.torch is not None or (first.signature is not None and first.signature.kind == "exception")
    return _NEVER_COMPILED if reports and not first.facts.backends else ""


def _warning(first: Outcome) -> str:
    return (
        f"it fails; usually 15 to 30 more runs follow, of up to {first.seconds:.0f} s each. Each run repeats what the "
        "program does outside (files, uploads). FILE.py:NAME runs one function instead."
    )


def _passing_verdict(bisection: Bisection, first: Outcome, rungs: dict[str, str]) -> Verdict:
    why = _DISABLED_NOTE if first.facts.disabled else "no torch.compile call was reached"
    notes = [] if first.facts.backends else [f"nothing was compiled: {why}"]
    notes += [
        f"the program continues after {text}: with --accuracy that counts as its failure"
        for text in dict.fromkeys(first.facts.failed_compiles)
    ]
    if _THREAD_ENDED.search(first.tail):
        notes.append(_THREAD_NOTE)
    rounding = bisection.base.accuracy and bool(first.exit_code) and any(ROUNDING in note for note in first.notes)
    if rounding and "inductor" in first.facts.backends:
        precise = replace(bisection.base, accuracy=False, caches=False, precise_casts=True)
        passes = bisection.search.run(precise, "rounded where eager rounds").passed
        notes.append(_PRECISE_CASTS_NOTE if passes else _NO_PRECISE_CASTS_NOTE)
    return Verdict("passes", rungs, notes=tuple(notes), headline=_ROUNDING if rounding else "")


def _fails_by_itself(bisection: Bisection, first: Outcome) -> Verdict | None:
    """The verdict on a program whose compiled calls are right, and which ends with the same exception uncompiled."""
    if not (bisection.base.accuracy and first.exit_code):
        return None
    plan = rung_plan(replace(bisection.base, accuracy=False), "uncompiled")
    failure = bisection.search.run(plan, "uncompiled, as it ends by itself").signature
    if failure is None or describe_end(failure) not in first.notes:
        return None
    statuses = {**dict.fromkeys(RUNGS, "not_run"), "uncompiled": "same"}
    return Verdict("fails_uncompiled", statuses, "uncompiled", failure, headline=_uncompiled(first))


def _use_forks_if_same_failure(bisection: Bisection, first: Outcome) -> None:
    """Use forks where a fork shows the same failure; stay with fresh interpreters where it does not."""
    search = bisection.search
    search.runner.interpret = not first.facts.cuda
    search.runner.one_at_a_time = bool(first.facts.writes)
    if bisection.fresh:
        return
    reason = search.runner.start_forks(threads=_threads(first))
    if reason:
        bisection.notes.append(f"each trial runs the whole program: {reason}")
    top = bisection.base.rung or top_rung(first.facts.backends)
    forked = LabeledPlan(bisection.labeled_rung(top).plan if top else bisection.base, "as written, forked")
    below = rungs_to_try(top, _available_rungs(bisection))[:-1] if top else ()
    for _ in range(2):
        if not search.runner.has_forks or first.is_hang:
            return
        search.run_many([forked, *map(bisection.labeled_rung, below)])
        if search.status(search.run(*forked)) == "same":
            return
        search.inconsistent = True
        search.clear_cache()
        if not search.runner.drop_checkpoint():
            break
    search.runner.stop_forks()
    bisection.notes.append("a fork does not show the same failure: each trial is a fresh interpreter")


def _threads(first: Outcome) -> int:
    return first.facts.threads or len(os.sched_getaffinity(0))


def _top_rung(bisection: Bisection, first: Outcome) -> str:
    """The rung of the program's own backends, as far as a run has reported them."""
    backends = list(first.facts.backends)
    if not backends:
        for rung in ("uncompiled", "eager"):
            outcome = bisection.search.run(*bisection.labeled_rung(rung))
            bisection.search.shorten_limit(outcome)
            backends += outcome.facts.backends
    return top_rung(backends) or "inductor"


def rerun_as_written(bisection: Bisection) -> LabeledPlan:
    """The trial that runs the program as written again."""
    return LabeledPlan(replace(bisection.base, caches=False), "as written, again")


def _crashes_in_many_ways(bisection: Bisection, first: Outcome, result: LadderResult) -> FailingRung | None:
    """The last rung, where the program fails there alone, and in another way than as written, one of them a crash.

    A kernel that writes past its buffer does that: what it overwrites differs from run to run. So each failure counts.
    """
    statuses = [status for status in result.rungs.values() if status != "not_run"]
    if statuses != ["pass"] * (len(statuses) - 1) + ["different"]:
        return None
    last = next(rung for rung, status in result.rungs.items() if status == "different")
    outcome = bisection.search.run(*bisection.labeled_rung(last))  # known from the ladder
    failures = [failure for failure in (first.signature, outcome.signature) if failure is not None]
    if not any(failure.kind == "signal" for failure in failures):
        return None
    bisection.search.any_failure = True
    ways = " and ".join(failure.type for failure in failures)
    bisection.notes.append(f"it fails in more than one way ({ways}), as with overwritten memory: each failure counts")
    return FailingRung(first, last, outcome, {**result.rungs, last: "same"})


def _fails_at_no_rung(bisection: Bisection, first: Outcome, result: LadderResult) -> FailingRung:
    """No rung shows the failure. It comes and goes, or it needs the compiler's caches, which the rungs bypass."""
    search = bisection.search
    search.runner.stop_forks()
    runs = [search.status(search.run_fresh(bisection.base, "as written, again")) for _ in range(_FRESH_REPEATS)]
    failed, headline = runs.count("same"), ""
    note = f"failed the same way in {failed + 1} of {len(runs) + 1} fresh runs, and at no rung"
    if failed == len(runs):
        headline = _AT_NO_RUNG
        bare = search.run_fresh(replace(bisection.base, caches=False), "as written, without the compiler's caches")
        if bare.passed:
            if (cached := _retry_with_empty_caches(bisection, first, result)) is not None:
                return cached
            filled = replace(rung_plan(bisection.base, _top_rung(bisection, first), ()), caches=True)
            if search.status(search.run_fresh(filled, "the same rung with the compiler's caches")) == "same":
                note, headline = f"{note}; {_STALE_CACHE_NOTE}", _STALE_CACHES
    verdict = Verdict("flaky", result.rungs, None, first.signature, notes=(note,), headline=headline)
    return FailingRung(first, verdict=verdict)


def _retry_with_empty_caches(bisection: Bisection, first: Outcome, result: LadderResult) -> FailingRung | None:
    """Try the program's own rung with caches that are empty at first, so that no earlier run has filled them."""
    rung = _top_rung(bisection, first)
    plan = replace(plan_with_empty_caches(bisection, rung), record=("dynamo_graph",))
    outcome = bisection.search.run(plan, f"{rung}, caches empty at first", across_rungs=True)
    if bisection.search.status(outcome, across_rungs=True) != "same":
        return None
    bisection.notes.append(_CONFUSED_CACHE_NOTE)
    return FailingRung(first, rung, outcome, {**result.rungs, rung: "same"}, cached=True)


def plan_with_empty_caches(bisection: Bisection, rung: str) -> Plan:
    """The plan of a rung with caches that are empty at first."""
    return replace(rung_plan(bisection.base, rung, ()), caches=True, own_caches=True)
