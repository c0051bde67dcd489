"""What a check found: as text, as JSON, and for GitHub Actions as annotations and the step's summary in Markdown.

Annotations are workflow commands on stdout. Text of the program cannot become a command or markup: what a command reads
is escaped, Markdown stands in code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import relpath

from dynadiag.check.baseline import BaselineUpdate
from dynadiag.check.measurement import CheckProblem, Problem
from dynadiag.check.result import CheckResult, CheckRule
from dynadiag.explanation.formatting import count, list_some
from dynadiag.render.clean import clean, clean_line
from dynadiag.render.json_document import CommandDocument, document_of, encode
from dynadiag.render.markdown import cell
from dynadiag.render.paths import source_location
from dynadiag.render.printer import Printer

_MAX_GONE = 10  # findings of the baseline that are gone, in a text


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """The figures of one target; null where they were not recorded. `memory` is in bytes."""

    target: str
    recording: str | None
    exit_code: int | None
    breaks: int
    recompiles: int
    graphs: int
    compile_seconds: float | None
    memory: int | None
    launches: int | None
    fallback_kernels: int


@dataclass(frozen=True, slots=True)
class GoneFinding:
    """A finding of the baseline that no run has any more, or has less often."""

    rule: str
    id: str | None
    identity: str
    file: str | None
    function: str
    text: str
    targets: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckDocument(CommandDocument):
    """The document of `dynadiag check --json`."""

    ok: bool
    problems: list[CheckProblem]
    known: list[CheckProblem]
    gone: list[GoneFinding]
    unknown: list[str]
    targets: list[CheckedTarget]


def _check_document(result: CheckResult) -> CheckDocument:
    return CheckDocument(
        torch=next((run.torch for run in result.runs if run.torch), None),
        ok=result.ok,
        problems=[document_of(CheckProblem, each) for each in result.problems],
        known=[document_of(CheckProblem, each) for each in result.known],
        gone=[document_of(GoneFinding, each, text=each.title, targets=list(each.targets)) for each in result.gone],
        unknown=list(result.unknown),
        targets=[document_of(CheckedTarget, run, fallback_kernels=len(run.fallbacks)) for run in result.runs],
    )


def check_json(result: CheckResult) -> bytes:
    return encode(_check_document(result))


def check_text(result: CheckResult, printer: Printer) -> str:
    """The report: what fails the check first, then what is gone."""
    return "\n".join(_CheckPrinter(result, printer).lines()).rstrip("\n") + "\n"


class _CheckPrinter:
    """Prints the result of a check."""

    def __init__(self, result: CheckResult, printer: Printer) -> None:
        self._result, self._printer = result, printer

    def lines(self) -> Iterator[str]:
        result, printer = self._result, self._printer
        yield from (*self._verdict(), "", *self._paragraphs(), *self._gone())
        if result.update is not None:
            yield from printer.labelled("baseline", _update_text(result.update))
        for text in (*_no_baseline(result), *result.unknown):
            yield from printer.wrap(text, "note: ")

    def _verdict(self) -> list[str]:
        result, printer = self._result, self._printer
        runs = count(len(result.runs), "target")
        known = f", {result.known_findings} known" if result.known else ""
        gone = f", {len(result.gone)} {'gone' if result.update is None else 'dropped'}" if result.gone else ""
        if result.ok:
            return printer.labelled("ok", f"nothing new in {runs}{known}{gone}", "good")
        return printer.labelled("failed", f"{count(len(result.problems), 'problem')} in {runs}{known}{gone}", "error")

    def _paragraphs(self) -> Iterator[str]:
        """Each problem on a line with its place, then the paragraph of its finding. A paragraph is printed once."""
        result, printer = self._result, self._printer
        printed = set[str]()
        for item in result.problems:
            headline = problem_headline(item, result.root)
            paragraph = [] if item.shown == item.text else item.shown.splitlines()
            yield from printer.wrap(headline)
            if others := [name for name in item.targets if name not in headline]:
                yield from printer.wrap(list_some(others), "    in: ")
            if item.shown not in printed:
                yield from paragraph[1:] if paragraph and item.text in paragraph[0] else paragraph
            printed.add(item.shown)
            yield ""

    def _gone(self) -> list[str]:
        result, printer = self._result, self._printer
        if not result.gone:
            return []
        what = "gone: {}; --update drops them" if result.update is None else "dropped: {}"
        lines = [printer.paint(what.format(len(result.gone)), "strong")]
        for item in result.gone[:_MAX_GONE]:
            label = f"{item.rule}[{item.id}]" if item.id else item.rule
            lines += printer.wrap(f"{label} {item.file or ''}{_told(item.function, item.title)}", "    ")
        if len(result.gone) > _MAX_GONE:
            lines.append(f"    ... and {len(result.gone) - _MAX_GONE} more, in the JSON")
        return [*lines, ""]


def _no_baseline(result: CheckResult) -> Iterator[str]:
    if not result.is_compared and any(CheckRule(item.rule).is_new for item in result.problems):
        yield "without a baseline every finding is new: --update writes one"


def _update_text(update: BaselineUpdate) -> str:
    return (
        f"{count(update.known, 'known finding')} in {update.file}, {update.added} added, {len(update.dropped)} dropped"
    )


def problem_headline(item: Problem, root: str) -> str:
    """``new-break[GB0124] train.py:12 in step: Failed to trace ...``, of a problem on one line."""
    label = f"{item.rule}[{item.gb_id}]" if item.gb_id else item.rule
    where = source_location(item.file, item.line, None, root) if item.file else list_some(item.targets)
    return clean_line(f"{label} {where}{_told(item.function if item.file else None, item.text)}")


def _told(function: str | None, text: str) -> str:
    """What is told of a place: the function, unless the text begins with it, and the text."""
    return f": {text}" if not function or text.startswith(f"{function}: ") else f" in {function}: {text}"


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
    lines += ["", f"{result.known_findings} known, {len(result.gone)} gone."]
    return "\n".join(lines) + "\n"


def _more(items: Sequence[object], noun: str) -> list[str]:
    """The lines below a table that has not all of the items."""
    hidden = len(items) - _MAX_ROWS
    return ["", f"... and {count(hidden, f'more {noun}')}: --json has all."] if hidden > 0 else []


def _row(item: Problem, root: str) -> str:
    file = relpath(item.file, root) if item.file and item.file.startswith("/") else item.file or ", ".join(item.targets)
    where = f"{file}:{item.line}" if item.line else file
    return f"| {cell(item.rule)} | {cell(where)} | {cell(item.text)} |"
