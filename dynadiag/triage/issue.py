"""The issue, in the form of PyTorch's template for bugs of torch.compile: the bug, the error logs, the versions.

Text of the program stands in code, with its control characters shown and its folders cut off, so that it can become
neither markup nor a command. The commands are for the folder of the issue where there is a repro, otherwise for the
folder in which the program was run.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag import __version__
from dynadiag.bisection.document import BisectDocument, CulpritDocument, FailureDocument
from dynadiag.bisection.verdict import ENVIRONMENT_OF_RUNG
from dynadiag.explanation.formatting import count, first_line
from dynadiag.explanation.registry import installed_torch
from dynadiag.minify.minify_result import MinifyDocument
from dynadiag.minify.repro_header import strip_directories
from dynadiag.recording.torch_text.failures import is_comparison, wrapped_error
from dynadiag.render.json_document import ExplainDocument
from dynadiag.render.markdown import cell, escape_commands, fenced, has_commands, inline_code
from dynadiag.triage.document import PartDocument
from dynadiag.trial.compiler_log import without_warnings

__all__ = ["TriagedCase", "describe_environment", "issue_text", "short_environment"]

_MAX_LOG_LINES = 80  # of the end of an output: it names the failure
_MAX_TITLE = 120
_GRAPH = "GraphModule: "  # what the graph of a repro is called in messages
_TOLERANCE = " (rtol "  # where a message on wrong numbers goes into detail
_SEARCHED_WORD = re.compile(r"[A-Za-z][\w.]*")
_SEARCH = "https://github.com/pytorch/pytorch/issues?q="
_WRONG = ("wrong_result", "nan")
_OF_THE_PROGRAM = ("frame", "graph")  # culprits whose names say nothing to a maintainer
_WORDS = {"same": "fails", "pass": "passes", "different": "fails otherwise"}
_SENTENCES = {
    "found": "The program passes uncompiled and fails compiled.",
    "passes": "The program does not fail.",
    "fails_uncompiled": "The program fails without torch.compile too.",
    "flaky": "The program fails, but not every time.",
    "stopped": "The program fails. The search for the culprit was stopped before it had one.",
}
_NOT_WRONG = (
    "No compiled call gives a wrong result. Each was compared with its uncompiled self, and a float64 run judged what "
    "differs."
)
_TIMEOUT = 120.0  # seconds; it took 14 on a busy machine
_PUBLIC = re.compile(r"(PyTorch version|CUDA used|ROCM used|OS|GCC version|Python version|GPU models)")


@dataclass(frozen=True, slots=True)
class TriagedCase:
    """What a triage found. A part that was not done is ``None``; ``parts`` says why.

    ``repro`` is the text of the repro, ``repro_name`` its file in the folder. ``output`` is what the program printed,
    ``repro_output`` what the repro printed. ``command`` is the program for a shell, which only dynadiag can run if it
    is a function.
    """

    bisect: BisectDocument | None
    minify: MinifyDocument | None
    explain: ExplainDocument | None
    parts: Sequence[PartDocument]
    environment: str
    versions: BisectDocument | None = None
    repro: str = ""
    repro_name: str = "repro.py"
    output: str = ""
    repro_output: str = ""
    command: str = ""
    is_function: bool = False
    accuracy: bool = False
    redacted: bool = False


def issue_text(case: TriagedCase) -> str:
    """The issue in Markdown."""
    blocks = [
        *_title(case),
        "### 🐛 Describe the bug",
        *_description(case),
        *_repro(case),
        *_bisection(case),
        *_versions(case),
        *_search_link(case),
        "#### What was tried",
        "\n".join(_tried(case)),
        "### Error logs",
        *_logs(case),
        "### Versions",
        fenced(case.environment),
    ]
    return "\n\n".join(blocks) + "\n"


def _failure_of(case: TriagedCase) -> FailureDocument | None:
    found = case.minify.failure if case.minify else None
    return found or (case.bisect.failure if case.bisect else None)


def _title(case: TriagedCase) -> list[str]:
    failure = _failure_of(case)
    if failure is None:
        return ["# torch.compile"]
    type_, message = _error(failure)
    message = first_line(message).removeprefix(_GRAPH).partition(_TOLERANCE)[0]
    said = type_ if case.redacted or not message else f"{type_}: {strip_directories(message)}"
    at = f" with backend {inline_code(case.bisect.rung)}" if case.bisect is not None and case.bisect.rung else ""
    culprits = (case.bisect.culprits if case.bisect else ()) or (case.minify.bisected if case.minify else ())
    first = [each for each in culprits if each.kind not in _OF_THE_PROGRAM][:1]
    named = "".join(f", at fault: {each.kind} {inline_code(each.name)}" for each in first)
    return [f"# torch.compile{at}: {inline_code(_whole_words(said))}{named}"]


def _error(failure: FailureDocument) -> tuple[str, str]:
    """The type and the message of the error itself: without the wrapper that Dynamo puts around a backend's, and a
    comparison of values as the wrong result that it is.
    """
    type_, message = failure.type.rpartition(".")[2].replace("wrong_result", "wrong result"), failure.message
    if (inner := wrapped_error(message)) is not None:
        type_, message = inner
    return ("wrong result" if is_comparison(message) else type_), message


def _whole_words(text: str) -> str:
    """The text, cut between two words if it is too long for a title."""
    if len(text) <= _MAX_TITLE:
        return text
    return f"{text[:_MAX_TITLE].rpartition(' ')[0] or text[:_MAX_TITLE]} ..."


def _description(case: TriagedCase) -> Iterator[str]:
    if case.bisect is None:
        yield "The program was not bisected: see below."
        return
    passes = case.bisect.verdict == "passes"
    yield from (inline_code(strip_directories(text)) for text in _about_culprits(case))
    yield _NOT_WRONG if passes and case.accuracy else _SENTENCES[case.bisect.verdict]
    if passes and case.bisect.notes:  # such as why the program's own comparison fails all the same
        yield "\n".join(f"- {inline_code(strip_directories(text))}" for text in case.bisect.notes)
    if (failure := case.bisect.failure) is not None:
        where = f" in {inline_code(failure.where)}" if failure.where else ""
        at = f"; the first backend that fails is {inline_code(case.bisect.rung)}" if case.bisect.rung else ""
        how = " Each compiled call was compared with its uncompiled self." if case.accuracy else ""
        yield f"The failure is of kind {failure.kind}: {inline_code(failure.type)}{where}{at}.{how}"
    yield from _wrong_result(case)


def _about_culprits(case: TriagedCase) -> list[str]:
    """The notes that say of a culprit by name what it does wrong, such as what a fake kernel promises in vain."""
    notes = [text for part in (case.bisect, case.minify) if part is not None for text in part.notes]
    names = tuple(f"{each.name} " for each in case.bisect.culprits) if case.bisect else ()
    return [text for text in dict.fromkeys(notes) if names and text.startswith(names)]


def _search_link(case: TriagedCase) -> Iterator[str]:
    """A search for issues of the same failure: by its error, the operator, and the file of torch."""
    failure = _failure_of(case)
    if failure is None or case.redacted:
        return
    culprits = case.bisect.culprits if case.bisect else ()
    operators = [each.name.partition(":")[0] for each in culprits if each.kind not in _OF_THE_PROGRAM]
    file = (failure.where or "").partition(":")[0].rpartition("/")[2]
    words = [_error(failure)[0], *operators[:1], file, "torch.compile"]
    plain = dict.fromkeys(word for text in words for word in _SEARCHED_WORD.findall(text))
    query = urllib.parse.quote_plus(" ".join(["is:issue", *plain]))
    yield f"Search for duplicates: <{_SEARCH}{query}>"


def _wrong_result(case: TriagedCase) -> Iterator[str]:
    """What the program's own exception comes from, where that is a compiled call with wrong results."""
    told = case.bisect.failure if case.bisect else None
    found = case.minify.failure if case.minify else None
    if told is not None and found is not None and found.kind in _WRONG and told.kind not in _WRONG:
        message = found.message.removeprefix(_GRAPH)
        yield f"A compiled call returns a wrong result, which the program notices: {inline_code(message)}"


