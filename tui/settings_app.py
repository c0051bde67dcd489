"""The theme and the keys that the user has chosen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson
from textual.keys import Keys, _character_to_key

from dynadiag.errors import UnreadableInput
from dynadiag.recording.store import atomic_write
from tui.colors import THEMES, next_theme, palette_of, theme_of
from tui.screens_app import ScreensApp


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The theme, and for the id of each changed binding its keys, separated by commas."""

    theme: str = THEMES[0]
    keys: Mapping[str, str] = field(default_factory=dict)


def read_settings(path: Path) -> BrowserSettings:
    """Read the settings; where the file does not exist, return the defaults.

    Raises `UnreadableInput` if it is not what `remember_theme` could have written.
    """
    found = _read(path)
    theme, keys = found.get("theme", THEMES[0]), found.get("keys", {})
    if theme not in THEMES:
        raise UnreadableInput(f"{path}: theme is {theme!r}: it can be {', '.join(THEMES)}")
    if not isinstance(keys, dict) or not all(isinstance(value, str) and value for value in keys.values()):
        raise UnreadableInput(f'{path}: keys has to be an object such as {{"app.quit": "Q", "lines.down": "j,down"}}')
    return BrowserSettings(theme, keys)


def remember_theme(path: Path, theme: str) -> None:
    """Write the theme to the settings and leave all else as it is.

    Raises `UnreadableInput` if the file is damaged, and `OSError` or `DynadiagError` if it cannot be written: then the
    file is as it was.
    """
    text = json.dumps(_read(path) | {"theme": theme}, indent=2, ensure_ascii=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path.resolve(), True) as scratch:
        scratch.write_text(text, encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(**orjson.loads(path.read_bytes()))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    except (TypeError, ValueError) as error:  # JSON, but no object; no JSON
        raise UnreadableInput(f"{path}: this is no JSON object: mend it or delete it") from error


_MODIFIERS = {"ctrl", "shift", "alt"}


class SettingsApp(ScreensApp):
    """Follows the settings file of the browser, and remembers the theme in it."""

    @cached_property
    def _settings_path(self) -> Path:
        """The file of the settings, which may not exist."""
        base = os.environ.get("XDG_CONFIG_HOME")
        return Path(base or Path.home() / ".config") / "dynadiag" / "browser.json"

    def action_theme(self) -> None:
        name = next_theme(palette_of(self.theme))
        self._use_theme(name)
        with self.reporting_problems("the theme is not remembered: "):
            remember_theme(self._settings_path, name)
            self.notify(f"theme: {name}")

    def _use_theme(self, name: str) -> None:
        theme = theme_of(name)
        self.register_theme(theme)
        self.theme = theme.name

    def use_settings(self) -> None:
        """Use the theme and the keys that the user has chosen."""
        with self.reporting_problems():
            settings = read_settings(self._settings_path)
            self._use_theme(settings.theme)
            self.chosen_keys = settings.keys
            self.set_keymap(dict(settings.keys))
            if settings.keys:
                self.run_worker(self._check_keys, thread=True, group="keys")

    def _check_keys(self) -> None:
        """Report keys of the settings that belong to no action, and names that no key has."""
        from tui.command_palette import all_binding_ids

        named = {name.strip() for keys in self.chosen_keys.values() for name in keys.split(",")}
        for what, wrong, advice in (
            ("action", set(self.chosen_keys) - all_binding_ids(type(self)), "the palette (:) has their names"),
            ("key", {name for name in named if not _is_key(name)}, "write j, ctrl+n, f2 or pagedown"),
        ):
            if wrong:
                reason = f"{self._settings_path}: no {what} is called {', '.join(sorted(wrong))}: {advice}"
                self.call_from_thread(self.report_problem, reason)


def _is_key(name: str) -> bool:
    """Whether a terminal can send a key of this name."""
    *held, key = name.split("+") if len(name) > 1 else [name]
    known = {each.value for each in Keys} | {_character_to_key(chr(code)) for code in range(ord(" "), ord("~") + 1)}
    return set(held) <= _MODIFIERS and (len(key) == 1 or key in known)
