"""The probes: what a torch function that emits an event knows beyond its event, read from its local variables.

The names of the functions and their locals are in `dynadiag.torch_private.capture`. A probe appends its event of ours
before torch's event. It may raise: the recorder notes the probe that failed, and goes on. It raises `LookupError`
where this torch has not what it reads, so that a report can say what is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import torch

from dynadiag.capture import breaks, caches, code_locations, generated_code, graphs, guards
from dynadiag.recording.package_files import installed_path
from dynadiag.torch_private import capture as torch_private

if TYPE_CHECKING:
    from torch.fx import Graph
    from torch.nn import Module

    from dynadiag.capture.recorder import Recorder
import json


def _locals(function: str, local: str, emitter: FrameType) -> dict[str, Any]:
    """The locals of the torch function that emits an event. Raises `LookupError` if this torch has it not."""
    found = torch_private.emitter_locals(function, local, emitter)
    if found is None:
        raise LookupError(f"{function} with {local}")
    return found


def _probe_start(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    found = _locals(*torch_private.START_EMITTER, emitter)
    code = found["code"]
    recorder.later_calls.compiled_again(code)
    frame = {**_callable_location(code, emitter), "callers": code_locations.user_callers(emitter)}
    frame["objects"] = recorder.objects.of_locals(torch_private.compiled_locals(emitter))
    recorder.append("frame", {**frame, **recorder.collectives.unseen_data()}, metadata)
    recorder.record_source(code.co_filename, metadata)
    recorder.record_source(_main_file(), metadata)
    recorder.record_packages()
    recorder.refused_fusions.clear()


def _main_file() -> str | None:
    """The program's own file: what it sets and calls matters, even if nothing in it is compiled."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or installed_path(file):  # pytest, a launcher
        return None
    return str(Path(file).absolute())


def _callable_location(code: CodeType, emitter: FrameType) -> dict[str, Any]:
    """The location of a compiled function, or of the user's callable if torch wrapped it in a function of its own."""
    wrapped = torch_private.wrapped_callable(emitter)
    return code_locations.describe_code(code) if wrapped is None else code_locations.describe_callable(wrapped, emitter)


