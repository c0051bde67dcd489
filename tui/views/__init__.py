"""The screens of the browser: each shows one kind of thing in a recording, and says where enter goes.

They are imported when they are first opened, because the first screen should be there at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from tui.views.base import View

__all__ = ["RANKS", "SCREENS", "Screen", "View", "screen_of"]


@dataclass(frozen=True, slots=True)
class Screen:
    """What is known of a screen before it is opened."""

    key: str
    name: str
    title: str
    purpose: str
    kind: str  # the class, in the module of the screen's name
    narrow: str = ""  # the title where there is little room
    least: str = ""  # and where there is less: a folder's recordings have one screen more

    @property
    def short(self) -> str:
        return self.narrow or self.title

    def made_by(self) -> type[View]:
        """The class of the screen."""
        found = getattr(import_module(f"tui.views.{self.name}"), self.kind)
        assert issubclass(found, View)
        return found

    def make(self) -> View:
        """The screen itself."""
        return self.made_by()()


# In the order of their keys.
SCREENS = (
    Screen("1", "overview", "Overview", "what happened, and what to look at first", "OverviewView", least="Over"),
    Screen("2", "compiles", "Compiles", "every compile, by the calls that led to it", "CompilesView", least="Comp"),
    Screen("3", "code", "Code", "source, graphs and kernels side by side, linked", "CodeView"),
    Screen("4", "breaks", "Breaks", "graph breaks, the worst first", "BreaksView"),
    Screen(
        "5",
        "recompiles",
        "Recompiles",
        "frames compiled again, with the guard's old and new value",
        "RecompilesView",
        "Recomp",
    ),
    Screen("6", "guards", "Guards", "the guards of a compile, with the lines that made them", "GuardsView"),
    Screen("7", "kernels", "Kernels", "generated and called kernels", "KernelsView", least="Kern"),
    Screen("8", "trials", "Trials", "the trials of a bisection or a minification", "TrialsView"),
    Screen("9", "events", "Events", "the raw log, event by event", "EventsView"),
    Screen("0", "search", "Search", "a text anywhere in the recording", "SearchView", "Find"),
)
RANKS = Screen("R", "ranks", "Ranks", "the recordings of a folder, and where they differ", "RanksView")


def screen_of(name: str) -> Screen:
    """The screen of this name."""
    return next(one for one in (*SCREENS, RANKS) if one.name == name)
