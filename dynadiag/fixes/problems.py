"""The problems to fix: each root cause of a graph break, and each value that makes torch recompile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from dynadiag.diff.canonical_graph import canonical_graph
from dynadiag.explanation.advice_on_recompiles import advise_on
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Advice, Finding
from dynadiag.explanation.identity import computed_names, identity
from dynadiag.explanation.recompile_case import cases_of
from dynadiag.fixes.edits import Edit, SourceMap
from dynadiag.fixes.project import Project
from dynadiag.recording.code_origin import user_frame
from dynadiag.recording.records import Break, Frame, Recompile, Span
from dynadiag.recording.torch_text.sources import source_text

_SPECIALIZED = ("0", "1")  # sizes that torch compiles for themselves
_MAX_ADVICE = 3  # pieces of advice for one cause; explain has them all


@dataclass(frozen=True, slots=True)
class FixProblem:
    """One cause of breaks or of recompiles.

    ``file`` is the user's file relative to the project, or the name of a package's file (`Project.name`); ``None`` if
    the cause is in neither. ``span`` is the place of a break, and the function of a recompile. ``cause`` is why torch
    breaks there, as `explain` says. ``source``, ``was`` and ``now`` are those of the guard that failed. ``guarded`` is
    the user's line that needs the value, where torch says it, else the one that set the guard up. ``stack`` leads to
    the call of the compiled function; a file in it is relative to the project, and empty where it is not the user's.
    ``identity`` is the same in every run.
    """

    kind: str  # "break" | "recompile"
    identity: str
    file: str | None
    span: Span
    function: str
    compile_id: str
    title: str
    gb_id: str | None = None
    cause: str | None = None
    hints: tuple[str, ...] = ()
    source: str | None = None
    was: tuple[str, ...] = ()
    now: str | None = None
    guarded: Span | None = None
    also: tuple[str, ...] = ()  # the other sources that changed at the same recompile
    stack: tuple[Frame, ...] = ()
    advice: tuple[Advice, ...] = ()  # what `explain` advises
    nothing_before: bool = False  # torch compiled no operator of the function in front of the break
    from_before_break: bool = False  # what changes was computed before a graph break: the recompile ends with it

    @property
    def from_outside(self) -> FixProblem:
        """The cause as the user's own files see it, where it is in a library."""
        return replace(self, file=None)

    def before(self, edits: Collection[Edit], project: Project) -> FixProblem | None:
        """The cause at its place in the unchanged program, if it was found in the one with these edits; ``None`` if an
        edit is what causes it.
        """
        span = self.span if self.file is None else _unmoved(self.file, self.span, edits, project)
        spans = [(frame, _unmoved(frame.file, Span(None, frame.line), edits, project)) for frame in self.stack]
        stack = tuple(replace(frame, line=span.line if span else None) for frame, span in spans)
        guarded = self.guarded and _unmoved(self.guarded.file or "", self.guarded, edits, project)
        return None if span is None else replace(self, span=span, stack=stack, guarded=guarded)


def _unmoved(file: str, span: Span, edits: Collection[Edit], project: Project) -> Span | None:
    return SourceMap(file, project.source(file), edits).span(span) if file else span


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The part of a recorded run that a proof compares: how often each cause shows, and how much is compiled.

    ``places`` has where each cause shows, in words. ``largest`` is the largest of Dynamo's graphs, in operators
    on tensors.
    """

    causes: Counter[str]
    places: dict[str, str]
    breaks: int
    recompiles: int
    graphs: int
    largest: int

    @classmethod
    def empty(cls) -> RunSummary:
        """The summary of a run that did not import torch."""
        return cls(Counter(), {}, 0, 0, 0, 0)


def problems_of(explanation: Explanation, project: Project) -> tuple[FixProblem, ...]:
    """The causes in a run of the unchanged program, each once, in the order torch met them."""
    found = [_break_problem(item, explanation, project) for item in explanation.roots]
    found += [problem for item in explanation.recompiles for problem in _recompile_problems(item, explanation, project)]
    return _each_once(found)


def _each_once(found: Iterable[FixProblem]) -> tuple[FixProblem, ...]:
    """The causes, each where it was met first. A size counts where it first becomes one that torch makes a symbol of:
    that call can be marked.
    """
    first: dict[tuple[object, ...], FixProblem] = {}
    for problem in found:
        key = problem.identity, problem.span.line if problem.kind == "break" else None
        if key not in first or (first[key].now in _SPECIALIZED and problem.now not in _SPECIALIZED):
            first[key] = problem
    return tuple(first.values())


def summarize(explanation: Explanation, project: Project, graphs: Iterable[str]) -> RunSummary:
    """What of a run of the program, changed or not, is compared. ``graphs`` are the texts of Dynamo's graphs."""
    breaks = [_break_problem(item, explanation, project) for item in explanation.roots]
    again = [problem for item in explanation.recompiles for problem in _recompile_problems(item, explanation, project)]
    return RunSummary(
        causes=Counter(problem.identity for problem in [*breaks, *again]),
        places={problem.identity: _location(problem) for problem in [*again, *breaks]},
        breaks=explanation.break_count,
        recompiles=explanation.recompile_count,
        graphs=explanation.graph_count,
        largest=max(map(_tensor_operators, graphs), default=0),
    )


