"""The state of one trial in its process: its plan, the stream of its events, and the points where trials are forked.

There is one `TrialContext` per process. The hooks in torch read it at each decision, never earlier. So a process that
has run the program up to its first compiled call can fork one trial after another from there, each with its own plan.

A compile in a child process has to be switched like any other. A forked child has our hooks already. A fresh
interpreter (``spawn``, ``torchrun``, ``subprocess``) finds the trial in its environment and joins it at the end of its
own ``import torch``.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from dynadiag.trial.events import EventWriter, TrialEvent
from dynadiag.trial.outcome import Decision
from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.typed_json import dump, load

__all__ = ["JOIN_VARIABLE", "TRIAL", "TrialContext", "install_hooks", "join", "let_children_join"]


class TrialContext:
    """The state of the trial, which the hooks in torch read."""

    def __init__(self) -> None:
        self.plan: Plan = AS_WRITTEN
        self.reporter: EventWriter | None = None
        self.rank: int | None = None  # of this process in a distributed job
        self.at_first_call: Callable[[], None] | None = None  # forks the trials, and returns in each fork
        # If set, makes each compiled call in its own way: (compiled, original, args, kwargs) -> result.
        self.call_observer: Callable[..., Any] | None = None
        self.at_first_graph: Callable[[], None] | None = None  # the same, at the first graph that reaches Inductor
        # Whether a call with fullgraph=True runs uncompiled. torch raises where no frame of such a call is compiled,
        # so the whole call has to be skipped.
        self.skips_compile: Callable[[Callable[..., Any]], bool] | None = None
        self._start_hooks: list[Callable[[], None]] = []
        self._reported: set[tuple[str, str]] = set()
        self._occurrences: dict[tuple[str, str], int] = {}

    def on_start(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` when the trial starts, once its plan is known."""
        self._start_hooks.append(hook)

    def start(self, plan: Plan) -> None:
        """Start the trial with this plan."""
        self.plan = plan
        for hook in self._start_hooks:
            hook()

    def before_compiled_call(self) -> None:
        """Called before each compiled call of the program. The first is where trials are forked from the program."""
        serve, self.at_first_call = self.at_first_call, None
        if serve is not None:
            serve()

    def before_inductor_graph(self) -> None:
        """Called before Inductor compiles a graph. The first is where trials may be forked too."""
        serve, self.at_first_graph = self.at_first_graph, None
        if serve is not None:
            serve()

    def send(self, event: TrialEvent) -> None:
        """Report an event to the supervisor, if there is one."""
        if self.reporter is not None:
            self.reporter.send(replace(event, rank=self.rank) if isinstance(event, Decision) else event)

    def occurrence(self, group: str, key: str) -> int:
        """0 for the first decision with this key, then 1, 2, ...: one line of a program may compile several times."""
        count = self._occurrences.get((group, key), 0)
        self._occurrences[group, key] = count + 1
        return count

    def observes(self, group: str) -> bool:
        """Whether the plan records or switches this kind of decision."""
        return group in self.plan.record or self.plan.switch(group) is not None

    def is_on(self, group: str, key: str, describe: Callable[[], dict[str, Any]]) -> bool:
        """Whether a decision stays on. If the plan records its kind, reports the decision once."""
        if group in self.plan.record and (group, key) not in self._reported:
            self._reported.add((group, key))
            self.send(Decision(group, key, **describe()))
        switch = self.plan.switch(group)
        return switch is None or switch.is_on(key)


TRIAL = TrialContext()
JOIN_VARIABLE = "DYNADIAG_JOIN"  # `dynadiag.autoload` looks for this variable
_COMPILE_WORKERS = "torch/_inductor/compile_worker/"  # Inductor's compile workers run no code of the program


@dataclass(frozen=True, slots=True)
class _JoinRequest:
    """What a child process of the program needs to join the trial. ``report`` is the path of the trial's events.

    Where ``hooks`` is None the child has an unchanged torch.
    """

    plan: Plan
    hooks: tuple[str, ...] | None
    report: str | None


def install_hooks(hooks: Sequence[str]) -> None:
    """Install our hooks in torch. ``hooks`` are names of modules with an ``install()``."""
    importlib.import_module("dynadiag.trial.rungs").install()
    for name in hooks:
        importlib.import_module(name).install()
    TRIAL.on_start(functools.partial(let_children_join, hooks))


def let_children_join(hooks: Sequence[str] | None) -> None:
    """Have the processes that this one starts join its trial, with these hooks in torch or with an unchanged torch."""
    report = TRIAL.reporter.path if TRIAL.reporter is not None else None
    os.environ[JOIN_VARIABLE] = dump(_JoinRequest(TRIAL.plan, None if hooks is None else tuple(hooks), report))


@functools.cache  # torch may call its entry points several times
def join() -> None:
    """Join the trial whose environment this process has: follow its plan and report to its supervisor. Runs once per
    process.
    """
    if _COMPILE_WORKERS in sys.argv[0]:
        return
    wanted = load(os.environ[JOIN_VARIABLE], _JoinRequest)
    if wanted.hooks is not None:
        install_hooks(wanted.hooks)
    with suppress(OSError, TypeError):  # no supervisor, or it has ended
        TRIAL.reporter = EventWriter(os.open(wanted.report, os.O_WRONLY))  # type: ignore[arg-type]  # None: TypeError
    TRIAL.start(wanted.plan)
    importlib.import_module("dynadiag.trial.rank").report_exceptions()
