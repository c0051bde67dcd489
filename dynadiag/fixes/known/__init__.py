"""The collection of changes that were proved on functions of popular packages, as data: which rewrite, never code.

An entry names a function by its module, qualified name and the hash of its text, the change that was proved for a break
in it, the model classes that it was proved on, and the command that proves it again. `fix` tries such a change first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.resources import files

import msgspec

from dynadiag.fixes.overlay_file import NotOfFunctions, package_of
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project, is_library, module_of
from dynadiag.overlay_runtime import functions_in

__all__ = ["KnownFix", "entry_of", "function_of", "known_titles", "merged"]


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
def _collection() -> tuple[KnownFix, ...]:
    folder = files("dynadiag.fixes.known")
    texts = [each.read_bytes() for each in folder.iterdir() if each.name.endswith(".json")]
    return tuple(entry for text in texts for entry in msgspec.json.decode(text, type=list[KnownFix]))


def function_of(project: Project, problem: FixProblem) -> tuple[str, str] | None:
    """The function of a package that a cause is in, and the hash of its text; ``None`` for a cause elsewhere."""
    if problem.file is None or problem.span.line is None or not is_library(problem.file):
        return None
    around = [
        (first, name, text)
        for name, first, last, text in functions_in(project.source(problem.file))
        if first < problem.span.line <= last
    ]
    if not around:
        return None
    _, name, text = max(around)
    return name, hashlib.sha256(text.encode()).hexdigest()


def known_titles(project: Project, problem: FixProblem) -> frozenset[str]:
    """The changes that were proved for breaks of this kind in this very function."""
    function = function_of(project, problem)
    return frozenset(
        entry.title
        for entry in _collection()
        if function == (entry.function, entry.sha256)
        and entry.module == module_of(problem.file or "")
        and entry.gb_id == problem.gb_id
    )


def entry_of(project: Project, problem: FixProblem, title: str, model: str, proof: str) -> KnownFix | None:
    """The entry of a proved change; ``None`` where it is for no function of an installed package."""
    function = function_of(project, problem)
    try:
        package = package_of(problem.file or "") if function is not None else None
    except NotOfFunctions:
        return None
    if function is None or package is None or problem.file is None:
        return None
    return KnownFix(*package, module_of(problem.file), *function, problem.gb_id, title, (model,), proof)


def merged(entries: Iterable[KnownFix]) -> Iterator[KnownFix]:
    """The entries, each change once with all its model classes."""
    by_key: dict[object, list[KnownFix]] = {}
    for entry in sorted(entries):
        by_key.setdefault(entry.key, []).append(entry)
    for alike in by_key.values():
        classes = tuple(sorted({name for entry in alike for name in entry.classes}))
        yield msgspec.structs.replace(alike[0], classes=classes)