def _repro(case: TriagedCase) -> Iterator[str]:
    made = case.minify
    if made is None or not case.repro:
        return
    yield "#### Minimal repro" if made.proved else "#### Reduced program, not proved"
    proved = (
        "It fails as the program does, in a fresh process."
        if made.proved
        else "It is **not** proved to fail as the program does: rely on the program itself."
    )
    yield f"{_sizes(made)} {proved}"
    if has_commands(case.repro):  # it must stay as it is, and could not be printed by a step of GitHub Actions
        yield f"It is in the file {inline_code(case.repro_name)} beside this issue."
    else:
        yield fenced(case.repro, "python")


def _has_proved_repro(case: TriagedCase) -> bool:
    """Whether the issue can rest on the repro alone."""
    return bool(case.repro) and case.minify is not None and case.minify.proved


def _sizes(made: MinifyDocument) -> str:
    of_source = made.level == "source"
    before, after = (made.lines_before, made.lines_after) if of_source else (made.nodes_before, made.nodes_after)
    noun = "line" if of_source else "operation"
    if before == after:
        return f"{'Nothing of it can go' if made.minimal else 'Not reduced'}: it has {count(after or 0, noun)}."
    return f"Reduced from {count(before or 0, noun)} to {after}."


def _bisection(case: TriagedCase) -> Iterator[str]:
    found = case.bisect
    tried = {rung: status for rung, status in found.rungs.items() if status != "not_run"} if found else {}
    if found is None or not tried:
        return
    yield "#### Bisection"
    yield "Each backend runs more of the compiler than the one above it."
    rows = ["| backend | result |", "| --- | --- |"]
    rows += [f"| {cell(rung)} | {_WORDS.get(status, status)} |" for rung, status in tried.items()]
    yield "\n".join(rows)
    if found.culprits:
        yield "\n".join(["| at fault | name | where |", "| --- | --- | --- |", *map(_culprit, found.culprits)])
    if found.confirmed:
        yield "\n".join(f"- {inline_code(strip_directories(text))}" for text in found.confirmed)


