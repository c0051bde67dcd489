"""The result of a search, its document and its exit code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dynadiag.fixes.candidate import Candidate
from dynadiag.fixes.edits import Edit, apply_edits, unified_diff
from dynadiag.fixes.fix_report import (
    Evidence,
    FixDocument,
    FixEntry,
    ProblemPlace,
    RegionEntry,
    Rejected,
    evidence_lines,
)
from dynadiag.fixes.overlay_file import changes_of, library_edits, overlay_text, package_diff, package_of
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project, is_library

_NOT_THEIRS = "the cause lies in torch or Python, where nothing is changed"
_OF_PACKAGE = "no change of an installed package is known that ends such a recompile"
_NO_REWRITE = "no rewrite fits this place"


@dataclass(frozen=True, slots=True)
class Fix:
    """One cause, with the candidate that is proved for it, if any, and the rejected ones with the reasons.

    ``combined`` says that the candidate is all proved changes: they remove the cause, and it has none of its own.
    ``advice`` is what `dynadiag explain` advises and no candidate was.
    """

    problem: FixProblem
    candidate: Candidate | None = None
    evidence: Evidence | None = None
    rejected: tuple[Rejected, ...] = ()
    combined: bool = False
    advice: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FixResult:
    """All causes of a program. ``edits`` are those of all proved fixes, tried together, ``changed`` the new texts of
    the user's own files. ``region`` is what can be compiled in place of the model, where breaks are left. ``left`` are
    the recompiles that only the changed program has: other causes hid them.
    """

    fixes: tuple[Fix, ...]
    edits: tuple[Edit, ...]
    changed: dict[str, str]
    evidence: Evidence | None
    torch: str | None = None
    region: RegionEntry | None = None
    left: tuple[Fix, ...] = ()

    def overlay(self, project: Project) -> str:
        """The overlay of the proved changes of packages' functions; empty where there are none."""
        changes = tuple(changes_of(project, self.edits))
        return overlay_text(changes, project, self.edits, tuple(_notes(self, project))) if changes else ""

    def package_diff(self, project: Project) -> str:
        """The same changes as a patch, with paths from the packages on."""
        return package_diff(project, self.edits)


def _notes(result: FixResult, project: Project) -> Iterator[str]:
    """What a reader of an overlay has to know of each change, and what was proved."""
    own = [fix for fix in result.fixes if fix.candidate is not None and not fix.combined]
    for made in dict.fromkeys(fix.candidate for fix in own if fix.candidate is not None):
        if library_edits(made.edits):
            yield f"* {made.title}"
            yield from (_for_line(fix.problem) for fix in own if fix.candidate == made)
            yield f"  right because {made.why}"
    if result.evidence is not None:
        yield f"Proved with {project.program.text} on torch {result.torch}:"
        yield from (f"  {text}" for text in evidence_lines(result.evidence))


def _for_line(problem: FixProblem) -> str:
    """What a change is for. In a package its line: the module is told with the diff."""
    id_ = f" [{problem.gb_id}]" if problem.gb_id else ""
    return f"  for the {problem.kind}{id_} in {problem.function}, line {problem.span.line}"


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
        region=result.region,
        left=tuple(_entry(fix, project) for fix in result.left),
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
        tried = ("rejected", "none of the changes that were considered is proved")
        verdict, title = tried if fix.rejected else ("none", _none(fix))
        place, why = _place_of(fix.problem, project), _why_left(fix.problem)
        return FixEntry(place, verdict, title, None, "", why, None, fix.rejected, fix.advice)
    edits = fix.candidate.edits
    own = tuple(edit for edit in edits if not is_library(edit.file))
    inside = library_edits(edits)
    sources = {edit.file: project.source(edit.file) for edit in own}
    return FixEntry(
        problem=_place_of(fix.problem, project),
        verdict="proved",
        title=fix.candidate.title,
        kind=fix.candidate.kind,
        diff=unified_diff(sources, apply_edits(sources, own)) + package_diff(project, edits),
        why=fix.candidate.why,
        evidence=fix.evidence,
        rejected=fix.rejected,
        combined=fix.combined,
        where="library" if inside else "program",
        package="==".join(package_of(project, inside[0].file)) if inside else None,
    )


def _why_left(problem: FixProblem) -> str:
    """Return the title of a break and its cause, in one line: the title alone names only the kind of break."""
    return " ".join(f"{problem.title}. {problem.cause}".split()) if problem.cause else problem.title


def _none(fix: Fix) -> str:
    if fix.problem.file is not None:
        return _NO_REWRITE
    return _OF_PACKAGE if is_library(fix.problem.span.file or "") else _NOT_THEIRS


def _place_of(problem: FixProblem, project: Project) -> ProblemPlace:
    file = problem.file or problem.span.file
    where = None if file is None else str(project.path(file))
    return ProblemPlace(problem.kind, problem.gb_id, problem.compile_id, where, problem.span.line)
