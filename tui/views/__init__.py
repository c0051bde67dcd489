"""The screens of the browser: each shows one kind of thing in a recording, and says where enter goes."""

from __future__ import annotations

from tui.views.base import View
from tui.views.breaks import BreaksView
from tui.views.code import CodeView
from tui.views.compiles import CompilesView
from tui.views.events import EventsView
from tui.views.guards import GuardsView
from tui.views.kernels import KernelsView
from tui.views.overview import OverviewView
from tui.views.recompiles import RecompilesView
from tui.views.trials import TrialsView

__all__ = ["VIEWS", "View"]

# In the order of their keys, 1 to 9.
VIEWS: tuple[type[View], ...] = (
    OverviewView,
    CompilesView,
    CodeView,
    BreaksView,
    RecompilesView,
    GuardsView,
    KernelsView,
    TrialsView,
    EventsView,
)
