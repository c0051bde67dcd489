"""What a page shows of one recording, as plain text and numbers: the templates add the markup, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Fact, Finding
from dynadiag.explanation.formatting import duration
from dynadiag.explanation.guard_text import source_text
from dynadiag.explanation.timing import PARTS, shares
from dynadiag.recording.records import Compile, Graph, Kernel, Recompile, Span
from dynadiag.render.page.redaction import Redaction
from dynadiag.render.page.search import PageSearch, TrialView
from dynadiag.render.page.stages import MAX_DRAWN, DocumentView, compile_documents
from dynadiag.render.paths import relative_path, short_stack
from dynadiag.render.snippet import source_lines

__all__ = [
    "CodeLine",
    "CompileView",
    "FactView",
    "FindingView",
    "PageSection",
    "RecompileView",
    "SourceView",
    "documents_of",
    "stages_block",
    "view_of",
    "with_search",
]

_WORDS = {
    "failed-compile": "failed compile",
    "break": "graph break",
    "recompile": "recompile",
    "recompile-limit": "gave up",
    "uncompiled": "uncompiled",
}
_CONTEXT = 2  # lines above and below a place
_MAX_SNIPPET = 12  # lines of a span


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of source in three parts, of which the middle one is marked."""

    number: int
    before: str
    marked: str
    after: str


@dataclass(frozen=True, slots=True)
class FactView:
    """A line of evidence."""

    label: str
    text: str
    place: str
    code: str


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding. ``anchors`` are the names by which a link leads to it; the first is its own."""

    anchors: tuple[str, ...]
    rule: str
    word: str
    label: str
    severity: str
    title: str
    place: str
    file: str
    line: int | None
    function: str
    cause: str
    because: str
    code: tuple[CodeLine, ...]
    facts: tuple[FactView, ...]
    called: tuple[str, ...]
    advice: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RecompileView:
    """What changed at a recompile, one row for each guard that failed."""

    compile_id: str
    function: str
    source: str
    was: str
    now: str
    against: str


@dataclass(frozen=True, slots=True)
class CompileView:
    """A compile, with the parts of its time as (part, start, width) in percent of the longest."""

    compile_id: str
    function: str
    place: str
    outcome: str
    seconds: str
    guards: int
    parts: tuple[tuple[str, float, float], ...]
    start: float
    graphs: int
    kernels: tuple[tuple[str, str], ...]  # name, language
    documents: tuple[DocumentView, ...]
    stages: str  # the block that has the documents side by side; empty where the page has no texts


@dataclass(frozen=True, slots=True)
class SourceView:
    """A file of the program with the findings in it: (line, anchor)."""

    file: str
    block: str
    marks: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PageSection:
    """One recording. ``name`` begins the anchors of the second and further ones, ``label`` tells it from the others.

    ``search`` is the command of a search, whose trials have been recorded; empty for a program.
    """

    name: str
    label: str
    target: str
    headline: str
    severity: str
    why: tuple[str, ...]
    run: tuple[tuple[str, str], ...]
    counts: tuple[tuple[str, int], ...]
    findings: tuple[FindingView, ...]
    recompiles: tuple[RecompileView, ...]
    compiles: tuple[CompileView, ...]
    parts: tuple[tuple[str, str], ...]
    sources: tuple[SourceView, ...]
    trials: tuple[TrialView, ...]
    notes: tuple[str, ...]
    search: str = ""


def view_of(made: Explanation, name: str, redaction: Redaction, label: str = "") -> PageSection:
    """The view of the recording of a program."""
    run = made.run
    findings = _findings(made, name, redaction)
    facts = [("torch", run.torch), ("Python", run.python), ("device", run.device)]
    facts += [("exit code", None if run.exit_code is None else str(run.exit_code))]
    facts += [("seconds", None if run.seconds is None else f"{run.seconds:.1f}")]
    kept = [] if redaction.active else list(made.notes)
    spent = made.timing.shares if made.timing else ()
    return PageSection(
        name=name,
        label=label,
        target=redaction.file(relative_path(run.target, run.cwd)),
        headline=_headline(made, redaction),
        severity=made.headline.severity,
        why=() if redaction.active else made.headline.why,
        run=tuple((label, value) for label, value in facts if value),
        counts=(
            ("graphs", made.graph_count),
            ("graph breaks", made.break_count),
            ("recompiles", made.recompile_count),
            ("compiles", len(made.compiles)),
            ("kernels", len(made.kernels)),
        ),
        findings=findings,
        recompiles=tuple(row for item in made.recompiles for row in _recompile(item, redaction)),
        compiles=_compiles(made, name, redaction),
        parts=tuple((share.part, duration(share.seconds)) for share in spent),
        sources=() if redaction.active else _sources(made, name, findings),
        trials=(),
        notes=tuple(kept),
    )


def with_search(view: PageSection, search: PageSearch, trials: tuple[TrialView, ...], total: int) -> PageSection:
    """The view of the recording of a search, which compiles nothing itself."""
    return replace(
        view,
        search=search.command,
        headline=search.sentence,
        severity=search.severity,
        why=(),
        counts=(("trials", total),),
        trials=trials,
    )


def _headline(made: Explanation, redaction: Redaction) -> str:
    """The answer; that of a failure quotes the program."""
    if redaction.active and made.headline.severity == "error":
        return "A compile failed."
    return made.headline.sentence


def _findings(made: Explanation, name: str, redaction: Redaction) -> tuple[FindingView, ...]:
    anchors = _anchors(made, name)
    return tuple(_finding(item, anchors, index, made, redaction) for index, item in enumerate(made.findings))


def _anchors(made: Explanation, name: str) -> list[tuple[str, ...]]:
    """``break-3`` is the fourth entry of the document's `breaks`, ``recompile-0`` the first of its `recompiles`."""
    breaks = {item.index: position for position, item in enumerate(made.breaks)}
    recompiles = {item.index: position for position, item in enumerate(made.recompiles)}
    found = []
    for index, item in enumerate(made.findings):
        of_break = item.rule == "break" or (item.rule == "failed-compile" and item.records)
        kind, position = ("break", breaks) if of_break else ("recompile", recompiles)
        own = [f"{kind}-{position[record]}" for record in item.records if record in position]
        found.append(tuple(f"{name}{each}" for each in (f"finding-{index}", *own)))
    return found


