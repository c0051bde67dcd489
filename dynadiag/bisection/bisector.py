"""From a program to a verdict: the failing rung, the descent below it, and a check for flakiness."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dynadiag.bisection.budget import AnswersContradictError, SearchStoppedError, TakesLongError
from dynadiag.bisection.descent import DescentResult, descend, find_culprits
from dynadiag.bisection.failing_rung import (
    Bisection,
    BisectOptions,
    FailingRung,
    plan_with_empty_caches,
    rerun_as_written,
    search_rungs,
)
from dynadiag.bisection.ladder import (
    rung_plan,
)
from dynadiag.bisection.narrowing import compared_values, describe_diverged_value
from dynadiag.bisection.trial_log import TrialLog
from dynadiag.bisection.trial_search import OnTrial, TrialSearch
from dynadiag.bisection.verdict import InterruptedSearch, Verdict
from dynadiag.explanation.formatting import list_counted
from dynadiag.trial.in_process import InProcessRunner
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import RUNGS, Plan
from dynadiag.trial.supervise import Limits

HOOKS = ("dynadiag.bisection.compiler_hooks",)
_WHAT_IS_KNOWN = {
    "same": "the last trial that failed the same way",
    "pass": "the last trial that passed",
    "different": "the last trial that failed in another way",
    "timeout": "the last trial that did not end in time",
    "invalid": "the last trial that could not run",
}
_CONFIDENCE = 0.95  # required probability that a faulty candidate fails within its repeats
_DOUBTFUL_REPEATS = 5  # final runs as written, if an outcome was seen to come and go
_FINAL_REPEATS = 1  # final runs as written, if no outcome was seen to come and go
_MAX_HANG_TRIALS = 25  # below the rung; each that hangs takes the whole time limit
_GROWING_TIME = "no few decisions make it {}: it may only take longer the more of them are on"
_BACKWARD_PASSES = "uncompiled, the backward of each compiled call passes"
_BACKWARD_FAILS_TOO = (
    "uncompiled it fails in the same way once its backward runs; AOTAutograd traces the backward of each graph that "
    "needs a gradient, also where nothing calls it (torch.no_grad() avoids that)"
)
BACKWARD_NOTES = (_BACKWARD_PASSES, _BACKWARD_FAILS_TOO)  # on a failure that nothing but the compiler runs into
_MAX_PRINTED_LINES = 4
_RANDOM_OPERATOR = re.compile("rand|dropout|bernoulli|normal(?!iz)|uniform|exponential|geometric|poisson|multinomial")
_RANDOM_NUMBERS_NOTE = (
    "it passes with torch._inductor.config.fallback_random = True, which leaves random operators to eager's kernels. "
    "Where only drawn values differ, that is by design: from the same seed Inductor draws other numbers"
)

_RIGHT_CALLS_NOTE = (
    "with --accuracy it passes: each compiled call was compared with its uncompiled self, and none is wrong by more "
    "than rounding"
)


def bisect(search: TrialSearch, options: BisectOptions) -> Verdict:
    """The verdict on the search's program. Raises `TargetError` if the target cannot be used, and `InterruptedSearch`
    with what is known after Ctrl-C.
    """
    began = time.monotonic()
    base = Plan(accuracy=options.accuracy, tolerance=options.tolerance)
    bisection = Bisection(search, options, base, [])
    try:
        return _complete(_run_again_without_forks(bisection), bisection, began)
    except SearchStoppedError as stop:
        contradict = isinstance(stop, AnswersContradictError)
        return _complete(_stopped(bisection, str(stop), "flaky" if contradict else "stopped"), bisection, began)
    except KeyboardInterrupt:
        raise InterruptedSearch(_complete(_stopped(bisection, "interrupted"), bisection, began)) from None


def _complete(verdict: Verdict, bisection: Bisection, began: float) -> Verdict:
    """The verdict with what is known of the whole search."""
    search, first = bisection.search, bisection.first or Outcome()
    left_out = [f"not searched, since {why}: {'; '.join(parts)}" for why, parts in search.left_out.items()]
    return replace(
        verdict,
        notes=tuple(dict.fromkeys([*bisection.notes, *verdict.notes, *left_out, *search.runner.notes, *first.notes])),
        other_failures=search.other_failures,
        printed=_last_lines(first),
        torch=first.facts.torch,
        accuracy=bisection.base.accuracy,
        trials=search.log.count,
        seconds=time.monotonic() - began,
    )


def _run_again_without_forks(bisection: Bisection) -> Verdict:
    """The verdict. If forks of the program contradict each other, the search begins again in fresh interpreters."""
    try:
        return _run(bisection)
    except AnswersContradictError as contradiction:
        had_forks = bisection.search.runner.has_forks
        bisection.search.runner.stop_forks()
        if not had_forks or bisection.search.runner.has_forks:  # there was, or is, no other way to run a trial
            raise
        bisection.notes.append(f"forked trials contradict each other, so fresh interpreters were used: {contradiction}")
    bisection.search.clear_cache()
    bisection.search.reference, bisection.fresh = None, True
    bisection.base = replace(bisection.base, rung=None)
    return _run(bisection)


def _run(bisection: Bisection) -> Verdict:
    located = search_rungs(bisection)
    if located.verdict is not None:
        return located.verdict
    bisection.rung = located.rung
    if located.cached:
        return _found(located, _find_confused_graphs(bisection, located))
    if bisection.options.remarks:
        bisection.search.fill_idle_core(rerun_as_written(bisection))
    finding = _descend(bisection, located)
    if (lower := _shown_without(bisection, located, finding)) is not None:
        located, bisection.rung = lower, lower.rung
        finding = _descend(bisection, lower)
        bisection.search.reference = lower.first.signature  # how it fails as written
    try:
        return _flaky_or_found(bisection, _at_lowest_rung(bisection, located, finding), finding)
    except AnswersContradictError:
        raise
    except SearchStoppedError as stop:
        if not finding.confirmed:
            raise
        bisection.search.leave_out(stop, "the program again, to see whether it fails every time")
        return _found(located, finding)


def _stopped(bisection: Bisection, why: str, verdict: str = "stopped") -> Verdict:
    """The verdict of a search that ended before its answer, with what is known so far."""
    search, failure = bisection.search, bisection.first.signature if bisection.first else None
    rungs = {rung: search.known_status(bisection.labeled_rung(rung)) or "not_run" for rung in RUNGS}
    last = search.last_answers
    known = [f"{words}: {last[status].label}" for status, words in _WHAT_IS_KNOWN.items() if status in last]
    cure = "--repeat N tries each candidate up to N times" if verdict == "flaky" else "--resume continues it"
    return Verdict(verdict, rungs, bisection.rung, failure, notes=(f"{why}: {cure}", *known))


def _last_lines(outcome: Outcome) -> tuple[str, ...]:
    """The last lines of the output, for a failure without a message of its own: an exit code, a signal, a hang."""
    if outcome.signature is None or outcome.signature.kind not in ("exit", "signal", "hang"):
        return ()
    return tuple(line for line in outcome.tail.splitlines() if line.strip())[-_MAX_PRINTED_LINES:]


def _descend(bisection: Bisection, located: FailingRung) -> DescentResult:
    rung, outcome = located.rung, located.outcome
    bisection.search.reference = outcome.signature
    base = replace(rung_plan(bisection.base, rung), record=())
    is_hang = outcome.is_hang
    bisection.search.budget.leave(_MAX_HANG_TRIALS, by_time=not is_hang)
    try:
        return descend(bisection.search, base, rung, outcome)
    except SearchStoppedError as stop:
        by_time = isinstance(stop, TakesLongError | AnswersContradictError) and bisection.search.fails_by_time
        if bisection.search.budget.is_out_of_time or not (is_hang or by_time):
            raise
        failing = "hang" if is_hang else "fail"
        return DescentResult(notes=(f"{_GROWING_TIME.format(failing)}: {stop}",), fails_by_time=True)


def _shown_without(bisection: Bisection, located: FailingRung, finding: DescentResult) -> FailingRung | None:
    """The lower rung whose error shows at the failing one too, once the culprits are off: then they only hid it."""
    below = [rung for rung in RUNGS[: RUNGS.index(located.rung)] if located.rungs.get(rung) == "different"]
    shown = bisection.search.run(finding.plans[0], "the culprits off").signature if below and finding.plans else None
    if shown is None:
        return None
    errors = {rung: bisection.search.run(*bisection.labeled_rung(rung)) for rung in below}  # known from the ladder
    found = [rung for rung, error in errors.items() if error.status_against(shown, across_rungs=True) == "same"]
    if not found:
        return None
    bisection.notes.append(f"at {found[0]} it fails with another error, and the search is for that: {shown.text}")
    rungs = located.rungs | {located.rung: "different"} | dict.fromkeys(found, "same")
    return replace(located, rung=found[0], outcome=errors[found[0]], rungs=rungs)


def _at_lowest_rung(bisection: Bisection, located: FailingRung, finding: DescentResult) -> FailingRung:
    """The failing rung, or a rung below it at which the same culprit makes the program fail with another error."""
    below = RUNGS[: RUNGS.index(located.rung)] if finding.plans else ()
    for rung in (rung for rung in below if located.rungs.get(rung) == "different"):
        plan = replace(finding.plans[0], rung=rung, record=())
        if bisection.search.run(plan, f"{rung}, the culprits off", across_rungs=True).passed:
            error = bisection.search.run(*bisection.labeled_rung(rung)).signature  # known from the ladder
            shown = error.text if error else "otherwise"
            bisection.notes.append(f"at {rung} it fails with another error, which the same culprit explains: {shown}")
            return replace(located, rung=rung)
    return located


def _flaky_or_found(bisection: Bisection, located: FailingRung, finding: DescentResult) -> Verdict:
    if bisection.options.remarks:
        random = _random_number_notes(bisection, located)
        bisection.notes += random or (_accuracy_notes(bisection, located, finding) if finding.confirmed else [])
    bisection.notes += _traced_backward_notes(bisection, located)
    flaky = _flaky(bisection, finding)
    if flaky:
        notes = (flaky, *_likeliest(finding))
        return Verdict("flaky", located.rungs, located.rung, located.first.signature, notes=notes)
    return _found(located, finding)


def _likeliest(finding: DescentResult) -> list[str]:
    """The culprit that trials confirmed once. What kernels that overwrite memory break differs from run to run."""
    if not finding.confirmed:
        return []
    names = list_counted(f"{culprit.group} {culprit.name}" for culprit in finding.culprits)
    places = ", ".join(f"{Path(file).name}:{line}" for culprit in finding.culprits for file, line in culprit.lines)
    where = f" ({places})" if places else ""
    return [f"the likeliest culprit is {names}{where}: one trial with it off passed, and one with only it on failed"]


def _found(located: FailingRung, finding: DescentResult) -> Verdict:
    return Verdict(
        "found",
        located.rungs,
        located.rung,
        located.first.signature,
        finding.culprits,
        notes=finding.notes,
        confirmed=finding.confirmed,
        reproduce=tuple(plan.key() for plan in finding.plans),
        exports=any(point.group == "export" for point in located.outcome.points),
    )


def _random_number_notes(bisection: Bisection, located: FailingRung) -> list[str]:
    """A note if the failure disappears with eager's random numbers: Inductor draws others from the same seed."""
    operators = (p for p in located.outcome.points if p.group in ("lowering", "decomposition"))
    drawn = any(_RANDOM_OPERATOR.search(f"{operator.name} {operator.target}") for operator in operators)
    if bisection.base.accuracy or not drawn:
        return []
    plan = replace(rung_plan(bisection.base, located.rung), fallback_random=True)
    passes = bisection.search.run(plan, "with eager's random numbers").passed
    return [_RANDOM_NUMBERS_NOTE] if passes else []


