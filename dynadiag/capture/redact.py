"""Leave the user's source text out of events, for code that must not travel (``--no-source``).

Files, lines, names and shapes stay. torch quotes source in known places: the ``loc`` of stack entries, the code lines
of tracebacks, and comments in graphs and guards. Payloads of a kind that we do not know are left out whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_TRACEBACK_CODE = re.compile(r"(?m)^(\s*File \"[^\"]*\", line \d+.*)\n(?:\s+[^\n]*\n?)(?:\s*[\^~]+\s*\n?)?")
_GRAPH_COMMENT = re.compile(r"(?m)(# File: [^\n]*?), code: [^\n]*$")
_GUARD_COMMENT = re.compile(r"(?m)  # [^\n]*?(  # \S+:\d+ in [^\n]*)?$")
_TENSOR_ORIGIN = re.compile(r"(?m)(# File \"[^\"]*\", line \d+, in [^\n,]*), code: [^\n]*$")

_GRAPHS = (
    "dynamo_output_graph",
    "aot_",
    "inductor_post_grad_graph",
    "before_",
    "after_",
    "compiled_autograd_graph",
)
_PLAIN = (
    "compilation_metrics",
    "bwd_compilation_metrics",
    "chromium_event",
    "dynadiag_",
    "recompile_reasons",
    "torch_version",
)


def event(metadata: Mapping[str, Any], payload: str | None) -> tuple[Mapping[str, Any], str | None]:
    """The same event without the user's source text."""
    kind = next(iter(metadata), "")
    name = metadata["artifact"].get("name", "") if kind == "artifact" else kind
    return _without_loc(metadata), None if payload is None else _payload(name, payload)


def _without_loc(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_loc(item) for key, item in value.items() if key != "loc"}
    if isinstance(value, (list, tuple)):
        return [_without_loc(item) for item in value]
    return value


def _payload(name: str, payload: str) -> str:
    if name == "dynamo_cpp_guards_str":
        return _GUARD_COMMENT.sub(lambda match: match[1] or "", payload)
    if name in ("dynamo_graph_break_reason", "dynamo_error"):
        return _TENSOR_ORIGIN.sub(r"\1", _TRACEBACK_CODE.sub(r"\1\n", payload))
    if name.startswith(_GRAPHS):
        return _GRAPH_COMMENT.sub(r"\1", payload)
    if name.startswith(_PLAIN):
        return payload
    return f"<{len(payload)} characters left out: recorded with --no-source>"
