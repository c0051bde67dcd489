"""The issue, in the form of PyTorch's template for bugs of torch.compile: the bug, the error logs, the versions.

Text of the program stands in code, with its control characters shown and its folders cut off, so that it can become
neither markup nor a command. The commands are for the repro where it is proved, otherwise for the folder in which the
program was run.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import platform
import re
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dynadiag import __version__
from dynadiag.bisection.bisector import BACKWARD_NOTES
from dynadiag.bisection.document import BisectDocument, CulpritDocument, FailureDocument
from dynadiag.bisection.verdict import ENVIRONMENT_OF_RUNG
from dynadiag.explanation.formatting import count, first_line
from dynadiag.explanation.registry import installed_torch
from dynadiag.minify.minify_result import MinifyDocument, ReproCulpritDocument
from dynadiag.minify.repro_header import strip_directories
from dynadiag.recording.torch_text.failures import compared_values, unwrapped_error
from dynadiag.render.json_document import ExplainDocument
from dynadiag.render.markdown import cell, escape_commands, fenced, has_commands, inline_code
from dynadiag.triage.changes_of_torch import changes_of_torch
from dynadiag.triage.document import PartDocument
from dynadiag.trial.compiler_log import without_warnings
from dynadiag.trial.outcome import NOT_RAISED, ROUNDING

__all__ = ["TriagedCase", "describe_environment", "environment_or_versions", "issue_text", "short_environment"]

# Lines of an output: the first lead from the program's own line, the last name the failure.
_FIRST_LINES, _LAST_LINES = 15, 65
_MAX_TITLE, _MAX_TOLD = 120, 250  # characters of a message: in the title, and in the first sentence
_GRAPH = "GraphModule: "  # what the graph of a repro is called in messages
_ASSERTION = "an assertion fails"
_WORD = re.compile("[A-Za-z]{2}")
_IN_PROGRAM = " in a statement of its own"  # of an exception that neither torch nor a library raises
_TARGET = "target: "  # Inductor's line on the operator that it lowers
_SHARED_MEMORY = "share memory"  # how a difference is told that no value shows
_TOLERANCE = " (rtol "  # where a message on wrong numbers goes into detail
_ATEN = re.compile(r"aten\.(\w+)\.\w+")
_NODE_NUMBER = re.compile(r"_\d+$")
# What of a message is of one program: what is quoted or in brackets, paths, numbers, and what follows a colon. A word
# with an apostrophe is two for GitHub.
_MESSAGE_WORDS = re.compile(
    r"""\u2018[^\u2019]*\u2019|(?<!\w)'[^']*'(?!\w)|\w*'\w+|"[^"]*"|`[^`]*`|\[[^\]]*\]|\S*[\d/]\S*|:\s.*"""
)
_MAX_SEARCHED = 8  # words of a message: GitHub looks for issues that have all of them
_SEARCHED_WORD = re.compile(r"_*[A-Za-z](?:[\w.]*\w)?")
# Calls that any repro may have.
_SAYS_LITTLE = frozenset(
    (
        "__init__",
        "__call__",
        "compile",
        "tolist",
        "item",
        "ones",
        "zeros",
        "full",
        "tensor",
        "arange",
        "randn",
        "assert_close",
        "equal",
    )
)
_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
_SEARCH = "https://github.com/pytorch/pytorch/issues?q="
_OF_THE_PROGRAM = ("frame", "graph")  # culprits whose names say nothing to a maintainer
_WORDS = {"same": "fails", "pass": "passes", "different": "fails otherwise"}
_BACKENDS = {
    "eager": '`backend="eager"` (Dynamo alone)',
    "aot_eager": '`backend="aot_eager"` (Dynamo and AOTAutograd)',
    "aot_eager_decomp_partition": '`backend="aot_eager_decomp_partition"` (with the decompositions of Inductor)',
    "inductor": '`backend="inductor"`',
    "triton": "Inductor, which writes Triton code",
    "custom": "the backend of the program",
}
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


