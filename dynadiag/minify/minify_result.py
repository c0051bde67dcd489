"""The result of minifying: as data, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from dynadiag.bisection.document import BisectDocument, FailureDocument
from dynadiag.bisection.verdict import Verdict, first_few
from dynadiag.explanation.formatting import count
from dynadiag.minify.repro_header import add_header_line
from dynadiag.render.clean import clean_line
from dynadiag.render.json_document import CommandDocument, document_of
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import wrap_indented
from dynadiag.trial.signature import Signature

EXIT_CODES = {
    "passes": 3,
    "fails_uncompiled": 4,
    "flaky": 5,
    "stopped": 5,
    "reduced": 6,  # 0 where it is proved
    "no_call": 6,
    "no_difference": 6,
    "not_shown": 6,
    "refused": 6,
    "cached": 6,
    "no_source": 6,
    "source_passes": 6,
    "interpreted": 6,
    "machine": 6,
}
_VERDICT_SENTENCES = {
    "passes": "it does not fail",
    "fails_uncompiled": "it fails without torch.compile too",
    "flaky": "it fails, but not every time",
    "stopped": "the search stopped before there was a graph to reduce",
    "no_difference": "no compiled graph raises the failure, and the results of all graphs match the uncompiled ones",
    "no_call": "no call of a compiled graph fails",
    "not_shown": "the failing graph passes outside the program",
    "refused": "the failing graph cannot be run outside the program",
    "cached": "each graph passes alone: the compiler's caches confuse one graph with another",
    "no_source": "it fails in Dynamo, before there is a graph, and its source cannot be made one file",
    "source_passes": "it fails in Dynamo, before there is a graph; as one file in an empty folder it fails otherwise",
    "interpreted": "it fails only in Triton's interpreter: a repro without a GPU would not be small",
    "machine": "it fails because of this machine, where no code compiles: there is nothing to reduce",
}
_NO_STDIN = "stdin is empty in a trial: let the program read a file, or give it arguments"
_VERDICT_HELP = {
    "cached": "`dynadiag bisect` names the graphs; --fresh runs without the caches",
    "source_passes": "a program that reads its own files has to be made to stand alone first",
    "interpreted": "`dynadiag bisect --rungs triton` names the culprit; on a GPU minify reduces it at `inductor`",
    "flaky": "`--repeat 3` tries each candidate up to three times",
    "stopped": "--resume with the recording continues it; --budget gives it more time",
    "fails_uncompiled": "fix that first: torch.compile does not cause it",
}


@dataclass(frozen=True, slots=True)
class ValueRow:
    """A place in a result (``[0, 1]``, empty for one value), and what uncompiled and compiled code have there."""

    where: str
    uncompiled: str
    compiled: str


@dataclass(frozen=True, slots=True)
class ComparedDocument:
    """What a repro compares, as its source, where uncompiled and compiled code differ most.

    ``apart`` of ``total`` elements differ in the first tensor that does, 0 of 0 if it is no tensor.
    """

    what: str
    rows: tuple[ValueRow, ...]
    apart: int
    total: int


@dataclass(frozen=True, slots=True)
class NeighbourDocument:
    """A repro with one option changed, which passes uncompiled: ``was`` is the option, ``now`` what stood there instead
    (empty where it was left out). ``kind`` is ``argument``, ``dtype``, ``value``, ``size``, ``layout``,
    ``gradient`` or ``setting``, ``status`` of the compiled run ``pass``, ``same`` or ``different``.
    """

    kind: str
    was: str
    now: str
    status: str


@dataclass(frozen=True, slots=True)
class MinifyResult:
    """The result of minifying. ``verdict`` is ``reduced``, or the reason why nothing was reduced.

    ``failure`` is the program's failure, ``reduced`` the repro's. Where the program fails later than the compiled call
    that is wrong or raises, ``failure`` is that of the call, and ``symptom`` the program's. ``proof`` says in words
    which runs prove the repro. ``missing`` names objects of the program that could not be written. ``bisect_verdict``
    is the bisection of the repro, if it found a culprit below the rung. ``printed`` is the repro's output in a fresh
    process. ``versions`` is the search over releases of torch with the repro. ``compared`` and ``neighbours`` are what
    an issue tells of a proved repro (`follow_up`).
    """

    verdict: str
    rung: str | None = None
    failure: Signature | None = None
    reduced: Signature | None = None
    text: str = ""
    missing: tuple[str, ...] = ()
    bisect_verdict: Verdict | None = None
    nodes_before: int | None = None
    nodes_after: int | None = None
    inputs_after: int | None = None
    elements_after: int | None = None
    level: str = "graph"  # or "source": a program that fails before there is a graph
    lines_before: int | None = None
    lines_after: int | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    minimal: bool = False
    proved: bool = False
    proof: tuple[str, ...] = ()
    printed: str = ""
    exports: bool = False  # the program calls torch.export
    passes_fresh: bool = False  # in a fresh process it did not fail, or not in each
    trials: int = 0
    cached: int = 0
    seconds: float = 0.0
    torch: str | None = None
    repro: str | None = None
    notes: tuple[str, ...] = ()
    side_finds: tuple[str, ...] = ()
    versions: BisectDocument | None = None
    symptom: Signature | None = None
    headline: str = ""  # the first line of the text, where that of the verdict says too little
    compared: ComparedDocument | None = None
    neighbours: tuple[NeighbourDocument, ...] = ()

    @property
    def since(self) -> str | None:
        """Since which release of torch the repro fails; ``None`` if that is not known."""
        return self.versions.since if self.versions is not None else None

    def with_versions(self, versions: BisectDocument) -> MinifyResult:
        """The result with the search over releases of torch, and since when it fails in the header of the repro."""
        text = add_header_line(self.text, versions.since) if versions.since else self.text
        return replace(self, text=text, versions=versions, notes=(*self.notes, *versions.notes))

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return 0 if self.proved else EXIT_CODES[self.verdict]


class Interrupted(KeyboardInterrupt):
    """Raised after Ctrl-C. ``result`` holds the best repro so far, if there is one."""

    def __init__(self, result: MinifyResult) -> None:
        super().__init__()
        self.result = result


class ReproCulpritDocument(msgspec.Struct, frozen=True):
    """A culprit in the repro. The repro has one graph, so ``graph`` only says forward or backward."""

    kind: str = msgspec.field(name="class")
    name: str
    graph: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinifyDocument(CommandDocument):
    """The JSON document of ``dynadiag minify``. It has fields beyond the contract."""

    target: str
    verdict: str
    rung: str | None
    failure: FailureDocument | None
    symptom: FailureDocument | None  # how the program fails, where `failure` is that of a compiled call before
    level: str  # "graph" or "source"
    nodes_before: int | None
    nodes_after: int | None
    inputs_after: int | None
    elements_after: int | None
    lines_before: int | None
    lines_after: int | None
    tokens_before: int | None
    tokens_after: int | None
    trials: int
    cached: int
    seconds: float
    minimal: bool
    proved: bool
    repro: str | None
    proof: tuple[str, ...]
    bisected: tuple[ReproCulpritDocument, ...]
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    side_finds: tuple[str, ...]
    versions: BisectDocument | None  # `minify --torch` only
    compared: ComparedDocument | None  # this and the next: for an issue only
    neighbours: tuple[NeighbourDocument, ...]


def minify_document(result: MinifyResult, target: str) -> MinifyDocument:
    """The document of a result. ``target`` is the program as the user named it."""
    culprits = result.bisect_verdict.culprits if result.bisect_verdict else ()
    return document_of(
        MinifyDocument,
        result,
        target=target,
        failure=FailureDocument.of(result.failure),
        symptom=FailureDocument.of(result.symptom),
        seconds=round(result.seconds, 2),
        bisected=tuple(ReproCulpritDocument(each.group, each.name, each.graph) for each in culprits),
    )


def culprit_names(verdict: Verdict) -> str:
    """The culprits of a bisected repro, in one line."""
    parts = [f"{c.group} {c.name}{' (backward)' if c.graph == 'backward' else ''}" for c in verdict.culprits]
    return ", ".join(dict.fromkeys(parts))


def result_text(result: MinifyResult, printer: Printer) -> str:
    """The report: the repro with its proof, or why there is none."""
    lines = [_first_line(result, printer)]
    if result.text:
        lines.append(f"  {sizes(result)}{_minimal(result)}")
    marked = _failure(result)
    marked += [("missing", f"{text} cannot be written into the repro") for text in result.missing]
    marked += [("proof", text) for text in result.proof]
    if result.bisect_verdict is not None:
        marked.append(("bisected", "; ".join([culprit_names(result.bisect_verdict), *result.bisect_verdict.confirmed])))
    marked += [("releases", result.since)] if result.since else []
    marked += [("help", _VERDICT_HELP[result.verdict])] if result.verdict in _VERDICT_HELP else []
    marked += [("note", text) for text in result.notes]
    marked += [("also met", text) for text in first_few(result.side_finds)]
    for mark, text in marked:
        lines += wrap_indented(f"  = {mark}: ", clean_line(text), printer.columns)
    if result.text:
        lines += ["", result.text.rstrip()]
    trials = f"{count(result.trials, 'trial')}, {result.cached} cached, in {result.seconds:.0f} s"
    lines += ["", printer.paint(trials, "dim")]
    return "\n".join(lines) + "\n"


def _failure(result: MinifyResult) -> list[tuple[str, str]]:
    """The program's failure, where no repro shows it."""
    if result.text or result.failure is None:
        return []
    lacks = [("help", _NO_STDIN)] if result.failure.type == "EOFError" else []
    return [("failure", result.failure.text), *lacks]


def _minimal(result: MinifyResult) -> str:
    if not result.minimal:
        return ""
    part = "statement, argument or operand" if result.level == "source" else "operation"
    return f", no {part} can be removed"


def sizes(result: MinifyResult) -> str:
    """The size before and after, in words."""
    if result.level == "source":
        lines = f"{result.lines_before} -> {count(result.lines_after or 0, 'line')}"
        return f"{lines}, {result.tokens_before} -> {count(result.tokens_after or 0, 'token')}"
    left = f"{count(result.inputs_after or 0, 'input')} with {count(result.elements_after or 0, 'element')}"
    return f"{result.nodes_before} -> {count(result.nodes_after or 0, 'operation')}; {left}"


def _first_line(result: MinifyResult, printer: Printer) -> str:
    if result.proved:
        where = f"{clean_line(str(result.repro))} fails as the program does, at {result.rung}"
        return f"{printer.paint('proved', 'good')}: {where}"
    if result.verdict == "reduced":
        return (
            printer.paint("not proved", "error") + f": {clean_line(str(result.repro or 'no repro could be written'))}"
        )
    return printer.paint(result.headline or _VERDICT_SENTENCES[result.verdict], "error")