def _traced_backward_notes(bisection: Bisection, located: FailingRung) -> list[str]:
    """What the uncompiled program does once its backward runs, where autograd raised although nothing called it."""
    failure = located.outcome.signature
    if failure is None or not (failure.where or "").startswith("torch/autograd/") or bisection.base.accuracy:
        return []
    plan = replace(rung_plan(bisection.base, "uncompiled", ()), differentiate=True)
    label = "uncompiled, with a backward of each call"
    uncompiled = bisection.search.run(plan, label, across_rungs=True).signature
    if uncompiled is None:
        return [_BACKWARD_PASSES]
    same = (uncompiled.where, uncompiled.cause) == (failure.where, failure.cause)
    return [_BACKWARD_FAILS_TOO] if same else []


def _accuracy_notes(bisection: Bisection, located: FailingRung, finding: DescentResult) -> list[str]:
    """Of an assertion of the program that fails: whether a compiled call is wrong, or the assertion too strict."""
    failure = located.outcome.signature
    own = failure is not None and failure.type == "AssertionError" and not failure.where
    if not own or bisection.base.accuracy or located.rung == "eager":
        return []
    plan, search = rung_plan(bisection.base, located.rung), bisection.search
    values = compared_values(replace(plan, record=()))
    diverged = describe_diverged_value(search.run(*values)) if search.known_status(values) is not None else ()
    if diverged and {*diverged} <= {*finding.notes}:
        return []  # a note names it already
    judged = search.run(replace(plan, accuracy=True), "with --accuracy")
    if judged.signature is not None and judged.signature.is_wrong_result:
        return [f"with --accuracy: {judged.signature.message.strip()}"]
    return [_RIGHT_CALLS_NOTE] if judged.passed else []


