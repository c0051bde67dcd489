"""The screens of the browser. Each shows one kind of record.

A screen is imported when it opens first, so that the first screen appears at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from tui.views.base import View

__all__ = ["RANKS", "SCREENS", "Screen", "View", "screen_of"]


@dataclass(frozen=True, slots=True)
class Screen:
    """What is known of a screen before it is imported."""

    key: str
    name: str
    title: str
    purpose: str
    kind: str  # the class, in the module that has the screen's name
    narrow: str = ""  # the title on a narrow terminal
    least: str = ""  # the title on a narrower one; a folder of recordings has one more screen

    @property
    def short(self) -> str:
        """The title on a narrow terminal."""
        return self.narrow or self.title

    def made_by(self) -> type[View]:
        """Import and return the class of the screen."""
        found = getattr(import_module(f"tui.views.{self.name}"), self.kind)
        assert issubclass(found, View)
        return found

    def make(self) -> View:
        """Create the screen."""
        return self.made_by()()


# In the order of their keys.
SCREENS = (
    Screen("1", "overview", "Overview", "what happened, and what to look at first", "OverviewView", least="Over"),
    Screen("2", "compiles", "Compiles", "every compile, below the calls that led to it", "CompilesView", least="Comp"),
    Screen("3", "code", "Code", "source, graphs and kernels side by side, linked", "CodeView"),
    Screen("4", "breaks", "Breaks", "graph breaks, the worst first", "BreaksView"),
    Screen(
        "5",
        "recompiles",
        "Recompiles",
        "frames compiled again, with the guards' old and new values",
        "RecompilesView",
        "Recomp",
    ),
    Screen("6", "guards", "Guards", "the guards of a compile, with the lines that made them", "GuardsView"),
    Screen("7", "kernels", "Kernels", "generated kernels and library calls", "KernelsView", least="Kern"),
    Screen("8", "trials", "Trials", "the trials of a bisection or a minification", "TrialsView"),
    Screen("9", "events", "Events", "the raw log, event by event", "EventsView"),
    Screen("0", "search", "Search", "full-text search of the recording", "SearchView", "Find"),
)
RANKS = Screen("R", "ranks", "Ranks", "the recordings of a folder, and where they differ", "RanksView")


def screen_of(name: str) -> Screen:
    """Return the screen with this name."""
    return next(one for one in (*SCREENS, RANKS) if one.name == name)
