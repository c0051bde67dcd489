"""The lookups in compiler caches, as text and as JSON: first the causes of misses, then all outcomes, then the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag.caches.cache_report import CacheEntry, CacheReport, StartedRun, cost_of
from dynadiag.caches.key_changes import Cause
from dynadiag.caches.start_phases import StartPhase
from dynadiag.explanation.findings import Advice
from dynadiag.explanation.formatting import count, duration, list_some
from dynadiag.grouping import grouped
from dynadiag.recording.records import Span
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer
from dynadiag.render.table import table

_MAX_BAR = 40  # columns
_OUTCOMES = ("hit", "miss", "bypass", "disabled")
_MAX_SHOWN = 10  # groups of causes
_MAX_COMPONENTS = 4  # of a key, in one group


@dataclass(frozen=True, slots=True)
class ChangedDocument:
    """A component of a cache key that changed, with its old and its new value."""

    component: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class RunDocument:
    """One start of the program."""

    seconds: float | None
    compile_seconds: float
    phases: tuple[StartPhase, ...]


@dataclass(frozen=True, slots=True)
class EntryDocument:
    """One cache lookup. `cause` is a sentence; `line` is the line that it is about, or else that of the compile."""

    run: int
    compile_id: str
    graph: str | None
    cache: str
    outcome: str
    key: str | None
    reason: str | None
    file: str | None
    line: int | None
    function: str
    changed: tuple[ChangedDocument, ...]
    seconds: float | None
    cause: str | None
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachesDocument(CommandDocument):
    """The document of `dynadiag caches`."""

    target: str
    runs: tuple[RunDocument, ...]
    entries: tuple[EntryDocument, ...]
    notes: tuple[str, ...]


def caches_document(report: CacheReport) -> CachesDocument:
    last = report.runs[-1].run
    return CachesDocument(
        torch=last.torch,
        target=last.target,
        runs=tuple(RunDocument(run.phases.seconds, run.compile_seconds, run.phases.phases) for run in report.runs),
        entries=tuple(_entry_document(entry, report) for entry in report.entries),
        notes=report.notes,
    )


def _entry_document(entry: CacheEntry, report: CacheReport) -> EntryDocument:
    lookup = entry.lookup
    cures = {cause.cure: tried_text(cause, report) for cause in entry.causes if cause.cure is not None}
    return document_of(
        EntryDocument,
        lookup,
        run=entry.run,
        reason=lookup.reason or _causes_text(entry),
        file=entry.span.file,
        line=entry.span.line,
        function=entry.function,
        changed=tuple(document_of(ChangedDocument, each) for each in entry.changed),
        cause=_causes_text(entry),
        advice=tuple(
            Advice(cure, "unchecked") if tried is None else Advice(f"{cure} Tried: {tried}.", _checked(report))
            for cure, tried in cures.items()
        ),
    )


def _checked(report: CacheReport) -> str:
    """Whether advice that was tried counts as tried: it has to help."""
    return "tried" if report.tried is not None and report.tried.helps(len(report.compiled)) else "unchecked"


def _causes_text(entry: CacheEntry) -> str | None:
    return "; ".join(cause.text for cause in entry.causes) or None


def cache_report_text(report: CacheReport, printer: Printer) -> str:
    """Return the report: a first line that says what still compiles and why, the causes, all outcomes, the time."""
    return "\n".join(_CachePrinter(report, printer).lines()).rstrip() + "\n"


def headline(report: CacheReport) -> str:
    if not report.same_program:
        return "The two recordings are of different programs: no compile of one is in the other."
    start = "The second start" if len(report.runs) == 2 else "This start"
    if not report.graphs:
        return f"{start} looked up no graph in a compiler cache."
    return _compiled_line(report, start) if report.compiled else _cached_line(report, start)


def _cached_line(report: CacheReport, start: str) -> str:
    """The first line if every graph came from a cache. C++ kernels may have been built all the same."""
    graphs = len(report.graphs)
    which = "the graph" if graphs == 1 else f"all {graphs} graphs"
    before = f", {duration(report.runs[0].compile_seconds)} in the first" if len(report.runs) == 2 else ""
    spent = f"{duration(report.runs[-1].compile_seconds)} of compiling{before}"
    if not report.rebuilt:
        return f"{start} compiled nothing: {which} came from the caches ({spent})."
    again = f"{start} took {which} from the caches and built {count(len(report.rebuilt), 'C++ kernel')} again"
    cause = _main_cause(report.rebuilt)
    return f"{again}{f': {cause}' if cause else ''} ({spent})."


def _compiled_line(report: CacheReport, start: str) -> str:
    """The first line if some graphs were compiled: how many, how long it took, and the most frequent cause."""
    cost = sum(cost_of(entries) for entries in report.compiled)
    causes = Counter(cause for entries in report.compiled if (cause := _main_cause(entries)))
    why = f": {causes.most_common(1)[0][0]}" if causes else ""
    more = f" (and {count(len(causes) - 1, 'other cause')})" if len(causes) > 1 else ""
    verb = "traced" if report.only_traced else "compiled"
    verb = f"still {verb}" if len(report.runs) == 2 else verb
    total = f"{duration(cost)} of {duration(report.runs[-1].compile_seconds)}"
    which = f"{len(report.compiled)} of {count(len(report.graphs), 'graph')}"
    which += " in AOTAutograd (the code came from the FX graph cache)" if report.only_traced else ""
    return f"{start} {verb} {which}, {total} of compiling{why}{more}."


def _most_informative(entries: Sequence[CacheEntry]) -> CacheEntry:
    """The lookup of a compile that says most: one whose key was compared, or one with a cause, or the first."""
    return max(entries, key=lambda entry: (bool(entry.changed), bool(entry.causes)))


def _main_cause(entries: Sequence[CacheEntry]) -> str | None:
    return next((cause.text for cause in _most_informative(entries).causes), None)


def tried_text(cause: Cause, report: CacheReport) -> str | None:
    """What a second start costs with the cure of a cause, or that it does not help; `None` if that was not tried."""
    tried = report.tried
    if tried is None or not tried.covers(cause):
        return None
    before, verb = report.runs[-1].compile_seconds, "traces" if report.only_traced else "compiles"
    if not tried.helps(len(report.compiled)):
        left = count(tried.compiled, "graph")
        return f"the option does not help by itself: the second start {verb} {left} all the same"
    return (
        f"the second start then {verb} {count(tried.compiled, 'graph')} instead of {len(report.compiled)}, "
        f"in {duration(tried.seconds)} instead of {duration(before)} (each measured once)"
    )


@dataclass(frozen=True, slots=True)
class _CachePrinter:
    """Prints a report on caches."""

    report: CacheReport
    printer: Printer

    def lines(self) -> Iterator[str]:
        """The first line, a block for each cause, the table of outcomes, the seconds of each run, and notes."""
        yield from (*self.printer.wrap(headline(self.report)), "")
        yield from self._blocks()
        yield from self._outcomes_table()
        runs = self.report.runs
        for number, run in enumerate(runs):
            whose = "" if len(runs) == 1 else f" of run {number + 1}"
            yield from self._bars(f"Where the seconds{whose} went", run)
        for note in self.report.notes:
            yield from self.printer.labelled("note", note, "dim")

    def _blocks(self) -> Iterator[str]:
        """One block for each cause, the costliest first."""
        lookups = (*self.report.compiled, *((entry,) for entry in self.report.rebuilt))
        groups = grouped(((_main_cause(entries), _most_informative(entries).span), entries) for entries in lookups)
        for (cause, span), compiles in list(groups.items())[:_MAX_SHOWN]:
            yield from (*self._block(cause, span, compiles), "")
        if len(groups) > _MAX_SHOWN:
            yield from (f"and {count(len(groups) - _MAX_SHOWN, 'cause')} more: --json has all", "")

    def _block(self, cause: str | None, span: Span, compiles: Sequence[tuple[CacheEntry, ...]]) -> Iterator[str]:
        report, printer = self.report, self.printer
        entries = [entry for lookups in compiles for entry in lookups]
        outcome = Counter(entry.lookup.outcome for entry in entries).most_common(1)[0][0]
        names = list(dict.fromkeys(f"{own[0].function} [{own[0].lookup.compile_id}]" for own in compiles))
        caches = ", ".join(dict.fromkeys(entry.lookup.cache for entry in entries if entry.lookup.outcome == outcome))
        unknown = "" if len(report.runs) == 2 else "; a second run is needed to say why"
        why = cause or (entries[0].lookup.reason or f"not in the cache{unknown}")
        yield from printer.labelled(f"{outcome} ({caches})", f"{list_some(names, 3)}: {why}", "break")
        if span.file is not None and span.line is not None:
            yield printer.location(source_location(span.file, span.line, None, report.runs[-1].run.cwd))
            yield from printer.snippet(report.sources.get(span.file), span)
        changed = {component.component: component for entry in entries for component in entry.changed}
        for component in list(changed.values())[:_MAX_COMPONENTS]:
            yield from printer.fact("key", f"{component.component}: {component.was} → {component.now}")
        if len(changed) > _MAX_COMPONENTS:
            yield from printer.fact("key", f"and {count(len(changed) - _MAX_COMPONENTS, 'component')} more")
        causes = [cause for entry in entries for cause in entry.causes]
        for diff in dict.fromkeys(cause.diff for cause in causes if cause.diff):
            yield from printer.fact("diff", diff.replace("\n", "\n    "))
        if cost := sum(cost_of(own) for own in compiles):
            always = " at each start" if any(entry.lookup.outcome == "bypass" for entry in entries) else ""
            yield from printer.fact("cost", f"{duration(cost)}{always}")
        for cure, cured in {cause.cure: cause for cause in causes if cause.cure}.items():
            tried = tried_text(cured, report)
            how = "not tried" if tried is None else "tried" if _checked(report) == "tried" else "tried, in vain"
            yield from printer.labelled(f"help ({how})", cure or "", "help")
            if tried is not None:
                yield from printer.fact("tried", tried)

    def _outcomes_table(self) -> list[str]:
        """How many lookups had each outcome, by run and cache."""
        entries, both = self.report.entries, len(self.report.runs) == 2
        caches = list(dict.fromkeys((entry.run, entry.lookup.cache) for entry in entries))
        if not caches:
            return []
        counts = Counter((entry.run, entry.lookup.cache, entry.lookup.outcome) for entry in entries)
        names = [f"run {run + 1} {cache}" if both else cache for run, cache in caches]
        columns = [
            (outcome, [str(counts[run, cache, outcome] or "") for run, cache in caches]) for outcome in _OUTCOMES
        ]
        return [*table(names, columns, self.printer), ""]

    def _bars(self, title: str, run: StartedRun) -> list[str]:
        phases = run.phases.phases
        if not phases:
            return []
        whole = "" if run.phases.seconds is None else f" ({duration(run.phases.seconds)})"
        names = [
            phase.name if phase.side_by_side is None else f"{phase.name} ({phase.side_by_side:.1f} at once)"
            for phase in phases
        ]
        room, longest = max(map(len, names)), max(phase.seconds for phase in phases)
        lines = []
        for name, phase in zip(names, phases, strict=True):
            length = round(_MAX_BAR * phase.seconds / longest) if longest else 0
            bar = self.printer.paint("█" * length or "▏", "gutter")
            lines.append(f"  {name:<{room}}  {duration(phase.seconds):>8}  {bar}")
        return [f"{title}{whole}", *lines, ""]
