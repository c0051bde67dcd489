"""From a program to a verdict: the first run, the choice of forks, the ladder, the descent, a flakiness check."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace

from dynadiag.bisect.descent import Finding, at_fault, descend
from dynadiag.bisect.ladder import CLASSES, Climb, candidate_at, climb, ladder, plan_at, top_rung
from dynadiag.bisect.search import Candidate, Search
from dynadiag.bisect.triton import TRITON, idle, unavailable
from dynadiag.bisect.verdict import Verdict
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan

__all__ = ["HOOKS", "Located", "Options", "bisect", "locate"]

HOOKS = ("dynadiag.bisect.switches",)
_FRESH_REPEATS = 3  # further fresh runs, to distinguish a flaky failure from one that forks do not show
_CONFIDENCE = 0.95  # required probability that a faulty candidate fails within its repeats
_DOUBTFUL_REPEATS = 5  # final runs as written, where something was seen to come and go
_LAST_REPEATS = 1  # final runs as written, where nothing was seen to come and go
_PRINTED = 4
_RANDOM = re.compile("rand|dropout|bernoulli|normal(?!iz)|uniform|exponential|geometric|poisson|multinomial")
_OTHER_NUMBERS = (
    "it passes with torch._inductor.config.fallback_random = True: from the same seed Inductor draws other random "
    "numbers than eager, by design"
)
_STALE = "it fails only with what earlier runs left in the compiler's caches: --fresh runs without them"
_MISTAKEN = (
    "it fails only with the compiler's caches on, even if they are empty at first: one graph gets the cache entry of "
    "another "
    "(TORCHINDUCTOR_AUTOGRAD_CACHE=0 TORCHINDUCTOR_FX_GRAPH_CACHE=0 turns them off)"
)
_DISABLED = "the compiler is turned off (TORCHDYNAMO_DISABLE=1, or torch._dynamo.config.disable)"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    ``rungs`` is ``None`` for the ladder of the program's own backends. ``tolerance`` is (rtol, atol). ``record`` are
    the kinds of decisions that each rung reports: reporting costs no trial of its own.
    """

    accuracy: bool = False
    rungs: tuple[str, ...] | None = None
    repeat: int = 1
    tolerance: tuple[float, float] | None = None
    record: tuple[str, ...] = CLASSES


@dataclass(slots=True)
class _Bisection:
    search: Search
    options: Options
    base: Plan
    notes: list[str]

    def announce(self, text: str) -> None:
        self.search.announce(text)

    def at(self, rung: str) -> Candidate:
        return candidate_at(self.base, rung, self.options.record)


def bisect(search: Search, options: Options) -> Verdict:
    """The verdict on the search's program. Raises `TargetError` where the target cannot be used."""
    began = time.monotonic()
    base = Plan(accuracy=options.accuracy, tolerance=options.tolerance)
    bisection = _Bisection(search, options, base, [])
    verdict, first = _verdict(bisection)
    return replace(
        verdict,
        notes=tuple(dict.fromkeys([*bisection.notes, *verdict.notes, *search.runner.notes, *first.notes])),
        side_finds=tuple(search.side_finds),
        printed=_last_lines(first),
        torch=(first.facts or {}).get("torch"),
        trials=search.rows.count,
        seconds=time.monotonic() - began,
    )


def _verdict(bisection: _Bisection) -> tuple[Verdict, Outcome]:
    located = _located(bisection)
    if located.verdict is not None:
        return located.verdict, located.first
    assert located.climb is not None
    if located.cached:
        finding = _mistaken(bisection, located.climb)
        return _found(located.first, located.climb, finding), located.first
    finding = _descend(bisection, located.climb)
    return _flaky_or_found(bisection, located.first, located.climb, finding), located.first


def _last_lines(outcome: Outcome) -> tuple[str, ...]:
    """The last lines of the output, for a failure without a message of its own: an exit code, a signal, a hang."""
    if outcome.signature is None or outcome.signature.kind not in ("exit", "signal", "hang"):
        return ()
    return tuple(line for line in outcome.tail.splitlines() if line.strip())[-_PRINTED:]


@dataclass(frozen=True, slots=True)
class Located:
    """The first run and the ladder: at which rung the program fails first.

    ``verdict`` is set where the search ends here, otherwise ``ladder`` has the rung. ``cached`` says that it fails
    there only with the compiler's caches, even if they are empty at first.
    """

    first: Outcome
    climb: Climb | None = None
    verdict: Verdict | None = None
    cached: bool = False
    notes: tuple[str, ...] = ()


def locate(search: Search, options: Options) -> Located:
    """At which rung the search's program fails first. Raises `TargetError` where the target cannot be used."""
    bisection = _Bisection(search, options, Plan(accuracy=options.accuracy, tolerance=options.tolerance), [])
    return replace(_located(bisection), notes=tuple(bisection.notes))


