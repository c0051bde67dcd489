"""The theme and the keys that the user has chosen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from textual.keys import Keys, _character_to_key

from dynadiag.errors import DynadiagError
from tui.recording_app import RecordingApp
from tui.session import Session
from tui.settings import read_settings, remember_theme, settings_path
from tui.themes import next_theme, palette_of, theme_of

__all__ = ["SettingsApp"]

_MODIFIERS = {"ctrl", "shift", "alt"}


class SettingsApp(RecordingApp):
    """Follows the settings file of the browser, and remembers the theme in it."""

    def __init__(self, session: Session, paths: Sequence[Path] = (), rank: int = 0, folder: Path | None = None) -> None:
        super().__init__(session, paths, rank, folder)
        self._settings_path = settings_path()

    def action_theme(self) -> None:
        """Show the next theme, and remember it."""
        name = next_theme(palette_of(self.theme))
        self._use_theme(name)
        try:
            remember_theme(self._settings_path, name)
        except (OSError, DynadiagError) as error:
            self.report_problem(f"the theme is not remembered: {error}")
        else:
            self.notify(f"theme: {name}")

    def _use_theme(self, name: str) -> None:
        theme = theme_of(name)
        self.register_theme(theme)
        self.theme = theme.name

    def use_settings(self) -> None:
        """Use the theme and the keys that the user has chosen."""
        try:
            settings = read_settings(self._settings_path)
        except DynadiagError as error:
            self.report_problem(str(error))
            return
        self._use_theme(settings.theme)
        self.chosen_keys = settings.keys
        self.set_keymap(dict(settings.keys))
        if settings.keys:
            self.run_worker(self._check_keys, thread=True, group="keys")

    def _check_keys(self) -> None:
        """Report keys of the settings that belong to no action, and names that no key has."""
        from tui.command_palette import all_binding_ids

        if wrong := sorted(set(self.chosen_keys) - all_binding_ids(type(self))):
            reason = f"{self._settings_path}: no action is called {', '.join(wrong)}: the palette (:) has their names"
            self.call_from_thread(self.report_problem, reason)
        named = {name.strip() for keys in self.chosen_keys.values() for name in keys.split(",")}
        if wrong := sorted(name for name in named if not _is_key(name)):
            reason = f"{self._settings_path}: no key is called {', '.join(wrong)}: write j, ctrl+n, f2 or pagedown"
            self.call_from_thread(self.report_problem, reason)


def _is_key(name: str) -> bool:
    """Whether a terminal can send a key of this name."""
    *held, key = name.split("+") if len(name) > 1 else [name]
    known = {each.value for each in Keys} | {_character_to_key(chr(code)) for code in range(ord(" "), ord("~") + 1)}
    return set(held) <= _MODIFIERS and (len(key) == 1 or key in known)
