"""Remove the user's source text from events, for code that must not leave the machine (``--no-source``).

Files, lines, names and shapes stay. torch quotes source in known places: the ``loc`` of stack entries, the code lines
of tracebacks, and comments in graphs, guards and generated code. That text is removed. A payload of an unknown kind is
removed completely. Then every line of every file that an event names is searched for in the rest, so that an unknown
place shows no source either.
"""

from __future__ import annotations

import json
import linecache
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["Redactor"]

_REPLACEMENT = "<source left out>"
_MIN_LINE_CHARS = 6  # characters of a line that is searched for: `else:` and `x = 1` also occur in torch's own text
_LINES_IN_TORCH_MESSAGES = frozenset({"torch._dynamo.graph_break()"})  # lines that torch's own messages contain too

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
    """Removes source from one event after another. It learns from the events which files there are."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._lines: dict[str, None] = {}  # in every escaped form that JSON or a repr gives a line

    def redact(
        self, metadata: Mapping[str, Any], payload: str | None, is_theirs: Callable[[str], bool]
    ) -> tuple[Mapping[str, Any], str | None]:
        """Return the event without the text of files for which ``is_theirs`` is true."""
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
    """The files that an event names: torch numbers them, our own events and tracebacks name them."""
    for value in metadata.values():
        if isinstance(value, (list, tuple)) and len(value) == 2 and isinstance(value[0], str):
            yield value[0]
        elif isinstance(value, Mapping) and isinstance(value.get("file"), str):
            yield value["file"]
    if payload is not None:
        yield from dict.fromkeys(_FILE.findall(payload))


def _escaped_forms(text: str) -> Iterator[str]:
    """A line as it is, inside a JSON string, inside a JSON string twice, and inside a Python string."""
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