@dataclass(frozen=True, slots=True)
class TriagedCase:
    """What a triage found. A part that was not done is ``None``; ``parts`` says why.

    ``repro`` is the text of the repro, ``repro_name`` its file in the folder, ``program`` the text of the program.
    ``output`` is what the program printed, ``repro_output`` what the repro printed, ``shown`` how the repro failed.
    ``command`` is the program for a
    shell, which only dynadiag can run if it is a function.
    """

    bisect: BisectDocument | None
    minify: MinifyDocument | None
    explain: ExplainDocument | None
    parts: Sequence[PartDocument]
    environment: str
    versions: BisectDocument | None = None
    repro: str = ""
    repro_name: str = "repro.py"
    program: str = ""
    output: str = ""
    repro_output: str = ""
    shown: FailureDocument | None = None
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
        "<details><summary>python -m torch.utils.collect_env</summary>",
        fenced(case.environment),
        "</details>",
    ]
    return "\n\n".join(blocks) + "\n"


def _failure_of(case: TriagedCase) -> FailureDocument | None:
    """The failure of the call that was reduced, which says more than an assertion of the program; not where only its
    memory differs: the program shows what that leads to.
    """
    made, own = _failure_of_call(case), _symptom(case) or (case.bisect.failure if case.bisect else None)
    return own if own is not None and (made is None or _SHARED_MEMORY in made.message) else made


def _failure_of_call(case: TriagedCase) -> FailureDocument | None:
    return case.minify.failure if case.minify else None


def _symptom(case: TriagedCase) -> FailureDocument | None:
    """How the program itself fails, where it does so after the call that was reduced."""
    return case.minify.symptom if case.minify is not None else None


def _rung(case: TriagedCase) -> str | None:
    """The rung at which the failure of `_failure_of` is seen first: at a lower one another failure may show."""
    if case.minify is not None and case.minify.failure is not None and case.minify.rung is not None:
        return case.minify.rung
    return case.bisect.rung if case.bisect is not None else None


def _title(case: TriagedCase) -> list[str]:
    failure = _failure_of(case)
    if failure is None:
        passes = case.bisect is not None and case.bisect.verdict == "passes"
        return [f"# torch.compile{': no failure' if passes else ''}"]
    type_, message = _error(failure, case)
    message = first_line(message).partition(_TOLERANCE)[0]
    said = type_ if case.redacted or not message else f"{type_}: {strip_directories(message)}"
    rung = _rung(case)
    at = f" with backend {inline_code(rung)}" if rung else ""
    named = "".join(f", at fault: {each.kind} {inline_code(each.name)}" for each in _parts_of_torch(case)[:1])
    return [f"# torch.compile{at}: {inline_code(_whole_words(said, _MAX_TITLE))}{named}"]


def _parts_of_torch(case: TriagedCase) -> list[CulpritDocument | ReproCulpritDocument]:
    """The culprits whose names a maintainer knows."""
    return [culprit for culprit in _culprits(case) if culprit.kind not in _OF_THE_PROGRAM]


def _culprits(case: TriagedCase) -> Sequence[CulpritDocument | ReproCulpritDocument]:
    """The culprits in the program, or those in the repro where the program was not bisected."""
    return (case.bisect.culprits if case.bisect else ()) or (case.minify.bisected if case.minify else ())


def _error(failure: FailureDocument, case: TriagedCase) -> tuple[str, str]:
    """The type and the message of the error. They are the repro's, which the reader can run, where these say as much as
    the program's.
    """
    type_, message = _error_itself(failure)
    if case.shown is None or not _has_proved_repro(case) or _asserts(case.shown):
        wordless = _asserts(failure) and not _WORD.search(failure.message)
        return type_, (_failed_assertion(case) if wordless else None) or message
    shown = _error_itself(case.shown)
    if shown[0] != type_ or not shown[1].partition("\n")[0].strip():  # the reduction may have taken its words
        return type_, message
    if type_ != "wrong result":
        return shown
    of = "gradient: " if message.startswith("gradient") else "input after the call: " * (" afterwards " in message)
    return type_, of + shown[1]


