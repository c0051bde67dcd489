"""The result of `fix`: the JSON of the contract as typed records, and the report."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from dynadiag import __version__
from dynadiag.explanation.formatting import count
from dynadiag.render.clean import clean
from dynadiag.render.json_document import SCHEMA, encode
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer

_MAX_CAUSES = 4  # of one change
_COLOURS = {"-": "#e0453d", "+": "#2a9a47", "@": "#9060e8"}  # of a diff, to be read on black and on white


class ProblemPlace(msgspec.Struct, frozen=True):
    """What a fix is for. ``file`` is absolute."""

    kind: str  # "break" | "recompile"
    gb_id: str | None
    compile_id: str
    file: str | None
    line: int | None


class Rejected(msgspec.Struct, frozen=True):
    """A change that was tried or considered, and why it was rejected."""

    title: str
    why: str


class Evidence(msgspec.Struct, frozen=True):
    """What a proof saw: each pair is before and after. `inputs` counts the runs of compiled calls that were compared.

    The comparisons are "same" or "rounding"; `gradients` is null if there are none.
    """

    breaks: tuple[int, int]
    recompiles: tuple[int, int]
    graphs: tuple[int, int]
    output: str
    results: str
    gradients: str | None
    mutations: str
    seconds: tuple[float | None, float | None]
    inputs: int


class FixEntry(msgspec.Struct, frozen=True):
    """One cause, and the change for it. ``advice`` is what `explain` says about a cause without one. ``combined`` is
    true for a cause without a change of its own, which all proved changes together remove.
    """

    problem: ProblemPlace = msgspec.field(name="for")
    verdict: str  # "proved" | "rejected" | "none"
    title: str
    kind: str | None  # "source" | "config" | "argument"
    diff: str
    why: str
    evidence: Evidence | None
    rejected: tuple[Rejected, ...]
    advice: tuple[str, ...] = ()
    combined: bool = False
    where: str = "program"  # "program" | "library": whose code the change is in
    package: str | None = None  # the package and its version, as pip writes them


class RegionEntry(msgspec.Struct, frozen=True):
    """What can be compiled in place of the model, without a break, on top of the proved fixes: ``parts`` as expressions
    of the program, and the change of its statement that compiles. ``operators`` are those that ran in graphs, before
    and after. ``why`` says why it is not proved; then it has no evidence. The patch does not have it: less is compiled.
    """

    verdict: str  # "proved" | "rejected"
    parts: tuple[str, ...]
    diff: str
    why: str
    evidence: Evidence | None
    operators: tuple[int, int] | None


class FixDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The document of `dynadiag fix`. The diffs name files as they stand in ``folder``. ``left`` are the recompiles
    that only the changed program has.
    """

    schema: int = SCHEMA
    dynadiag: str = __version__
    torch: str | None
    target: str
    folder: str
    fixes: tuple[FixEntry, ...]
    patch: str | None
    overlay: str | None = None
    evidence: Evidence | None  # of all proved fixes together
    region: RegionEntry | None = None
    left: tuple[FixEntry, ...] = ()
    trials: int
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class FixReport:
    """What `dynadiag.fix` found: the document, and the diff of all proved fixes together, for `patch -p1`."""

    document: FixDocument
    diff: str

    def __repr__(self) -> str:
        return report_text(self.document, Printer()).rstrip("\n")

    def __str__(self) -> str:
        return report_text(self.document, Printer())

    def _repr_html_(self) -> str:
        """What a notebook shows: the report, with the lines that a change removes and adds in colours."""
        lines = "\n".join(map(_html_line, str(self).splitlines()))
        return f'<pre style="font-family: monospace; white-space: pre-wrap">{lines}</pre>'