def _located(bisection: _Bisection) -> Located:
    first = _first_run(bisection)
    if first.passed:
        rungs, first = _passes_at_triton(bisection, first)
        if rungs is not None:
            return Located(first, verdict=_passes(first, rungs))
    search = bisection.search
    search.reference = first.signature
    bisection.announce(_warning(first))
    _fork_if_the_same(bisection, first)
    result = climb(search, bisection.base, ladder(_top(bisection, first), _rungs(bisection)), bisection.options.record)
    bisection.notes += result.notes
    if result.rungs["uncompiled"] == "same":
        return Located(first, result, Verdict("fails_uncompiled", result.rungs, "uncompiled", first.signature))
    if result.first is None or result.outcome is None:
        return _unexplained(bisection, first, result)
    return Located(first, result)


def _rungs(bisection: _Bisection) -> tuple[str, ...] | None:
    """The rungs that were asked for, without Triton's where Triton is missing."""
    rungs = bisection.options.rungs
    missing = unavailable() if TRITON in (rungs or ()) else None
    if rungs is None or missing is None:
        return rungs
    bisection.notes.append(missing)
    return tuple(rung for rung in rungs if rung != TRITON)


def _passes_at_triton(bisection: _Bisection, first: Outcome) -> tuple[dict[str, str] | None, Outcome]:
    """Try the triton rung for a program that passes as written, where that rung was asked for.

    Returns the rungs of the verdict and the first run. Where it fails, returns ``None`` and that outcome, which is then
    the failure to explain.
    """
    statuses = dict.fromkeys(RUNGS, "not_run")
    if TRITON not in (_rungs(bisection) or ()) or not (first.facts or {}).get("backends"):
        return statuses, first
    bisection.search.runner.interpret = not (first.facts or {}).get("cuda")
    bisection.search.runner.start_forks(threads=_threads(first.facts or {}))
    outcome = bisection.search.trial(*bisection.at(TRITON))
    if not outcome.passed:
        bisection.base = replace(bisection.base, rung=TRITON)
        bisection.notes.append("as it is written it passes; it fails at the triton rung")
        return None, outcome
    reason = idle(outcome)
    bisection.notes += [reason] if reason else []
    return {**statuses, TRITON: "not_run" if reason else "pass"}, first


def _first_run(bisection: _Bisection) -> Outcome:
    """The program as written, in a fresh interpreter; up to ``repeat`` times until it fails."""
    bisection.search.runner.warm_up()
    for _ in range(bisection.options.repeat):
        outcome = bisection.search.fresh(bisection.base)
        if not outcome.passed:
            break
    return outcome


def _warning(first: Outcome) -> str:
    return (
        f"it fails; usually 15 to 30 more runs follow, of up to {first.seconds:.0f} s each. Each run repeats what the "
        "program does outside (files, uploads). FILE.py:NAME runs one function instead."
    )


def _passes(first: Outcome, rungs: dict[str, str]) -> Verdict:
    facts = first.facts or {}
    why = _DISABLED if facts.get("disabled") else "no torch.compile call was reached"
    notes = [] if facts.get("backends") else [f"nothing was compiled: {why}"]
    notes += [
        f"the program continues after {text}: with --accuracy that counts as its failure"
        for text in dict.fromkeys(facts.get("failed_compiles", ()))
    ]
    return Verdict("passes", rungs, notes=tuple(notes))


def _fork_if_the_same(bisection: _Bisection, first: Outcome) -> None:
    """Use forks where a fork shows the same failure; stay with fresh interpreters where it does not."""
    search, facts = bisection.search, first.facts or {}
    search.runner.interpret = not facts.get("cuda")
    search.runner.alone = bool(facts.get("writes"))
    reason = search.runner.start_forks(threads=_threads(facts))
    if reason:
        bisection.notes.append(f"each trial runs the whole program: {reason}")
    top = bisection.base.rung or top_rung(facts.get("backends", ()))
    forked = Candidate(bisection.at(top).plan if top else bisection.base, "as written, forked")
    below = ladder(top, _rungs(bisection))[:-1] if top else ()
    for _ in range(2):
        if not search.runner.forks or first.hung:
            return
        search.together([forked, *map(bisection.at, below)])
        if search.status(search.trial(*forked)) == "same":
            return
        search.contradicted = True
        search.forget()
        if not search.runner.drop_checkpoint():
            break
    search.runner.stop_forks()
    bisection.notes.append("a fork does not show the same failure: each trial is a fresh interpreter")


def _threads(facts: dict[str, object]) -> int:
    threads = facts.get("threads")
    return threads if isinstance(threads, int) else len(os.sched_getaffinity(0))


def _top(bisection: _Bisection, first: Outcome) -> str:
    """The rung of the program's own backends, as far as a run has reported them."""
    backends = list((first.facts or {}).get("backends", ()))
    if not backends:
        for rung in ("uncompiled", "eager"):
            outcome = bisection.search.trial(*bisection.at(rung))
            backends += (outcome.facts or {}).get("backends", ())
    return top_rung(backends) or "inductor"


def _descend(bisection: _Bisection, result: Climb) -> Finding:
    assert result.first is not None
    assert result.outcome is not None
    bisection.search.reference = result.outcome.signature
    bisection.search.beside(_again(bisection))
    base = replace(plan_at(bisection.base, result.first), record=())
    return descend(bisection.search, base, result.first, result.outcome)


