"""Candidates of a reduction and their trials: a graph with inputs, and the settings that it is compiled under."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.fx import GraphModule

from dynadiag.minify.settings import Setting
from dynadiag.torch_private import trial as torch_private
from dynadiag.torch_private.generated import name_nodes
from dynadiag.trial.forking import conclude, forked
from dynadiag.trial.graph import GraphCall, attempt
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import Plan
from dynadiag.trial.runtime import TRIAL
from dynadiag.trial.supervise import Limits

__all__ = ["Surroundings", "Trials"]

_TEXT = "repro.py"  # the file that a text is taken to be


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a graph is compiled under. ``fallback_random`` has Inductor draw as eager does.

    ``fullgraph`` is more than a promise: without it Dynamo makes no symbols of the values of tensors. ``earlier``: the
    code is compiled at an earlier call, for other sizes or for inputs that share no memory.
    """

    settings: tuple[Setting, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool | None = None
    fallback_random: bool = False
    fullgraph: bool = False
    earlier: bool = False

    def key(self) -> str:
        parts = [*(s.name for s in self.settings), *map(str, self.options.items()), self.dynamic, self.fallback_random]
        flags = [name for name in ("fullgraph", "earlier") if getattr(self, name)]
        return " ".join(map(str, [*parts, *flags]))


@dataclass(slots=True)
class Trials:
    """Makes trials of candidates, each in a fork, under one rung."""

    backend: str | Callable[..., Any]
    plan: Plan
    limits: Limits
    all_settings: tuple[Setting, ...]
    use_threads: Callable[[], None]  # sets the program's own number of threads
    default_threads: int  # what a program has that does not ask
    accuracy: bool = False
    backward: bool = False
    answers: Sequence[Outcome] | None = None  # where this process cannot be forked: of trials made before
    _asked: int = 0

    def graph(
        self, module: GraphModule, inputs: Sequence[Any], around: Surroundings, record: tuple[str, ...] = ()
    ) -> Outcome:
        """One graph, compiled and called. ``record`` is what the trial is to tell besides."""
        call = GraphCall(
            self.backend,
            around.options,
            around.dynamic,
            fullgraph=around.fullgraph,
            backward=self.backward,
            accuracy=self.accuracy,
        )

        def action() -> None:
            self.use_threads()
            self._undo(around.settings)
            if around.fallback_random:
                torch_private.same_random_numbers()
            name_nodes(module)  # this process and its copy of the graph end with the trial
            attempt(call, module, inputs, _earlier(module, inputs) if around.earlier else None)

        return self._tried(action, replace(self.plan, record=(*self.plan.record, *record)))

    def text(self, source: str, rung: str | None = None) -> Outcome:
        """A program given as source, in a process where nothing is as the user's program set it."""

        def action() -> None:
            torch.set_num_threads(self.default_threads)
            self._undo(())
            torch_private.reset()
            torch_private.bypass_caches()
            linecache.cache[_TEXT] = (len(source), None, source.splitlines(keepends=True), _TEXT)  # Triton reads it
            exec(compile(source, _TEXT, "exec"), {"__name__": "__main__"})  # noqa: S102 - written by us just now

        return self._tried(action, Plan(rung=rung))

    def _tried(self, action: Callable[[], None], plan: Plan) -> Outcome:
        """The outcome of a trial in a fork of this process; or, where it uses a GPU and cannot be forked, in itself.

        Such a process ends with its trial. Whoever started it starts it again with what came of the trial among the
        `answers`, and the search, which asks the same questions in the same order, goes on from there.
        """
        if self.answers is None:
            return forked(action, plan, self.limits)
        self._asked += 1
        if self._asked > len(self.answers):
            TRIAL.send("alone", plan=plan.to_json(), seconds=self.limits.seconds)
            conclude(action, plan)
        return self.answers[self._asked - 1]

    def _undo(self, kept: Sequence[Setting]) -> None:
        for setting in self.all_settings:
            if setting not in kept:
                setting.undo()


def _earlier(module: GraphModule, inputs: Sequence[Any]) -> Sequence[Any]:
    """The inputs of the call at which the code is made."""
    made: Sequence[Any] = importlib.import_module("minifier.earlier").earlier_inputs(module, inputs)
    return made
