"""What a page shows of one recording, as plain text and numbers: the templates add the markup, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Fact, Finding
from dynadiag.explanation.formatting import duration, list_some
from dynadiag.explanation.guard_text import source_text
from dynadiag.recording.records import GuardFailure, Recompile, Span
from dynadiag.render.page.compiles import CompileView, compile_views
from dynadiag.render.page.redaction import Redaction
from dynadiag.render.page.search import PageSearch, TrialView
from dynadiag.render.page.stages import NO_STAGES, StageNames
from dynadiag.render.paths import relative_path, short_stack
from dynadiag.render.snippet import source_lines

__all__ = [
    "CodeLine",
    "FactView",
    "FindingView",
    "PageSection",
    "RecompileView",
    "SourceView",
    "finding_view",
    "view_of",
    "with_search",
]

_WORDS = {
    "failed-compile": "failed compile",
    "failed-program": "failed program",
    "break": "graph break",
    "divergence": "ranks diverge",
    "recompile": "recompile",
    "recompile-limit": "gave up",
    "uncompiled": "uncompiled",
}
_PART_WORDS = {
    "dynamo": "traces your Python",
    "aot": "AOTAutograd: makes the backward",
    "inductor": "fuses operators",
    "codegen": "writes and compiles the code",
    "cached": "loads compiled code",
    "other": "",
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
    """A finding. ``anchors`` are the names by which a link leads to it; the first is its own.

    ``function`` and ``cause`` are empty where a fact says the same.
    """

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
    """A value that changed at a recompile, with the compiles whose guards it failed.

    ``rows`` counts those of its recompile at the first of them; 0 at the others.
    """

    compile_id: str
    function: str
    rows: int
    source: str
    was: str
    now: str
    against: str


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
    parts: tuple[tuple[str, str, str], ...]  # a part of the compiler, what it does, its seconds
    flame: str  # the block of the flame graph; empty where there is none
    sources: tuple[SourceView, ...]
    trials: tuple[TrialView, ...]
    notes: tuple[str, ...]
    search: str = ""


def view_of(
    made: Explanation,
    name: str,
    redaction: Redaction,
    label: str = "",
    *,
    has_flame: bool = False,
    stages: StageNames = NO_STAGES,
) -> PageSection:
    """The view of the recording of a program. ``has_flame``: torch logged the times of a flame graph. ``stages`` are
    those of kernels that can be shown.
    """
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
        compiles=compile_views(made, name, redaction, stages),
        parts=tuple((share.part, _PART_WORDS[share.part], duration(share.seconds)) for share in spent),
        flame=f"{name}flame" if has_flame and not redaction.active else "",
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
    causes = ["" if item.caused_by is None else anchors[item.caused_by][0] for item in made.findings]
    return tuple(finding_view(*each, made, redaction) for each in zip(made.findings, anchors, causes, strict=True))


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


def finding_view(
    item: Finding, anchors: tuple[str, ...], because: str, made: Explanation, redaction: Redaction
) -> FindingView:
    """The view of a finding. ``because`` is the anchor of the one that it follows from, or empty."""
    cwd, open_ = made.run.cwd, not redaction.active
    file = redaction.file(relative_path(item.span.file, cwd))
    facts = tuple(_fact(each, made) for each in item.evidence) if open_ else ()
    cause = item.cause or ""
    is_told = cause == item.title or any(each.text.startswith(cause) for each in facts)
    return FindingView(
        anchors=anchors,
        rule=item.rule,
        word=_WORDS.get(item.rule, item.rule),
        label=item.label or "",
        severity=item.severity,
        title=item.title if open_ else "",
        place=file if item.span.line is None else f"{file}:{item.span.line}",
        file=file,
        line=item.span.line,
        function="" if any(each.label == "in" for each in facts) else redaction.function(item.function),
        cause=cause if open_ and not is_told else "",
        because=because,
        code=_snippet(made.sources, item.span) if open_ else (),
        facts=facts,
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
        indent = len(text) - len(text.lstrip()) if number == span.line and span.column is None else len(text)
        return CodeLine(number, text[:indent], text[indent:], "")
    start = span.column if number == span.line else len(text) - len(text.lstrip())
    end = span.end_column if number == last and span.end_column is not None else len(text)
    return CodeLine(number, text[:start], text[start:end], text[end:])


def _recompile(item: Recompile, redaction: Redaction) -> list[RecompileView]:
    changed: dict[tuple[str, str], list[GuardFailure]] = {}
    for each in item.reasons:
        source = source_text(each.source) if each.source else each.guard
        changed.setdefault((redaction.text(source), redaction.text(each.now or "")), []).append(each)
    function, rows = redaction.function(item.function), len(changed)
    if not changed:
        return [RecompileView(item.compile_id, function, 1, "no reason was recorded", "", "", "")]
    return [
        RecompileView(
            item.compile_id,
            function,
            0 if number else rows,
            source,
            list_some(list(dict.fromkeys(redaction.text(each.was or "") for each in failures))),
            now,
            list_some(list(dict.fromkeys(each.against for each in failures))),
        )
        for number, ((source, now), failures) in enumerate(changed.items())
    ]


def _sources(made: Explanation, name: str, findings: Sequence[FindingView]) -> tuple[SourceView, ...]:
    marks: dict[str, list[tuple[int, str]]] = {}
    for item in findings:
        if item.line is not None:
            marks.setdefault(item.file, []).append((item.line, item.anchors[0]))
    files = [relative_path(file, made.run.cwd) for file in made.sources]
    return tuple(
        SourceView(file, f"{name}source-{index}", tuple(marks.get(file, ()))) for index, file in enumerate(files)
    )