def _error_itself(failure: FailureDocument) -> tuple[str, str]:
    """The error without the wrappers that torch puts around it, and an assertion as the wrong result that it is."""
    type_, message = unwrapped_error(failure.type, failure.message.removeprefix(_GRAPH))
    if (difference := compared_values(message)) is not None:
        return "wrong result", difference
    if failure.kind == "signal":
        return type_, ""
    if failure.kind == "exit":
        code = f"exit code {type_}"
        return code, failure.message.removeprefix(code).removeprefix(": ")
    if _asserts(failure):
        return "wrong result", f"{_ASSERTION}: {message}" if message.strip() else _ASSERTION
    return type_.replace("wrong_result", "wrong result"), message


def _asserts(failure: FailureDocument) -> bool:
    """Whether an assertion of the program fails, which does not say what is wrong by how much."""
    type_, message = unwrapped_error(failure.type, failure.message)
    return type_ == "AssertionError" and not failure.where and compared_values(message) is None


def _raises_itself(failure: FailureDocument) -> bool:
    """Whether a ``raise`` statement of the program raised the exception."""
    return (failure.asserted or "").startswith("raise ")


def _failed_assertion(case: TriagedCase) -> str | None:
    """What the proved repro asserts last, which is what fails: an assertion may have no words of its own."""
    tree = ast.parse(case.repro if _has_proved_repro(case) else "")
    asserted = [ast.unparse(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    return f"{_ASSERTION}: {asserted[-1]}" if asserted else None


def _whole_words(text: str, most: int) -> str:
    """The text, cut between two words if it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[:most].rpartition(' ')[0] or text[:most]} ..."


def _description(case: TriagedCase) -> Iterator[str]:
    if case.bisect is None and case.minify is None:
        yield "The program was not bisected: see below."
        return
    verdict = case.bisect.verdict if case.bisect is not None else "found"
    leading, following = _notes_on_culprits(case)
    rounding = [text for text in following if ROUNDING in text]
    if rounding and (own := _failure_of(case)) is not None and _asserts(own):
        yield "By a float64 run what differs is rounding, and the program's assertion allows none:"
        leading, following = [*rounding, *leading], [text for text in following if text not in rounding]
    yield from (inline_code(strip_directories(text)) for text in leading)
    yield from _not_torchs(case)
    passes = verdict == "passes"
    sentence = _NOT_WRONG if passes and case.accuracy else _SENTENCES[verdict]
    symptom = _symptom(case)
    failure = _failure_of_call(case) if symptom is not None else _failure_of(case)
    if failure is None and verdict == "stopped":
        sentence = _NOT_KNOWN
    if symptom is not None and not case.redacted:
        yield _told_symptom(symptom)
    if failure is not None:
        rung = _rung(case)
        compiled = f"Compiled with {_BACKENDS[rung]}" if rung in _BACKENDS else "Compiled"
        how = " Each compiled call was compared with its uncompiled self." if case.accuracy else ""
        subject = "it" if symptom is None else "a compiled call of the program"
        passes_uncompiled = "" if symptom is not None and verdict == "found" else f" {sentence}"  # that is told
        sentence = f"{compiled}, {subject} {_how_it_fails(failure, case)}.{passes_uncompiled}{how}"
    yield sentence
    if not passes:
        yield from (inline_code(strip_directories(text)) for text in following)
    elif case.bisect is not None and case.bisect.notes:  # such as why its own comparison fails all the same
        yield "\n".join(f"- {inline_code(strip_directories(text))}" for text in case.bisect.notes)


def _not_torchs(case: TriagedCase) -> Iterator[str]:
    """What a maintainer must know first: that the program itself changes torch, or that an operator of its own is at
    fault.
    """
    changed = changes_of_torch(case.repro if _has_proved_repro(case) else case.program)
    if changed and not case.redacted:
        named = ", ".join(map(inline_code, changed))
        yield f"The program replaces parts of torch: {named}. It is no fault of torch if it passes without that."
    operators = dict.fromkeys(each.name for each in _culprits(case) if each.kind == "operator")
    if operators and not case.redacted:
        named = ", ".join(map(inline_code, operators))
        yield f"At fault is an operator that the program or a library registers, and not torch: {named}."


def _told_symptom(failure: FailureDocument) -> str:
    """A sentence on how the program itself fails: what it asserts or raises, for a reader who has not seen it."""
    if not failure.asserted or _raises_itself(failure):
        type_, message = _error_itself(failure)
        return f"The program {_ending(failure, type_, _in_short(message))}; uncompiled it does not."
    message = _in_short(compared_values(failure.message) or failure.message)
    says = f": {inline_code(message)}" if message else ""
    condition = inline_code(_in_short(failure.asserted))
    return f"The program asserts {condition}. Uncompiled it holds; compiled it does not{says}."


def _in_short(text: str) -> str:
    return _whole_words(strip_directories(first_line(text)), _MAX_TOLD)


def _how_it_fails(failure: FailureDocument, case: TriagedCase) -> str:
    """The verb of a failure, with what is known of it."""
    type_, message = _error(failure, case)
    return _ending(failure, type_, "" if case.redacted else _in_short(message))


def _ending(failure: FailureDocument, type_: str, message: str) -> str:
    if type_ == "wrong result":
        return f"gives a wrong result{': ' if message else ''}{inline_code(message) if message else ''}"
    plain = {"nan": "gives NaN where it gives none uncompiled", "hang": "does not end", "memory": "runs out of memory"}
    if failure.kind in plain:
        return plain[failure.kind] + (f": {inline_code(message)}" if message and failure.kind == "nan" else "")
    if failure.kind == "signal":
        return f"is killed by {inline_code(failure.type)}"
    if failure.kind == "exit":
        return f"ends with {inline_code(f'{type_}: {message}' if message else type_)}"
    where = f" in {inline_code(failure.where)}" if failure.where else _IN_PROGRAM * _raises_itself(failure)
    return f"raises {inline_code(f'{type_}: {message}' if message else type_)}{where}"


def _notes_on_culprits(case: TriagedCase) -> tuple[list[str], list[str]]:
    """The notes that say more than the failure does, such as what a fake kernel promises in vain, and that uncompiled
    code is at fault too; then other notes on a culprit by its name, and that what differs is rounding.
    """
    notes = dict.fromkeys(text for part in (case.bisect, case.minify) if part is not None for text in part.notes)
    culprits = _culprits(case)
    operators = tuple(f"{each.name} " for each in culprits if each.kind == "operator")
    names = tuple(f"{each.name} " for each in culprits)
    leading = [text for text in notes if text in BACKWARD_NOTES or (operators and text.startswith(operators))]
    told = [text for text in notes if (names and text.startswith(names)) or ROUNDING in text]
    return leading, [text for text in told if text not in leading]


def _search_link(case: TriagedCase) -> Iterator[str]:
    """A search for issues of the same failure: by its error, or the words of its message where its type says little,
    the operator or the function that is called, and the file of torch.
    """
    failure = _failure_of(case)
    if failure is None or case.redacted:
        return
    parts = (part for part in _parts_of_torch(case) if part.kind != "operator")  # a custom one is the program's
    type_, message = _error(failure, case)
    of_compiler = type_ == "CppCompileError"  # of which a kernel's name says nothing
    vague = hasattr(builtins, type_) or type_ == "Unsupported" or failure.kind == "exit" or of_compiler
    message = first_line(message).removeprefix("error: ")
    vague = vague and not message.startswith(_TARGET)  # an assertion without words
    names = [name for part in parts if not (name := _operator(part.name)).startswith("_")]
    # Type and message of what the program raises itself are its own, and searched for only where there is no name.
    own = _raises_itself(failure) and bool(names or _called_methods(case))
    missing = message.partition(NOT_RAISED)[2] if type_ == "wrong result" else ""
    searched = missing or (message if vague and not own else "")
    said = _MESSAGE_WORDS.sub(" ", searched).split()[:_MAX_SEARCHED]
    names = [] if of_compiler or missing else names or ([] if said else _called_methods(case))
    file = (failure.where or "").partition(":")[0].rpartition("/")[2]
    kind = "wrong result" if own else type_
    words = [*(said or [kind] * (failure.kind != "exit")), *names[:1], file, "torch.compile"]
    plain = dict.fromkeys(word for text in words for word in _SEARCHED_WORD.findall(text))
    query = urllib.parse.quote_plus(" ".join(["is:issue", *plain]))
    yield f"Search for duplicates: <{_SEARCH}{query}>"


def _operator(name: str) -> str:
    """`normal` for `aten.normal.Tensor_Tensor`, and `add` for the node `add_1`."""
    found = _ATEN.fullmatch(name)
    return found[1] if found else _NODE_NUMBER.sub("", name.partition(":")[0].partition("+")[0])


def _called_methods(case: TriagedCase) -> list[str]:
    """Special methods of a proved repro's classes, then the functions and methods that it calls or compiles: those in
    its functions first, and of these torch's.
    """
    tree = ast.parse(case.repro if _has_proved_repro(case) else "")
    inside = {
        id(node) for function in ast.walk(tree) if isinstance(function, _FUNCTIONS) for node in ast.walk(function)
    }
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions = [function for call in calls for function in (call.func, *call.args)]
    called = [f for f in functions if isinstance(f, ast.Attribute) and not f.attr.startswith("_")]
    called.sort(key=lambda f: (id(f) not in inside, not ast.unparse(f).startswith("torch."), f.lineno, f.col_offset))
    methods = [node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and "__" in node.name]
    return [name for name in [*methods, *(f.attr for f in called)] if name not in _SAYS_LITTLE]


def _repro(case: TriagedCase) -> Iterator[str]:
    """The repro where it is proved, else the program itself."""
    made = case.minify
    if _has_proved_repro(case) and made is not None:
        yield "#### Minimal repro"
        how = "In a fresh process it fails in the same way, its numbers aside, and uncompiled it passes."
        yield f"{_sizes(made)} {how}{_shown_culprits(case, made)}"
        yield _source(case.repro, f"the file {inline_code(case.repro_name)} beside this issue")
        return
    if made is not None and case.repro:
        why = f": {inline_code(strip_directories(made.proof[0]))}" if made.proof else ""
        yield f"A reduced program is not proved to fail in the same way{why}. So this is the program itself."
    if case.program:
        yield "#### Program"
        yield _source(case.program, f"the file of {inline_code(strip_directories(case.command))}")


def _shown_culprits(case: TriagedCase, made: MinifyDocument) -> str:
    """Which of several culprits the repro shows, where it shows fewer of them: each fails by itself."""
    kinds = [culprit.kind for culprit in case.bisect.culprits] if case.bisect else []
    if not 0 < len(made.bisected) < len(kinds) or {each.kind for each in made.bisected} != set(kinds):
        return ""
    names = ", ".join(f"{each.kind} {inline_code(each.name)}" for each in made.bisected)
    return f" Of the {len(kinds)} that are at fault in the program, it shows {names}."


def _source(text: str, place: str) -> str:
    """A program as code, or where it is: it must stay as it is, and some text cannot be shown so."""
    shown = not has_commands(text) and len(text) <= _MAX_PROGRAM  # a step of GitHub Actions would obey a command
    return fenced(text, "python") if shown else f"It is in {place}."


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
    if case.bisect is None and (parts := _parts_of_torch(case)):
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
    yield from (f"- note: {inline_code(strip_directories(text))}" for text in dict.fromkeys(notes))
    yield f"- made by dynadiag {__version__}"
    if commands := _commands(case):
        repro = f"With the repro as {inline_code(case.repro_name)}"
        where = repro if _has_proved_repro(case) else "In the folder in which the program was run"
        yield f"\n{where}:\n\n{fenced(chr(10).join(commands), 'sh')}"


def _commands(case: TriagedCase) -> list[str]:
    """Commands that show the failure, and where it goes."""
    proved = _has_proved_repro(case)
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
    if case.repro_output and _has_proved_repro(case):
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
