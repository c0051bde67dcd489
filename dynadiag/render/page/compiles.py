"""The compiles of a page: their time, their documents, their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import duration
from dynadiag.explanation.timing import PARTS, PhaseShare
from dynadiag.recording.records import Compile, Graph, Kernel
from dynadiag.render.page.redaction import Redaction
from dynadiag.render.page.stages import (
    MAX_DRAWN,
    NO_STAGES,
    DocumentView,
    StageNames,
    compile_documents,
    kernel_block,
)
from dynadiag.render.paths import relative_path

__all__ = ["CompileView", "KernelView", "compile_views", "documents_of", "stages_block"]


@dataclass(frozen=True, slots=True)
class KernelView:
    """A kernel. ``module`` is the block of its generated code, ``stages`` has the names and blocks of later stages."""

    anchor: str
    name: str
    language: str
    module: str = ""
    stages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CompileView:
    """A compile. ``parts`` are the parts of its time: (part, start, width), in percent of the time of all compiles."""

    compile_id: str
    function: str
    place: str
    outcome: str
    seconds: str
    guards: int
    parts: tuple[tuple[str, float, float], ...]
    start: float
    graphs: int
    kernels: tuple[KernelView, ...]
    documents: tuple[DocumentView, ...]
    stages: str  # the block that has the documents side by side; empty where the page has no texts


def compile_views(
    explanation: Explanation, name: str, redaction: Redaction, stages: StageNames
) -> tuple[CompileView, ...]:
    """Return the view of each compile. ``name`` begins the anchors of the recording."""
    total = sum(each.seconds.total or 0.0 for each in explanation.compiles) or 1.0
    found, before = [], 0.0
    documents = documents_of(explanation, name, stages)
    kernels: dict[str, list[Kernel]] = {}
    for kernel in explanation.kernels:
        kernels.setdefault(kernel.compile_id, []).append(kernel)
    spent = {each.compile.index: each.shares for each in explanation.timing.spent} if explanation.timing else {}
    for item in explanation.compiles:
        shown = documents.get(item.index, ())
        own = _kernels(kernels.get(item.compile_id, ()), shown, name, redaction)
        shares = spent.get(item.index, ())
        found.append(_compile(item, shown, own, (before, total), shares, name, explanation, redaction))
        before += item.seconds.total or 0.0
    return tuple(found)


def _kernels(
    kernels: Sequence[Kernel], documents: Sequence[DocumentView], name: str, redaction: Redaction
) -> tuple[KernelView, ...]:
    if redaction.active:
        return tuple(KernelView("", f"kernel {number}", each.language) for number, each in enumerate(kernels))
    modules = {each.event: each.block for each in documents if each.kind == "module"}
    stages: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for each in documents:
        if each.kind == "stage":
            stages.setdefault((each.event, each.kernel), []).append((each.stage, each.block))
    found = []
    for kernel in kernels:
        event = -1 if kernel.event is None else kernel.event
        own = tuple(stages.pop((event, kernel.name), ()))
        found.append(KernelView(kernel_block(kernel, name), kernel.name, kernel.language, modules.get(event, ""), own))
    return tuple(found)


def documents_of(
    explanation: Explanation, name: str, stages: StageNames = NO_STAGES
) -> dict[int, tuple[DocumentView, ...]]:
    """Return the documents of each compile by its index. If torch reused an id, only its last compile has documents."""
    graphs: dict[str, list[Graph]] = {}
    for graph in explanation.graphs:
        graphs.setdefault(graph.compile_id, []).append(graph)
    kernels: dict[str, list[Kernel]] = {}
    for kernel in explanation.kernels:
        kernels.setdefault(kernel.compile_id, []).append(kernel)
    drawn = frozenset(graph.index for graph in explanation.graphs[:MAX_DRAWN])
    sources = {file: f"{name}source-{index}" for index, file in enumerate(explanation.sources)}
    last = {item.compile_id: item for item in explanation.compiles}
    return {
        item.index: compile_documents(
            item, graphs.get(id_, ()), kernels.get(id_, ()), drawn, name, sources.get(item.file or "", ""), stages
        )
        for id_, item in last.items()
    }


def stages_block(item: Compile, name: str) -> str:
    """The name of the block that has the documents of a compile side by side."""
    return f"{name}stages-{item.index}"


def _compile(
    item: Compile,
    documents: tuple[DocumentView, ...],
    kernels: tuple[KernelView, ...],
    time: tuple[float, float],
    shares: Sequence[PhaseShare],
    name: str,
    explanation: Explanation,
    redaction: Redaction,
) -> CompileView:
    before, total = time
    parts, start = [], 0.0
    for share in sorted(shares, key=lambda each: PARTS.index(each.part)):
        width = 100 * share.seconds / total
        parts.append((share.part, round(start, 2), round(width, 2)))
        start += width
    file = redaction.file(relative_path(item.file, explanation.run.cwd))
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
        kernels=kernels,
        documents=tuple(each for each in documents if each.kind in ("graph", "module")),
        stages="" if redaction.active or not documents else stages_block(item, name),
    )
