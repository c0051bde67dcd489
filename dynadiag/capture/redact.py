"""Leave the user's source text out of events, for code that must not travel (``--no-source``).

Files, lines, names and shapes stay. torch quotes source in known places: the ``loc`` of stack entries, the code lines
of tracebacks, and comments in graphs, guards and generated code; what stands there is left out. Payloads of a kind that
we do not know are left out whole. Then every line of every file that an event names is looked for in what is left,
so that a place that we do not know shows nothing either.
"""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Redactor"]

_REPLACEMENT = "<source left out>"
_MIN_LINE_CHARS = (
    6  # characters of a line that is looked for: `else:` and `x = 1` say nothing, and stand in torch's own text
)
_LINES_IN_TORCH_MESSAGES = frozenset(
    {"torch._dynamo.graph_break()"}
)  # lines that are words of torch's messages as well

_TRACEBACK_CODE = re.compile(r"(?m)^(\s*File \"[^\"]*\", line \d+.*)\n(?:\s+[^\n]*\n?)(?:\s*[\^~]+\s*\n?)?")
_CODE_COMMENT = re.compile(r"(?m)((?:# )?File:? [^\n]*?), code: [^\n]*$")
_GUARD_COMMENT = re.compile(r"(?m)  # [^\n]*?(  # \S+:\d+ in [^\n]*)?$")
_FILE = re.compile(r'File \\?"([^"\\\n]+)\\?", line \d')

_KINDS_WITH_COMMENTS = frozenset(
    {
        "dynamo_output_graph",
        "optimize_ddp_split_child",
        "compiled_autograd_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "before_pre_grad_graph",
        "after_pre_grad_graph",
        "before_joint_graph",
        "after_joint_graph",
        "before_post_grad_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "dynamo_graph_break_reason",
        "dynamo_error",
    }
)
_KINDS_WITHOUT_SOURCE = (
    "compilation_metrics",
    "bwd_compilation_metrics",
    "chromium_event",
    "recompile_reasons",
    "torch_version",
)


class Redactor:
    """Takes the source out of one event after another; it learns which files there are from what it sees."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._lines: dict[str, None] = {}  # in every spelling that a line may have inside JSON or a repr

    def redact(
        self, metadata: Mapping[str, Any], payload: str | None, is_theirs: Callable[[str], bool]
    ) -> tuple[Mapping[str, Any], str | None]:
        """The same event without the text of files for which ``is_theirs``."""
        for file in _files_named_in(metadata, payload):
            if file not in self._files:
                self._files.add(file)
                if is_theirs(file):
                    self._add_lines_of(file)
        kind = next(iter(metadata), "")
        name = metadata["artifact"].get("name", "") if kind == "artifact" else kind
        swept: Mapping[str, Any] = self._redact_value(_without_loc(metadata))
        return swept, None if payload is None else self._redact_text(_redact_payload(name, payload))

    def _add_lines_of(self, file: str) -> None:
        for line in linecache.getlines(file):
            text = line.strip()
            if len(text) >= _MIN_LINE_CHARS and not text.isidentifier() and text not in _LINES_IN_TORCH_MESSAGES:
                self._lines.update(dict.fromkeys(_escaped_forms(text)))

    def _redact_value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, Mapping):
            return {key: self._redact_value(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._redact_value(item) for item in value]
        return value

    def _redact_text(self, text: str) -> str:
        if len(text) < _MIN_LINE_CHARS:
            return text
        for line in self._lines:
            if line in text:
                text = text.replace(line, _REPLACEMENT)
        return text


def _files_named_in(metadata: Mapping[str, Any], payload: str | None) -> Iterator[str]:
    """The files that an event names: torch gives each a number, our own events and tracebacks say it."""
    for value in metadata.values():
        if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], str):
            yield value[0]
        elif isinstance(value, Mapping) and isinstance(value.get("file"), str):
            yield value["file"]
    if payload is not None:
        yield from dict.fromkeys(_FILE.findall(payload))


def _escaped_forms(text: str) -> Iterator[str]:
    """A line as it is, and inside a string of JSON, twice over, or of Python."""
    yield text
    quoted = json.dumps(text)[1:-1]
    yield quoted
    yield json.dumps(quoted)[1:-1]
    yield repr(text)[1:-1]


def _without_loc(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_loc(item) for key, item in value.items() if key != "loc"}
    if isinstance(value, (list, tuple)):
        return [_without_loc(item) for item in value]
    return value


def _redact_payload(name: str, payload: str) -> str:
    if name == "dynamo_cpp_guards_str":
        return _GUARD_COMMENT.sub(lambda match: match[1] or "", payload)
    if name in _KINDS_WITH_COMMENTS:
        return _CODE_COMMENT.sub(r"\1", _TRACEBACK_CODE.sub(r"\1\n", payload))
    if name.startswith(("dynadiag_", *_KINDS_WITHOUT_SOURCE)):
        return payload
    return f"<{len(payload)} characters left out: recorded with --no-source>"
