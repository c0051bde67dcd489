"""The issue, in the form of PyTorch's template for bugs of torch.compile: the bug, the error logs, the versions.

Text of the program stands in code, with its control characters shown and its folders cut off, so that it can become
neither markup nor a command. The commands are for the repro where it is proved, otherwise for the folder in which the
program was run.
"""

from __future__ import annotations

import itertools
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

from dynadiag import __version__
from dynadiag.bisection.bisector import BACKWARD_NOTES
from dynadiag.bisection.document import CulpritDocument, FailureDocument
from dynadiag.bisection.verdict import ENVIRONMENT_OF_RUNG
from dynadiag.explanation.formatting import count, first_line
from dynadiag.explanation.registry import installed_torch
from dynadiag.minify.minify_result import MinifyDocument
from dynadiag.minify.repro_header import strip_directories, without_tolerance
from dynadiag.recording.torch_text.failures import compared_values
from dynadiag.render.markdown import cell, escape_commands, fenced, has_commands, inline_code
from dynadiag.triage.case import (
    TriagedCase,
    asserts,
    culprits_of,
    ending,
    error_itself,
    error_of,
    error_of_repro,
    failure_of,
    failure_of_call,
    has_proved_repro,
    parts_of_torch,
    raises_itself,
    rung_of,
    symptom_of,
    whole_words,
)
from dynadiag.triage.changes_of_torch import changes_of_torch
from dynadiag.triage.duplicates import search_link
from dynadiag.triage.title import own_passes, title
from dynadiag.trial.compiler_log import without_warnings
from dynadiag.trial.outcome import ROUNDING

# Lines of an output: the first lead from the program's own line, the last name the failure.
_FIRST_LINES, _LAST_LINES = 15, 65
_MAX_TOLD = 250  # characters of a message in the first sentence
_WORDS = {"same": "fails", "pass": "passes", "different": "fails otherwise"}
_BACKENDS = {
    "eager": '`backend="eager"` (Dynamo alone)',
    "aot_eager": '`backend="aot_eager"` (Dynamo and AOTAutograd)',
    "aot_eager_decomp_partition": '`backend="aot_eager_decomp_partition"` (with the decompositions of Inductor)',
    "inductor": '`backend="inductor"`',
    "triton": "Inductor, which writes Triton code",
    "custom": "the backend of the program",
}
_MAX_OWN_LINES = 2
_MAX_PROGRAM = 20_000  # characters of a program that stands in an issue: GitHub takes 65,536 in all
_SENTENCES = {
    "found": "Uncompiled it passes.",
    "passes": "The program does not fail.",
    "fails_uncompiled": "The program fails without torch.compile too.",
    "flaky": "The program fails, but not every time.",
    "stopped": "The search for the culprit was stopped before it had one.",
}
_NOT_KNOWN = "The search was stopped before it was known whether the program fails."
_NOT_WRONG = (
    "No compiled call gives a wrong result. Each was compared with its uncompiled self, and a float64 run judged what "
    "differs."
)
_TIMEOUT = 120.0  # seconds; it took 14 on a busy machine
_PUBLIC = re.compile(r"(PyTorch version|CUDA used|ROCM used|OS|GCC version|Python version|GPU models)")


def issue_text(case: TriagedCase) -> str:
    """The issue in Markdown."""
    blocks = [
        title(case),
        "### 🐛 Describe the bug",
        *_description(case),
        *_compared(case),
        *_repro(case),
        *_neighbours(case),
        *_bisection(case),
        *_versions(case),
        *(() if _is_programs_own(case) else search_link(case)),
        "#### What was tried",
        "\n".join(_tried(case)),
        "### Error logs",
        *_logs(case),
        "### Versions",
        "<details><summary>python -m torch.utils.collect_env</summary>",
        fenced(case.environment),
        "</details>",
    ]
    return "\n\n".join(blocks) + "\n"


