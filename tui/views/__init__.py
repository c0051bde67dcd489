"""The screens of the browser: each shows one kind of thing in a recording, and says where enter goes.

They are imported when they are first opened, because the first screen should be there at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from tui.views.base import View

__all__ = ["SCREENS", "Screen", "View"]


@dataclass(frozen=True, slots=True)
class Screen:
    """What is known of a screen before it is opened."""

    name: str
    title: str
    purpose: str
    kind: str  # the class, in the module of the screen's name

    def make(self) -> View:
        """The screen itself."""
        view = getattr(import_module(f"tui.views.{self.name}"), self.kind)()
        assert isinstance(view, View)
        return view


# In the order of their keys, 1 to 9.
SCREENS = (
    Screen("overview", "Overview", "what happened, and what to look at first", "OverviewView"),
    Screen("compiles", "Compiles", "every compile, by the calls that led to it", "CompilesView"),
    Screen("code", "Code", "source, graphs and kernels side by side, linked", "CodeView"),
    Screen("breaks", "Breaks", "graph breaks, the worst first", "BreaksView"),
    Screen("recompiles", "Recompiles", "frames compiled again, with the guard's old and new value", "RecompilesView"),
    Screen("guards", "Guards", "the guards of a compile, with the lines that made them", "GuardsView"),
    Screen("kernels", "Kernels", "generated and called kernels", "KernelsView"),
    Screen("trials", "Trials", "the trials of a bisection or a minification", "TrialsView"),
    Screen("events", "Events", "the raw log, event by event", "EventsView"),
)
