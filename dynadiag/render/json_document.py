"""An explanation as a JSON document, the one that `dynadiag explain --json` writes.

It is a tree of frozen dataclasses, from which its JSON Schema is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import orjson

from dynadiag import __version__
from dynadiag.explanation.coverage import Coverage
from dynadiag.explanation.cuda_graphs import CudaGraph
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Advice, Finding
from dynadiag.explanation.runtime_cost import CallCost, WarmCalls, costs
from dynadiag.grouping import grouped
from dynadiag.job.divergence import Divergence
from dynadiag.kernels.memory import Memory
from dynadiag.recording.code_origin import is_stdlib_file, is_torch_file, original_name, user_frame
from dynadiag.recording.records import Frame, GuardFailure, Kernel, Seconds, SkippedFrame

if TYPE_CHECKING:
    from dynadiag.kernels.generated_module import KernelCall

SCHEMA = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDocument:
    """What each command's document begins with."""

    schema: int = SCHEMA
    dynadiag: str = __version__
    torch: str | None


@dataclass(frozen=True, slots=True)
class LineDocument:
    """A line of a file, from 1."""

    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class BreakDocument:
    """A graph break. `cause` is the position of its root break in the list.

    `called_at` is the user's line if the break is in torch's or Python's own code. `cost` is what the break costs in a
    warm call, if warm calls were profiled.
    """

    gb_id: str | None
    gb_type: str
    reason: str
    explanation: str
    hints: tuple[str, ...]
    file: str | None
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    function: str
    user_stack: tuple[Frame, ...]
    called_at: Frame | None
    compile_id: str
    cause: int | None
    fatal: bool
    cost: CallCost | None


@dataclass(frozen=True, slots=True)
class RecompileDocument:
    """A frame compiled again, with the guards that failed."""

    compile_id: str
    file: str | None
    line: int | None
    function: str
    reasons: tuple[GuardFailure, ...]
    advice: tuple[str, ...]
    limit_reached: bool


@dataclass(frozen=True, slots=True)
class CompileDocument:
    """A compile. `graphs` are positions in the document's list of graphs."""

    compile_id: str
    file: str | None
    line: int | None
    function: str
    outcome: str
    seconds: Seconds
    guards: int
    graphs: tuple[int, ...]
    attempts: int
    error: str | None
    reason: str | None
    cache: str | None


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """A graph at one stage."""

    compile_id: str
    stage: str
    nodes: int
    ops: int


@dataclass(frozen=True, slots=True)
class GuardDocument:
    """A guard of compiled code."""

    compile_id: str
    kind: str
    source: str
    expression: str
    file: str | None
    line: int | None


@dataclass(frozen=True, slots=True)
class KernelDocument:
    """A kernel, with the nodes that it computes and their lines, where these are known."""

    compile_id: str
    name: str
    language: str
    nodes: tuple[str, ...]
    lines: tuple[LineDocument, ...]


@dataclass(frozen=True, slots=True)
class CostDocument:
    """What a finding costs; null where that is not known."""

    operators_uncompiled: int | None
    compile_seconds: float | None
    graphs: int | None
    functions_uncompiled: int


@dataclass(frozen=True, slots=True)
class FindingDocument:
    """A finding. `caused_by` is the position of another in the list of findings.

    `owner` is the library whose line it is, empty for the program's own; `entry` is then the program's line that leads
    there.
    """

    rule: str
    id: str | None
    identity: str
    severity: str
    file: str | None
    line: int | None
    column: int | None
    end_line: int | None
    end_column: int | None
    function: str
    title: str
    cause: str | None
    caused_by: int | None
    places: tuple[LineDocument, ...]
    compile_ids: tuple[str, ...]
    ranks: tuple[int, ...] | None
    cost: CostDocument
    advice: tuple[Advice, ...]
    owner: str
    entry: LineDocument | None

    @classmethod
    def of(cls, item: Finding) -> FindingDocument:
        places = tuple(LineDocument(span.file, span.line) for span in item.places)
        cost = document_of(CostDocument, item.cost)
        entry = None if item.entry is None else LineDocument(item.entry.file, item.entry.line)
        return document_of(cls, item, **asdict(item.span), places=places, cost=cost, entry=entry)


@dataclass(frozen=True, slots=True)
class ProcessDocument:
    """One process of a job. `ended` says how it ended, if not well; `alike` numbers the sets of alike processes."""

    role: str
    rank: int | None
    host: str | None
    restart: int
    pid: int | None
    recording: str
    problem: str | None
    complete: bool
    exit_code: int | None
    ended: str | None
    compile_seconds: float | None
    waited_seconds: float | None
    imposed_wait_seconds: float | None
    alike: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainDocument(CommandDocument):
    """What `dynadiag explain --json` writes.

    `coverage` is there with --coverage, `memory` with --memory. Of several processes, `ranks` are the documents of the
    ranks or, without ranks, of the other processes; `findings` are those of all, and `divergence` the first in which
    ranks are not alike.
    """

    target: str
    exit_code: int | None
    breaks: tuple[BreakDocument, ...]
    skipped_frames: tuple[SkippedFrame, ...]
    recompiles: tuple[RecompileDocument, ...]
    compiles: tuple[CompileDocument, ...]
    graphs: tuple[GraphDocument, ...]
    guards: tuple[GuardDocument, ...]
    kernels: tuple[KernelDocument, ...]
    graph_count: int
    break_count: int
    recompile_count: int
    findings: tuple[FindingDocument, ...]
    notes: tuple[str, ...]
    cuda_graphs: tuple[CudaGraph, ...]
    warm: WarmCalls | None
    coverage: Coverage | msgspec.UnsetType = msgspec.UNSET
    memory: Memory | msgspec.UnsetType = msgspec.UNSET
    ranks: tuple[ExplainDocument, ...] | msgspec.UnsetType = msgspec.UNSET
    divergence: Divergence | msgspec.UnsetType | None = msgspec.UNSET
    processes: tuple[ProcessDocument, ...] | msgspec.UnsetType = msgspec.UNSET
    rank: int | msgspec.UnsetType | None = msgspec.UNSET