def _description(case: TriagedCase) -> Iterator[str]:
    if case.bisect is None and case.minify is None:
        yield "The program was not bisected: see below."
        return
    verdict = case.bisect.verdict if case.bisect is not None else "found"
    leading, following = _notes_on_culprits(case)
    rounding = [text for text in following if ROUNDING in text]
    if rounding and (own := failure_of(case)) is not None and asserts(own):
        yield "By a float64 run what differs is rounding, and the program's assertion allows none:"
        leading, following = [*rounding, *leading], [text for text in following if text not in rounding]
    yield from (inline_code(strip_directories(text)) for text in leading)
    yield from _not_torchs(case)
    passes = verdict == "passes"
    sentence = _NOT_WRONG if passes and case.accuracy else _SENTENCES[verdict]
    symptom = symptom_of(case)
    failure = failure_of_call(case) if symptom is not None else failure_of(case)
    if failure is None and verdict == "stopped":
        sentence = _NOT_KNOWN
    if symptom is not None and not case.redacted:
        yield _told_symptom(symptom)
    if failure is not None:
        rung = rung_of(case)
        compiled = f"Compiled with {_BACKENDS[rung]}" if rung in _BACKENDS else "Compiled"
        how = " Each compiled call was compared with its uncompiled self." if case.accuracy else ""
        subject = "it" if symptom is None else "a compiled call of the program"
        shown, of_program = error_of(failure, case), error_itself(failure)
        if (shown[0], _in_short(shown[1])) != (of_program[0], _in_short(of_program[1])):  # numbers are the repro's
            subject = "the repro below"
        passes_uncompiled = "" if symptom is not None and verdict == "found" else f" {sentence}"  # that is told
        other = error_of_repro(case)
        if other is not None:
            told = ending(other, *map(_in_short, error_itself(other)))
            passes_uncompiled = f" {compiled}, the repro below {told}.{passes_uncompiled}"
            compiled = "Compiled"
        sentence = f"{compiled}, {subject} {_how_it_fails(failure, case)}.{passes_uncompiled}{how}"
    yield sentence
    if not passes:
        yield from (inline_code(strip_directories(text)) for text in following)
    elif case.bisect is not None and case.bisect.notes:  # such as why its own comparison fails all the same
        yield "\n".join(f"- {inline_code(strip_directories(text))}" for text in case.bisect.notes)


def _not_torchs(case: TriagedCase) -> Iterator[str]:
    """What a maintainer must know first: that the program itself changes torch, or that an operator or a pass of its
    own is at fault, or its own backend.
    """
    changed = changes_of_torch(case.repro if has_proved_repro(case) else case.program)
    if changed and not case.redacted:
        named = ", ".join(map(inline_code, changed))
        yield f"The program replaces parts of torch: {named}. {_without_changes(case, changed)}"
    operators = dict.fromkeys(each.name for each in culprits_of(case) if each.kind == "operator")
    if operators and not case.redacted:
        named = ", ".join(map(inline_code, operators))
        yield f"At fault is an operator that the program or a library registers, and not torch: {named}."
    passes = own_passes(case)
    if passes and not case.redacted:
        yield f"At fault is a pass of the program's own, and not torch: {', '.join(map(inline_code, passes))}."
    elif rung_of(case) == "custom":
        yield "It fails with the program's own backend, and passes with those of torch."


def _without_changes(case: TriagedCase, changed: Sequence[str]) -> str:
    """What is known of the failure without a change of torch."""
    found = _statuses_without(case, changed)
    if "pass" in found:
        return "Without that it passes: it is no fault of torch."
    return "Without that it fails too." if found else "It is no fault of torch if it passes without that."


def _statuses_without(case: TriagedCase, changed: Sequence[str]) -> set[str]:
    options = case.minify.neighbours if case.minify is not None and has_proved_repro(case) else ()
    return {each.status for each in options if each.kind == "setting" and each.was.startswith(tuple(changed))}


def _is_programs_own(case: TriagedCase) -> bool:
    """Whether a pass, an operator or a change of torch that the program defines is at fault: nobody else reports it."""
    text = case.repro if has_proved_repro(case) else case.program
    names = ("::".join(each.name.split(".")[:2]) for each in culprits_of(case) if each.kind == "operator")
    changed = changes_of_torch(text)
    known = changed and "pass" in _statuses_without(case, changed)
    return bool(known or own_passes(case) or any(name in text for name in names))


