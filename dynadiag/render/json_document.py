"""An explanation as the JSON of the outward contract (`schema` 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from dynadiag import __version__
from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.findings import Finding
from dynadiag.explanation.runtime_cost import CallCost, costs
from dynadiag.recording.code_origin import is_stdlib_file, is_torch_file, original_name, user_frame
from dynadiag.recording.records import (
    Break,
    Compile,
    Frame,
    Graph,
    Guard,
    GuardFailure,
    Kernel,
    Recompile,
    SkippedFrame,
    Span,
)

if TYPE_CHECKING:
    from dynadiag.kernels import KernelCall

__all__ = ["SCHEMA", "document", "encode", "explanation_json"]

SCHEMA = 1
_RECOMPILES = ("recompile", "recompile-limit")  # rules of findings


def explanation_json(explanation: Explanation, calls: Sequence[KernelCall] = ()) -> bytes:
    """The document as UTF-8, indented, with a line end."""
    return encode(document(explanation, calls))


def encode(value: Mapping[str, Any]) -> bytes:
    """JSON for any document; half a surrogate pair (from a file name that is no UTF-8) is written as an escape."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    try:
        return orjson.dumps(value, option=options)
    except TypeError:  # orjson's error for text that is no valid Unicode
        return orjson.dumps(_valid(value), option=options)


def document(explanation: Explanation, calls: Sequence[KernelCall] = ()) -> dict[str, Any]:
    """The contract's document for `explain`; indices in it are positions in its own lists.

    With the calls of the kernels (`dynadiag.kernels.kernel_calls`) each kernel has its nodes and their lines too.
    """
    break_at = {item.index: position for position, item in enumerate(explanation.breaks)}
    of_recompile = {index: item for item in explanation.findings if item.rule in _RECOMPILES for index in item.records}
    paid = costs(explanation.breaks, explanation.warm)
    return {
        "schema": SCHEMA,
        "dynadiag": __version__,
        "torch": explanation.run.torch,
        "target": explanation.run.target,
        "exit_code": explanation.run.exit_code,
        "breaks": [_break(item, break_at, paid.get(item.index)) for item in explanation.breaks],
        "skipped_frames": [_skipped(item) for item in explanation.skipped],
        "recompiles": [_recompile(item, of_recompile[item.index]) for item in explanation.recompiles],
        "compiles": _compiles(explanation.compiles, explanation.graphs),
        "graphs": [_graph(item) for item in explanation.graphs],
        "guards": [_guard(item) for item in explanation.guards],
        "kernels": [_kernel(item, calls) for item in explanation.kernels],
        "graph_count": explanation.graph_count,
        "break_count": explanation.break_count,
        "recompile_count": explanation.recompile_count,
        "findings": [_recorded_result(item) for item in explanation.findings],
        "notes": list(explanation.notes),
        "cuda_graphs": [asdict(item) for item in explanation.cuda_graphs],
        "warm": None if explanation.warm is None else explanation.warm.to_json(),
    }


def _break(item: Break, break_at: Mapping[int, int], cost: CallCost | None) -> dict[str, Any]:
    return {
        "gb_id": item.gb_id,
        "gb_type": item.gb_type,
        "reason": item.reason,
        "explanation": item.explanation,
        "hints": list(item.hints),
        **_place(item.span),
        "function": item.function,
        "user_stack": [_frame(frame) for frame in item.user_stack],
        "called_at": _called_at(item),
        "compile_id": item.compile_id,
        "cause": None if item.cause is None else break_at[item.cause],
        "fatal": item.fatal,
        "cost": None if cost is None else asdict(cost),
    }


def _called_at(item: Break) -> dict[str, Any] | None:
    """The user's line that led to a site in torch's or Python's own code; null where the site is no such."""
    frame = user_frame(item)
    theirs = not is_torch_file(item.span.file) and not is_stdlib_file(item.span.file)
    return None if theirs or frame is None else _frame(frame)


def _frame(frame: Frame) -> dict[str, Any]:
    return {"file": frame.file, "line": frame.line, "function": frame.function}


