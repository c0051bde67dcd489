"""What a page shows of one recording, as plain text and numbers. The templates add the markup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dynadiag.diff.comparison import compare_recordings
from dynadiag.diff.difference import ENVIRONMENT, SIGNS, Difference, NodeDifference
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Fact, Finding
from dynadiag.explanation.formatting import duration, list_some
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.search import SearchVerdict, read_search
from dynadiag.grouping import grouped
from dynadiag.job.comparison import find_divergence
from dynadiag.job.divergence import divergence_finding
from dynadiag.job.processes import open_job
from dynadiag.recording.json_values import json_object
from dynadiag.recording.reader import Recording
from dynadiag.recording.records import Recompile, Span, Trial
from dynadiag.recording.torch_text.sources import source_text
from dynadiag.render.findings import owner_fact
from dynadiag.render.page.stages import NO_STAGES, CompileView, Redaction, StageNames, compile_views
from dynadiag.render.page.values import ValuesCallView, value_views
from dynadiag.render.paths import relative_path, short_stack
from dynadiag.render.printer import source_lines
from dynadiag.render.wrap import truncate_end

_MAX_TRIALS = 1000
_MAX_CELL = 300  # characters of what was tried, and of a failure
_STATUSES = {
    "same": "fails",
    "fail": "fails",
    "pass": "passes",
    "different": "fails differently",
    "invalid": "cannot run",
}
_VERDICTS = {
    "passes": "it does not fail",
    "fails_uncompiled": "it fails without torch.compile too",
    "flaky": "it fails, but not every time",
    "stopped": "it was stopped before it found the culprit",
}


@dataclass(frozen=True, slots=True)
class PageSearch:
    """A search: the command, and its answer."""

    command: str
    sentence: str
    severity: str


@dataclass(frozen=True, slots=True)
class TrialView:
    """A trial: what was tried, how it ended, and its failure, or the number of the first trial with that failure."""

    number: int
    tried: str
    result: str
    failure: str
    seconds: str
    same_as: int | None = None


def search_of(recording: Recording, redaction: Redaction) -> PageSearch | None:
    """The search of a recording; ``None`` for that of a program."""
    search = read_search(recording)
    if search is None:
        return None
    command, verdict = search.command or "search", search.verdict
    if not search.has_verdict:
        return PageSearch(command, f"{command} was interrupted: it has no verdict", "warning")
    severity = "good" if verdict.verdict == "passes" or verdict.proved else "error"
    return PageSearch(command, f"{command}: {_sentence(verdict, redaction)}", severity)


def trial_views(trials: Sequence[Trial], redaction: Redaction) -> tuple[TrialView, ...]:
    """The trials, in the order in which they ran. Only the first trial with a failure has its text."""
    found, known = [], dict[str, int]()
    for number, each in enumerate(trials[:_MAX_TRIALS], 1):
        view = _trial(number, each, redaction)
        first = known.setdefault(view.failure, number) if view.failure else number
        found.append(view if first == number else replace(view, failure="", same_as=first))
    return tuple(found)


def _sentence(verdict: SearchVerdict, redaction: Redaction) -> str:
    if verdict.verdict in _VERDICTS:
        return _VERDICTS[verdict.verdict]
    if verdict.level:
        pairs = {"graph": (verdict.nodes_before, verdict.nodes_after, "operations")}
        before, after, unit = pairs.get(verdict.level, (verdict.lines_before, verdict.lines_after, "lines"))
        return f"reduced from {before} {unit} to {after}, {'proved' if verdict.proved else 'not proved'}"
    if verdict.releases:
        return f"last good release {verdict.last_good}, first bad release {verdict.first_bad}"
    named = ", ".join(f"{each.kind} {redaction.text(each.name)}" for each in verdict.culprits)
    return f"fails first at rung {verdict.rung}; at fault: {named or 'nothing smaller than the rung'}"


def _trial(number: int, item: Trial, redaction: Redaction) -> TrialView:
    outcome = json_object(item.outcome)
    status = str(outcome.get("status", ""))
    found = outcome.get("signature")
    failure = f"{found.get('type')}: {found.get('message')}" if isinstance(found, dict) else ""
    return TrialView(
        number,
        redaction.text(truncate_end(str(outcome.get("label") or item.candidate), _MAX_CELL)),
        _STATUSES.get(status, redaction.text(status)),
        redaction.text(truncate_end(failure, _MAX_CELL)),
        f"{item.seconds:.1f}",
    )


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
    values: tuple[ValuesCallView, ...]
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
    facts = {
        "torch": run.torch,
        "Python": run.python,
        "device": run.device,
        "exit code": None if run.exit_code is None else str(run.exit_code),
        "seconds": None if run.seconds is None else f"{run.seconds:.1f}",
    }
    return PageSection(
        name=name,
        label=label,
        target=redaction.file(relative_path(run.target, run.cwd)),
        headline=_headline(explanation, redaction),
        severity=explanation.headline.severity,
        why=explanation.headline.why if is_open else (),
        run=tuple((label, text) for label, text in facts.items() if text),
        counts=_counts(explanation),
        findings=findings,
        recompiles=tuple(row for item in explanation.recompiles for row in _recompile(item, redaction)),
        compiles=compile_views(explanation, name, redaction, stages),
        parts=tuple((share.part, _PART_TEXTS[share.part], duration(share.seconds)) for share in shares),
        flame=f"{name}flame" if has_flame and is_open else "",
        sources=_sources(explanation, name, findings) if is_open else (),
        values=value_views(explanation.values, run.cwd) if is_open else (),
        trials=(),
        notes=explanation.notes if is_open else (),
    )


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
        is_compile = any(item.is_failed_compile for item in explanation.findings)
        return "A compile failed." if is_compile else "The program failed."
    return explanation.headline.sentence


def _findings(explanation: Explanation, name: str, redaction: Redaction) -> tuple[FindingView, ...]:
    breaks = {item.index: position for position, item in enumerate(explanation.breaks)}
    recompiles = {item.index: position for position, item in enumerate(explanation.recompiles)}
    found = []
    for index, item in enumerate(explanation.findings):
        of_break = item.rule == Rule.BREAK or (item.rule == Rule.FAILED_COMPILE and item.records)
        kind, position = ("break", breaks) if of_break else ("recompile", recompiles)
        own = [f"{kind}-{position[record]}" for record in item.records if record in position]
        found.append(tuple(f"{name}{each}" for each in (f"finding-{index}", *own)))
    anchors = found
    causes = ["" if item.caused_by is None else anchors[item.caused_by][0] for item in explanation.findings]
    return tuple(
        finding_view(*each, explanation, redaction) for each in zip(explanation.findings, anchors, causes, strict=True)
    )


def finding_view(
    item: Finding, anchors: tuple[str, ...], because: str, explanation: Explanation, redaction: Redaction
) -> FindingView:
    """Return the view of a finding. ``because`` is the anchor of the finding that it follows from, or empty."""
    cwd, is_open = explanation.run.cwd, not redaction.active
    span = item.own_span
    file = redaction.file(relative_path(span.file, cwd))
    told = filter(None, (owner_fact(item), *item.evidence))
    facts = tuple(_fact(each, explanation) for each in told) if is_open else ()
    cause = item.cause or ""
    is_repeated = cause == item.title or any(each.text.startswith(cause) for each in facts)
    return FindingView(
        anchors=anchors,
        rule=item.rule,
        word=item.rule.view.badge,
        label=item.label or "",
        severity=item.severity,
        title=item.title if is_open else "",
        place=file if span.line is None else f"{file}:{span.line}",
        file=file,
        line=span.line,
        function="" if any(each.label == "in" for each in facts) else redaction.function(item.function),
        cause=cause if is_open and not is_repeated else "",
        because=because,
        code=_snippet(explanation.sources, span) if is_open else (),
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
    named = ((source_text(each.source) if each.source else each.guard, each) for each in item.reasons)
    changed = grouped(((redaction.text(source), redaction.text(each.now or "")), each) for source, each in named)
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
    marks = grouped((item.file, (item.line, item.anchors[0])) for item in findings if item.line is not None)
    files = [relative_path(file, explanation.run.cwd) for file in explanation.sources]
    return tuple(
        SourceView(file, f"{name}source-{index}", tuple(marks.get(file, ()))) for index, file in enumerate(files)
    )


@dataclass(frozen=True, slots=True)
class DivergenceView:
    """The divergence as a finding. ``section`` is the recording of the rank that differs from the others."""

    headline: str
    finding: FindingView
    section: PageSection


def divergence_view(
    paths: Sequence[Path], explanations: Sequence[Explanation], sections: Sequence[PageSection], redaction: Redaction
) -> DivergenceView | None:
    """Compare the ranks of these recordings. None if they are alike, or are not ranks of one job."""
    job = open_job(paths)
    found = find_divergence(job)
    places = {each.rank: paths.index(each.path) for each in job.ranks if found and each.restart == found.restart}
    place = next((places[rank] for rank in found.ranks if rank in places), None) if found else None
    if found is None or place is None:
        return None
    explanation = explanations[place]
    view = finding_view(
        divergence_finding(found, dict(explanation.sources)), ("divergence-0",), "", explanation, redaction
    )
    text = f"The ranks diverge: {found.kind}." if redaction.active else f"{found.text[:1].upper()}{found.text[1:]}."
    return DivergenceView(text, replace(view, title=""), sections[place])  # the headline says it


_MAX_ROWS = 200  # nodes of a graph, and lines of a source diff; `dynadiag diff --all` has more
_STAGES = {
    "break": "their graph breaks",
    "recompile": "their recompiles",
    "guard": "their guards",
    "dynamo": "Dynamo's graph",
    "aot": "AOTAutograd's graph",
    "post_grad": "the graph after all passes",
    "kernel": "the kernels",
    "cache": "what the compiler caches gave",
    "values": "the values of their nodes",
}
_KINDS = {"added": "only in the second", "removed": "only in the first", "changed": "changed", "moved": "moved"}


@dataclass(frozen=True, slots=True)
class DifferenceView:
    """A difference. ``nodes`` are rows of (kind, sign, kind in words, first run, second run).

    ``compiles`` names the compiles that differ, once where both runs call them alike.
    """

    stage: str
    text: str
    place: str
    anchor: str
    compile_ids: tuple[str, str]
    compiles: str
    nodes: tuple[tuple[str, str, str, str, str], ...]
    details: tuple[tuple[str, str], ...]  # the kind of a line, and the line
    more: int


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """Two recordings. ``figures`` are rows of (what, first run, second run, whether they differ)."""

    name: str
    before: PageSection
    after: PageSection
    headline: str
    severity: str
    figures: tuple[tuple[str, str, str, bool], ...]
    first: DifferenceView | None
    environment: tuple[DifferenceView, ...]
    follows: tuple[DifferenceView, ...]
    notes: tuple[str, ...]


def comparison_view(
    before: Recording, after: Recording, sections: tuple[PageSection, PageSection], redaction: Redaction
) -> ComparisonView:
    """Compare two recordings, of which the page has these sections."""
    found = compare_recordings(before, after)
    first = found.differences[found.first] if found.first is not None else None
    views = [(item, _view(item, sections[1].name, after.run.cwd, redaction)) for item in found.differences]
    others = [(item, view) for item, view in views if item is not first]
    return ComparisonView(
        name=f"{sections[1].name}diff",
        before=sections[0],
        after=sections[1],
        headline=_comparison_headline(first),
        severity="good" if found.same else "warning",
        figures=tuple(_figures(*sections)),
        first=next((view for item, view in views if item is first), None),
        environment=tuple(view for item, view in others if item.stage == ENVIRONMENT),
        follows=tuple(view for item, view in others if item.stage != ENVIRONMENT),
        notes=() if redaction.active else found.notes,
    )


def _comparison_headline(first: Difference | None) -> str:
    if first is None:
        return "The same was compiled in both runs."
    if first.stage == ENVIRONMENT:
        return "The same was compiled in both runs, which were given different things."
    return f"The runs differ, first in {_STAGES[first.stage]}."


def _figures(before: PageSection, after: PageSection) -> list[tuple[str, str, str, bool]]:
    """The figures of both runs: what was counted, and what the run was."""
    sides = [{**{label: str(number) for label, number in each.counts}, **dict(each.run)} for each in (before, after)]
    labels = dict.fromkeys([*sides[0], *sides[1]])
    rows = ((label, sides[0].get(label, ""), sides[1].get(label, "")) for label in labels)
    return [(label, old, new, old != new and label != "seconds") for label, old, new in rows]


def _view(item: Difference, name: str, cwd: str | None, redaction: Redaction) -> DifferenceView:
    file = redaction.file(relative_path(item.file, cwd)) if item.file else ""
    place = f"{file}:{item.line}" if file and item.line else file
    details = () if redaction.active or item.nodes else item.details
    nodes = () if redaction.active else item.nodes
    return DifferenceView(
        stage=item.stage.replace("_", "-"),
        text=redaction.text(item.text),
        place=place,
        anchor=f"{name}line={place}" if item.line and not redaction.active else "",
        compile_ids=(item.compile_ids[0] or "", item.compile_ids[1] or ""),
        compiles=" and ".join(dict.fromkeys(each for each in item.compile_ids if each)),
        nodes=tuple(_node(each) for each in nodes[:_MAX_ROWS]),
        details=tuple(({"+": "added", "-": "removed"}.get(line[:1], ""), line) for line in details[:_MAX_ROWS]),
        more=max(0, len(nodes) - _MAX_ROWS, len(details) - _MAX_ROWS),
    )


def _node(item: NodeDifference) -> tuple[str, str, str, str, str]:
    return item.kind, SIGNS[item.kind], _KINDS[item.kind], item.before or "", item.after or ""
