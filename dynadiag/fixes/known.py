"""What of the known fixes is for a cause, and the entry that a proved change makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from dynadiag.fixes.overlay_file import NotOfFunctions, package_of
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project, is_library, module_of
from dynadiag.known_fixes import KnownFix, function_at, known_fixes


def known_titles(project: Project, problem: FixProblem) -> frozenset[str]:
    """The changes that were proved for breaks of this kind in this very function."""
    if problem.file is None or problem.span.line is None or not is_library(problem.file):
        return frozenset()
    source = project.source(problem.file)
    found = known_fixes(module_of(problem.file), source, problem.span.line, problem.gb_id)
    return frozenset(entry.title for entry in found)


def entry_of(project: Project, problem: FixProblem, title: str, model: str, proof: str) -> KnownFix | None:
    """The entry of a proved change; ``None`` where it is for no function of an installed package."""
    if problem.file is None or problem.span.line is None or not is_library(problem.file):
        return None
    function = function_at(project.source(problem.file), problem.span.line)
    try:
        package = package_of(problem.file)
    except NotOfFunctions:
        return None
    if function is None:
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
