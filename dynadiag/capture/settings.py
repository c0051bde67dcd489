"""The two environment variables that make a process record itself.

``DYNADIAG_RECORD`` is the folder; the user may set it. ``DYNADIAG_RECORD_SETTINGS`` (JSON) is what our own commands add
for a program that they start: its target, which process is the main one, what to leave out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dynadiag.capture.startup import sitecustomize

FOLDER_VARIABLE = "DYNADIAG_RECORD"
SETTINGS_VARIABLE = "DYNADIAG_RECORD_SETTINGS"


@dataclass(frozen=True, slots=True)
class Settings:
    """What to record.

    ``limit`` is in bytes. ``parent`` is the process id of the command that started the program. Its child, the main
    process, writes ``journal``, if that is still what its command made (``claim``: device, inode and size in bytes);
    other processes write beside it. With ``coverage``, a folder, nothing is recorded:
    each process counts its operator calls and leaves the counts there. ``options`` of torch are set at the end of its
    import, to try a cure. With ``live`` each process writes a line to its stderr as each compile begins or ends.
    The main process is ended after ``stop_after`` calls, or ``stop_seconds``. Without ``codegen`` what Inductor would
    compile runs as AOTAutograd leaves it. ``after`` is the number of calls of the warm-up.
    With ``values``, the fields of `dynadiag.capture.value_options.ValueOptions`, the values of compiled calls are kept.
    """

    target: str | None = None
    journal: str | None = None
    claim: list[int] | None = None
    parent: int | None = None
    source: bool = True
    stop_after: int | None = None
    limit: int = 2_000_000_000
    coverage: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    live: bool = False
    stop_seconds: float | None = None
    codegen: bool = True
    after: int | None = None
    values: dict[str, Any] | None = None

    def environment(self, folder: str) -> dict[str, str]:
        """Return the variables that make a child process record itself into ``folder``."""
        return {FOLDER_VARIABLE: folder, SETTINGS_VARIABLE: json.dumps(asdict(self))}

    def program_environment(self, folder: str, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a program that records itself into ``folder`` and does not see these variables."""
        path = sitecustomize.variables(environment.get(sitecustomize.PATH))
        return {**environment, **path, **self.environment(folder)}


def recorder_variables() -> Mapping[str, str]:
    """Return our variables in this process: those that were taken out of its environment, or that are still there."""
    start = sys.modules.get(sitecustomize.MODULE)
    return os.environ if start is None else start.HELD


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return the settings in an environment, or the defaults if there are none or they are invalid."""
    try:
        return Settings(**json.loads(environment.get(SETTINGS_VARIABLE, "{}")))
    except (ValueError, TypeError):
        return Settings()
