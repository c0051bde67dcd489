"""The configuration: budgets for all targets and for patterns of targets, and the path of the baseline.

It is in ``dynadiag.toml``, or in ``[tool.dynadiag]`` of ``pyproject.toml``, in the current folder or the nearest
one above it:

    max-breaks = 0

    [targets."examples/*.py"]
    max-breaks = 2
    max-memory = "2 GB"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dynadiag.errors import DynadiagError, UnreadableInput

CONFIGURATION_FILES = ("dynadiag.toml", "pyproject.toml")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", re.IGNORECASE)
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_B = TypeVar("_B", bound="Budgets")
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Budgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The limit of each figure; ``None`` is no limit."""

    max_breaks: int | None = None
    max_recompiles: int | None = None
    max_graphs: int | None = None
    max_compile_seconds: float | str | None = None  # seconds, or "120%" of what the baseline has
    max_memory: int | str | None = None  # bytes, or "2 GB"
    max_launches: int | None = None
    fallback_kernel: int | None = None
    cache_bypass: int | None = None


BUDGETS = tuple(field.encode_name for field in msgspec.structs.fields(Budgets))


class TargetBudgets(Budgets, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The budgets of one target, or of all that match a pattern, and the arguments that the program is given."""

    arguments: tuple[str, ...] = ()


class Configuration(Budgets, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """The budgets of all targets, and those of patterns. For each budget the last pattern that matches counts."""

    baseline: str = "dynadiag-baseline.json"
    targets: dict[str, TargetBudgets] = {}

    def budgets(self, names: Iterable[str], given: Budgets) -> Budgets:
        """Return the budgets of the target with these names. Those ``given`` on the command line take precedence."""
        known = tuple(names)
        matching = [one for pattern, one in self.targets.items() if any(fnmatchcase(name, pattern) for name in known)]
        merged = {
            name: value
            for source in (self, *matching, given)
            for name in Budgets.__struct_fields__
            if (value := getattr(source, name)) is not None
        }
        return Budgets(**merged)

    def arguments(self, name: str) -> tuple[str, ...]:
        found = [one.arguments for pattern, one in self.targets.items() if fnmatchcase(name, pattern)]
        return found[-1] if found else ()


def find_configuration(folder: Path) -> tuple[Configuration, Path]:
    """Return the configuration for a folder, and the folder that it is in. Without one it is empty, and in ``folder``.

    Raises `DynadiagError` that names the file and the entry if it cannot be used.
    """
    for place in (folder, *folder.parents):
        for name in CONFIGURATION_FILES:
            if (table := _table(place / name)) is not None:
                return _parsed(table, place / name, Configuration), place
    return Configuration(), folder


def parse_budgets(values: Mapping[str, Any], where: str) -> Budgets:
    """Budgets by the names of their rules. Raises `DynadiagError`."""
    return _parsed({name: value for name, value in values.items() if value is not None}, where, Budgets)


def budgets_of_arguments(values: Mapping[str, Any], where: str) -> Budgets:
    """Budgets by the names of Python's arguments, ``max_breaks``, which an error names so. Raises `DynadiagError`."""
    named = {name.replace("_", "-"): value for name, value in values.items()}
    try:
        return parse_budgets(named, where)
    except DynadiagError as error:
        text = str(error)
        for name in (*named, *(field.encode_name for field in msgspec.structs.fields(Budgets))):
            text = text.replace(name, name.replace("-", "_"))
        raise DynadiagError(text) from None


def bytes_of(size: int | str) -> int:
    """A size in bytes.

    >>> bytes_of("2 GB"), bytes_of("1.5GiB"), bytes_of(4096)
    (2000000000, 1610612736, 4096)
    """
    if isinstance(size, int):
        return size
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise ValueError(f"{size!r} is not a size: give bytes, or a text such as '2 GB'")
    return round(float(match[1]) * (1024 if match[3] else 1000) ** _POWERS[match[2].lower()])


def relative_seconds(value: float | str) -> float | None:
    """The share of the baseline's seconds that is allowed (``"120%"`` is 1.2); ``None`` for a number of seconds."""
    if isinstance(value, (int, float)):
        return None
    match = _PERCENT.fullmatch(value.strip())
    if match is None:
        raise ValueError(f"{value!r} is not a time: give seconds, or a text such as '120%' of the baseline")
    return float(match[1]) / 100


# The readers of budgets that may be texts, and what entries that are not whole numbers take.
_READERS: Mapping[str, Callable[[str], object]] = {"max-memory": bytes_of, "max-compile-seconds": relative_seconds}
_EXPECTED = {
    "max-memory": "bytes, or a text such as '2 GB'",
    "max-compile-seconds": "seconds, or a text such as '120%' of the baseline's",
    "arguments": "a list of texts",
    "baseline": "the name of a file",
    "targets": "a table of tables, one for each target or pattern",
}


def _table(path: Path) -> Mapping[str, Any] | None:
    """What a file says about dynadiag; ``None`` if it says nothing. Raises `UnreadableInput`."""
    if not path.is_file():
        return None
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UnreadableInput(f"{path}: cannot be read as TOML ({reason})") from error
    if path.name == "dynadiag.toml":
        return content
    tool = content.get("tool")
    found = tool.get("dynadiag") if isinstance(tool, dict) else None
    if found is not None and not isinstance(found, dict):
        raise DynadiagError(f"{path}: tool.dynadiag is {found!r}: give a table")
    return found


def _parsed(table: Mapping[str, Any], where: object, kind: type[_B]) -> _B:
    try:
        _check(table, kind)
    except ValueError as error:
        raise DynadiagError(f"{where}: {error}") from error
    return msgspec.convert(table, kind)


def _check(table: Mapping[str, Any], kind: type[Budgets], of: str = "") -> None:
    """Raise a `ValueError` that names the first entry that cannot be used. ``of`` says which table it is in."""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    for name, value in table.items():
        if name not in known:
            near = get_close_matches(name, known, 1)
            raise ValueError(f"{name}{of} is not known: {f'try {near[0]}' if near else 'give ' + ', '.join(known)}")
        for pattern, own in value.items() if name == "targets" and isinstance(value, dict) else ():
            if isinstance(own, dict):
                _check(own, TargetBudgets, f" of targets.{pattern!r}")
        if not _is_usable(name, value, kind):
            raise ValueError(f"{name}{of} is {value!r}: give {_EXPECTED.get(name, 'a whole number, 0 or more')}")


def _is_usable(name: str, value: object, kind: type[Budgets]) -> bool:
    try:
        msgspec.convert({name: value}, kind)
        if isinstance(value, str) and name in _READERS:
            _READERS[name](value)
    except (msgspec.ValidationError, ValueError):
        return False
    return not isinstance(value, (int, float)) or value >= 0
