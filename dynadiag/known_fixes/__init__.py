"""The collection of changes that were proved on functions of popular packages, as data: which rewrite, never code.

An entry names a function by its module, qualified name and the hash of its text, the change that was proved for a break
in it, the model classes that it was proved on, and the command that proves it again. `fix` tries such a change first,
and `explain` names it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files

import msgspec

from dynadiag.overlay_runtime import functions_in

__all__ = ["KnownFix", "function_at", "known_fixes"]


class KnownFix(msgspec.Struct, frozen=True, order=True):
    """One change that was proved for a break in one function. ``title`` is that of the rewrite's candidate."""

    package: str
    version: str
    module: str
    function: str
    sha256: str
    gb_id: str | None
    title: str
    classes: tuple[str, ...]
    proof: str

    @property
    def key(self) -> tuple[str, str, str, str | None, str]:
        """What two entries of one change have in common."""
        return self.module, self.function, self.sha256, self.gb_id, self.title


@lru_cache(maxsize=1)
def collection() -> tuple[KnownFix, ...]:
    """All entries."""
    texts = [each.read_bytes() for each in files(__name__).iterdir() if each.name.endswith(".json")]
    return tuple(entry for text in texts for entry in msgspec.json.decode(text, type=list[KnownFix]))


def function_at(source: str, line: int) -> tuple[str, str] | None:
    """The innermost function around a line of a module's text, and the hash of the function's text."""
    around = [(first, name, text) for name, first, last, text in functions_in(source) if first <= line <= last]
    if not around:
        return None
    _, name, text = max(around)
    return name, hashlib.sha256(text.encode()).hexdigest()


def known_fixes(module: str, source: str, line: int, gb_id: str | None) -> Iterator[KnownFix]:
    """What was proved for a break of this kind in the very function that holds this line."""
    entries = [each for each in collection() if (each.module, each.gb_id) == (module, gb_id)]
    function = function_at(source, line) if entries else None
    yield from (each for each in entries if (each.function, each.sha256) == function)