def _probe_break(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    for function, local in torch_private.BREAK_EMITTERS.items():
        if found := torch_private.emitter_locals(function, local, emitter):
            named: dict[str, Any] = {key: found[key] for key in ("gb_type", "explanation", "hints") if key in found}
            _append_break(recorder, metadata, emitter, found[local], fatal=False, named=named)
            return
    raise LookupError(", ".join(torch_private.BREAK_EMITTERS))


def _probe_error(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    found = _locals(*torch_private.ERROR_EMITTER, emitter)
    fatal = torch_private.ends_in_exception(found["e"], one_graph=bool(found.get("one_graph")))
    above = {"callers": code_locations.user_callers(emitter)} if fatal else {}
    _append_break(recorder, metadata, emitter, found["e"], fatal=fatal, named=above)
    for graph in torch_private.unfinished_graphs(found["e"]):
        _append_graph(recorder, metadata, graph)
        recorder.append("failed_trace", {}, metadata, graphs.printed_graph(graph))


def _append_break(
    recorder: Recorder,
    metadata: Mapping[str, Any],
    emitter: FrameType,
    failure: Any,
    *,
    fatal: bool,
    named: dict[str, Any],
) -> None:
    data = {**breaks.describe_break(failure, emitter, recorder.source_lines, fatal=fatal), **named}
    recorder.append("break", data, metadata)
    recorder.record_source(data.get("file"), metadata)


def _probe_graph(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    found = _locals(*torch_private.GRAPH_EMITTER, emitter)
    _append_graph(recorder, metadata, found["gm"].graph, found["gm"])
    recorder.append("options", describe_options(found["self"].compiler_fn), metadata)


def _append_graph(recorder: Recorder, metadata: Mapping[str, Any], graph: Graph, owner: Module | None = None) -> None:
    recorder.append("graph", {"stage": "dynamo"}, metadata, graphs.graph_json(graph, owner))
    for file in graphs.source_files(graph):
        recorder.record_source(file, metadata, library=True)


def _probe_guards(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    found = _locals(*torch_private.GUARDS_EMITTER, emitter)
    recorder.append(
        "guards", {"places": guards.guard_places(found["sorted_guards"], found["output_graph"].local_scope)}, metadata
    )


def _probe_recompile(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    found = _locals(*torch_private.RECOMPILE_EMITTER, emitter)
    frame = found["frame"]
    failures = [
        failure
        for entry in torch_private.cached_entries(found, emitter)
        for failure in guards.failing_guards(entry, frame.f_locals)
    ]
    call = {"objects": recorder.objects.of_locals(frame.f_locals), "dynamic": torch_private.dynamic_sizes(emitter)}
    location = _callable_location(frame.f_code, emitter)
    recorder.append("recompile", {**location, **call, "failures": failures}, metadata)


def _probe_output_code(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    recorder.add_module(metadata)
    if (lowered := torch_private.lowered_graph(emitter)) is not None:
        recorder.append("origins", {}, metadata, generated_code.scheduler_json(lowered, recorder.refused_fusions))
        for split in torch_private.cuda_graph_splits(lowered):
            recorder.append("cuda_graph_split", split, metadata)
    recorder.refused_fusions.clear()


def _probe_aot_lookup(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    if (key := caches.aot_autograd_key_json(emitter)) is not None:
        recorder.append("cache_key", {}, metadata, key)


def _probe_metrics(recorder: Recorder, _metadata: Mapping[str, Any], _emitter: FrameType) -> None:
    recorder.record_cache_lookups()


def _probe_missing_kernel(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    """Append where a draft of an export runs an operator on the example, as it has no fake kernel."""
    operator, frames = metadata["missing_fake_kernel"]["op"], code_locations.user_callers(emitter)
    recorder.append("missing_kernel", {"op": operator, "stack": frames}, metadata)
    for frame in frames[-1:]:
        recorder.record_source(frame["file"], metadata)


def _probe_specialized(recorder: Recorder, metadata: Mapping[str, Any], emitter: FrameType) -> None:
    """Append the operator that makes a size constant, with the sizes of its tensors and its numbers."""
    if (found := torch_private.dispatched_operator(emitter)) is not None:
        texts = [text for each in found[1] if (text := _operand_text(each))]
        recorder.append("operands", {"operator": found[0], "operands": texts[:_MAX_OPERANDS]}, metadata)


def _operand_text(value: Any) -> str:
    """The sizes of a tensor, ``(s0, 4)``, the numbers in a list, ``[8, -1]``; empty for what has neither."""
    if isinstance(value, torch.Tensor):
        sizes = torch_private.sizes_of(value)
        return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    if isinstance(value, (list, tuple)):
        texts = [_operand_text(each) or str(each) for each in value[:_MAX_OPERANDS]]
        return f"[{', '.join(texts)}]"
    return ""


# By the name of the event, or of its artifact.
PROBES: dict[str, Callable[[Recorder, Mapping[str, Any], FrameType], None]] = {
    "dynamo_start": _probe_start,
    "dynamo_graph_break_reason": _probe_break,
    "dynamo_error": _probe_error,
    "dynamo_output_graph": _probe_graph,
    "dynamo_cpp_guards_str": _probe_guards,
    "recompile_reasons": _probe_recompile,
    "inductor_output_code": _probe_output_code,
    "aotautograd_cache_hit": _probe_aot_lookup,
    "aotautograd_cache_miss": _probe_aot_lookup,
    "compilation_metrics": _probe_metrics,
    "bwd_compilation_metrics": _probe_metrics,
    "missing_fake_kernel": _probe_missing_kernel,
    "symbolic_shape_specialization": _probe_specialized,
}


_MAX_OPERANDS = 8
_MAX_VALUE = 200  # characters of a value
_INDUCTOR = "torch._inductor.config"


def describe_options(backend: Any) -> dict[str, dict[str, Any]]:
    """Return the backend and the options, by module and name. Values are those of JSON.

    Among them are ``torch.compile(options=...)`` and ``mode=``, which hold while Inductor compiles.
    """
    options = torch_private.changed_options()
    options[_INDUCTOR] = {**options.get(_INDUCTOR, {}), **torch_private.inductor_options(backend)}
    found = {module: {name: _value(value) for name, value in values.items()} for module, values in options.items()}
    return {"torch.compile": {"backend": torch_private.backend_label(backend)}, **found}


def _value(value: Any) -> Any:
    """A value for JSON. A function becomes its name, file and line, another object its type."""
    if value is None or type(value) in (bool, int, float):
        return value
    code = getattr(value, "__code__", None)
    if code is not None:
        return f"{value.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
    if callable(value):
        return _type_name(value)
    try:
        text = value if isinstance(value, str) else json.dumps(value, default=_type_name, skipkeys=True)
    except (TypeError, ValueError, RecursionError):
        text = _type_name(value)
    return text[:_MAX_VALUE]


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