def _told_symptom(failure: FailureDocument) -> str:
    """A sentence on how the program itself fails: what it asserts or raises, for a reader who has not seen it."""
    if not failure.asserted or raises_itself(failure):
        type_, message = error_itself(failure)
        return f"The program {ending(failure, type_, _in_short(message))}; uncompiled it does not."
    message = _in_short(compared_values(failure.message) or failure.message)
    says = f": {inline_code(message)}" if message else ""
    condition = inline_code(_in_short(failure.asserted))
    return f"The program asserts {condition}. Uncompiled it holds; compiled it does not{says}."


def _in_short(text: str) -> str:
    return whole_words(strip_directories(without_tolerance(first_line(text))), _MAX_TOLD)


def _how_it_fails(failure: FailureDocument, case: TriagedCase) -> str:
    """The verb of a failure, with what is known of it."""
    type_, message = error_of(failure, case)
    return ending(failure, type_, "" if case.redacted else _in_short(message))


def _notes_on_culprits(case: TriagedCase) -> tuple[list[str], list[str]]:
    """The notes that say more than the failure does, such as what a fake kernel promises in vain, and that uncompiled
    code is at fault too; then other notes on a culprit by its name, and that what differs is rounding.
    """
    notes = dict.fromkeys(text for part in (case.bisect, case.minify) if part is not None for text in part.notes)
    culprits = culprits_of(case)
    operators = tuple(f"{each.name} " for each in culprits if each.kind == "operator")
    names = tuple(f"{each.name} " for each in culprits)
    leading = [text for text in notes if text in BACKWARD_NOTES or (operators and text.startswith(operators))]
    told = [text for text in notes if (names and text.startswith(names)) or ROUNDING in text]
    return leading, [text for text in told if text not in leading]


def _repro(case: TriagedCase) -> Iterator[str]:
    """The repro where it is proved, else the program itself."""
    made = case.minify
    if has_proved_repro(case) and made is not None:
        yield "#### Minimal repro"
        how = "In a fresh process it fails in the same way, its numbers aside, and uncompiled it passes."
        yield f"{_sizes(made)} {how}{_shown_culprits(case, made)}{_own_lines(case)}"
        yield _source(case.repro, f"the file {inline_code(case.repro_name)} beside this issue")
        return
    if made is not None and case.repro:
        why = f": {inline_code(strip_directories(made.proof[0]))}" if made.proof else ""
        yield f"A reduced program is not proved to fail in the same way{why}. So this is the program itself."
    if case.program:
        yield "#### Program"
        yield _source(case.program, f"the file of {inline_code(strip_directories(case.command))}")


def _compared(case: TriagedCase) -> Iterator[str]:
    """What uncompiled and compiled code give, side by side."""
    made = case.minify.compared if case.minify is not None and has_proved_repro(case) else None
    if made is None:
        return
    most = ", where they differ most" if made.apart > len(made.rows) else ""
    of = inline_code(_in_short(made.what))
    yield f"What {of} gives in the repro below, uncompiled and compiled{most}:"
    rows = [[cell(row.where) if row.where else "", cell(row.uncompiled), cell(row.compiled)] for row in made.rows]
    placed = 0 if any(row[0] for row in rows) else 1  # a single value has no place
    yield _table(["where", "uncompiled", "compiled"][placed:], [row[placed:] for row in rows])


def _neighbours(case: TriagedCase) -> Iterator[str]:
    """Whether the repro fails with other options."""
    made = case.minify.neighbours if case.minify is not None and has_proved_repro(case) else ()
    if made:
        yield "#### With other options"
        yield "The repro with one option changed at a time; each of these passes uncompiled."
        rows = [[cell(each.was), cell(each.now) if each.now else "without it", _WORDS[each.status]] for each in made]
        yield _table(["in the repro", "instead", "compiled it"], rows)


def _table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def _shown_culprits(case: TriagedCase, made: MinifyDocument) -> str:
    """Which of several culprits the repro shows, where it shows fewer of them: each fails by itself."""
    kinds = [culprit.kind for culprit in case.bisect.culprits] if case.bisect else []
    if not 0 < len(made.bisected) < len(kinds) or {each.kind for each in made.bisected} != set(kinds):
        return ""
    names = ", ".join(f"{each.kind} {inline_code(each.name)}" for each in made.bisected)
    return f" Of the {len(kinds)} that are at fault in the program, it shows {names}."