def _flaky(bisection: Bisection, finding: DescentResult) -> str | None:
    """Why no culprit can be named with confidence, because the failure comes and goes; ``None`` if one can.

    Runs the program as written again: single trials explain nothing about a failure that comes and goes.
    """
    search, repeat = bisection.search, bisection.options.repeat
    if finding.fails_by_time or (search.reference is not None and search.reference.kind == "hang"):
        return None
    doubtful = search.inconsistent or not finding.confirmed
    if not (doubtful or bisection.options.remarks or repeat > 1):
        return None  # the caller has seen it fail again
    count = max(repeat, _DOUBTFUL_REPEATS if doubtful else _FINAL_REPEATS)
    if count > _FINAL_REPEATS:
        search.runner.drop_checkpoint()  # so that random numbers before the first compiled call vary too
    failed = sum(_fails_again(bisection) for _ in range(count))
    confidence = 1 - (1 - failed / count) ** repeat
    if failed == count or (repeat > 1 and confidence >= _CONFIDENCE and finding.confirmed):
        if repeat > 1:
            bisection.notes.append(_failure_rate_note(failed, count, repeat, confidence))
        return None
    return _failure_rate_note(failed, count, repeat, confidence)


def _fails_again(bisection: Bisection) -> bool:
    outcome = bisection.search.run_once(*rerun_as_written(bisection))
    return bisection.search.status(outcome, across_rungs=True) == "same"


