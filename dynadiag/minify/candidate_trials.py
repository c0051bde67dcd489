"""Candidates of a reduction and their trials: a graph with inputs, and the settings that it is compiled under."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.minify.torch_settings import TorchSetting
from dynadiag.torch_private import trial as torch_private
from dynadiag.torch_private.kernel_codegen import label_nodes
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import OwnTrialStarted
from dynadiag.trial.executors import LocalFork
from dynadiag.trial.graph_call import GraphCall, compile_and_call
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.process import run_and_exit
from dynadiag.trial.supervise import Limits

__all__ = ["CandidateTrials", "CompileSettings"]

_TEXT_FILE = "repro.py"  # the file that a text is taken to be


@dataclass(frozen=True, slots=True)
class CompileSettings:
    """What a graph is compiled under. ``fallback_random`` has Inductor draw as eager does.

    ``fullgraph`` is more than a promise: without it Dynamo makes no symbols of the values of tensors.
    ``previous_call``: the code is compiled at an earlier call, for other sizes or for inputs that share no memory.
    """

    settings: tuple[TorchSetting, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    fallback_random: bool = False
    fullgraph: bool = False
    previous_call: bool = False

    def key(self) -> str:
        parts = [*(s.name for s in self.settings), *map(str, self.options.items()), self.dynamic, self.fallback_random]
        flags = [name for name in ("fullgraph", "previous_call") if getattr(self, name)]
        return " ".join(map(str, [*parts, *flags]))


@dataclass(slots=True)
class CandidateTrials:
    """Makes trials of candidates, each in a fork, under one rung."""

    backend: str | Callable[..., Any]
    plan: Plan
    limits: Limits
    all_settings: tuple[TorchSetting, ...]
    use_threads: Callable[[], None]  # sets the program's own number of threads
    default_threads: int  # what a program has that does not ask
    accuracy: bool = False
    backward: bool = False
    answers: Sequence[Outcome] | None = None  # where this process cannot be forked: of trials made before
    _requested: int = 0

    def run_graph(
        self,
        module: GraphModule,
        inputs: Sequence[Any],
        compile_settings: CompileSettings,
        record: tuple[str, ...] = (),
    ) -> Outcome:
        """One graph, compiled and called. ``record`` is what the trial is to tell besides."""
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
            label_nodes(module)  # this process and its copy of the graph end with the trial
            compile_and_call(
                call, module, inputs, _previous_inputs(module, inputs) if compile_settings.previous_call else None
            )

        return self._run(action, replace(self.plan, record=(*self.plan.record, *record)))

    def run_text(self, source: str, rung: str | None = None) -> Outcome:
        """A program given as source, in a process where nothing is as the user's program set it."""

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
            )  # Triton reads it
            exec(compile(source, _TEXT_FILE, "exec"), {"__name__": "__main__"})  # noqa: S102 - written by us just now

        return self._run(action, Plan(rung=rung))

    def _run(self, action: Callable[[], None], plan: Plan) -> Outcome:
        """The outcome of a trial in a fork of this process; or, where it uses a GPU and cannot be forked, in itself.

        Such a process ends with its trial. Whoever started it starts it again with what came of the trial among the
        `answers`, and the search, which asks the same questions in the same order, goes on from there.
        """
        if self.answers is None:
            return LocalFork(action).run(plan, self.limits)
        self._requested += 1
        if self._requested > len(self.answers):
            TRIAL.send(OwnTrialStarted(plan.to_json(), self.limits.seconds))
            TRIAL.plan = plan
            run_and_exit(action)
        return self.answers[self._requested - 1]

    def _undo_except(self, kept: Sequence[TorchSetting]) -> None:
        for setting in self.all_settings:
            if setting not in kept:
                setting.undo()


def _previous_inputs(module: GraphModule, inputs: Sequence[Any]) -> Sequence[Any]:
    """The inputs of the call at which the code is made."""
    made: Sequence[Any] = importlib.import_module("minifier.previous_call").earlier_inputs(module, inputs)
    return made
