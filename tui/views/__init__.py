"""The screens of the browser. Each shows one kind of record.

A screen is imported when it opens first, or once the first screen is complete: the first screen appears at once.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from tui.views.base import View


@dataclass(frozen=True, slots=True)
class ScreenInfo:
    """What is known of a screen before it is imported."""

    key: str
    name: str
    title: str
    purpose: str
    short_title: str = ""  # the title on a narrow terminal
    shortest_title: str = ""  # the title on a narrower one; a folder of recordings has one more screen

    def view_class(self) -> type[View]:
        """Import and return the class of the screen: `CodeView` in the module `code`. It gets its name and title."""
        found = getattr(import_module(f"tui.views.{self.name}"), f"{self.name.capitalize()}View")
        assert issubclass(found, View)
        found.NAME, found.TITLE = self.name, self.title
        return found

    def create(self) -> View:
        return self.view_class()()


_COLLECTOR_THRESHOLDS = (5_000, 10, 50)  # Python's own are 700, 10, 10: it would collect at every other key

# In the order of their keys.
SCREENS = (
    ScreenInfo("1", "overview", "Overview", "what happened, and what to look at first", shortest_title="Over"),
    ScreenInfo("2", "compiles", "Compiles", "every compile, below the calls that led to it", shortest_title="Comp"),
    ScreenInfo("3", "code", "Code", "source, graphs and kernels side by side, linked"),
    ScreenInfo("4", "breaks", "Breaks", "graph breaks, the worst first"),
    ScreenInfo("5", "recompiles", "Recompiles", "frames compiled again, with the guards' old and new values", "Recomp"),
    ScreenInfo("6", "guards", "Guards", "the guards of a compile, with the lines that made them"),
    ScreenInfo("7", "kernels", "Kernels", "generated kernels and library calls", shortest_title="Kern"),
    ScreenInfo("8", "trials", "Trials", "the trials of a bisection or a minification"),
    ScreenInfo("9", "events", "Events", "the raw log, event by event"),
    ScreenInfo("0", "search", "Search", "full-text search of the recording", "Find"),
)
RANKS = ScreenInfo("R", "ranks", "Recordings", "the open recordings, or ranks, and where they differ", "Recs", "Rec")


def screen_named(name: str) -> ScreenInfo:
    return next(one for one in (*SCREENS, RANKS) if one.name == name)


@cache
def import_screens() -> None:
    """Import every screen and what colors code, so that the first key for a screen does not wait for that.

    Nothing that is loaded by then is garbage. From then on the collector, which would stop the screen for 30 ms to look
    through it, leaves it out, and rarely looks through what is old.
    """
    from tui.highlighting import import_lexers

    for screen in SCREENS:
        screen.view_class()
    import_module("tui.graph_screen")
    import_lexers()
    gc.freeze()
    gc.set_threshold(*_COLLECTOR_THRESHOLDS)
