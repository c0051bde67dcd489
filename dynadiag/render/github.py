"""Problems for GitHub Actions: annotations, which are workflow commands on stdout, and the step's summary in Markdown.

Text of the program cannot become a command or markup: what a command reads is escaped, Markdown stands in code.
"""

from __future__ import annotations

from collections.abc import Sequence
from os.path import relpath

from dynadiag.check.measurement import Problem
from dynadiag.check.result import CheckResult
from dynadiag.explanation.formatting import count
from dynadiag.render.check_report import problem_headline
from dynadiag.render.clean import clean
from dynadiag.render.markdown import cell

_MAX_SHOWN = 50  # annotations of a job that GitHub keeps
_MAX_ROWS = 200  # of a table in the summary: GitHub refuses more than 1 MiB


def annotation_commands(result: CheckResult) -> str:
    """A workflow command for each problem, errors first."""
    order = sorted(result.problems, key=lambda each: each.severity != "error")
    return "".join(f"{_annotation(each, result.root)}\n" for each in order[:_MAX_SHOWN])


def _annotation(item: Problem, root: str) -> str:
    level = {"error": "error", "note": "notice"}.get(item.severity, "warning")
    values: dict[str, object] = {"title": f"dynadiag {item.rule}"}
    if item.file and item.file.startswith("/"):
        values["file"] = relpath(item.file, root)
        if item.line:
            values |= {"line": item.line, "endLine": item.end_line or item.line}
        if item.column is not None and item.end_line in (None, item.line):
            values |= {"col": item.column + 1, "endColumn": item.end_column or item.column + 1}
    given = ",".join(f"{name}={_property(str(value))}" for name, value in values.items())
    return f"::{level} {given}::{_data(problem_headline(item, root))}"


def _data(text: str) -> str:
    return clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def step_summary(result: CheckResult) -> str:
    """The verdict, the figures of each target, and a row for each problem."""
    verdict = "passes" if result.ok else f"fails: {count(len(result.problems), 'problem')}"
    lines = [f"## dynadiag check {verdict}", ""]
    lines += ["| target | breaks | recompiles | graphs |", "| --- | ---: | ---: | ---: |"]
    rows = [
        f"| {cell(run.target)} | {run.breaks} | {run.recompiles} | {run.graphs} |" for run in result.runs[:_MAX_ROWS]
    ]
    lines += [*rows, *_more(result.runs, "target")]
    if result.problems:
        lines += ["", "| problem | where | what |", "| --- | --- | --- |"]
        lines += [_row(each, result.root) for each in result.problems[:_MAX_ROWS]]
        lines += _more(result.problems, "problem")
    lines += ["", f"{len(result.known)} known, {len(result.gone)} gone."]
    return "\n".join(lines) + "\n"


def _more(items: Sequence[object], noun: str) -> list[str]:
    """The lines below a table that has not all of the items."""
    hidden = len(items) - _MAX_ROWS
    return ["", f"... and {count(hidden, f'more {noun}')}: --json has all."] if hidden > 0 else []


def _row(item: Problem, root: str) -> str:
    file = relpath(item.file, root) if item.file and item.file.startswith("/") else item.file or ", ".join(item.targets)
    where = f"{file}:{item.line}" if item.line else file
    return f"| {cell(item.rule)} | {cell(where)} | {cell(item.text)} |"
