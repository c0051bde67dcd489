"""The state of one trial in its process: its plan, the stream of its events, and the points where trials are forked.

There is one `TrialContext` per process. The hooks in torch read it at each decision, never earlier. So a process that
has run the program up to its first compiled call can fork one trial after another from there, each with its own plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dynadiag.trial.events import EventWriter, TrialEvent
from dynadiag.trial.outcome import Decision
from dynadiag.trial.plan import AS_WRITTEN, Plan


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
        self.wraps_backend: Callable[[Any], Any] | None = None  # what is called in place of the backend of a graph
        self._start_hooks: list[Callable[[], None]] = []
        self._reported: set[tuple[str, str]] = set()
        self._occurrences: dict[tuple[str, str], int] = {}

    def on_start(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` when the trial starts, once its plan is known."""
        self._start_hooks.append(hook)

    def start(self, plan: Plan) -> None:
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
