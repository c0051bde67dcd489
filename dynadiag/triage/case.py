"""One case of a triage: what was found, and what of it is told as the failure, its error and its culprits."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dynadiag.bisection.document import BisectDocument, CulpritDocument, FailureDocument
from dynadiag.minify.minify_result import MinifyDocument, ReproCulpritDocument
from dynadiag.recording.torch_text.failures import compared_values, unwrapped_error, words_of_abort
from dynadiag.render.json_document import ExplainDocument
from dynadiag.render.markdown import inline_code
from dynadiag.triage.document import PartDocument

_GRAPH = "GraphModule: "  # what the graph of a repro is called in messages
_ASSERTION = "an assertion fails"
_SHARED_MEMORY = "share memory"  # how a difference is told that no value shows
_IN_PROGRAM = " in a statement of its own"  # of an exception that neither torch nor a library raises
_NOT_FINITE = "NaN or infinity where it is finite uncompiled"
_OF_THE_PROGRAM = ("frame", "graph")  # culprits whose names say nothing to a maintainer


@dataclass(frozen=True, slots=True)
class TriagedCase:
    """What a triage found. A part that was not done is ``None``; ``parts`` says why.

    ``repro`` is the text of the repro, ``repro_name`` its file in the folder, ``program`` the text of the program,
    ``own_lines`` its lines that are at fault (`lines_at_fault`). ``output`` is what the program printed,
    ``repro_output`` what the repro printed, ``shown`` how the repro failed. ``command`` is the program for a shell,
    which only dynadiag can run if it is a function.
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
    own_lines: tuple[str, ...] = ()
    output: str = ""
    repro_output: str = ""
    shown: FailureDocument | None = None
    command: str = ""
    is_function: bool = False
    accuracy: bool = False
    redacted: bool = False


def lines_at_fault(found: BisectDocument) -> tuple[str, ...]:
    """The lines of the program that its culprits come from, with their files' names."""
    return tuple(dict.fromkeys(filter(None, map(_line_at_fault, found.culprits))))


def _line_at_fault(culprit: CulpritDocument) -> str:
    if culprit.file is None or culprit.line is None or culprit.kind == "graph":
        return ""
    place = f"{Path(culprit.file).name}:{culprit.line}"
    code = linecache.getline(culprit.file, culprit.line).strip()
    if culprit.kind == "frame" and code.startswith("@"):  # its first line is that of a decorator
        code = f"def {culprit.name}(...)"
    return f"{place}: {code}" if code else ""


def failure_of(case: TriagedCase) -> FailureDocument | None:
    """The failure of the call that was reduced, which says more than an assertion of the program; not where only its
    memory differs: the program shows what that leads to.
    """
    made, own = failure_of_call(case), symptom_of(case) or (case.bisect.failure if case.bisect else None)
    return own if own is not None and (made is None or _SHARED_MEMORY in made.message) else made


def failure_of_call(case: TriagedCase) -> FailureDocument | None:
    return case.minify.failure if case.minify else None


def symptom_of(case: TriagedCase) -> FailureDocument | None:
    """How the program itself fails, where it does so after the call that was reduced."""
    return case.minify.symptom if case.minify is not None else None


def rung_of(case: TriagedCase) -> str | None:
    """The rung at which the failure of `failure_of` is seen first: at a lower one another failure may show. None where
    nothing need be compiled for it.
    """
    if case.minify is not None and case.minify.failure is not None and case.minify.rung is not None:
        return case.minify.rung
    found = case.bisect.rung if case.bisect is not None else None
    return None if found == "uncompiled" else found


def parts_of_torch(case: TriagedCase) -> list[CulpritDocument | ReproCulpritDocument]:
    """The culprits whose names a maintainer knows."""
    return [culprit for culprit in culprits_of(case) if culprit.kind not in _OF_THE_PROGRAM]


def culprits_of(case: TriagedCase) -> Sequence[CulpritDocument | ReproCulpritDocument]:
    """The culprits in the program, or those in the repro where the program was not bisected."""
    return (case.bisect.culprits if case.bisect else ()) or (case.minify.bisected if case.minify else ())


