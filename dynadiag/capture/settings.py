"""The two environment variables that make a process record itself, and the options on values that they carry.

``DYNADIAG_RECORD`` is the folder; the user may set it. ``DYNADIAG_RECORD_SETTINGS`` (JSON) is what our own commands add
for a program that they start: its target, which process is the main one, what to leave out.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dynadiag.capture.startup import sitecustomize
from dynadiag.errors import DynadiagError

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
    With ``imports`` the recorder times what torch imports of itself after ``import torch``.
    With ``values``, the fields of `dynadiag.capture.settings.ValueOptions`, the values of compiled calls are kept.
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
    imports: bool = False

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


_CALLS = re.compile(r"(\d+)(?:\.\.(\d+))?$")
_MAX_BYTES = 64_000_000  # of the summaries of one process


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """What to keep.

    ``calls`` are ranges, ends inclusive, of the calls of each graph, from 0. ``nodes`` is a regular expression or a
    list of names with commas: what is not named has no summary. The values of the nodes that ``full`` matches are kept
    whole, in files of ``folder``. ``limit`` is in bytes of summaries.
    """

    calls: Sequence[Sequence[int]] = ((0, 0),)
    nodes: str | None = None
    full: str | None = None
    folder: str | None = None
    limit: int = _MAX_BYTES

    def takes(self, call: int) -> bool:
        """Whether this call of a graph is run node by node."""
        return any(first <= call <= last for first, last in self.calls)

    def takes_from(self, call: int) -> bool:
        """Whether this call or a later one is run node by node."""
        return any(call <= last for _, last in self.calls)

    def names(self, node: str) -> bool:
        """Whether a node's summary is kept."""
        return self.nodes is None or _matches(self.nodes, node)

    def keeps_whole(self, node: str) -> bool:
        """Whether a node's value is kept whole."""
        return self.full is not None and _matches(self.full, node)


def _matches(pattern: str, node: str) -> bool:
    """Whether a node is in a list of names, or is matched from its start to its end."""
    return node in pattern.split(",") or re.fullmatch(pattern, node) is not None


def check_pattern(option: str, pattern: str) -> None:
    """Raise `DynadiagError` if the value of an option is neither a regular expression nor a list of names."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise DynadiagError(f"{option} {pattern[:100]}: not a regular expression ({error})") from None


def parse_calls(text: str, name: str = "--calls") -> tuple[tuple[int, int], ...]:
    """Return the ranges of ``3,10..12``. Raises `DynadiagError` for anything else, which calls it ``name``."""
    ranges = []
    for part in text.split(","):
        parsed = _CALLS.match(part.strip())
        if parsed is None or int(parsed[2] or parsed[1]) < int(parsed[1]):
            raise DynadiagError(f"{name} {text[:100]}: give numbers and ranges of calls, from 0, such as 0,10..12")
        ranges.append((int(parsed[1]), int(parsed[2] or parsed[1])))
    return tuple(ranges)
