"""What the user has chosen: the theme and the keys, in a file that they may edit."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dynadiag.errors import UnreadableInput
from tui.themes import THEMES

__all__ = ["BrowserSettings", "read_settings", "remember_theme", "settings_path"]


@dataclass(frozen=True, slots=True)
class BrowserSettings:
    """The theme, and for the id of each changed binding its keys, separated by commas."""

    theme: str = THEMES[0]
    keys: Mapping[str, str] = field(default_factory=dict)


def settings_path() -> Path:
    """Return the file of the settings, which may not exist."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return Path(base or Path.home() / ".config") / "dynadiag" / "browser.json"


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

    Raises `UnreadableInput` if the file is damaged, and `OSError` if it cannot be written.
    """
    text = json.dumps(_read(path) | {"theme": theme}, indent=2, ensure_ascii=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnreadableInput(f"{path}: this is no JSON: mend it or delete it") from error
    if not isinstance(found, dict):
        raise UnreadableInput(f"{path}: this is no JSON object: mend it or delete it")
    return found
