"""The keys of the browser: each has an id, by which the settings name it, and a text for the footer and the help."""

from __future__ import annotations

from textual.binding import Binding


def footer_key(keys: str, action: str, label: str, id_: str, told: str = "", *, display: str | None = None) -> Binding:
    """A key that the footer shows by its label. The help and the palette tell what it does."""
    return Binding(keys, action, label, id=id_, tooltip=told, key_display=display)


def hidden_key(keys: str, action: str, label: str, id_: str, told: str = "", *, priority: bool = False) -> Binding:
    """A key that only the help and the palette show."""
    return Binding(keys, action, label, show=False, priority=priority, id=id_, tooltip=told)
