"""The two environment variables that make a process record itself.

``DYNADIAG_RECORD`` is the folder; the user may set it. ``DYNADIAG_RECORD_SETTINGS`` (JSON) is what our own commands add
for a program that they start: its target, which process is the main one, what to leave out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

FOLDER_VARIABLE = "DYNADIAG_RECORD"
SETTINGS_VARIABLE = "DYNADIAG_RECORD_SETTINGS"


@dataclass(frozen=True, slots=True)
class Settings:
    """What to record.

    ``limit`` is in bytes. ``parent`` is the process id of the command that started the program. Its child, the main
    process, writes ``journal``; other processes write beside it. With ``coverage``, a folder, nothing is recorded:
    each process counts its operator calls and leaves the counts there. ``options`` of torch are set at the end of its
    import, to try a cure. With ``live`` each process writes a line to its stderr as each compile begins or ends.
    """

    target: str | None = None
    journal: str | None = None
    parent: int | None = None
    source: bool = True
    stop_after: int | None = None
    limit: int = 2_000_000_000
    coverage: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    live: bool = False

    def environment(self, folder: str) -> dict[str, str]:
        """Return the variables that make a child process record itself into ``folder``."""
        return {FOLDER_VARIABLE: folder, SETTINGS_VARIABLE: json.dumps(asdict(self))}


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return the settings in an environment, or the defaults if there are none or they are invalid."""
    try:
        return Settings(**json.loads(environment.get(SETTINGS_VARIABLE, "{}")))
    except (ValueError, TypeError):
        return Settings()


def hide_variables() -> None:
    """Remove our variables from ``os.environ``, so that the program sees the environment that it was given.

    They stay in the C environment: processes that the program starts still inherit them and record themselves.
    """
    for name in (FOLDER_VARIABLE, SETTINGS_VARIABLE):
        value = os.environ.pop(name, None)
        if value is not None:
            os.putenv(name, value)