def explanation_json(explanation: Explanation, calls: Sequence[KernelCall] = ()) -> bytes:
    """Return the document of an explanation as JSON."""
    return encode(document(explanation, calls))


def encode(value: object) -> bytes:
    """Return a document as JSON in UTF-8, indented, with a line end.

    Lone surrogates (of a file name that is not UTF-8) are written as escapes. So is the bracket of ``##[``, which
    begins a command to a runner of GitHub Actions.
    """
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    plain = msgspec.to_builtins(value)
    try:
        text = orjson.dumps(plain, option=options)
    except TypeError:  # orjson's error for text that is no valid Unicode
        text = orjson.dumps(_valid_unicode(plain), option=options)
    return text.replace(b"##[", b"##\\u005b")


def document(
    explanation: Explanation, calls: Sequence[KernelCall] = (), memory: Memory | None = None
) -> ExplainDocument:
    """Return the document of an explanation. Indices in it are positions in its own lists.

    With ``calls``, the calls of the kernels (`dynadiag.kernels.read_modules`), each kernel has its nodes and their
    lines. ``memory`` is what training graphs hold (`dynadiag.kernels.memory`).
    """
    coverage = explanation.coverage
    position = {item.index: index for index, item in enumerate(explanation.breaks)}
    cost = costs(explanation.breaks, explanation.warm)
    graphs = grouped((graph.compile_id, index) for index, graph in enumerate(explanation.graphs))
    findings = [item for item in explanation.findings if item.rule.is_recompile]
    advice = {index: tuple(each.text for each in item.advice) for item in findings for index in item.records}
    return ExplainDocument(
        torch=explanation.run.torch,
        target=explanation.run.target,
        exit_code=explanation.run.exit_code,
        breaks=tuple(
            document_of(
                BreakDocument,
                item,
                **asdict(item.span),
                called_at=user_frame(item) if is_torch_file(item.span.file) or is_stdlib_file(item.span.file) else None,
                cause=None if item.cause is None else position[item.cause],
                cost=cost.get(item.index),
            )
            for item in explanation.breaks
        ),
        skipped_frames=tuple(replace(item, function=original_name(item.function)) for item in explanation.skipped),
        recompiles=tuple(
            document_of(RecompileDocument, item, advice=advice[item.index]) for item in explanation.recompiles
        ),
        compiles=tuple(
            document_of(CompileDocument, item, graphs=tuple(graphs.get(item.compile_id, ())))
            for item in explanation.compiles
        ),
        graphs=tuple(document_of(GraphDocument, item) for item in explanation.graphs),
        guards=tuple(document_of(GuardDocument, item) for item in explanation.guards),
        kernels=tuple(_kernel(item, calls) for item in explanation.kernels),
        graph_count=explanation.graph_count,
        break_count=explanation.break_count,
        recompile_count=explanation.recompile_count,
        findings=tuple(map(FindingDocument.of, explanation.findings)),
        notes=explanation.notes,
        cuda_graphs=explanation.cuda_graphs,
        warm=explanation.warm,
        coverage=msgspec.UNSET if coverage is None else coverage,
        memory=msgspec.UNSET if memory is None else memory,
    )


def document_of(kind: type[T], item: object, **values: Any) -> T:
    """Return a document of this kind: fields that ``values`` does not have are copied from ``item``.

    A field that ``item`` does not have either keeps its default.
    """
    names = (field.name for field in fields(kind) if field.name not in values)  # type: ignore[arg-type]  # a dataclass
    return kind(**values, **{name: getattr(item, name) for name in names if hasattr(item, name)})


def _kernel(item: Kernel, calls: Sequence[KernelCall]) -> KernelDocument:
    own = [call for call in calls if (call.event, call.name) == (item.event, item.name)]
    lines = dict.fromkeys(line for call in own for line in call.source_lines or call.view_lines)
    return document_of(
        KernelDocument,
        item,
        nodes=tuple(dict.fromkeys(node for call in own for node in call.nodes)),
        lines=tuple(LineDocument(line.file, line.line) for line in lines),
    )


def _valid_unicode(value: Any) -> Any:
    """The same value, with the texts in it as valid Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_valid_unicode(key): _valid_unicode(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_valid_unicode(item) for item in value]
    return value