def _own_lines(case: TriagedCase) -> str:
    """What the program itself has there: a reduced graph may look like code that nobody writes."""
    shown = ", ".join(inline_code(strip_directories(line)) for line in case.own_lines[:_MAX_OWN_LINES])
    return f" In the program it is {shown}." if shown else ""


def _source(text: str, place: str) -> str:
    """A program as code, or where it is: it must stay as it is, and some text cannot be shown so."""
    shown = not has_commands(text) and len(text) <= _MAX_PROGRAM  # a step of GitHub Actions would obey a command
    return fenced(text, "python") if shown else f"It is in {place}."


def _sizes(made: MinifyDocument) -> str:
    of_source = made.level == "source"
    before, after = (made.lines_before, made.lines_after) if of_source else (made.nodes_before, made.nodes_after)
    noun = "line" if of_source else "operation"
    if before == after:
        return f"{'Nothing of it can go' if made.minimal else 'Not reduced'}: it has {count(after or 0, noun)}."
    return f"Reduced from {count(before or 0, noun)} to {after}."


def _bisection(case: TriagedCase) -> Iterator[str]:
    if case.bisect is None and (parts := parts_of_torch(case)):
        yield "#### Bisection"
        named = dict.fromkeys((part.kind, part.name) for part in parts)
        graphs = {name: [p.graph for p in parts if p.graph and (p.kind, p.name) == name] for name in named}
        table = [["at fault in the repro", "name", "graph"], ["---"] * 3]
        table += [[kind, cell(name), ", ".join(where)] for (kind, name), where in graphs.items()]
        known = 3 if any(graphs.values()) else 2  # an operator is at fault in no graph of its own
        yield "\n".join(f"| {' | '.join(row[:known])} |" for row in table)
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
    if made.since:
        yield f"It {made.since}."
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
    told = (*told, *itertools.chain(*_notes_on_culprits(case)))
    notes = [text for text in found if text not in told]
    yield from (f"- note: {inline_code(strip_directories(without_tolerance(text)))}" for text in dict.fromkeys(notes))
    yield f"- made by dynadiag {__version__}"
    if commands := _commands(case):
        repro = f"With the repro as {inline_code(case.repro_name)}"
        where = repro if has_proved_repro(case) else "In the folder in which the program was run"
        yield f"\n{where}:\n\n{fenced(chr(10).join(commands), 'sh')}"


def _commands(case: TriagedCase) -> list[str]:
    """Commands that show the failure, and where it goes."""
    proved = has_proved_repro(case)
    if case.redacted or not (proved or (case.bisect is not None and case.bisect.failure is not None)):
        return []
    bisect = f"dynadiag bisect{' --accuracy' * (case.accuracy and not proved)}"
    program = case.repro_name if proved else case.command
    if case.is_function and not proved:
        return [f"{bisect} {program}"]
    return [f"python {program}", f"{ENVIRONMENT_OF_RUNG['uncompiled']} python {program}", f"{bisect} {program}"]


def _logs(case: TriagedCase) -> Iterator[str]:
    if case.redacted:
        yield "Left out."
        return
    if case.repro_output and has_proved_repro(case):
        yield "What the repro prints:"
        yield _in_lines(case.repro_output)
    elif case.output:
        yield "What the program prints:"
        yield _in_lines(case.output)
    else:
        yield "It prints nothing."


def _in_lines(text: str) -> str:
    printed = strip_directories(text).splitlines()
    lines = without_warnings(printed)
    left_out, warnings = len(lines) - _FIRST_LINES - _LAST_LINES, len(printed) - len(lines)
    if left_out > 0:
        between = f"({count(left_out, 'line')} left out)"
        lines = [*lines[:_FIRST_LINES], between, *lines[-_LAST_LINES:]]
    notes = [f"({count(warnings, 'line')} of compiler warnings left out)"] if warnings else []
    return fenced(escape_commands("\n".join([*notes, *lines])))


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


def environment_or_versions() -> str:
    """The report of `describe_environment`, or the versions alone where it cannot be had."""
    try:
        return describe_environment(redact=False)
    except (OSError, subprocess.SubprocessError):
        return short_environment()


def short_environment() -> str:
    """The versions that can be told without torch."""
    torch = installed_torch() or "not installed"
    return f"torch {torch}\nPython {platform.python_version()}, {platform.system()} {platform.machine()}"
