"""torch's registry of graph breaks: what each id means, and what to do about it.

torch ships the registry as a file of data. It is found without importing torch (which takes seconds) and
read as JSON. An id holds one or several wordings, the newest first; a wording that torch's own tool could
not evaluate holds a piece of source code instead of a sentence, and is passed over where another one reads.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from dynadiag.errors import DynadiagError
from dynadiag.explanation.break_families import Family, family
from dynadiag.recording.records import Break
from dynadiag.recording.torch_text.break_types import (
    asks_for_report,
    has_placeholder,
    is_code,
    join_fragments,
    plain_text,
)

_PLACE = ("_dynamo", "graph_break_registry.json")  # in torch 2.11 to 2.15


@dataclass(frozen=True, slots=True)
class BreakEntry:
    """One kind of graph break. The texts may hold ``{placeholders}`` that torch fills in when it reports one."""

    gb_id: str
    gb_type: str
    context: str
    explanation: str
    hints: tuple[str, ...]

    @property
    def family(self) -> Family:
        """Our own words."""
        return family(self.gb_type)


@dataclass(frozen=True, slots=True)
class Registry:
    """The kinds of graph break that a version of torch knows, by id."""

    entries: Mapping[str, BreakEntry]

    @staticmethod
    def installed() -> Registry:
        """That of the torch in this environment; empty where there is no torch or no registry."""
        path = _installed_path()
        return Registry({}) if path is None else Registry.read(path)

    @staticmethod
    @cache
    def read(path: Path) -> Registry:
        """The registry in a file. Raises `DynadiagError` where it cannot be read."""
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return Registry({gb_id: _entry(gb_id, wordings) for gb_id, wordings in raw.items()})
        except (OSError, ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
            raise DynadiagError(
                f"{path}: cannot be read as torch's graph break registry ({error}); reinstall torch"
            ) from error

    def lookup(self, gb_id: str) -> BreakEntry:
        """The entry of an id, however it is written (`gb124`, `124`). Raises `DynadiagError` where there is none."""
        wanted = _normal_id(gb_id)
        if wanted in self.entries:
            return self.entries[wanted]
        raise DynadiagError(f"{gb_id}: no graph break of this id in the installed torch{self._near(gb_id)}")

    def id_of(self, gb_type: str) -> str | None:
        """The id of a type, where it has exactly this name."""
        return next((entry.gb_id for entry in self.entries.values() if entry.gb_type == gb_type), None)

    def complete(self, item: Break) -> Break:
        """A break with what the registry adds: id or type, and hints where torch's report had none."""
        gb_id = item.gb_id or self.id_of(item.gb_type)
        entry = self.entries.get(gb_id or "")
        item = _named_by_id(item, entry) if entry else item
        hints = item.hints or (entry.hints if entry and not any(map(has_placeholder, entry.hints)) else ())
        return replace(item, gb_id=gb_id, hints=hints)

    def _near(self, gb_id: str) -> str:
        """What to try instead: the types that hold the text. Ids with similar numbers mean other things."""
        words = [entry for entry in self.entries.values() if gb_id.casefold() in entry.gb_type.casefold()]
        near = ", ".join(f"{entry.gb_id} ({entry.gb_type})" for entry in words[:5])
        return f"; these types have it in their name: {near}" if near else "; ids look like GB0170"


def specific_hints(hints: Sequence[str]) -> tuple[str, ...]:
    """The hints without the mere request for a bug report, where there is another to follow."""
    found = tuple(hint for hint in hints if not asks_for_report(hint))
    return found or tuple(hints)


def installed_torch() -> str | None:
    """Return the version of the torch in this environment, from its metadata: importing it would take seconds."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def _installed_path() -> Path | None:
    found = importlib.util.find_spec("torch")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder, *_PLACE)
        if path.is_file():
            return path
    return None


def _entry(gb_id: str, wordings: Sequence[Mapping[str, Any]]) -> BreakEntry:
    gb_type = next((w["Gb_type"] for w in wordings if not is_code(w["Gb_type"])), wordings[0]["Gb_type"])
    readable = (w["Explanation"] for w in wordings if not is_code(w["Explanation"]))
    return BreakEntry(
        gb_id,
        gb_type,
        wordings[0]["Context"],
        plain_text(next(readable, "")),
        next((joined for w in wordings if (joined := join_fragments(w["Hints"]))), ()),
    )


def _named_by_id(item: Break, entry: BreakEntry) -> Break:
    """The break under the type that its id stands for.

    torch may meet a second break while it handles one (``graph break in loop``) and then names that, beside the id
    of the first; the first is the cause.
    """
    if item.gb_type == entry.gb_type or not item.gb_type or is_code(entry.gb_type):
        return replace(item, gb_type=item.gb_type or entry.gb_type)
    then = f"While handling this, torch met another: {item.gb_type}."
    return replace(item, gb_type=entry.gb_type, explanation=f"{item.explanation or item.reason} {then}".strip())


def _normal_id(text: str) -> str:
    digits = text.strip().upper().removeprefix("GB")
    return f"GB{digits.zfill(4)}" if digits.isdigit() else text.strip().upper()
