"""Runs trials of candidates: a graph with inputs, compiled under some settings, or the text of a repro."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.minify.broken_promises import BrokenPromise, broken_promises
from dynadiag.minify.torch_settings import TorchSetting
from dynadiag.torch_private import trial as torch_private
from dynadiag.torch_private.kernel_codegen import label_nodes
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import OwnTrialStarted
from dynadiag.trial.executors import LocalFork, run_side_by_side
from dynadiag.trial.graph_call import GraphCall, compile_and_call
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.process import run_and_exit
from dynadiag.trial.reference_run import has_random_state, random_state
from dynadiag.trial.supervise import Limits
from minifier.graph_problem import Case, copy_case
from minifier.previous_call import previous_inputs
from minifier.torch_private import restore_torch_state

_TEXT_FILE = "repro.py"  # the file name of a text


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """How a graph is compiled.

    ``fallback_random``: Inductor draws random numbers as eager does. ``fullgraph`` matters because without it Dynamo
    makes no symbols for values of tensors. ``previous_call``: a previous call compiles the code, with other sizes
    or without aliased inputs.
    """

    settings: tuple[TorchSetting, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    fallback_random: bool = False
    fullgraph: bool = False
    previous_call: bool = False

    def key(self) -> str:
        """The identity of the settings in the memo."""
        parts = [*(s.name for s in self.settings), *map(str, self.options.items()), self.dynamic, self.fallback_random]
        flags = [name for name in ("fullgraph", "previous_call") if getattr(self, name)]
        return " ".join(map(str, [*parts, *flags]))


@dataclass(slots=True)
class CandidateTrials:
    """Runs trials of candidates at one rung, each in a fork."""

    backend: str | Callable[..., Any]
    plan: Plan
    limits: Limits
    all_settings: tuple[TorchSetting, ...]
    use_threads: Callable[[], None]  # sets the program's number of threads
    default_threads: int  # the number in a program that does not set it
    accuracy: bool = False
    backward: bool = False
    answers: Sequence[Outcome] | None = None  # if this process cannot fork: the outcomes of earlier trials
    broken: frozenset[BrokenPromise] | None = None  # what custom operators break in the whole graph; None without any
    _requested: int = 0

    def run_graph(
        self,
        module: GraphModule,
        inputs: Sequence[Any],
        compile_settings: CompileSettings,
        record: tuple[str, ...] = (),
    ) -> Outcome:
        """Compile and call a graph in a trial. ``record`` are further kinds of events to report."""
        plan = replace(self.plan, record=(*self.plan.record, *record))
        return self._run(self._calling(module, inputs, compile_settings), plan)

    def run_graphs(
        self, cases: Sequence[tuple[GraphModule, list[Any]]], compile_settings: CompileSettings
    ) -> list[Outcome]:
        """Compile and call several graphs, each in a trial, side by side. Not in a process that cannot fork."""
        forks = [LocalFork(self._calling(module, inputs, compile_settings)) for module, inputs in cases]
        return run_side_by_side(forks, self.plan, self.limits)

    def passes_uncompiled(self, module: GraphModule, inputs: Sequence[Any], compile_settings: CompileSettings) -> bool:
        """Whether the same call passes uncompiled. Where results are compared, the trial itself has made that call."""
        calling = self._calling(module, inputs, compile_settings)
        return self.accuracy or self._run(calling, replace(self.plan, rung="uncompiled", record=())).passed

    def _calling(
        self, module: GraphModule, inputs: Sequence[Any], compile_settings: CompileSettings
    ) -> Callable[[], None]:
        """What a trial does."""
        call = GraphCall(
            self.backend,
            compile_settings.options,
            compile_settings.dynamic,
            fullgraph=compile_settings.fullgraph,
            backward=self.backward,
            accuracy=self.accuracy,
        )

        def action() -> None:
            self.use_threads()
            self._undo_except(compile_settings.settings)
            if compile_settings.fallback_random:
                torch_private.use_eager_random_numbers()
            if self.broken is not None and broken_promises(module, inputs) - self.broken:
                return  # what fails here is another promise
            label_nodes(module)  # it changes the graph: this is the copy in the process of the trial
            compile_and_call(
                call, module, inputs, previous_inputs(module, inputs) if compile_settings.previous_call else None
            )

        return action

    def run_text(self, source: str, rung: str | None = None) -> Outcome:
        """Run a program given as source in a trial, with all changes of the user's program undone."""

        def action() -> None:
            torch.set_num_threads(self.default_threads)
            self._undo_except(())
            torch_private.reset()
            torch_private.bypass_caches()
            linecache.cache[_TEXT_FILE] = (
                len(source),
                None,
                source.splitlines(keepends=True),
                _TEXT_FILE,
            )  # for Triton
            exec(compile(source, _TEXT_FILE, "exec"), {"__name__": "__main__"})  # noqa: S102 - written by us just now

        return self._run(action, Plan(rung=rung))

    def _run(self, action: Callable[[], None], plan: Plan) -> Outcome:
        """Run a trial in a fork, or, in a process that uses a GPU and cannot fork, in this process.

        Such a process ends with the trial. Its parent starts it again with the outcome added to `answers`. The search
        is deterministic: it runs the same trials in the same order and continues from there.
        """
        if self.answers is None:
            return LocalFork(action).run(plan, self.limits)
        self._requested += 1
        if self._requested > len(self.answers):
            TRIAL.send(OwnTrialStarted(plan, self.limits.seconds))
            TRIAL.plan = plan
            run_and_exit(action)
        return self.answers[self._requested - 1]

    def _undo_except(self, kept: Sequence[TorchSetting]) -> None:
        for setting in self.all_settings:
            if setting not in kept:
                setting.undo()


def draws_random(module: GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether the graph draws random numbers, found out by a call. Where that raises, it may."""
    copied, state = copy_case(Case(module, tuple(inputs))), random_state()
    with restore_torch_state():
        try:
            copied.module.forward(*copied.inputs)
        except Exception:  # noqa: BLE001 - any operation may reject its inputs
            return True
        return not has_random_state(state)
