"""Whether a widget may be asked for those in it. Workers and timers end when they like."""

from __future__ import annotations

from textual.widget import Widget


def has_widgets(widget: Widget) -> bool:
    """Whether all widgets of a screen or a dialog are there. While it is mounted or removed, some may not be."""
    return widget.is_mounted and widget.is_attached and bool(widget.children) and not widget._pruning