def _skipped(item: SkippedFrame) -> dict[str, Any]:
    return {"file": item.file, "line": item.line, "function": original_name(item.function), "reason": item.reason}


def _recorded_result(item: Finding) -> dict[str, Any]:
    """A finding; `caused_by` is its position in the list of them."""
    return {
        "rule": item.rule,
        "id": item.id,
        "identity": item.identity,
        "severity": item.severity,
        **_place(item.span),
        "function": item.function,
        "title": item.title,
        "cause": item.cause,
        "caused_by": item.caused_by,
        "places": [{"file": span.file, "line": span.line} for span in item.places],
        "compile_ids": list(item.compile_ids),
        "ranks": None if item.ranks is None else list(item.ranks),
        "cost": {
            "operators_uncompiled": item.cost.operators_uncompiled,
            "compile_seconds": item.cost.compile_seconds,
            "graphs": item.cost.graphs,
            "functions_uncompiled": item.cost.functions_uncompiled,
        },
        "advice": [asdict(each) for each in item.advice],
    }


def _place(span: Span) -> dict[str, Any]:
    return {
        "file": span.file,
        "line": span.line,
        "column": span.column,
        "end_line": span.end_line,
        "end_column": span.end_column,
    }


def _recompile(item: Recompile, told: Finding) -> dict[str, Any]:
    return {
        "compile_id": item.compile_id,
        "file": item.file,
        "line": item.line,
        "function": item.function,
        "reasons": [_failure(reason) for reason in item.reasons],
        "advice": [each.text for each in told.advice],
        "limit_reached": item.limit_reached,
    }


def _failure(reason: GuardFailure) -> dict[str, Any]:
    return {
        "guard": reason.guard,
        "source": reason.source,
        "was": reason.was,
        "now": reason.now,
        "against": reason.against,
        "file": reason.file,
        "line": reason.line,
    }


def _compiles(compiles: Sequence[Compile], graphs: Sequence[Graph]) -> list[dict[str, Any]]:
    of: dict[str, list[int]] = {}
    for position, graph in enumerate(graphs):
        of.setdefault(graph.compile_id, []).append(position)
    return [_compile(item, of.get(item.compile_id, [])) for item in compiles]


def _compile(item: Compile, graphs: list[int]) -> dict[str, Any]:
    seconds = item.seconds
    return {
        "compile_id": item.compile_id,
        "file": item.file,
        "line": item.line,
        "function": item.function,
        "outcome": item.outcome,
        "seconds": {
            "total": seconds.total,
            "dynamo": seconds.dynamo,
            "aot": seconds.aot,
            "inductor": seconds.inductor,
            "codegen": seconds.codegen,
        },
        "guards": item.guards,
        "graphs": graphs,
        "attempts": item.attempts,
        "error": item.error,
        "reason": item.reason,
        "cache": item.cache,
    }


def _graph(item: Graph) -> dict[str, Any]:
    return {"compile_id": item.compile_id, "stage": item.stage, "nodes": item.nodes, "ops": item.ops}


def _guard(item: Guard) -> dict[str, Any]:
    return {
        "compile_id": item.compile_id,
        "kind": item.kind,
        "source": item.source,
        "expression": item.expression,
        "file": item.file,
        "line": item.line,
    }


def _kernel(item: Kernel, calls: Sequence[KernelCall]) -> dict[str, Any]:
    mine = [call for call in calls if (call.event, call.name) == (item.event, item.name)]
    places = dict.fromkeys(place for call in mine for place in call.source_lines or call.view_lines)
    return {
        "compile_id": item.compile_id,
        "name": item.name,
        "language": item.language,
        "nodes": list(dict.fromkeys(node for call in mine for node in call.nodes)),
        "lines": [{"file": place.file, "line": place.line} for place in places],
    }


def _valid(value: Any) -> Any:
    """The same value, each text in it valid Unicode."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_valid(key): _valid(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_valid(item) for item in value]
    return value