def _flaky_or_found(bisection: _Bisection, first: Outcome, result: Climb, finding: Finding) -> Verdict:
    bisection.notes += _word_on_random_numbers(bisection, result)
    flaky = _flaky(bisection, finding)
    if flaky:
        return Verdict("flaky", result.rungs, result.first, first.signature, notes=(flaky,))
    return _found(first, result, finding)


def _found(first: Outcome, result: Climb, finding: Finding) -> Verdict:
    return Verdict(
        "found",
        result.rungs,
        result.first,
        first.signature,
        finding.culprits,
        notes=finding.notes,
        confirmed=finding.confirmed,
        reproduce=tuple(plan.key() for plan in finding.plans),
    )


def _word_on_random_numbers(bisection: _Bisection, result: Climb) -> list[str]:
    """A note where the failure disappears with eager's random numbers: Inductor draws others from the same seed."""
    assert result.first is not None
    assert result.outcome is not None
    operators = (p for p in result.outcome.points if p.group in ("lowering", "decomposition"))
    drawn = any(_RANDOM.search(f"{operator.name} {operator.target}") for operator in operators)
    if bisection.base.accuracy or not drawn:
        return []
    plan = replace(plan_at(bisection.base, result.first), fallback_random=True)
    passes = bisection.search.trial(plan, "with eager's random numbers").passed
    return [_OTHER_NUMBERS] if passes else []


def _flaky(bisection: _Bisection, finding: Finding) -> str | None:
    """Why no culprit can be named with confidence, because the failure comes and goes; ``None`` where one can.

    Runs the program as written again: single trials explain nothing about a failure that comes and goes.
    """
    search, repeat = bisection.search, bisection.options.repeat
    if search.reference is not None and search.reference.kind == "hang":
        return None
    doubtful = search.contradicted or not finding.confirmed
    count = max(repeat, _DOUBTFUL_REPEATS if doubtful else _LAST_REPEATS)
    if count > _LAST_REPEATS:
        search.runner.drop_checkpoint()  # so that random numbers before the first compiled call vary too
    failed = sum(_fails_again(bisection) for _ in range(count))
    confidence = 1 - (1 - failed / count) ** repeat
    if failed == count or (repeat > 1 and confidence >= _CONFIDENCE and finding.confirmed):
        if repeat > 1:
            bisection.notes.append(_rate(failed, count, repeat, confidence))
        return None
    return _rate(failed, count, repeat, confidence)


def _fails_again(bisection: _Bisection) -> bool:
    outcome = bisection.search.once(*_again(bisection))
    return bisection.search.status(outcome, across_rungs=True) == "same"


def _again(bisection: _Bisection) -> Candidate:
    return Candidate(replace(bisection.base, caches=False), "as written, again")


def _rate(failed: int, count: int, repeat: int, confidence: float) -> str:
    runs = "1 run" if repeat == 1 else f"{repeat} runs"
    return (
        f"failed the same way in {failed} of {count} further runs; at that rate a faulty candidate fails within {runs} "
        f"with probability {confidence:.2f} (--repeat)"
    )


def _unexplained(bisection: _Bisection, first: Outcome, result: Climb) -> Located:
    """No rung shows the failure. It comes and goes, or it needs the compiler's caches, which the rungs bypass."""
    search = bisection.search
    search.runner.stop_forks()
    runs = [search.status(search.fresh(bisection.base, "as written, again")) for _ in range(_FRESH_REPEATS)]
    failed = runs.count("same")
    note = f"failed the same way in {failed + 1} of {len(runs) + 1} fresh runs, and at no rung"
    if failed == len(runs):
        bare = search.fresh(replace(bisection.base, caches=False), "as written, without the compiler's caches")
        if search.status(bare) != "same":
            cached = _with_caches(bisection, _top(bisection, first), result)
            if cached.first is not None:
                return Located(first, cached, cached=True)
            note = f"{note}; {_STALE}"
    return Located(first, result, Verdict("flaky", result.rungs, None, first.signature, notes=(note,)))


def _with_caches(bisection: _Bisection, rung: str, result: Climb) -> Climb:
    """Try the rung with caches that are empty at first, so that no earlier run has filled them."""
    plan = replace(_cached(bisection, rung), record=("dynamo_graph",))
    outcome = bisection.search.trial(plan, f"{rung}, caches empty at first", across_rungs=True)
    if bisection.search.status(outcome, across_rungs=True) != "same":
        return result
    bisection.notes.append(_MISTAKEN)
    return replace(result, rungs={**result.rungs, rung: "same"}, first=rung, outcome=outcome)


def _cached(bisection: _Bisection, rung: str) -> Plan:
    return replace(plan_at(bisection.base, rung, ()), caches=True, own_caches=True)


def _mistaken(bisection: _Bisection, result: Climb) -> Finding:
    """Which graphs are confused with one another in the caches."""
    assert result.first is not None
    assert result.outcome is not None
    bisection.search.reference = result.outcome.signature
    graphs = {point.key: point for point in result.outcome.points if point.group == "dynamo_graph"}
    return at_fault(bisection.search, _cached(bisection, result.first), "dynamo_graph", graphs)
