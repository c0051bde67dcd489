"""Runs the steps from a program to a proved repro: find the rung, find the failing call, reduce, write, prove."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dynadiag.bisection.bisector import HOOKS as BISECT_HOOKS
from dynadiag.bisection.budget import AnswersContradictError, SearchStoppedError
from dynadiag.bisection.failing_rung import BisectOptions, FailingRung, find_failing_rung
from dynadiag.bisection.ladder import rung_plan
from dynadiag.bisection.trial_search import TrialSearch
from dynadiag.explanation.formatting import count
from dynadiag.minify.failing_call import COMPARISON_FAILURES, FailingCall, find_failing_call
from dynadiag.minify.follow_up import with_follow_up
from dynadiag.minify.minify_result import Interrupted, MinifyResult
from dynadiag.minify.other_failures import look_for_other_failures
from dynadiag.minify.proof import ReproBisection, ReproTrialLog, prove, with_culprits
from dynadiag.minify.reduction_task import (
    GRAPH_CALLS,
    CandidateTried,
    GraphCaptured,
    InputsKept,
    ReductionEnded,
    ReductionRefused,
    ReductionTask,
    ReproWritten,
)
from dynadiag.trial.decision_kinds import REPORTED_KINDS
from dynadiag.trial.events import Note, TrialEvent
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.program import Program
from dynadiag.trial.remote_task import STOP_TIMEOUT, TaskResult, run_task
from dynadiag.trial.signature import Signature
from dynadiag.trial.typed_json import dump

HOOKS = (*BISECT_HOOKS, "dynadiag.minify.hooks")
RECORD = (*REPORTED_KINDS, GRAPH_CALLS)  # what each rung reports: a bisection that reports it too has made these trials
_MAX_SEEDS = 3  # a failure that shows with none of three seeds is rare: it has shown in two or three runs before
# A proof runs the repro in two fresh interpreters and once at each rung below; the repro is smaller than the program,
# but its caches are empty. A small budget is shared: without a repro there is nothing to prove.
# The proof of a hang waits for a time limit, which a small repro does not shorten.
_RUNS_OF_PROOF, _SHARE_OF_PROOF, _SHARE_OF_HANG = 3.0, 0.3, 0.5
# A read of memory that nothing has set shows in one process and not in the next: with simple values it may be right.
_INPUTS_KEPT = "with simpler inputs the repro does not fail in each process"
_GRAPH_PREFIX = "graph "  # prefix of the key of a trial of a standalone graph in the trial log


@dataclass(frozen=True, slots=True)
class MinifyRequest:
    """The user's request. ``output`` is where the repro goes. With ``source`` the source is reduced, never a graph.
    With ``follow_up`` an issue is written, which also tells what the failure depends on.
    """

    options: BisectOptions
    output: Path
    source: bool = False
    follow_up: bool = False


def minify(search: TrialSearch, request: MinifyRequest) -> MinifyResult:
    """Minify a program; the caller writes the file.

    Raises `TargetError` if the target is not a program, and `Interrupted` after Ctrl-C.
    """
    return _Minimizer(search, request).run()


@dataclass(slots=True)
class _Minimizer:
    search: TrialSearch
    request: MinifyRequest
    notes: list[str] = field(default_factory=list)
    torch: str | None = None
    rung: str | None = None
    began: float = field(default_factory=time.monotonic)

    def run(self) -> MinifyResult:
        try:
            return self._complete(self._minify())
        except Interrupted as interrupt:
            raise Interrupted(self._complete(interrupt.result)) from None
        except KeyboardInterrupt:
            raise Interrupted(self._complete(self._stopped())) from None

    def _complete(self, result: MinifyResult) -> MinifyResult:
        """The result with what is known of the whole search."""
        return replace(
            result,
            torch=self.torch,
            notes=tuple(dict.fromkeys([*self.notes, *result.notes, *self.search.runner.notes])),
            side_finds=self.search.other_failures,
            seconds=time.monotonic() - self.began,
            trials=self.search.log.count,
            cached=result.cached + self.search.log.replayed,
        )

    def _stopped(self, verdict: str = "stopped") -> MinifyResult:
        return MinifyResult(verdict, rung=self.rung, failure=self.search.reference)

    def _minify(self) -> MinifyResult:
        try:
            located = find_failing_rung(self.search, replace(self.request.options, record=RECORD))
            self.torch = located.torch
            self.notes += located.notes
            return self._after_ladder(located)
        except SearchStoppedError as stop:
            self.notes.append(str(stop))
            return self._stopped("flaky" if isinstance(stop, AnswersContradictError) else "stopped")

    def _after_ladder(self, located: FailingRung) -> MinifyResult:
        if located.verdict is not None:
            verdict = located.verdict
            asked = self.request.options.accuracy and located.first.facts.backends
            if verdict.verdict == "passes" and asked and (found := self._compare_output(located)) is not None:
                return found
            why = "machine" if verdict.shows_machine_fault else verdict.verdict
            return MinifyResult(
                why, rung=verdict.rung, failure=verdict.failure, notes=verdict.notes, headline=verdict.headline
            )
        rung, failure = located.rung, located.outcome.signature
        self.rung = rung
        self.search.reference = failure
        exports = any(point.group == "export" for point in located.outcome.points)
        base = MinifyResult("reduced", rung=rung, failure=located.first.signature, torch=located.torch, exports=exports)
        self.search.budget.keep_back(self._seconds_to_prove(located.first))
        if located.cached:
            return replace(base, verdict="cached")
        if rung == "eager" or self.request.source:
            return self._reduce_source(base, located)
        if rung == "triton" and self.search.runner.interpret:
            return replace(base, verdict="interpreted")
        assert failure is not None
        result = self._reduce_graph(base, failure, located)
        if result.proved:
            return result
        # What fails may be between the graph and the program (`x.data = y`), or that the ranks of a job differ. A graph
        # may also need the state that the calls of the program leave (torch.func).
        why = (
            f"{' and '.join(result.missing)} cannot be written into"
            if result.missing
            else "no graph fails by itself in"
        )
        self.search.on_message(f"{why} a repro of a graph: reducing the source of the program")
        try:
            of_source = self._reduce_source(base, located)
        except SearchStoppedError:
            if not result.text:
                raise
            return result
        return of_source if of_source.proved else result

    def _reduce_graph(self, base: MinifyResult, failure: Signature, located: FailingRung) -> MinifyResult:
        rung = str(base.rung)
        place = find_failing_call(self.search, self.request.options, rung, located.outcome, self.notes)
        if place is None:
            return replace(base, verdict="no_difference" if failure.kind in COMPARISON_FAILURES else "no_call")
        if place.accuracy or place.caught:
            own = None if base.failure is not None and base.failure.is_wrong_result else base.failure
            base = replace(base, failure=place.signature, symptom=own)
        return self._reduce(base, place, located)

    def _seconds_to_prove(self, first: Outcome) -> float:
        """What the repro takes to be written and proved, at most. ``first`` is the program as it is written."""
        left = self.search.budget.seconds_left()
        needed = STOP_TIMEOUT + _RUNS_OF_PROOF * first.seconds
        return needed if left is None else min(needed, left * (_SHARE_OF_HANG if first.is_hang else _SHARE_OF_PROOF))

    def _reduce_source(self, base: MinifyResult, located: FailingRung) -> MinifyResult:
        options, outcome = self.request.options, located.outcome
        assert outcome.signature is not None
        from dynadiag.minify.source_minimizer import (
            enlarge_hang,
            reduce_program,
        )  # loads the minifier: not for the help

        plan = rung_plan(Plan(accuracy=options.accuracy, tolerance=options.tolerance), base.rung or "eager")
        job = located.first.facts.job
        if job is None:
            look_for_other_failures(self.search, plan, outcome)
        result = reduce_program(self.search, base, outcome.signature, job)
        self.notes += () if result.text else result.notes
        if not result.text:
            return result
        proved = self._prove(result, located.rungs)
        if outcome.is_hang and proved.passes_fresh and job is None:
            longer = enlarge_hang(self.search, proved)
            return self._prove(longer, located.rungs) if longer.text != proved.text else longer
        return proved

    def _compare_output(self, located: FailingRung) -> MinifyResult | None:
        """Reduce a program whose printed output differs although no compiled call is wrong. None if the output does not
        differ.
        """
        from dynadiag.minify.source_minimizer import reduce_program  # as above
        from dynadiag.minify.source_trials import OUTPUT_DIFFERS

        facts = located.first.facts
        self.search.runner.start_forks(threads=facts.threads or 1, checkpoint=False)
        base = MinifyResult("reduced", rung="eager", failure=OUTPUT_DIFFERS, torch=facts.torch)
        result = reduce_program(self.search, base, OUTPUT_DIFFERS)
        return self._prove(result, {"uncompiled": "pass"}) if result.text else None

    def _reduce(self, base: MinifyResult, place: FailingCall, located: FailingRung) -> MinifyResult:
        result = self._reduce_and_prove(base, place, located)
        if not result.passes_fresh:
            return result
        self.search.on_message(f"{_INPUTS_KEPT}: reducing it again with the inputs of the program")
        again = self._reduce_and_prove(base, place, located, plain_inputs=False)
        better = again.proved and not (result.proved and again.passes_fresh)
        return replace(again, notes=(*again.notes, _INPUTS_KEPT)) if better else result

    def _reduce_and_prove(
        self, base: MinifyResult, place: FailingCall, located: FailingRung, *, plain_inputs: bool = True
    ) -> MinifyResult:
        end, interrupted, listener = self._reduce_with_seeds(base, place, located, plain_inputs)
        if interrupted:
            raise Interrupted(self._result(base, listener) if listener.repro else replace(base, verdict="stopped"))
        if listener.repro is None and not listener.ended and self.search.budget.is_out_of_time:
            raise self.search.budget.out_of_time()
        last = "".join(end.printed.strip().splitlines()[-1:])
        if not listener.captured:
            self.notes.append(f"the program did not reach the failing call again with uncompiled graphs ({last})")
            return replace(base, verdict="no_call")
        if listener.repro is None and not listener.ended:
            self.notes.append(f"the process that reduces the graph ended too early ({last})")
        result = self._result(base, listener)
        return self._prove(result, located.rungs) if result.text else result

    def _reduce_with_seeds(
        self, base: MinifyResult, place: FailingCall, located: FailingRung, plain_inputs: bool
    ) -> tuple[TaskResult, bool, _ReductionListener]:
        """Run the reduction with several seeds, until the graph fails standalone.

        A program without a seed has other random inputs in each run, and may fail with some of them only. A program
        that sets a seed has the same inputs again: then there is no further try.
        """
        seen_inputs: set[str | None] = set()
        for seed in range(_MAX_SEEDS):
            listener = _ReductionListener(self.search)
            task = replace(self._reduction_task(base, place, located, listener), plain_inputs=plain_inputs)
            end, interrupted = self._run_task(task, listener, seed)
            if interrupted or not listener.passed_standalone or listener.inputs in seen_inputs:
                break
            seen_inputs.add(listener.inputs)
        return end, interrupted, listener

    def _prove(self, result: MinifyResult, rungs: Mapping[str, str]) -> MinifyResult:
        """Prove and bisect the repro in a scratch folder. The output file is written later."""
        self.search.budget.keep_back(0.0)
        with tempfile.TemporaryDirectory(prefix="dynadiag-proof-") as folder:
            output = self.request.output
            file = Path(folder, output.name if output.suffix == ".py" else f"{output.name}.py")
            file.write_text(result.text)
            program, rows = Program(str(file)), ReproTrialLog(self.search.log, result.text)
            bisection = ReproBisection(self.search, program, rows) if result.level == "graph" else None
            try:
                result = prove(self.search, program, rows, result, rungs, bisection)
                if result.proved and bisection is not None:
                    result = with_culprits(result, bisection.run())
                asked = result.proved and not result.passes_fresh and self.request.follow_up
                return with_follow_up(self.search, Path(folder), result) if asked else result
            except KeyboardInterrupt:
                raise Interrupted(result) from None

    def _run_task(self, task: ReductionTask, listener: _ReductionListener, seed: int) -> tuple[TaskResult, bool]:
        """Run the task to its end, or to that of the budget. Returns how it ended, and whether it was interrupted.

        A process that uses a GPU cannot fork. It becomes the next trial itself, and ends with it. The task is then
        started again with the outcome, until it ends without a new trial.
        """
        answers: list[Outcome] = []
        file = self.search.runner.scratch / "answers.json"
        interrupted = False
        while True:
            file.write_text(dump(answers))
            left = self.search.budget.seconds_left()
            stop = interrupted or self.search.budget.is_out_of_time
            request = replace(task, answers=str(file), stop=stop, budget=left)
            plan = Plan(rung="eager", task=dump(request))
            end = run_task(self.search.runner, plan, listener.on_event, seed, None if stop else left)
            interrupted = interrupted or end.interrupted
            if end.outcome is None:
                return end, interrupted
            answers.append(end.outcome)
            listener.begin_again()

    def _reduction_task(
        self, base: MinifyResult, place: FailingCall, located: FailingRung, listener: _ReductionListener
    ) -> ReductionTask:
        limits = self.search.runner.limits
        file = self.search.runner.scratch / "memo.json"
        file.write_text(json.dumps(listener.memo()))
        return ReductionTask(
            graph=place.graph,
            call=place.call,
            phase=place.phase,
            rung=str(base.rung),
            accuracy=place.accuracy,
            own_numbers=place.inductor_random,
            threads=located.first.facts.threads or self.search.runner.threads,
            seconds=limits.seconds,
            memory=limits.memory,
            reference=place.signature,
            tolerance=self.request.options.tolerance,
            repeat=self.request.options.repeat,
            memo=str(file),
            jobs=self.search.runner.jobs,
            passes=tuple(rung for rung, status in located.rungs.items() if status == "pass"),
        )

    def _result(self, base: MinifyResult, listener: _ReductionListener) -> MinifyResult:
        self.notes += listener.notes
        if listener.repro is None:
            return replace(base, verdict="refused" if listener.refused else "not_shown")
        found = listener.repro
        return replace(
            base,
            text=found.text,
            missing=found.missing,
            nodes_before=found.nodes_before,
            nodes_after=found.nodes_after,
            inputs_after=found.inputs,
            elements_after=found.elements,
            minimal=found.minimal,
            cached=found.cached,
            reduced=found.signature,
        )


class _ReductionListener:
    """Receives the events of the process that reduces: trials, and the repro at the end."""

    def __init__(self, search: TrialSearch) -> None:
        self._search = search
        self.captured = False
        self.ended = False
        self.refused = False
        self.inputs: str | None = None
        self.repro: ReproWritten | None = None
        self.notes: list[str] = []
        self.cached = 0
        self._candidates = 0  # candidates in this run of the task
        self._known_candidates = 0  # the number of them that an earlier run has reported

    @property
    def passed_standalone(self) -> bool:
        """Whether the standalone graph was tried and passed."""
        return self.ended and self.repro is None and not self.refused

    def memo(self) -> dict[str, Any]:
        """Outcomes of an earlier search that this one resumes, by candidate."""
        rows = self._search.log.recorded_with_prefix(_GRAPH_PREFIX)
        return {candidate.removeprefix(_GRAPH_PREFIX): json.loads(outcome) for candidate, outcome in rows.items()}

    def begin_again(self) -> None:
        """The task starts again, and reports the same candidates again."""
        self._known_candidates, self._candidates = max(self._known_candidates, self._candidates), 0

    def on_event(self, event: TrialEvent) -> None:
        """Handle an event."""
        match event:
            case GraphCaptured():
                self._captured(event)
            case InputsKept():
                self.inputs = event.key
            case CandidateTried():
                self._candidate(event)
            case Note():
                self.notes.append(event.text)
            case ReductionRefused():
                self.refused = True
                self.notes.append(event.text)
            case ReproWritten():
                self.repro = event
            case ReductionEnded():
                self.ended = True

    def _captured(self, event: GraphCaptured) -> None:
        if self.captured:
            return
        self.captured = True
        self._search.on_message(f"the failing graph has {count(event.operations, 'operation')}; reducing it")

    def _candidate(self, event: CandidateTried) -> None:
        self._candidates += 1
        if self._candidates <= self._known_candidates:
            return
        outcome = event.outcome
        self.cached = event.cached or self.cached
        label = self._label(event)
        self._search.log.add(_GRAPH_PREFIX + event.key, outcome, event.status, label)
        of_program = not event.stage.startswith("text")  # a text runs where the program has registered its operators
        if of_program and event.status == "different" and outcome.signature is not None:
            self._search.note_other_failure(outcome.signature, "a part of the graph")
        left = "" if event.seconds_left is None else f", {event.seconds_left:.0f} s left"
        self._search.on_trial(self._search.log.count, label + left, event.status, outcome.seconds)

    def _label(self, event: CandidateTried) -> str:
        unit = "line" if event.stage.startswith("text") else "operation"
        parts = [f"{event.stage}: {count(event.size, unit)}"]
        if event.best is not None:
            parts.append(f"best {event.best}")
        if self.cached:
            parts.append(f"{self.cached} cached")
        return ", ".join(parts)
