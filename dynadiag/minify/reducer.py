"""The reduction. It runs in the program's process, stopped at the failing call; each candidate is tried in a fork."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule

from dynadiag.minify.broken_promises import broken_in_program
from dynadiag.minify.candidate_trials import CandidateTrials, CompileSettings, draws_random
from dynadiag.minify.captured_call import CapturedCall
from dynadiag.minify.failure_match import (
    matches_memory_corruption,
    reproduces,
    same_failure_in_part,
    same_failure_standalone,
)
from dynadiag.minify.missing_eager_error import reduce_missing_eager_error
from dynadiag.minify.reduction_task import (
    FAILED_LOWERING,
    KERNEL_REACHED,
    LOWERING_STARTED,
    PASSES_AT_KERNEL,
    CandidateTried,
    GraphCaptured,
    InputsKept,
    ReductionEnded,
    ReductionRefused,
    ReductionTask,
    ReproWritten,
)
from dynadiag.minify.suspects import nodes_to_try, outcome_to_keep, reaches_kernel
from dynadiag.minify.torch_settings import ASSUME_STATIC, changed_settings, use_fake_process_groups
from dynadiag.minify.write_repro import WriterInput, WrittenRepro, write_repro
from dynadiag.torch_private import minify as torch_private
from dynadiag.torch_private.capture import inductor_options
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import Note
from dynadiag.trial.fork_server import parallel_forks
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import INTERMEDIATES, Plan
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits
from dynadiag.trial.typed_json import load, typed
from minifier import Budget, ReductionError, ReductionProgress, reduce_graph
from minifier.graph_problem import Case, case_key, copy_case
from minifier.previous_call import share_storage
from minifier.tensors import check_inputs
from minifier.torch_private import is_transform_boundary
from minifier.triton_launches import replace_kernel_calls
from minifier.vmap_folding import fold_vmaps

_MAX_WIDTH = 4  # a size takes up to four values before the next one is tried: more candidates at once are in vain
_ALONE = "run by itself, outside of the program, "
_SLACK, _FACTOR = 60.0, 10.0  # for the time limit of a candidate: a busy machine slows a compile tenfold


Matches = Callable[[Signature | None, Signature], bool]


def reduce_and_exit(capture: CapturedCall, task: ReductionTask) -> NoReturn:
    """Reduce the captured call, send the repro as an event, and end the process."""
    sys.setrecursionlimit(10_000)
    code = 0
    try:
        _Reducer(capture, task).run()
    except Exception:  # noqa: BLE001 - the program must not catch it, because it has to stop here
        traceback.print_exc()
        code = 1
    else:
        TRIAL.send(ReductionEnded())
    sys.stderr.flush()
    os._exit(code)


class _Reducer:
    def __init__(self, capture: CapturedCall, task: ReductionTask) -> None:
        self._capture = capture
        self._task = task
        self._stopped = task.stop
        use_fake_process_groups()
        threads = capture.threads
        is_setting = threads.was_set or task.reference.kind == "signal"
        settings = tuple(changed_settings(capture.snapshot, threads.count if is_setting else None))
        self._settings = tuple(s for s in settings if s.name != ASSUME_STATIC)
        self._dynamic = len(self._settings) < len(settings)  # the repro says this by torch.compile(dynamic=True)
        custom = task.rung == "custom"
        self._trials = CandidateTrials(
            backend=torch_private.backend_name_or_function(capture.backend) if custom else task.rung,
            plan=Plan(rung=task.rung, tolerance=task.tolerance, record=(FAILED_LOWERING,)),
            limits=Limits(task.seconds, task.memory),
            all_settings=settings,
            use_threads=lambda: threads.apply(threads.count),
            default_threads=len(os.sched_getaffinity(0)) if threads.was_set else threads.count,
            accuracy=task.accuracy,
            backward=task.phase == "backward",
            answers=_answers(task) if torch.cuda.is_initialized() else None,
        )
        self._compile_settings = CompileSettings((), {})
        self._reference = task.reference
        self._memory_corruption = task.accuracy and task.reference.kind == "signal"  # a candidate may crash or be wrong
        self._outcomes: list[Outcome] = []  # of the candidates that were asked for last
        self._replayed = 0  # outcomes that came from the memo or from an earlier search
        earlier = json.loads(Path(task.memo).read_text()) if task.memo else {}
        self._memo: dict[str, bool] = {key: record["status"] == "same" for key, record in earlier.items()}
        self._known_outcomes: dict[str, dict[str, Any]] = earlier

    def run(self) -> None:
        """Reduce, drop settings, write the repro and send it."""
        signal.signal(signal.SIGINT, self._stop)
        operations = _count_operations(self._capture.module)
        TRIAL.send(GraphCaptured(operations))
        try:
            check_inputs(self._capture.inputs)
        except ReductionError as error:
            TRIAL.send(ReductionRefused(str(error)))
            return
        TRIAL.send(InputsKept(self._key(self._capture.module, list(self._capture.inputs))))
        self._trials.broken = broken_in_program(self._capture.module, self._capture.inputs)
        found = self._reduced(list(self._capture.inputs))
        if found is None:
            return
        module, inputs, minimal = found
        self._drop_settings(module, inputs)
        if self._memory_corruption:
            self._match_last_candidate(module, inputs)
        given = WriterInput(
            self._trials,
            self._capture.snapshot,
            self._compile_settings,
            self._reference,
            self._run_text,
            tuple(self._task.passes),
            self._task.reference.message if self._memory_corruption else self._reference.message,
        )
        written = write_repro(given, module, inputs)
        self._send_result(written, module, inputs, minimal)

    def _stop(self, *_: object) -> None:
        """Handle SIGINT: all further candidates count as passing, so the search ends with the best so far."""
        self._stopped = True

    def _key(self, module: GraphModule, inputs: list[Any]) -> str:
        return case_key(Case(module, tuple(inputs)))

    def _reduced(self, inputs: list[Any]) -> tuple[GraphModule, list[Any], bool] | None:
        """Reduce the first form of the graph that fails standalone and can be reduced, else return the whole graph.

        The result is the graph, its inputs, and whether it is 1-minimal. None if no form fails standalone.
        """
        whole: tuple[GraphModule, list[Any], bool] | None = None
        for module in self._graph_forms(inputs):
            outcome = self._fails_standalone(module, inputs)
            if outcome is None or outcome.signature is None:
                continue
            self._reference = outcome.signature
            self._memo[f"whole {self._key(module, inputs)}"] = True
            whole = whole or (module, inputs, False)
            try:
                return self._search(module, inputs, outcome)
            except ReductionError as error:
                if self._raises_uncompiled:
                    return self._reduce_missing_eager_error(module, inputs)
                TRIAL.send(Note(f"{_form_name(module)} could not be reduced: {error}"))
        return whole

    @property
    def _raises_uncompiled(self) -> bool:
        return self._task.accuracy and "uncompiled raises" in self._task.reference.message

    def _reduce_missing_eager_error(
        self, module: GraphModule, inputs: list[Any]
    ) -> tuple[GraphModule, list[Any], bool]:
        def fails(candidate: GraphModule, values: list[Any]) -> bool:
            key = self._key(candidate, values)
            if key in self._memo:
                return self._memo[key]
            self._memo[key] = failed = self._fails(candidate, values)
            for outcome in self._outcomes:
                self._send_candidate(key, "raising", _count_operations(candidate), outcome, failed)
            return failed

        small, values = reduce_missing_eager_error(module, inputs, fails)
        return small, values, _count_operations(small) == 1 and not self._stopped

    def _graph_forms(self, inputs: list[Any]) -> Iterator[GraphModule]:
        """The forms of the graph to try: Dynamo's graph, then its ATen operators.

        With a functorch vmap or grad the ATen operators come first. There the transform is resolved, while Dynamo's
        graph has many calls for it that must stay together and that no program can make.
        """
        if not any(map(is_transform_boundary, self._capture.module.graph.nodes)):
            yield self._dynamo_graph()
            yield from self._aten_graph(inputs)
        else:
            yield from self._aten_graph(inputs)
            yield self._dynamo_graph()

    def _dynamo_graph(self) -> GraphModule:
        whole = fold_vmaps(replace_kernel_calls(self._capture.module))
        return copy_case(Case(whole, ())).module  # a copy, because Dynamo skips code that was created while it ran

    def _aten_graph(self, inputs: list[Any]) -> Iterator[GraphModule]:
        if self._raises_uncompiled:
            return
        try:
            yield torch_private.trace_aten_graph(self._capture.module, inputs)
        except Exception as error:  # noqa: BLE001 - a custom operation may raise anything when it is traced
            said = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            TRIAL.send(Note(f"the ATen operators of the graph cannot be traced ({said})"))

    def _fails_standalone(self, module: GraphModule, inputs: list[Any]) -> Outcome | None:
        """Find a way to compile the standalone graph that fails as the program does; static shapes come first.

        Returns the outcome of that trial, or None.
        """
        options = inductor_options(self._capture.backend) if self._task.rung == "inductor" else {}
        record = (INTERMEDIATES, LOWERING_STARTED, KERNEL_REACHED)
        eager_numbers = self._task.accuracy and not self._task.own_numbers and draws_random(module, inputs)
        for dynamic, earlier in self._call_modes(inputs):
            around = CompileSettings(
                self._settings,
                options,
                dynamic,
                fallback_random=eager_numbers,
                fullgraph=self._capture.fullgraph,
                previous_call=earlier,
            )
            outcome = self._cached_trial(
                f"whole {dynamic}{' earlier' if earlier else ''} {self._key(module, inputs)}",
                ("whole", _count_operations(module)),
                partial(self._trials.run_graph, module, inputs, around, record),
                self._matcher(same_failure_standalone),
            )
            if self._matcher(same_failure_standalone)(outcome.signature, self._task.reference):
                if not self._trials.passes_uncompiled(module, inputs, around):
                    TRIAL.send(Note(f"{_ALONE}{_form_name(module)} fails uncompiled too"))
                    return None
                self._compile_settings = around
                self._trials.limits = replace(self._trials.limits, seconds=self._time_limit(outcome.seconds))
                if self._task.phase == "compile" and not self._task.accuracy and not reaches_kernel(outcome):
                    plan = self._trials.plan
                    self._trials.plan = replace(plan, record=(*plan.record, PASSES_AT_KERNEL))
                return outcome
        found = outcome.signature
        text = f"fails in another way: {found.type}: {found.message[:200]}" if found else "does not fail"
        TRIAL.send(Note(f"{_ALONE}{_form_name(module)} {text}"))
        return None

    def _call_modes(self, inputs: list[Any]) -> list[tuple[bool | None, bool]]:
        """Pairs (``dynamic``, previous call). If a later call fails, other inputs may have compiled its code."""
        symbolic = any(isinstance(v, int) for v in inputs)
        first: list[bool | None] = [True] if self._dynamic else [None, True] if symbolic else [None]
        again: list[bool | None] = [True] if symbolic else [None] if share_storage(inputs) else []
        later = again if self._task.call else []
        return [*((dynamic, False) for dynamic in first), *((dynamic, True) for dynamic in later)]

    def _time_limit(self, seconds: float) -> float:
        """The time limit of a candidate; `seconds` is the time of the whole graph's trial."""
        return min(self._task.seconds, _SLACK + _FACTOR * seconds)

    def _cached_trial(self, key: str, label: tuple[str, int], run: Callable[[], Outcome], shown: Matches) -> Outcome:
        """The whole outcome of a trial: known from an earlier search, or run now."""
        if key in self._known_outcomes:
            self._replayed += 1
            return typed(self._known_outcomes[key], Outcome)
        outcome = run()
        self._send_candidate(key, *label, outcome, shown(outcome.signature, self._reference))
        return outcome

    def _run_text(self, source: str, rung: str | None) -> Outcome:
        """Run the text of a repro at a rung, or as written."""
        digest = hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
        label = (f"text {rung or 'as written'}", source.count("\n"))
        return self._cached_trial(
            f"text {rung} {digest}", label, partial(self._trials.run_text, source, rung), reproduces
        )

    def _search(self, module: GraphModule, inputs: list[Any], whole: Outcome) -> tuple[GraphModule, list[Any], bool]:
        reduction = reduce_graph(
            module,
            inputs,
            self._fails,
            simplify_inputs=self._task.plain_inputs,
            budget=Budget(seconds=self._task.budget),
            suspects=nodes_to_try(whole),
            votes=self._task.repeat,
            memo=self._memo,
            progress=self._progress,
            fails_each=self._fails_each,
            width=self._width(),
        )
        self._replayed += reduction.cached
        return reduction.graph_module, reduction.inputs, reduction.minimal and not self._stopped

    def _width(self) -> int:
        """How many candidates are tried side by side. A process that cannot fork tries one at a time."""
        if self._trials.answers is not None:
            return 1
        return min(_MAX_WIDTH, parallel_forks(os.getpid(), self._task.memory, self._task.jobs))

    def _fails(self, module: GraphModule, inputs: list[Any]) -> bool:
        self._outcomes = []
        if self._stopped:
            return False
        self._outcomes = [self._trials.run_graph(module, inputs, self._compile_settings)]
        return self._is_smaller_case(self._outcomes[0], module, inputs)

    def _fails_each(self, cases: Sequence[tuple[GraphModule, list[Any]]]) -> list[bool]:
        self._outcomes = []
        if self._stopped:
            return [False] * len(cases)
        self._outcomes = self._trials.run_graphs(cases, self._compile_settings)
        return [self._is_smaller_case(each, *case) for each, case in zip(self._outcomes, cases, strict=True)]

    def _is_smaller_case(self, outcome: Outcome, module: GraphModule, inputs: list[Any]) -> bool:
        """Whether a candidate fails in the same way, and only where it is compiled."""
        return self._same(outcome) and self._trials.passes_uncompiled(module, inputs, self._compile_settings)

    def _same(self, outcome: Outcome) -> bool:
        return self._matcher(same_failure_in_part)(outcome.signature, self._reference)

    def _matcher(self, likeness: Matches) -> Matches:
        """The comparison of failures. After a write out of bounds, a crash also matches a wrong result."""
        return partial(matches_memory_corruption, likeness) if self._memory_corruption else likeness

    def _progress(self, progress: ReductionProgress) -> None:
        if not progress.known and self._outcomes:
            outcome = self._outcomes.pop(0)
            extra = {"best": progress.best, "cached": progress.hits, "seconds_left": progress.seconds_left}
            self._send_candidate(progress.key, progress.stage, progress.size, outcome, progress.failed, **extra)

    def _send_candidate(self, key: str, stage: str, size: int, outcome: Outcome, failed: bool, **extra: Any) -> None:
        status = "same" if failed else outcome.status_against(self._reference)
        TRIAL.send(CandidateTried(key, stage, size, status, outcome_to_keep(outcome), **extra))

    def _drop_settings(self, module: GraphModule, inputs: list[Any]) -> None:
        """Drop the settings and options that the failure does not need: all at once, then one by one."""
        if self._try_settings(module, inputs, CompileSettings((), {}, None)):
            return
        for setting in self._settings:
            kept = tuple(s for s in self._compile_settings.settings if s is not setting)
            self._try_settings(module, inputs, replace(self._compile_settings, settings=kept))
        for option in list(self._compile_settings.options):
            rest = {k: v for k, v in self._compile_settings.options.items() if k != option}
            self._try_settings(module, inputs, replace(self._compile_settings, options=rest))
        self._try_settings(module, inputs, replace(self._compile_settings, dynamic=None))
        self._try_settings(module, inputs, replace(self._compile_settings, fallback_random=False))
        self._try_settings(module, inputs, replace(self._compile_settings, fullgraph=False))
        self._try_settings(module, inputs, replace(self._compile_settings, previous_call=False))

    def _match_last_candidate(self, module: GraphModule, inputs: list[Any]) -> None:
        """Take the failure of the last candidate as the expected one: it may be wrong where the whole graph crashed."""
        key = f"last {self._key(module, inputs)} {self._compile_settings.key()}"
        run = partial(self._trials.run_graph, module, inputs, self._compile_settings)
        outcome = self._cached_trial(
            key, ("last", _count_operations(module)), run, self._matcher(same_failure_standalone)
        )
        if outcome.signature is not None and self._same(outcome):
            self._reference = outcome.signature

    def _try_settings(self, module: GraphModule, inputs: list[Any], around: CompileSettings) -> bool:
        if around == self._compile_settings or self._stopped:
            return False
        key = f"settings {self._key(module, inputs)} {around.key()}"
        failed = self._memo.get(key)
        self._replayed += failed is not None
        if failed is None:
            copied = copy_case(Case(module, tuple(inputs)))
            outcome = self._trials.run_graph(copied.module, list(copied.inputs), around)
            failed = self._same(outcome)
            self._send_candidate(key, "settings", _count_operations(module), outcome, failed)
        if failed:
            self._compile_settings = around
        return failed

    def _send_result(self, written: WrittenRepro, module: GraphModule, inputs: list[Any], minimal: bool) -> None:
        tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        event = ReproWritten(
            written.text,
            (*written.missing, *(() if written.reproduced else self._replaced_functions())),
            nodes_before=_count_operations(self._capture.module),
            nodes_after=_count_operations(module),
            inputs=len(inputs),
            elements=sum(t.numel() for t in tensors),
            minimal=minimal,
            cached=self._replayed,
            signature=self._reference,
        )
        TRIAL.send(event)

    def _replaced_functions(self) -> list[str]:
        """Functions of torch that the program replaced and that the repro cannot replace."""
        return [
            f"{place}, which the program replaced," for place in self._capture.snapshot.functions_without_original()
        ]


def _answers(task: ReductionTask) -> list[Outcome]:
    return load(Path(task.answers).read_text(), list[Outcome]) if task.answers else []


def _form_name(module: GraphModule) -> str:
    aten = any(isinstance(node.target, torch._ops.OpOverload) for node in module.graph.nodes)
    return "the same graph, as ATen operators," if aten else "the graph that Dynamo made"


def _count_operations(module: GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in module.graph.nodes)
