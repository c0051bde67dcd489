"""A candidate: one change of the user's files that may remove one cause, and what its proof must check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import libcst as cst

from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import Project, is_library
from dynadiag.recording.records import Span

N = TypeVar("N", bound=cst.CSTNode)


@dataclass(frozen=True, slots=True)
class Condition:
    """A data-dependent condition in the unchanged program: the characters ``start`` to ``end`` of a file. ``sides`` are
    those on which the changed program does something else.
    """

    file: str
    start: int
    end: int
    sides: tuple[bool, ...] = (True, False)

    @property
    def key(self) -> str:
        return f"{self.file}:{self.start}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One change.

    ``title`` says what it does, ``why`` what makes it right. ``kind`` is "source", "config" or "argument".
    ``conditions`` are those whose sides the proof must see, ``as_tensors`` attributes that become tensors.
    ``whole_calls`` are functions of the changed program whose calls the proof compares, with the compiled ones in them.
    ``finite`` are those of the edits that are right for finite numbers alone: of NaN and infinity the change makes
    another result, so the proof looks at these without them. ``for_whole_graphs`` is for a change that needs a function
    without breaks: between graphs Python has the number. ``leaves_out_condition``: a branch on a
    tensor is gone, with the operator that it asks. ``moved_out`` are the operators that run in front of the compiled
    part now, at each call, or that Python runs within an operator of the graph.
    """

    title: str
    kind: str
    edits: tuple[Edit, ...]
    why: str
    conditions: tuple[Condition, ...] = ()
    as_tensors: tuple[str, ...] = ()
    whole_calls: tuple[str, ...] = ()
    for_whole_graphs: bool = False
    leaves_out_condition: bool = False
    moved_out: int = 0
    finite: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A change that comes to mind here, and why it is not made. ``title`` says what it would do."""

    title: str
    why: str


class Sources:
    """The user's files as syntax trees, each parsed once."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._files: dict[str, ParsedSource | None] = {}

    def file(self, name: str | None) -> ParsedSource | None:
        """The file, ``None`` if it is not the user's or cannot be parsed."""
        if not name:
            return None
        if name not in self._files:
            imported = frozenset() if is_library(name) else self._project.imported
            try:
                self._files[name] = ParsedSource(name, self._project.source(name), imported)
            except cst.ParserSyntaxError:
                self._files[name] = None
        return self._files[name]

    def program(self) -> ParsedSource | None:
        """Return the source of the program. Return ``None`` if it lies outside of the project."""
        return self.file(self._program) if self._project.relative(str(self._project.root / self._program)) else None

    def is_program(self, file: ParsedSource) -> bool:
        """Whether a file is the program that is run, which no other file imports from."""
        return self._program == file.name

    @property
    def _program(self) -> str:
        return Path(self._project.program.target).name


@dataclass(frozen=True, slots=True)
class Site(Generic[N]):
    """A break, and the node of its file that a rewrite changes."""

    problem: FixProblem
    sources: Sources
    file: ParsedSource
    node: N


Candidates = Iterable[Candidate | Refusal]


def at_break(
    find: Callable[[ParsedSource, Span], N | None], candidates: Callable[[Site[N]], Candidates]
) -> Callable[[FixProblem, Sources], Candidates]:
    """The candidates for the node that ``find`` finds where a graph breaks."""

    def found(problem: FixProblem, sources: Sources) -> Candidates:
        file = sources.file(problem.file) if problem.kind == "break" else None
        node = find(file, problem.span) if file is not None else None
        return candidates(Site(problem, sources, file, node)) if file is not None and node is not None else ()

    return found


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One rewrite of the catalogue: ``candidates`` yields its changes for a problem, the smallest first, and those that
    are wrong by the look of the source. ``remedies`` are the keys of the remedies of `dynadiag explain` that they are.
    """

    name: str
    candidates: Callable[[FixProblem, Sources], Candidates]
    remedies: tuple[str, ...] = ()

    def made(self, problem: FixProblem, sources: Sources) -> Candidates:
        """The candidates. Each file that uses torch after the change, and does not import it, gets the import."""
        for each in self.candidates(problem, sources):
            yield _importing(each, sources) if isinstance(each, Candidate) else each


def _importing(candidate: Candidate, sources: Sources) -> Candidate:
    edits, using = candidate.edits, [edit for edit in candidate.edits if "torch." in edit.text]
    bound = {edit.file for edit in edits if "import torch._dynamo" in edit.text}  # which binds `torch`, too
    for name in sorted({edit.file for edit in using} - bound):
        file, places = sources.file(name), [edit.start for edit in using if edit.file == name]
        if (
            file is not None
            and not file.imports("torch")
            and not all(file.imports_around("torch", each) for each in places)
        ):
            edits = (*edits, file.insert_line(file.first_import(), f"import torch{file.newline}"))
    return replace(candidate, edits=edits)
