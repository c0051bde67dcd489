"""The commands as tools: the JSON Schema of each one's arguments is made from its own command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynadiag.__main__ import COMMANDS, command_parser
from dynadiag.commands.schema import DOCUMENTS
from dynadiag.commands.target_options import names_recording
from dynadiag.errors import DynadiagError

_LEFT_OUT = ("browse", "mcp", "schema")  # they need a terminal, or are of no use to a client
_NEVER_RUN = ("kernels", "graph", "report", "import", "export", "pack", "doctor", "prune")  # they run no program
_OWN_OPTIONS = ("help", "json", "live", "github")  # what the server sets, or what is of no use to a client
_EXECUTING = ("measure", "trust", "assembly")  # options that run code of a recording
_BREAK_ID = "GB"
_MEANINGS: Mapping[str, Mapping[int, str]] = {
    "bisect": {
        0: "found",
        3: "it does not fail",
        4: "it fails uncompiled too",
        5: "it fails, but not every time, or no culprit can be named",
    },
    "minify": {
        0: "written and proved",
        3: "it does not fail",
        4: "it fails uncompiled too",
        5: "it fails, but not every time",
        6: "written, and not proved",
    },
    "fix": {
        0: "every cause has a proved fix",
        1: "some causes have none",
        3: "there is nothing to fix",
        4: "it fails uncompiled",
    },
    "check": {0: "within", 1: "something is new or over budget"},
    "diff": {0: "the same", 1: "they differ"},
    "compare": {1: "every variant failed"},
}


@dataclass(frozen=True, slots=True)
class CommandTool:
    """One command. ``flags`` are the options by the name of their argument, ``places`` the words that follow them."""

    name: str
    description: str
    schema: dict[str, Any]
    flags: Mapping[str, argparse.Action]
    places: Sequence[argparse.Action]
    is_watched: bool  # it takes ``--live``

    @property
    def has_document(self) -> bool:
        """Whether the command takes ``--json``."""
        return self.name in DOCUMENTS

    @property
    def only_reads(self) -> bool:
        """Whether the command never runs a program, whatever its arguments are."""
        return self.name in _NEVER_RUN

    def words(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the command line for a call, from the first option on.

        Raises `DynadiagError` if it would run something, and the call does not say ``run``.
        """
        reason = self._what_runs(arguments)
        if reason is not None and not arguments.get("run"):
            raise DynadiagError(f"{self.name}: {reason}. Nothing was run: call it with run=true if that is wanted")
        words = ["--live"] if self.is_watched else []  # its lines are the progress of the call
        words += [word for name, action in self.flags.items() for word in _option_words(action, arguments.get(name))]
        if "target" in arguments and any(action.nargs == argparse.REMAINDER for action in self.places):
            module = ["-m"] if arguments.get("module") else []
            return [*words, *module, *([] if module else ["--"]), arguments["target"], *arguments.get("arguments", ())]
        values = [word for action in self.places for word in _as_list(arguments.get(action.dest))]
        return [*words, "--", *values] if values else words

    def meaning(self, code: int) -> str:
        """Return what an exit code of the command says."""
        known = _MEANINGS.get("bisect" if self.name == "triage" else self.name, {})
        is_own = self.name in ("explain", "record", "values", "run")
        other = "the program's own exit code" if is_own else f"exit code {code}"
        return known.get(code, other if code else "done")

    def _what_runs(self, arguments: Mapping[str, Any]) -> str | None:
        """What a call would run, in a sentence; None where it only reads."""
        executing = [name for name in _EXECUTING if arguments.get(name)]
        if executing:
            return f"{executing[0]} runs code of the recording"
        if self.only_reads:
            return None
        if self.name in ("explain", "values", "caches", "check", "diff", "compare"):
            targets = [*_as_list(arguments.get("target")), *_as_list(arguments.get("targets"))]
            targets += [value for action in self.places for value in _as_list(arguments.get(action.dest))]
            read = [names_recording(name) or (self.name == "explain" and _is_break_id(name)) for name in targets]
            if read and all(read) and not arguments.get("module"):
                return None
        return "this runs the program, with all that the program does outside (files, uploads)"


def command_tools() -> dict[str, CommandTool]:
    """Return the tools by name."""
    return {name: _tool(name) for name in COMMANDS if name not in _LEFT_OUT}


def _tool(name: str) -> CommandTool:
    parser = command_parser(name)
    flags, places = dict[str, argparse.Action](), list[argparse.Action]()
    properties, required = dict[str, Any](), list[str]()
    for action in parser._actions:  # argparse has no public list of them
        if action.dest in _OWN_OPTIONS:
            continue
        if action.nargs == argparse.REMAINDER:
            if not action.option_strings:  # the other one is `-m`
                places.append(action)
                properties |= _PROGRAM
                required.append("target")
        elif action.option_strings:
            argument = action.option_strings[-1].lstrip("-").replace("-", "_")
            argument = "gpu_target" if argument == "target" else argument
            flags[argument] = action
            properties[argument] = _property(action)
        else:
            places.append(action)
            properties[action.dest] = _property(action)
            if action.nargs in (None, "+"):
                required.append(action.dest)
    if name not in _NEVER_RUN or any(option in properties for option in _EXECUTING):
        properties["run"] = _RUN
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    is_watched = any(action.dest == "live" for action in parser._actions)
    return CommandTool(name, (parser.description or COMMANDS[name]).strip(), schema, flags, places, is_watched)


_RUN = {"type": "boolean", "description": "allow the call to run the program, or code of a recording"}
_PROGRAM: Mapping[str, Any] = {
    "target": {
        "type": "string",
        "description": "FILE.py, FILE.py:NAME (a function that returns (fn, args)), FILE.py::TEST, a module with "
        "module=true; where the command reads: a recording (*.dynadiag), a TORCH_TRACE log or its folder",
    },
    "arguments": {"type": "array", "items": {"type": "string"}, "description": "the program's own arguments"},
    "module": {"type": "boolean", "description": "target is a module, as after `python -m`"},
}


def _property(action: argparse.Action) -> dict[str, Any]:
    """The JSON Schema of an option or a word."""
    about = {"description": (action.help or "").replace("%(default)s", str(action.default))}
    if action.nargs == 0:
        return {"type": "boolean", **about}
    if action.choices is not None:
        value: dict[str, Any] = {"enum": list(action.choices)}
    else:
        value = {"type": _json_type(action)}
    if action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction):
        return {"type": "array", "items": value, **about}
    if action.nargs == "?" and action.option_strings:
        return {"anyOf": [value, {"type": "boolean"}], **about}
    return {**value, **about}


def _json_type(action: argparse.Action) -> str:
    if action.type is int:
        return "integer"
    is_number = action.type is float or getattr(action.type, "__name__", "") == "number"  # `common.positive_number`
    return "number" if is_number else "string"


def _option_words(action: argparse.Action, value: Any) -> Iterator[str]:
    option = action.option_strings[-1]
    if value is None or value is False:
        return
    if value is True:
        yield option
        return
    for item in _as_list(value):
        yield f"{option}={item}"


def _as_list(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(item) for item in value] if isinstance(value, list) else [str(value)]


def _is_break_id(text: str) -> bool:
    return text.upper().startswith(_BREAK_ID) and text[len(_BREAK_ID) :].isdigit()