def _culprit(item: CulpritDocument) -> str:
    place = item.file and strip_directories(item.file if item.line is None else f"{item.file}:{item.line}")
    graph = " ".join(part for part in (item.graph, item.compile_id) if part)
    where = ", ".join(part for part in (place, graph) if part)
    return f"| {item.kind} | {cell(item.name)} | {cell(where) if where else ''} |"


def _versions(case: TriagedCase) -> Iterator[str]:
    made = case.versions
    if made is None or not made.versions:
        return
    yield "#### Releases of torch"
    rows = [f"| {cell(release)} | {_WORDS.get(status, status)} |" for release, status in made.versions.items()]
    yield "\n".join(["| torch | result |", "| --- | --- |", *rows])
    ends = {"last good": made.last_good, "first bad": made.first_bad}
    ends |= {"last bad": made.last_bad, "first good": made.first_good}
    if sides := [f"{name}: {inline_code(release)}" for name, release in ends.items() if release]:
        yield ", ".join(sides)
    yield from (f"Commits between {each.before} and {each.after}: {each.commits}" for each in made.changes)


def _tried(case: TriagedCase) -> Iterator[str]:
    if case.explain is not None:
        made = case.explain
        breaks, recompiles = count(made.break_count, "graph break"), count(made.recompile_count, "recompile")
        yield f"- explain: {count(made.graph_count, 'graph')}, {breaks}, {recompiles}"
    if case.bisect is not None:
        yield f"- bisect: {count(case.bisect.trials, 'trial')} in {case.bisect.seconds:.0f} s"
    if case.minify is not None:
        shared = ", those of bisect included," if case.bisect is not None else ""
        yield f"- minify: {count(case.minify.trials, 'trial')}{shared} in {case.minify.seconds:.0f} s"
        yield from (f"  - {inline_code(strip_directories(text))}" for text in case.minify.proof)
    for part in case.parts:
        if part.status != "done":
            yield f"- {part.name}: {part.status}: {inline_code(strip_directories(part.reason or ''))}"
    told = case.bisect.notes if case.bisect is not None and case.bisect.verdict == "passes" else ()
    found = [text for part in (case.bisect, case.minify) if part is not None for text in part.notes]
    told = (*told, *_about_culprits(case))
    notes = [text for text in found if text not in told]
    yield from (f"- note: {inline_code(strip_directories(text))}" for text in dict.fromkeys(notes))
    yield f"- made by dynadiag {__version__}"
    if commands := _commands(case):
        proved = _has_proved_repro(case)
        where = "In the folder of this issue" if proved else "In the folder in which the program was run"
        yield f"\n{where}:\n\n{fenced(chr(10).join(commands), 'sh')}"


def _commands(case: TriagedCase) -> list[str]:
    """Commands that show the failure, and where it goes."""
    if case.redacted or case.bisect is None or case.bisect.failure is None:
        return []
    proved = _has_proved_repro(case)
    bisect = f"dynadiag bisect{' --accuracy' * (case.accuracy and not proved)}"
    program = case.repro_name if proved else case.command
    if case.is_function and not proved:
        return [f"{bisect} {program}"]
    return [f"python {program}", f"{ENVIRONMENT_OF_RUNG['uncompiled']} python {program}", f"{bisect} {program}"]


def _logs(case: TriagedCase) -> Iterator[str]:
    if case.redacted:
        yield "Left out."
        return
    if case.repro_output and _has_proved_repro(case):
        yield "What the repro prints:"
        yield _end(case.repro_output)
    elif case.output:
        yield "What the program prints:"
        yield _end(case.output)
    else:
        yield "It prints nothing."


def _end(text: str) -> str:
    printed = strip_directories(text).splitlines()
    lines = without_warnings(printed)
    before, warnings = len(lines) - _MAX_LOG_LINES, len(printed) - len(lines)
    notes = [f"({count(before, 'line')} before these)"] if before > 0 else []
    notes += [f"({count(warnings, 'line')} of compiler warnings left out)"] if warnings else []
    return fenced(escape_commands("\n".join([*notes, *lines[-_MAX_LOG_LINES:]])))


def describe_environment(*, redact: bool) -> str:
    """The report of ``python -m torch.utils.collect_env``; redacted, its lines about torch, Python and the system.

    Raises `OSError` or `subprocess.SubprocessError` where it cannot be had.
    """
    command = [sys.executable, "-m", "torch.utils.collect_env"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="backslashreplace",
        timeout=_TIMEOUT,
        check=True,
    )
    lines = done.stdout.splitlines()
    kept = [line for line in lines if _PUBLIC.match(line)] if redact else lines[1:]  # "Collecting ..." is the first
    return "\n".join(kept)


def short_environment() -> str:
    """The versions that can be told without torch."""
    torch = installed_torch() or "not installed"
    return f"torch {torch}\nPython {platform.python_version()}, {platform.system()} {platform.machine()}"