def _tensor_operators(graph: str) -> int:
    """How many operators on tensors a graph has. Those on symbols of sizes and numbers come and go with the symbols."""
    return sum(node.computes and not node.type.startswith("Sym(") for node in canonical_graph(graph).nodes)


def _location(problem: FixProblem) -> str:
    where = f"line {problem.span.line}" if problem.file is None else f"{problem.file}:{problem.span.line}"
    return f"{where}: {problem.title}"


def _break_problem(item: Break, explanation: Explanation, project: Project) -> FixProblem:
    span, file = item.span, project.name(item.span.file)
    if file is None and (frame := user_frame(item)) is not None:
        file, span = project.name(frame.file), Span(frame.file, frame.line)
    told = [each for each in explanation.findings if each.id == item.gb_id and item.index in each.records]
    return FixProblem(
        kind="break",
        identity=identity("break", item.gb_id, item.function, (item.span,), explanation.sources),
        file=file,
        span=span,
        function=item.function,
        compile_id=item.compile_id,
        title=item.gb_type or item.reason,
        gb_id=item.gb_id,
        cause=next((each.cause.replace(f"{project.root}/", "") for each in told if each.cause), None),
        hints=item.hints,
        stack=_in_project(item.user_stack, project),
        nothing_before=not any(each.compile_id == item.compile_id for each in explanation.graphs),
        advice=tuple(each for finding in told for each in finding.advice[:_MAX_ADVICE]),
    )


def _in_project(stack: Iterable[Frame], project: Project) -> tuple[Frame, ...]:
    return tuple(replace(frame, file=project.relative(frame.file) or "") for frame in stack)


def _needed(compile_id: str, explanation: Explanation, project: Project) -> dict[str | None, Span]:
    """Where a compile needed the number of a symbol, by the symbol's source: the innermost line of the project's."""
    found: dict[str | None, Span] = {}
    for symbol in explanation.symbols:
        if symbol.event == "specialized" and symbol.compile_id == compile_id:
            for frame in _in_project(symbol.user_stack, project)[::-1]:
                if frame.file:
                    found.setdefault(symbol.source, Span(frame.file, frame.line))
    return found


def _told(item: Recompile, explanation: Explanation) -> list[Finding]:
    """What the report tells of a recompile: it knows of all recompiles of the function, and of the callers."""
    return [each for each in explanation.findings if each.rule.is_recompile and item.compile_id in each.compile_ids]


def _place(item: Recompile, told: Sequence[Finding], project: Project) -> tuple[str | None, Span]:
    """The file in the project, if there is one, and the place of a recompile. Of a function that torch wraps
    (`torch.no_grad`) that is the function, of one of torch's own the line that calls it, which has no file to change.
    """
    own, is_called = Span(item.file, item.line), False
    if told and project.name(item.file) is None:
        own, is_called = told[0].own_span, told[0].entry is not None
    file = project.relative(own.file)
    return None if is_called else file, replace(own, file=file or project.name(own.file) or own.file)


def _recompile_problems(item: Recompile, explanation: Explanation, project: Project) -> list[FixProblem]:
    found_at = next((each.user_stack for each in explanation.compiles if each.compile_id == item.compile_id), ())
    stack = _in_project(found_at, project)
    found: list[FixProblem] = []
    computed = computed_names(explanation.sources.get(item.file or ""), item.line)
    cases = cases_of(item, computed, sources=explanation.sources)
    facts = [change.fact for case in cases for change in case.changes]
    needed = _needed(item.compile_id, explanation, project)
    told = _told(item, explanation)
    file, span = _place(item, told, project)
    given = tuple(advice for finding in told for advice in finding.advice)
    for case in cases:
        own = advise_on((case,), explanation.run.torch)  # once: a list of a thousand numbers is one case
        advice = tuple(each for each in own if each in given) or given or own
        for change in case.changes:
            fact = change.fact
            what = f"{source_text(fact.source) if fact.source else fact.guard} of {item.function} changes"
            found.append(
                FixProblem(
                    kind="recompile",
                    identity=f"recompile {item.function}: {change.sort} {fact.source or fact.guard}",
                    file=file,
                    span=span,
                    function=item.function,
                    compile_id=item.compile_id,
                    title=what,
                    source=fact.source,
                    was=change.was,
                    now=fact.now,
                    guarded=needed.get(fact.source, Span(project.relative(fact.file), fact.line)),
                    also=tuple(other.source for other in facts if other.source and other is not fact),
                    stack=stack,
                    advice=advice,
                    from_before_break=case.is_computed,
                )
            )
    return found