def _finding(
    item: Finding, anchors: Sequence[tuple[str, ...]], index: int, made: Explanation, redaction: Redaction
) -> FindingView:
    cwd, open_ = made.run.cwd, not redaction.active
    file = redaction.file(relative_path(item.span.file, cwd))
    cause = item.cause or ""
    return FindingView(
        anchors=anchors[index],
        rule=item.rule,
        word=_WORDS.get(item.rule, item.rule),
        label=item.label or "",
        severity=item.severity,
        title=item.title if open_ else "",
        place=file if item.span.line is None else f"{file}:{item.span.line}",
        file=file,
        line=item.span.line,
        function=redaction.function(item.function),
        cause=cause if open_ and cause != item.title else "",
        because="" if item.caused_by is None else anchors[item.caused_by][0],
        code=_snippet(made.sources, item.span) if open_ else (),
        facts=tuple(_fact(each, made) for each in item.evidence) if open_ else (),
        called=tuple(short_stack(item.called, cwd)) if open_ else (),
        advice=tuple((each.text, each.checked) for each in item.advice) if open_ else (),
    )


def _fact(item: Fact, made: Explanation) -> FactView:
    span = item.span
    place = "" if span is None else f"{relative_path(span.file, made.run.cwd)}:{span.line}"
    lines = source_lines(made.sources.get(span.file or "", "")) if span else []
    code = lines[(span.line or 0) - 1].strip() if span and 1 <= (span.line or 0) <= len(lines) else ""
    return FactView(item.label, item.text, place, code)


def _snippet(sources: Mapping[str, str], span: Span) -> tuple[CodeLine, ...]:
    lines = source_lines(sources.get(span.file or "", ""))
    first, last = span.line or 0, max(span.end_line or 0, span.line or 0)
    if not 1 <= first <= len(lines):
        return ()
    shown = range(max(1, first - _CONTEXT), min(len(lines), last + _CONTEXT, first + _MAX_SNIPPET) + 1)
    return tuple(_code_line(number, lines[number - 1], span, last) for number in shown)


