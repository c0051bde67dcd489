"""A line that sets torch's configuration, where torch's own hint for the break names it. For a break in a library it
goes into the program.

Right because the setting says what goes into the graph (a value as a symbol): nothing of what the function computes
changes. If the value decides a branch the break only moves, and the proof sees that. What a library logs may be left
out where it is not shown: a message that is shown is missing then.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator
from dataclasses import replace

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Sources
from dynadiag.fixes.edits import Edit, ParsedSource
from dynadiag.fixes.problems import FixProblem
from dynadiag.fixes.project import is_library
from dynadiag.recording.torch_text.break_types import ignoring_option, named_settings

# Kinds of breaks that a setting ends, and whose hints do not name it.
_UNHINTED = {"GB0033": ("capture_scalar_outputs",)}
_WHY = "torch takes this into the graph, and what is computed stays the same"
SET_FOR_ALL = "it is set for the whole program"
_METHOD = re.compile(r"\.(\w+)\(")


def candidates(problem: FixProblem, sources: Sources) -> Iterator[Candidate]:
    """The settings that end a break, by its hints or by its kind."""
    file = sources.file(problem.file) if problem.file is not None else sources.program()
    if file is None or problem.kind != "break":
        return
    if problem.file is None:
        yield from _ignored(problem, file)
    for name in named_settings(problem.hints) or _UNHINTED.get(problem.gb_id or "", ()):
        line = f"torch._dynamo.config.{name} = True"
        why = f"{_WHY}; {SET_FOR_ALL}" if is_library(file.name) else _WHY
        yield Candidate(f"set `{line}`", "config", (_setting(file, name, line),), why)


def _ignored(problem: FixProblem, file: ParsedSource) -> Iterator[Candidate]:
    """The line that leaves a message of a library's logger out."""
    option = ignoring_option(problem.hints)
    line = linecache.getline(problem.span.file or "", problem.span.line or 0)
    method = _METHOD.search(line, problem.span.column or 0)
    if option is None or method is None:
        return
    imported = "" if file.imports("logging") else f"import logging{file.newline}"
    edit = config_line(file, f"{option}.add(logging.Logger.{method[1]})")
    title = f"leave out what the library logs with `Logger.{method[1]}`"
    why = "the program does not show the message"
    yield Candidate(title, "config", (replace(edit, text=imported + edit.text),), why)


def _setting(file: ParsedSource, name: str, line: str) -> Edit:
    """The edit that sets a setting: where the file sets it, else by a line of its own."""
    own = [
        assign
        for assign in file.nodes(cst.Assign)
        if len(assign.targets) == 1 and file.code(assign.targets[0].target).endswith(f"config.{name}")
    ]
    return file.replace(own[0].value, "True") if len(own) == 1 else config_line(file, line)


def logging_line(file: ParsedSource, function: str) -> Candidate:
    """The candidate that lets torch call a printing function after the graph."""
    line = f"torch._dynamo.config.reorderable_logging_functions.add({function})"
    return Candidate(
        f"let torch call `{function}` after the graph",
        "config",
        (config_line(file, line),),
        "the call is made with the same text, in the same order among its like, when the graph has run",
    )


def config_line(file: ParsedSource, line: str) -> Edit:
    """The edit that puts a line of configuration behind the imports at the top of a file."""
    return file.insert_line(file.after_imports(), f"{file.newline}{line}{file.newline}")
