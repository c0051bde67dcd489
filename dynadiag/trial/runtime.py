"""The state of one trial inside its process: its plan, its reporter, and the point where trials are forked off.

There is one `Trial` a process. The hooks that are put into torch ask it at the moment of each decision, never
earlier, so that a process which has run the program up to its first compiled call can fork one trial after
another from there, each with a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynadiag.trial.plan import AS_WRITTEN, Plan
from dynadiag.trial.report import Reporter

__all__ = ["TRIAL", "Trial"]


class Trial:
    """What the hooks ask."""

    def __init__(self) -> None:
        self.plan: Plan = AS_WRITTEN
        self.reporter: Reporter | None = None
        self.at_first_call: Callable[[], None] | None = None  # serves trials, and returns in each fork
        self.at_first_graph: Callable[[], None] | None = None  # the same where Inductor is given its first graph
        # Asked for each call with fullgraph=True whether it is left to Python: torch raises where no frame of such
        # a call is compiled, so there the whole call has to be left out.
        self.bypass: Callable[[Callable[..., Any]], bool] | None = None
        self._started: list[Callable[[], None]] = []
        self._seen: set[tuple[str, str]] = set()
        self._occurrences: dict[tuple[str, str], int] = {}

    def on_start(self, hook: Callable[[], None]) -> None:
        """Have ``hook`` called once the plan is known."""
        self._started.append(hook)

    def start(self, plan: Plan) -> None:
        self.plan = plan
        for hook in self._started:
            hook()

    def reached_compiled_call(self) -> None:
        """Called before each compiled call of the program; the first is where trials are forked off."""
        serve, self.at_first_call = self.at_first_call, None
        if serve is not None:
            serve()

    def reached_graph(self) -> None:
        """Called before Inductor compiles a graph."""
        serve, self.at_first_graph = self.at_first_graph, None
        if serve is not None:
            serve()

    def send(self, event: str, **data: Any) -> None:
        if self.reporter is not None:
            self.reporter.send(event, **data)

    def occurrence(self, group: str, key: str) -> int:
        """0 for the first decision with this key, then 1, 2, ...: one line of a program may compile repeatedly."""
        count = self._occurrences.get((group, key), 0)
        self._occurrences[group, key] = count + 1
        return count

    def asks(self, group: str) -> bool:
        """Whether the plan has anything to do with a class."""
        return group in self.plan.record or self.plan.switch(group) is not None

    def on(self, group: str, key: str, describe: Callable[[], dict[str, Any]]) -> bool:
        """Whether a decision stays on; reports it once where the plan records its class."""
        if group in self.plan.record and (group, key) not in self._seen:
            self._seen.add((group, key))
            self.send("point", group=group, key=key, **describe())
        switch = self.plan.switch(group)
        return switch is None or switch.on(key)


TRIAL = Trial()