def _failure_rate_note(failed: int, count: int, repeat: int, confidence: float) -> str:
    runs = "1 run" if repeat == 1 else f"{repeat} runs"
    return (
        f"failed the same way in {failed} of {count} further runs; at that rate a faulty candidate fails within {runs} "
        f"with probability {confidence:.2f} (--repeat)"
    )


def _find_confused_graphs(bisection: Bisection, located: FailingRung) -> DescentResult:
    """Which graphs are confused with one another in the caches."""
    bisection.search.reference = located.outcome.signature
    graphs = {point.key: point for point in located.outcome.points if point.group == "dynamo_graph"}
    return find_culprits(bisection.search, plan_with_empty_caches(bisection, located.rung), "dynamo_graph", graphs)


_ONE_THREAD = "each trial was a fork of this process, with one thread"


def bisect_call(
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: BisectOptions,
    timeout: float,
    on_trial: OnTrial,
) -> Verdict:
    """The verdict on one call. ``timeout`` is in seconds. Raises `DynadiagError` if this process cannot fork."""
    with (
        tempfile.TemporaryDirectory(prefix="dynadiag-") as folder,
        InProcessRunner.of(fn, args, kwargs, HOOKS, Limits.default(timeout)) as runner,
    ):
        name = runner.program.text
        log = TrialLog(Path(folder, "search.dynadiag"), name, [name])
        try:
            verdict = bisect(TrialSearch(runner, log, on_trial, repeat=options.repeat), options)
        finally:
            log.discard()
    return replace(verdict, target=name, notes=(*verdict.notes, _ONE_THREAD))
