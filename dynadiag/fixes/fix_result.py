"""The result of a search, its document and its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.fixes.candidate import Candidate
from dynadiag.fixes.edits import Edit, apply_edits, unified_diff
from dynadiag.fixes.fix_report import Evidence, FixDocument, FixEntry, ProblemPlace, Rejected
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project

__all__ = ["Fix", "FixResult", "document_of", "entries_of", "exit_code_of"]

_NOT_THEIRS = "the cause lies outside of the program's folder, where nothing is changed"
_NAMED = re.compile(r"`[^`]*?(\w+)(?:\s*=\s*\w+)?`")  # the last name of a setting or a function
_NO_REWRITE = "no rewrite fits this place"


@dataclass(frozen=True, slots=True)
class Fix:
    """One cause, with the candidate that is proved for it, if any, and the rejected ones with the reasons.

    ``combined`` says that the candidate is all proved changes: they remove the cause, and it has none of its own.
    """

    problem: FixProblem
    candidate: Candidate | None = None
    evidence: Evidence | None = None
    rejected: tuple[Rejected, ...] = ()
    combined: bool = False


@dataclass(frozen=True, slots=True)
class FixResult:
    """All causes of a program. ``edits`` are those of all proved fixes, tried together, ``changed`` the new texts."""

    fixes: tuple[Fix, ...]
    edits: tuple[Edit, ...]
    changed: dict[str, str]
    evidence: Evidence | None
    torch: str | None = None


def exit_code_of(result: FixResult) -> int:
    """0 if every cause has a proved fix, 1 if some have none, 3 if there is no cause.

    A recompile that no proved change removes does not count, unless nothing at all was proved.
    """
    if not result.fixes:
        return 3
    left = [fix for fix in result.fixes if fix.candidate is None]
    none_proved = len(left) == len(result.fixes)
    return int(none_proved or any(fix.problem.kind == "break" for fix in left))


def document_of(result: FixResult, project: Project, trials: int, seconds: float) -> FixDocument:
    """The document of a result. ``patch`` is named once it is written."""
    return FixDocument(
        torch=result.torch,
        target=project.program.text,
        folder=str(project.root.absolute()),
        fixes=tuple(_without_repeats(entries_of(result, project))),
        patch=None,
        evidence=result.evidence,
        trials=trials,
        seconds=round(seconds, 3),
    )


def entries_of(result: FixResult, project: Project) -> Iterator[FixEntry]:
    """An entry for each cause, but for recompiles that end with a graph break that is left."""
    return (_entry(fix, project) for fix in _without_consequences(result.fixes))


def _without_consequences(fixes: Sequence[Fix]) -> Iterator[Fix]:
    """Leave out each recompile that ends with a graph break for which no fix is proved."""
    broken = {fix.problem.function for fix in fixes if fix.problem.kind == "break" and fix.candidate is None}
    for fix in fixes:
        if fix.candidate or not (fix.problem.from_before_break and fix.problem.function in broken):
            yield fix


def _without_repeats(entries: Iterable[FixEntry]) -> Iterator[FixEntry]:
    """The entries, and of those that one change removes at one place the first: several guards may fail there."""
    known = set()
    for entry in entries:
        place = entry.problem
        key = (place.kind, place.gb_id, place.file, place.line, entry.diff)
        if not entry.diff or key not in known:
            yield entry
        known.add(key)


def _entry(fix: Fix, project: Project) -> FixEntry:
    if fix.candidate is None:
        tried = ("rejected", "every change that was considered is wrong here")
        verdict, title = tried if fix.rejected else ("none", _none(fix))
        place, why = _place_of(fix.problem, project), fix.problem.title
        return FixEntry(place, verdict, title, None, "", why, None, fix.rejected, _untried(fix))
    sources = {edit.file: project.source(edit.file) for edit in fix.candidate.edits}
    return FixEntry(
        problem=_place_of(fix.problem, project),
        verdict="proved",
        title=fix.candidate.title,
        kind=fix.candidate.kind,
        diff=unified_diff(sources, apply_edits(sources, fix.candidate.edits)),
        why=fix.candidate.why,
        evidence=fix.evidence,
        rejected=fix.rejected,
        combined=fix.combined,
    )


def _untried(fix: Fix) -> tuple[str, ...]:
    """The advice without what was tried and rejected, by the names of its settings and functions."""
    tried = {name for each in fix.rejected for name in _NAMED.findall(each.title)}
    return tuple(text for text in fix.problem.advice if tried.isdisjoint(re.findall(r"\w+", text)))


def _none(fix: Fix) -> str:
    return _NOT_THEIRS if fix.problem.file is None else _NO_REWRITE


def _place_of(problem: FixProblem, project: Project) -> ProblemPlace:
    file = problem.span.file if problem.file is None else str(project.root / problem.file)
    return ProblemPlace(problem.kind, problem.gb_id, problem.compile_id, file, problem.span.line)
