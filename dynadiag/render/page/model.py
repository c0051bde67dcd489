"""What a page shows of one recording, as plain text and numbers. The templates add the markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Fact, Finding
from dynadiag.explanation.formatting import duration, list_some
from dynadiag.explanation.guard_text import source_text
from dynadiag.recording.records import GuardFailure, Recompile, Run, Span
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
    "page_section",
    "with_search",
]

_RULE_NAMES = {
    "failed-compile": "failed compile",
    "failed-program": "failed program",
    "break": "graph break",
    "divergence": "ranks diverge",
    "recompile": "recompile",
    "recompile-limit": "gave up",
    "uncompiled": "uncompiled",
    "cache-bypass": "cache bypass",
}
_PART_TEXTS = {
    "dynamo": "traces your Python",
    "aot": "AOTAutograd: makes the backward",
    "backend": "",
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
    """A value that changed at a recompile, with the compiles whose guards failed for it.

    The first row of a recompile has in ``rows`` how many rows the recompile has, the others have 0.
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
    """A source file of the program. ``marks`` are the lines with a finding: (line, anchor of the finding)."""

    file: str
    block: str
    marks: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class PageSection:
    """One recording. ``name`` begins its anchors, and is empty for the first recording. ``label`` is its title.

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


def page_section(
    explanation: Explanation,
    name: str,
    redaction: Redaction,
    label: str = "",
    *,
    has_flame: bool = False,
    stages: StageNames = NO_STAGES,
) -> PageSection:
    """Return the section of the recording of a program.

    ``has_flame``: torch logged the times of a flame graph. ``stages`` names the stages of kernels that can be shown.
    """
    run, is_open = explanation.run, not redaction.active
    findings = _findings(explanation, name, redaction)
    shares = explanation.timing.shares if explanation.timing else ()
    return PageSection(
        name=name,
        label=label,
        target=redaction.file(relative_path(run.target, run.cwd)),
        headline=_headline(explanation, redaction),
        severity=explanation.headline.severity,
        why=explanation.headline.why if is_open else (),
        run=_run_facts(run),
        counts=_counts(explanation),
        findings=findings,
        recompiles=tuple(row for item in explanation.recompiles for row in _recompile(item, redaction)),
        compiles=compile_views(explanation, name, redaction, stages),
        parts=tuple((share.part, _PART_TEXTS[share.part], duration(share.seconds)) for share in shares),
        flame=f"{name}flame" if has_flame and is_open else "",
        sources=_sources(explanation, name, findings) if is_open else (),
        trials=(),
        notes=explanation.notes if is_open else (),
    )


def _run_facts(run: Run) -> tuple[tuple[str, str], ...]:
    """What is known about a run: pairs of a label and a text."""
    facts = {
        "torch": run.torch,
        "Python": run.python,
        "device": run.device,
        "exit code": None if run.exit_code is None else str(run.exit_code),
        "seconds": None if run.seconds is None else f"{run.seconds:.1f}",
    }
    return tuple((label, text) for label, text in facts.items() if text)


def _counts(explanation: Explanation) -> tuple[tuple[str, int], ...]:
    return (
        ("graphs", explanation.graph_count),
        ("graph breaks", explanation.break_count),
        ("recompiles", explanation.recompile_count),
        ("compiles", len(explanation.compiles)),
        ("kernels", len(explanation.kernels)),
    )


def with_search(view: PageSection, search: PageSearch, trials: tuple[TrialView, ...], total: int) -> PageSection:
    """Return the section of the recording of a search, which compiles nothing itself."""
    return replace(
        view,
        search=search.command,
        headline=search.sentence,
        severity=search.severity,
        why=(),
        counts=(("trials", total),),
        trials=trials,
    )


def _headline(explanation: Explanation, redaction: Redaction) -> str:
    """The answer. That of a failure quotes the program, so it is not shown if the page is redacted."""
    if redaction.active and explanation.headline.severity == "error":
        is_compile = any(item.rule == "failed-compile" for item in explanation.findings)
        return "A compile failed." if is_compile else "The program failed."
    return explanation.headline.sentence


def _findings(explanation: Explanation, name: str, redaction: Redaction) -> tuple[FindingView, ...]:
    anchors = _anchors(explanation, name)
    causes = ["" if item.caused_by is None else anchors[item.caused_by][0] for item in explanation.findings]
    return tuple(
        finding_view(*each, explanation, redaction) for each in zip(explanation.findings, anchors, causes, strict=True)
    )


def _anchors(explanation: Explanation, name: str) -> list[tuple[str, ...]]:
    """The anchors of each finding: its own, and those of its records. ``break-3`` is the fourth break of the JSON."""
    breaks = {item.index: position for position, item in enumerate(explanation.breaks)}
    recompiles = {item.index: position for position, item in enumerate(explanation.recompiles)}
    found = []
    for index, item in enumerate(explanation.findings):
        of_break = item.rule == "break" or (item.rule == "failed-compile" and item.records)
        kind, position = ("break", breaks) if of_break else ("recompile", recompiles)
        own = [f"{kind}-{position[record]}" for record in item.records if record in position]
        found.append(tuple(f"{name}{each}" for each in (f"finding-{index}", *own)))
    return found


def finding_view(
    item: Finding, anchors: tuple[str, ...], because: str, explanation: Explanation, redaction: Redaction
) -> FindingView:
    """Return the view of a finding. ``because`` is the anchor of the finding that it follows from, or empty."""
    cwd, is_open = explanation.run.cwd, not redaction.active
    file = redaction.file(relative_path(item.span.file, cwd))
    facts = tuple(_fact(each, explanation) for each in item.evidence) if is_open else ()
    cause = item.cause or ""
    is_repeated = cause == item.title or any(each.text.startswith(cause) for each in facts)
    return FindingView(
        anchors=anchors,
        rule=item.rule,
        word=_RULE_NAMES.get(item.rule, item.rule),
        label=item.label or "",
        severity=item.severity,
        title=item.title if is_open else "",
        place=file if item.span.line is None else f"{file}:{item.span.line}",
        file=file,
        line=item.span.line,
        function="" if any(each.label == "in" for each in facts) else redaction.function(item.function),
        cause=cause if is_open and not is_repeated else "",
        because=because,
        code=_snippet(explanation.sources, item.span) if is_open else (),
        facts=facts,
        called=tuple(short_stack(item.called, cwd)) if is_open else (),
        advice=tuple((each.text, each.checked) for each in item.advice) if is_open else (),
    )


def _fact(item: Fact, explanation: Explanation) -> FactView:
    span = item.span
    place = "" if span is None else f"{relative_path(span.file, explanation.run.cwd)}:{span.line}"
    lines = source_lines(explanation.sources.get(span.file or "", "")) if span else []
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


def _sources(explanation: Explanation, name: str, findings: Sequence[FindingView]) -> tuple[SourceView, ...]:
    marks: dict[str, list[tuple[int, str]]] = {}
    for item in findings:
        if item.line is not None:
            marks.setdefault(item.file, []).append((item.line, item.anchors[0]))
    files = [relative_path(file, explanation.run.cwd) for file in explanation.sources]
    return tuple(
        SourceView(file, f"{name}source-{index}", tuple(marks.get(file, ()))) for index, file in enumerate(files)
    )