def _code_line(number: int, text: str, span: Span, last: int) -> CodeLine:
    if span.column is None or not (span.line or 0) <= number <= last:
        whole = number == span.line and span.column is None
        return CodeLine(number, "" if whole else text, text if whole else "", "")
    start = span.column if number == span.line else len(text) - len(text.lstrip())
    end = span.end_column if number == last and span.end_column is not None else len(text)
    return CodeLine(number, text[:start], text[start:end], text[end:])


def _recompile(item: Recompile, redaction: Redaction) -> list[RecompileView]:
    function = redaction.function(item.function)
    return [
        RecompileView(
            item.compile_id,
            function,
            redaction.text(source_text(each.source) if each.source else each.guard),
            redaction.text(each.was or ""),
            redaction.text(each.now or ""),
            each.against,
        )
        for each in item.reasons
    ] or [RecompileView(item.compile_id, function, "no reason was recorded", "", "", "")]


def _compiles(made: Explanation, name: str, redaction: Redaction) -> tuple[CompileView, ...]:
    total = sum(each.seconds.total or 0.0 for each in made.compiles) or 1.0
    found, before = [], 0.0
    documents = documents_of(made, name)
    for item in made.compiles:
        found.append(_compile(item, documents.get(item.index, ()), (before, total), name, made, redaction))
        before += item.seconds.total or 0.0
    return tuple(found)


def documents_of(made: Explanation, name: str) -> dict[int, tuple[DocumentView, ...]]:
    """The documents of each compile, by its index. If torch was reset in between, the last one of an id has them."""
    graphs: dict[str, list[Graph]] = {}
    for graph in made.graphs:
        graphs.setdefault(graph.compile_id, []).append(graph)
    kernels: dict[str, list[Kernel]] = {}
    for kernel in made.kernels:
        kernels.setdefault(kernel.compile_id, []).append(kernel)
    drawn = frozenset(graph.index for graph in made.graphs[:MAX_DRAWN])
    sources = {file: f"{name}source-{index}" for index, file in enumerate(made.sources)}
    last = {item.compile_id: item for item in made.compiles}
    return {
        item.index: compile_documents(
            item, graphs.get(id_, ()), kernels.get(id_, ()), drawn, name, sources.get(item.file or "", "")
        )
        for id_, item in last.items()
    }


def stages_block(item: Compile, name: str) -> str:
    """The name of the block that has the documents of a compile side by side."""
    return f"{name}stages-{item.index}"


def _compile(
    item: Compile,
    documents: tuple[DocumentView, ...],
    time: tuple[float, float],
    name: str,
    made: Explanation,
    redaction: Redaction,
) -> CompileView:
    own = [kernel for kernel in made.kernels if kernel.compile_id == item.compile_id]
    before, total = time
    parts, start = [], 0.0
    for share in sorted(shares(item.seconds, cached=item.cache == "hit"), key=lambda each: PARTS.index(each.part)):
        width = 100 * share.seconds / total
        parts.append((share.part, round(start, 2), round(width, 2)))
        start += width
    file = redaction.file(relative_path(item.file, made.run.cwd))
    return CompileView(
        compile_id=item.compile_id,
        function=redaction.function(item.function),
        place=file if item.line is None else f"{file}:{item.line}",
        outcome=item.outcome,
        seconds="" if item.seconds.total is None else duration(item.seconds.total),
        guards=item.guards,
        parts=tuple(parts),
        start=round(100 * before / total, 2),
        graphs=sum(each.kind == "graph" for each in documents),
        kernels=tuple(
            (f"kernel {number}" if redaction.active else each.name, each.language) for number, each in enumerate(own)
        ),
        documents=tuple(each for each in documents if each.kind != "source"),
        stages="" if redaction.active or not documents else stages_block(item, name),
    )


def _sources(made: Explanation, name: str, findings: Sequence[FindingView]) -> tuple[SourceView, ...]:
    marks: dict[str, list[tuple[int, str]]] = {}
    for item in findings:
        if item.line is not None:
            marks.setdefault(item.file, []).append((item.line, item.anchors[0]))
    files = [relative_path(file, made.run.cwd) for file in made.sources]
    return tuple(
        SourceView(file, f"{name}source-{index}", tuple(marks.get(file, ()))) for index, file in enumerate(files)
    )