def error_of(failure: FailureDocument, case: TriagedCase) -> tuple[str, str]:
    """The type and the message of the error. They are the repro's, which the reader can run, where these say as much as
    the program's.
    """
    type_, message = error_itself(failure)
    if failure.kind == "signal":
        return type_, words_of_abort(case.repro_output if has_proved_repro(case) else case.output)
    if case.shown is None or not has_proved_repro(case) or asserts(case.shown):
        wordless = asserts(failure) and not _has_words(failure.message)
        return type_, (_failed_assertion(case) if wordless else None) or message
    shown = error_itself(case.shown)
    if shown[0] != type_ or not shown[1].partition("\n")[0].strip():  # the reduction may have taken its words
        return type_, message
    if type_ != "wrong result":
        return shown
    is_gradient = message.startswith("gradient") and "backward(" in case.repro  # else a result is wrong too
    of = "gradient: " if is_gradient else "input after the call: " * (" afterwards " in message)
    return type_, of + shown[1]


def error_of_repro(case: TriagedCase) -> FailureDocument | None:
    """The error of the proved repro, where torch raises another one in the program: at the first rung that fails, one
    culprit may show as another error than further up.
    """
    made, shown = failure_of_call(case), case.shown
    if made is None or shown is None or not has_proved_repro(case) or made.where is None or shown.where is None:
        return None
    return shown if error_itself(made)[0] != error_itself(shown)[0] else None


def _has_words(message: str) -> bool:
    return any(one.isalpha() and other.isalpha() for one, other in pairwise(message))


def error_itself(failure: FailureDocument) -> tuple[str, str]:
    """The error without the wrappers that torch puts around it, and an assertion as the wrong result that it is."""
    type_, message = unwrapped_error(failure.type, failure.message.removeprefix(_GRAPH))
    if (difference := compared_values(message)) is not None:
        return "wrong result", difference
    if failure.kind == "signal":
        return type_, ""
    if failure.kind == "exit":
        code = f"exit code {type_}"
        return code, failure.message.removeprefix(code).removeprefix(": ")
    if asserts(failure):
        return "wrong result", f"{_ASSERTION}: {message}" if message.strip() else _ASSERTION
    return {"wrong_result": "wrong result", "nan": _NOT_FINITE}.get(type_, type_), message


def asserts(failure: FailureDocument) -> bool:
    """Whether an assertion of the program fails, which does not say what is wrong by how much."""
    type_, message = unwrapped_error(failure.type, failure.message)
    return type_ == "AssertionError" and not failure.where and compared_values(message) is None


def raises_itself(failure: FailureDocument) -> bool:
    """Whether a ``raise`` statement of the program raised the exception."""
    return (failure.asserted or "").startswith("raise ")


def _failed_assertion(case: TriagedCase) -> str | None:
    """What the proved repro asserts last, which is what fails: an assertion may have no words of its own."""
    tree = ast.parse(case.repro if has_proved_repro(case) else "")
    asserted = [ast.unparse(node.test) for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    return f"{_ASSERTION}: {asserted[-1]}" if asserted else None


def whole_words(text: str, most: int) -> str:
    """The text, cut between two words if it is longer than ``most`` characters."""
    if len(text) <= most:
        return text
    return f"{text[:most].rpartition(' ')[0] or text[:most]} ..."


def has_proved_repro(case: TriagedCase) -> bool:
    """Whether the issue can rest on the repro alone."""
    return bool(case.repro) and case.minify is not None and case.minify.proved


def ending(failure: FailureDocument, type_: str, message: str) -> str:
    """The verb of a failure, with these words."""
    if type_ == "wrong result":
        return f"gives a wrong result{': ' if message else ''}{inline_code(message) if message else ''}"
    plain = {"nan": f"gives {_NOT_FINITE}", "hang": "does not end", "memory": "runs out of memory"}
    if failure.kind in plain:
        return plain[failure.kind] + (f": {inline_code(message)}" if message and failure.kind == "nan" else "")
    if failure.kind == "signal":
        return f"is killed by {inline_code(f'{type_}: {message}' if message else type_)}"
    if failure.kind == "exit":
        return f"ends with {inline_code(f'{type_}: {message}' if message else type_)}"
    where = f" in {inline_code(failure.where)}" if failure.where else _IN_PROGRAM * raises_itself(failure)
    return f"raises {inline_code(f'{type_}: {message}' if message else type_)}{where}"


def without_comments(program: str) -> str:
    """A program without the lines of its header, which quote what torch said and what bisecting found."""
    return "\n".join(line for line in program.splitlines() if not line.startswith("#"))


def operator_name(name: str) -> str:
    """`normal` for `aten.normal.Tensor_Tensor`, and `add` for the node `add_1`."""
    match name.split("."):
        case ["aten", operator, _]:
            return operator
    first = name.partition(":")[0].partition("+")[0]
    stem, _, number = first.rpartition("_")
    return stem if number.isdecimal() else first