def _html_line(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return f'<span style="color: {colour}">{html.escape(line)}</span>' if colour else html.escape(line)


def encode_document(document: FixDocument) -> bytes:
    """The document as JSON, indented."""
    return encode(msgspec.to_builtins(document))


def report_text(document: FixDocument, printer: Printer, note: str | None = None) -> str:
    """The report: proved fixes first, then the others with the reasons."""
    order = sorted(document.fixes, key=lambda each: (("proved", "rejected", "none").index(each.verdict), each.combined))
    parts = [_headline(document, note), *(_change(group, printer, document.evidence) for group in _grouped(order))]
    if document.evidence is not None:
        parts.append(_combined_evidence(document))
    if document.left:
        parts.append("recompiles that only the changed program has, at its lines:\n")
    parts += [_change(group, printer, None) for group in _grouped(document.left)]
    if document.region is not None:
        parts.append(_region(document.region))
    return clean("\n".join(parts))


def _grouped(entries: Iterable[FixEntry]) -> list[list[FixEntry]]:
    """Causes that one change removes are told together, and those of which the same is told."""
    groups: dict[object, list[FixEntry]] = {}
    for entry in entries:
        groups.setdefault(entry.diff or (_cause(entry), entry.rejected, entry.advice), []).append(entry)
    return [*groups.values()]


def _headline(document: FixDocument, note: str | None) -> str:
    if note is not None:
        return f"{note}\n"
    if not document.fixes:
        return "there is nothing to fix: no graph break and no recompile\n"
    proved = sum(entry.verdict == "proved" for entry in document.fixes)
    total = len(document.fixes)
    what = "cause has" if total == 1 else "causes have"
    return f"{proved} of {total} {what} a proved fix ({count(document.trials, 'trial')}, {document.seconds:.0f} s)\n"


def _change(entries: list[FixEntry], printer: Printer, told: Evidence | None) -> str:
    """One change with the causes that it removes, or one cause without a change. ``told`` is the evidence for all
    changes together, which has a place of its own.
    """
    entry = entries[0]
    causes = list(dict.fromkeys(printer.paint(_cause(each), each.problem.kind) for each in entries))
    lines = causes[:_MAX_CAUSES]
    if len(causes) > _MAX_CAUSES:
        lines.append(f"and {len(causes) - _MAX_CAUSES} more causes, which the JSON has")
    lines.append(f"  {entry.verdict}: {entry.title}")
    whys = dict.fromkeys(each.why for each in ([entry] if entry.diff else entries[:_MAX_CAUSES]) if each.why)
    lines += [f"  why: {why}" for why in whys]
    if entry.where == "library" and entry.verdict == "proved":
        lines.append(f"  in {entry.package}: --overlay FILE.py writes it, and no installed file is changed")
    if entry.evidence not in (None, told):
        assert entry.evidence is not None
        lines += [f"  {text}" for text in evidence_lines(entry.evidence)]
    lines += [f"  not: {one.title}: {one.why}" for one in entry.rejected]
    lines += [f"  advice, not tried: {text}" for text in entry.advice]
    if entry.diff and not entry.combined:
        lines += ["", entry.diff.rstrip("\n")]
    return "\n".join(lines) + "\n"


def _cause(entry: FixEntry) -> str:
    problem = entry.problem
    id_ = f"[{problem.gb_id}] " if problem.gb_id else ""
    place = source_location(problem.file, problem.line, None, None) if problem.file else "a library"
    return f"{problem.kind} {id_}at {place}"


def evidence_lines(evidence: Evidence) -> list[str]:
    """The figures of a proof, as lines of a report."""
    pairs = [("breaks", evidence.breaks), ("recompiles", evidence.recompiles), ("graphs", evidence.graphs)]
    counts = ", ".join(f"{name} {before} -> {after}" for name, (before, after) in pairs)
    gradients = f", gradients {evidence.gradients}" if evidence.gradients else ""
    compared = f"output {evidence.output}, results {evidence.results}{gradients}, mutations {evidence.mutations}"
    lines = [counts, f"{compared} ({evidence.inputs} calls compared)"]
    before, after = evidence.seconds
    if before is not None and after is not None:
        lines.append(f"a warm call {before * 1e3:.3f} -> {after * 1e3:.3f} ms")
    return lines


def _combined_evidence(document: FixDocument) -> str:
    assert document.evidence is not None
    return "\n".join(["all proved fixes together:", *(f"  {text}" for text in evidence_lines(document.evidence)), ""])


def _region(region: RegionEntry) -> str:
    """The lines on the parts of the model that can be compiled in its place."""
    lines = ["breaks are left: these parts of the model are one graph each, compiled in its place:"]
    lines += [f"  {part.removeprefix('*')}" for part in region.parts]
    if region.evidence is None:
        return "\n".join([*lines, f"  {region.verdict}: {region.why}", ""])
    lines += [f"  {text}" for text in evidence_lines(region.evidence)]
    if region.operators is not None:
        before, after = region.operators
        lines.append(f"  operators that run in graphs: {before} -> {after}")
    lines.append("  it compiles less, so -o and --apply leave it out")
    return "\n".join([*lines, "", region.diff])
