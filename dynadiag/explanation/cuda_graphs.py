"""CUDA graphs: which compiled code was recorded as one, which was recorded again, and which was left without, and why.

The trace tells of them in two places. A compile's metrics have the reason for which Inductor made no CUDA graph of its
code (``cudagraph_skip_reason``, the last where there were several). Each recording is timed, while the program runs,
in ``chromium_event``s named ``CUDAGraphNode.record``. What torch decides while the program runs (code that was recorded
too often, inputs that it found mutated) it only writes to a logger; our recorder listens to that one as well
(``dynadiag_cuda_graph_skip``), reads why code is recorded again, with the inputs that moved
(``dynadiag_cuda_graph_again``), and which operators Inductor leaves out where it splits code into several CUDA graphs
(``dynadiag_cuda_graph_split``). Seen in torch 2.11, 2.13 and 2.15.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from dynadiag.explanation.findings import Fact, Finding
from dynadiag.explanation.formatting import count
from dynadiag.explanation.identity import identity
from dynadiag.explanation.owner import owner_and_entry
from dynadiag.explanation.remedy import Remedy, Trial, advise, slots_if
from dynadiag.explanation.rules import Rule
from dynadiag.explanation.source import ExplainedRecording, event_data
from dynadiag.recording.json_values import float_or_none, int_or_none, json_object, list_or_empty
from dynadiag.recording.package_files import PackageFiles
from dynadiag.recording.records import Compile, Event, Guard, Span
from dynadiag.recording.torch_text.reasons import (
    CUDA_GRAPH_RECORDED,
    read_cudagraph_reason,
    read_cudagraph_split,
)
from dynadiag.recording.torch_text.sources import input_names

SKIP, AGAIN = "dynadiag_cuda_graph_skip", "dynadiag_cuda_graph_again"  # the kinds of the recorder's events
_METRICS = {"compilation_metrics": False, "bwd_compilation_metrics": True}  # kind -> whether it is of backward code
SPLIT = "dynadiag_cuda_graph_split"
CUDA_GRAPH_EVENTS = (SKIP, AGAIN, SPLIT, *_METRICS, "chromium_event")  # the kinds that are read
_MOST_INPUTS = 3  # inputs that moved which a finding names
_OUTSIDE = "-"  # compile id of what happens while the program runs


@dataclass(frozen=True, slots=True)
class CudaGraph:
    """``what`` is "recorded", "re-recorded" (the same code once more: other sizes, other addresses, another way
    through the program), "skipped", "split" (an operator is in none of the graphs of its code), or "many sizes" (torch
    warns that it records one for each).

    ``compile_id`` is "-" where torch did not say which code it was, ``backward`` None where it did not say of which
    kind. ``seconds`` is what recording took. The place is the user's line that torch names in its reason. ``kind`` is
    the kind of the reason, None for one that is not known, and ``value`` what the reason names. ``graphs`` is how many
    CUDA graphs the code is split into. ``inputs`` are those that moved, of ``of_inputs``: the name and the line of the
    first use.
    """

    compile_id: str
    what: str
    backward: bool | None = None
    reason: str | None = None
    file: str | None = None
    line: int | None = None
    seconds: float | None = None
    kind: str | None = None
    value: str = ""
    graphs: int | None = None
    inputs: tuple[tuple[str, Span], ...] = ()
    of_inputs: int = 0


def read_cuda_graphs(recording: ExplainedRecording) -> tuple[CudaGraph, ...]:
    """What a recording has on CUDA graphs: the skipped ones, then the recorded ones in their order."""
    told = [_skipped(event, data) for event, data in event_data(recording, SKIP)]
    known = {(item.compile_id, item.reason) for item in told}
    measured = [item for kind in _METRICS for item in _measured(recording, kind)]
    skipped = [*told, *(item for item in measured if (item.compile_id, item.reason) not in known)]
    again = [_again(event, data) for event, data in event_data(recording, AGAIN)]
    split = [_split(event, data) for event, data in event_data(recording, SPLIT)]
    return (*dict.fromkeys(skipped), *dict.fromkeys(split), *_counted(again), *_recordings(recording))


def with_input_names(
    graphs: Iterable[CudaGraph], stages: Iterable[tuple[str, str, Sequence[str]]], guards: Sequence[Guard]
) -> tuple[CudaGraph, ...]:
    """The graphs with inputs as the program writes them, where it is known which of Dynamo's inputs they are.

    ``stages`` are graphs of the compiles: the compile, the stage, and the names of the inputs. torch tells of the names
    in AOTAutograd's graph; where Inductor splits code into several CUDA graphs, each has some of these, in an order of
    its own. AOTAutograd keeps the order of the inputs that it neither adds nor takes away.
    """
    inputs: dict[tuple[str, bool], set[tuple[str, ...]]] = defaultdict(set)
    for compile_id, stage, names in stages:
        inputs[compile_id, stage == "dynamo"].add(tuple(names))
    return tuple(
        replace(each, inputs=_named(each, inputs[each.compile_id, True], inputs[each.compile_id, False], guards))
        for each in graphs
    )


def _named(
    graph: CudaGraph, given: set[tuple[str, ...]], taken: set[tuple[str, ...]], guards: Iterable[Guard]
) -> tuple[tuple[str, Span], ...]:
    if len(given) != 1 or len(taken) != 1 or len(min(given)) != len(min(taken)):
        return graph.inputs
    sources = [each.source for each in guards if each.compile_id == graph.compile_id and each.source]
    names = dict(zip(min(taken), input_names(min(given), sources), strict=True))
    return tuple((names.get(name, name), use) for name, use in graph.inputs)


def _again(event: Event, data: Mapping[str, Any]) -> CudaGraph:
    inputs = tuple(
        (str(each.get("name")), read_cudagraph_reason(str(each.get("stack") or "")).span)
        for each in list_or_empty(data.get("inputs"))
        if isinstance(each, dict)
    )
    of = int_or_none(data.get("input_count")) or 0
    return replace(_skipped(event, data), what="re-recorded", inputs=inputs, of_inputs=of)


def _split(event: Event, data: Mapping[str, Any]) -> CudaGraph:
    facts = read_cudagraph_split(str(data.get("reason")), str(data.get("stack") or ""))
    operator = str(data.get("operator") or "").removesuffix(".default")
    return CudaGraph(
        event.compile_id,
        "split",
        None,
        facts.text,
        facts.span.file,
        facts.span.line,
        kind=facts.kind,
        value=operator or "an operator",
        graphs=int_or_none(data.get("graphs")),
    )


def _counted(again: Sequence[CudaGraph]) -> Iterator[CudaGraph]:
    """One for each compile that was recorded again more than once since tensors moved; its value is how often.

    torch has other reasons too (a tensor of another graph that lives longer), which need not be a fault.
    """
    moved: dict[str, list[CudaGraph]] = defaultdict(list)
    for each in again:
        if each.kind == "moved":
            moved[each.compile_id].append(each)
    yield from (replace(group[0], value=str(len(group))) for group in moved.values() if len(group) > 1)


def _measured(recording: ExplainedRecording, kind: str) -> Iterator[CudaGraph]:
    for event, data in event_data(recording, kind):
        if data.get("cudagraph_skip_reason"):
            yield _with_reason(event.compile_id, str(data["cudagraph_skip_reason"]), backward=_METRICS[kind])


def _skipped(event: Event, data: Mapping[str, Any]) -> CudaGraph:
    named = data.get("compile_id")
    return _with_reason(named if isinstance(named, str) else event.compile_id, str(data.get("reason")), backward=None)


def _with_reason(compile_id: str, reason: str, *, backward: bool | None) -> CudaGraph:
    facts = read_cudagraph_reason(reason)
    what = "many sizes" if facts.kind == "sizes" else "skipped"
    at = facts.span
    return CudaGraph(compile_id, what, backward, facts.text, at.file, at.line, kind=facts.kind, value=facts.value)


def _recordings(recording: ExplainedRecording) -> Iterator[CudaGraph]:
    """Each recording of compiled code. Those happen while the program runs: their events stand outside any compile."""
    began: float | None = None
    met: set[tuple[str, bool | None]] = set()
    for event in recording.events("chromium_event", compile_id=_OUTSIDE):
        text = recording.payload(event.index)
        data = json_object(text) if CUDA_GRAPH_RECORDED in text else {}
        if data.get("name") != CUDA_GRAPH_RECORDED:
            continue
        if data.get("ph") == "B":
            began = float_or_none(data.get("ts"))
        elif data.get("ph") == "E":
            made = _recorded(data, began)
            code = (made.compile_id, made.backward)
            yield replace(made, what="re-recorded") if code in met else made
            met.add(code)
            began = None


def _recorded(data: Mapping[str, Any], began: float | None) -> CudaGraph:
    arguments = data.get("args")
    told = arguments if isinstance(arguments, dict) else {}
    named, backward, ended = told.get("compile_id"), told.get("is_backward"), float_or_none(data.get("ts"))
    seconds = None if began is None or ended is None else max(0.0, ended - began) / 1e6  # torch counts microseconds
    return CudaGraph(
        named if isinstance(named, str) and named != "None" else _OUTSIDE,
        "recorded",
        backward if isinstance(backward, bool) else None,
        seconds=seconds,
    )


_WHAT = {
    "skipped": "runs without a CUDA graph",
    "split": "is split around `{value}`, which runs in no CUDA graph",
    "many sizes": "has a CUDA graph for each size",
    "re-recorded": "was recorded again {value} times",
}
# Of each kind of reason: why the code has no CUDA graph, or is recorded more than once.
_CAUSES = {
    "mutation": "it writes to an input ({value} in all). A CUDA graph replays the same addresses, and torch does not "
    "know that the next call gives it the same tensor",
    "cpu": "it uses a tensor on the CPU, `{value}` in torch's graph",
    "devices": "it runs on several devices: {value}",
    "operator": "`{value}` cannot be in a CUDA graph",
    "split: chosen": "the program says so: `torch._inductor.config.custom_should_partition_ops` names it",
    "split: cpu": "it runs on the CPU",
    "split: copy": "it copies between the CPU and the GPU",
    "split: branch": "which of its branches runs is decided while the program runs",
    "split: unbacked": "the values of a tensor decide the size or number that it returns, and the CPU waits for it",
    "split: unsafe": "it is tagged `torch.Tag.cudagraph_unsafe`",
    "split: number": "`torch._inductor.config.cudagraph_unsafe_unbacked_ops` keeps a number that it uses out of them",
    "split: sizes": "it has sizes that vary, and `torch._inductor.config.triton.cudagraph_skip_dynamic_graphs` is on",
    "limit": "torch recorded it again {value} times, as tensors that it takes for fixed were at other addresses",
    "moved": "tensors that torch takes for fixed (parameters, buffers, what is marked) were at other addresses",
    "symbols": "its sizes are symbols, and `{value}` is on",
    "sizes": "a CUDA graph holds one size, and torch records another one for each: {value} so far",
}


def _on_a_gpu(*programs: str) -> tuple[Trial, ...]:
    """The trials of a remedy: programs of the benchmark, on an H100."""
    return tuple(_trial(each, "gone, fewer launches") for each in programs)


def _trial(program: str, outcome: str) -> Trial:
    return Trial(program, ("2.11",), outcome=outcome, by="benchmarks/cuda_graphs.py")


def _remedy(key: str, kind: str, says: str, *programs: str) -> Remedy[CudaGraph]:
    """What helps where this kind of reason stands against a CUDA graph."""
    return Remedy(
        f"cuda_graph.{key}", says, lambda graph: slots_if(graph.kind == kind), trials=_on_a_gpu(*programs), usual=True
    )


OVERWRITTEN: Remedy[Span] = Remedy(
    "cuda_graph.clone",
    "Keep a copy: call `.clone()` on what the compiled function returns, outside of it.",
    trials=_on_a_gpu("outputs that are kept"),
    usual=True,
)

_BY_MASK = ("aten.nonzero", "aten.index.Tensor", "aten.masked_select")  # operators whose size a mask decides

CUDA_GRAPHS: tuple[Remedy[CudaGraph], ...] = (
    _remedy(
        "return",
        "mutation",
        "Return the new value, and copy it into the tensor outside of the compiled function.",
        "a mean that is written to",
    ),
    _remedy(
        "static_address",
        "mutation",
        "Where each call gives it the same tensor: make that a buffer of the module, or call "
        "`torch._dynamo.mark_static_address(TENSOR, guard=True)` before the first call.",
        "a mean that stays where it is",
        "a mean that is made a buffer",
    ),
    Remedy(
        "cuda_graph.device",
        "Move the tensor to the GPU before the call, or make it a buffer of the module.",
        lambda graph: slots_if(graph.kind in ("cpu", "split: cpu", "split: copy")),
        trials=(*_on_a_gpu("a table on the CPU"), _trial("a bias on the CPU in split code", "gone, as many launches")),
        usual=True,
    ),
    _remedy(
        "tag",
        "split: unsafe",
        "Where the operator only launches work on the GPU, and waits for none: register it without the tag.",
        "an operator with a tag",
    ),
    _remedy(
        "where",
        "split: branch",
        "Compute both branches, and choose with `torch.where`.",
        "a branch that a tensor decides",
    ),
    Remedy(
        "cuda_graph.mask",
        "Compute with all rows, and let `torch.where` choose by the mask: the size is then the same in each call.",
        lambda graph: slots_if(graph.kind == "split: unbacked" and graph.value in _BY_MASK),
        trials=_on_a_gpu("rows of a mask"),
        usual=True,
    ),
    Remedy(
        "cuda_graph.copy",
        "Copy new values into the parameters and buffers (`copy_`) instead of giving them new memory.",
        lambda graph: slots_if(graph.kind in ("moved", "limit")),
        trials=_on_a_gpu("weights that move"),
        usual=True,
    ),
    _remedy("pad", "sizes", "Pad the inputs to a few sizes.", "many sizes"),
    _remedy(
        "skip_dynamic",
        "sizes",
        "Or set `torch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True`: code of many sizes then runs "
        "without CUDA graphs.",
        "many sizes without CUDA graphs",
    ),
)


def cuda_graph_findings(
    graphs: Iterable[CudaGraph], compiles: Iterable[Compile], sources: Mapping[str, str], packages: PackageFiles
) -> list[Finding]:
    """Return one finding for each function that torch left without a CUDA graph, or recorded again, for one reason."""
    known = {each.compile_id: each for each in compiles}
    groups: dict[tuple[object, ...], list[CudaGraph]] = defaultdict(list)
    for graph in graphs:
        if graph.reason is not None:
            compile_ = known.get(graph.compile_id)
            of = None if compile_ is None else (compile_.file, compile_.function)
            groups[of, graph.what, graph.kind or graph.reason, graph.file, graph.line].append(graph)
    return [_finding(group, known.get(group[0].compile_id), sources, packages) for group in groups.values()]


def _finding(
    group: Sequence[CudaGraph], compile_: Compile | None, sources: Mapping[str, str], packages: PackageFiles
) -> Finding:
    graph = group[0]
    place = Span(graph.file, graph.line)
    if graph.file is None and compile_ is not None:
        place = Span(compile_.file, compile_.line)
    elif compile_ is not None and _is_moved(graph.file, compile_.file, sources):
        place = replace(place, file=compile_.file)
    function = compile_.function if compile_ is not None else "?"
    code = "compiled code" if compile_ is None else function
    code = f"the backward of {code}" if graph.backward else code
    what = _WHAT[graph.what].format(value=graph.value)
    stack = () if compile_ is None else compile_.user_stack
    owner, entry = owner_and_entry(place.file, stack, packages)
    return Finding(
        rule=Rule.CUDA_GRAPH,
        id=None,
        identity=identity(Rule.CUDA_GRAPH, None, function, [place], sources, graph.kind or graph.reason or ""),
        severity="warning",
        span=place,
        function=function,
        title=f"{code} {what}",
        cause=_CAUSES[graph.kind].format(value=graph.value) if graph.kind else graph.reason,
        places=(place,),
        compile_ids=tuple(dict.fromkeys(each.compile_id for each in group)) if compile_ is not None else (),
        advice=advise(CUDA_GRAPHS, graph),
        evidence=tuple(_evidence(graph)),
        called=() if owner.is_user else tuple(frame for frame in stack if frame != entry),
        owner=owner.name,
        entry=None if entry is None else Span(entry.file, entry.line),
    )


def _evidence(graph: CudaGraph) -> Iterator[Fact]:
    """How many graphs are left of split code, and the inputs that moved."""
    if graph.graphs is not None:
        where = "beside it, which" if graph.graphs == 1 else "around it; what is between them"
        yield Fact("left", f"{count(graph.graphs, 'CUDA graph')} {where} is launched by itself")
    for name, use in graph.inputs[:_MOST_INPUTS]:
        yield Fact("moved", f"`{name}`", use if use.file else None)
    if len(graph.inputs) > _MOST_INPUTS:
        yield Fact("and", f"{len(graph.inputs) - _MOST_INPUTS} more of {count(graph.of_inputs, 'input')}")


def _is_moved(file: str | None, compiled: str | None, sources: Mapping[str, str]) -> bool:
    """Whether a reason names a file of another folder: it is in the cache since the same code was compiled there."""
    return file not in sources and PurePath(file or "").name == PurePath(compiled or "").name
