"""Remove the user's source text from events, for code that must not leave the machine (``--no-source``).

Files, lines, names and shapes stay. torch quotes source in known places: the ``loc`` of stack entries, the code lines
of tracebacks, and comments in graphs, guards and generated code. That text is removed. A payload of an unknown kind is
removed completely. Then every line of every file that an event names is searched for in the rest, so that an unknown
place shows no source either.

String constants of the source, such as a key or a prompt, also occur in graphs, guards and messages. Each is replaced
by a number of its own. A string that is a name in the program or in torch stays, and so does one of up to three
characters. Strings that guards compare with are replaced wherever they come from, and so are messages of exceptions.
"""

from __future__ import annotations

import ast
import json
import linecache
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_MIN_TEXT_CHARS = 4  # characters of a text in the source that is searched for
_QUOTES = ("'", '"', '\\"', '\\\\\\"')  # as they are, inside a JSON string, inside a JSON string twice
_COMPARED = re.compile(r"(?:[=!]=|\bis|\bin) (?P<rest>[^\n]*)")
_QUOTED = re.compile(r"(?P<quote>\\*['\"])(?P<text>.*?)(?P=quote)")
_EXCEPTION = re.compile(r"(?P<lead>raised exception \w+\().*(?P<end>\))")
_CONSTANT = re.compile(r"(?P<lead>ConstantVariable\(str: )(?P<quote>\\*['\"]).*?(?P=quote)\)")
_GUARDS = ("dynamo_cpp_guards_str", "recompile_reasons", "dynadiag_guards", "dynadiag_recompile", "dynadiag_refused")
_NODE_KINDS = frozenset({"placeholder", "call_function", "call_method", "call_module", "get_attr", "output"})
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
        "dynadiag_failed_trace",
    }
)
_LOOKUPS = ("fx_graph_cache_", "fx_graph_bundled_cache_", "aotautograd_cache_", "dynadiag_cache_key")
_LOOKUP_FIELDS = ("key", "components", "cache_state", "cache_status_detailed", "cache_bypass_reason", "time_taken_ns")
_SOURCE_COMPONENT = re.compile(r"(?P<lead>\[\w+\] \w*source\w*(?:\[[^\]]*\])?: ).*", re.DOTALL)
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
        self._lines: dict[str, str] = {}  # in every escaped form that JSON or a repr gives a line, and what replaces it
        self._texts: dict[str, None] = {}
        self._names: frozenset[str] = frozenset()
        self._numbers: dict[str, int] = {}  # of the texts
        self._searched: dict[str, str] = {}  # the lines, and the texts that are no names

    def redact(
        self, metadata: Mapping[str, Any], payload: str | None, is_user_file: Callable[[str], bool]
    ) -> tuple[Mapping[str, Any], str | None]:
        """Return the event without the text of files for which ``is_user_file`` is true."""
        for file in _files_named_in(metadata, payload):
            if file not in self._files:
                self._files.add(file)
                if is_user_file(file):
                    self._add_lines_of(file)
                self._search_for_texts()
        kind = next(iter(metadata), "")
        name = metadata["artifact"].get("name", "") if kind == "artifact" else kind
        guards = name in _GUARDS
        redacted: Mapping[str, Any] = self._redact_value(_without_loc(metadata), guards=guards)
        if payload is None:
            return redacted, None
        return redacted, self._redact_text(_redact_payload(name, payload), guards=guards)

    def _add_lines_of(self, file: str) -> None:
        lines = linecache.getlines(file)
        for line in lines:
            text = line.strip()
            if len(text) >= _MIN_LINE_CHARS and not text.isidentifier() and text not in _LINES_IN_TORCH_MESSAGES:
                self._lines.update(dict.fromkeys(_escaped_forms(text), _REPLACEMENT))
        try:
            nodes = list(ast.walk(ast.parse("".join(lines))))
        except (SyntaxError, ValueError, RecursionError):
            return
        self._names |= _names_in(nodes)
        texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        self._texts.update(dict.fromkeys(text for text in texts if len(text.strip()) >= _MIN_TEXT_CHARS))

    def _search_for_texts(self) -> None:
        """Update the texts to search for. A text that could be an identifier is searched for only in quotes."""
        files = "\n".join(self._files)
        self._searched = dict(self._lines)
        for text in self._texts:
            if text in self._names or text in files:
                continue
            masked = self._masked(text)
            if text.isidentifier():
                self._searched.update((f"{quote}{text}{quote}", f"{quote}{masked}{quote}") for quote in _QUOTES)
            else:
                self._searched.update(dict.fromkeys(_escaped_forms(text), masked))

    def _masked(self, text: str) -> str:
        return f"<text {self._numbers.setdefault(text, len(self._numbers) + 1)}>"

    def _redact_value(self, value: Any, *, guards: bool = False, key: str = "") -> Any:
        if isinstance(value, str):
            text = self._mask_quoted(value) if key in ("was", "now", "index") else value
            return self._redact_text(text, guards=guards or key == "recompile_reason")
        if isinstance(value, Mapping):
            return {name: self._redact_value(item, guards=guards, key=str(name)) for name, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._redact_value(item, guards=guards, key=key) for item in value]
        return value

    def _redact_text(self, text: str, *, guards: bool = False) -> str:
        if guards:
            text = _COMPARED.sub(lambda found: self._mask_quoted(found[0]), text)
        if len(text) < _MIN_TEXT_CHARS:
            return text
        for line, replacement in self._searched.items():
            if line in text:
                text = text.replace(line, replacement)
        text = _EXCEPTION.sub(rf"\g<lead>{_REPLACEMENT}\g<end>", text)
        return _CONSTANT.sub(rf"\g<lead>{_REPLACEMENT})", text)

    def _mask_quoted(self, text: str) -> str:
        """The texts in quotes replaced by their numbers."""
        return _QUOTED.sub(lambda found: f"{found['quote']}{self._masked(found['text'])}{found['quote']}", text)


def _names_in(nodes: list[ast.AST]) -> frozenset[str]:
    """The names that a program has and that torch has: a text that is one of them is no secret."""
    found = {node.id for node in nodes if isinstance(node, ast.Name)}
    found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    found |= {node.arg for node in nodes if isinstance(node, ast.arg | ast.keyword) and node.arg}
    found |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return frozenset({*found, *dir(sys.modules.get("torch")), *_NODE_KINDS})


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
    if name.startswith(_LOOKUPS) and (lookup := _redact_lookup(payload)) is not None:
        return lookup
    if name.startswith(("dynadiag_", *_KINDS_WITHOUT_SOURCE)):
        return payload
    return f"<{len(payload)} characters left out: recorded with --no-source>"


def _redact_lookup(payload: str) -> str | None:
    """Return a cache lookup without the key components that hold source code, such as that of a Triton kernel."""
    try:
        data = json.loads(payload)
    except ValueError:
        return None
    if not isinstance(data, dict):
        return None
    kept = {name: data[name] for name in _LOOKUP_FIELDS if name in data}
    if isinstance(components := kept.get("components"), list):
        kept["components"] = [_SOURCE_COMPONENT.sub(rf"\g<lead>{_REPLACEMENT}", str(each)) for each in components]
    return json.dumps(kept)
