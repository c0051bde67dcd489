"""Decides whether a reduced program fails as the whole program does: kind, type, message and raising place in torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from dynadiag.trial.signature import Signature, normalise

# These frames raise on behalf of their caller, which says what went wrong.
_RAISING_HELPERS = re.compile(r" in (unimplemented\w*|raise_\w+|_?assert\w*|_check(_with)?|format_\w+)$")
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|`([^`]*)`")
_WORDS = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_VALUE = re.compile(r"[-+]?\b(?:\d[\d.]*(?:e[-+]?\d+)?|nan|inf|True|False|None)(?!\w)")
_RAISED = re.compile(r"raised exception (\w+)(?:\(([\"'])(.*)\2\))?")
_EXPLANATION = re.compile(r"^\s*Explanation: (.*)$", re.M)
_FAKE_CALL = re.compile(r"with fake tensors: (call_\w+ .*?)\(\*.*: got (\w+\(.*)")
_OPERATOR = re.compile(r"^Error in op: (\S+)$", re.M)  # Inductor's line on the one that broke its promise
_MAX_SUBJECT = 60  # characters: the rest of a long message advises
_CHANGING = re.compile(r"\[[^\]]*\]|\b0x\w+|\d+|\\n.*")  # sizes, addresses and numbers, and further lines


def same_failure_of_source(
    found: Signature | None, expected: Signature, text: str, whole_text: str, *, own_words: bool = True
) -> bool:
    """Whether a program's failure is the expected one, which the whole program shows.

    A failure that the program raises itself is the same if its type is, and with ``own_words`` its message.
    """
    if found is None or found.kind != expected.kind:
        return False
    if found.kind != "exception":
        return found.kind == "hang" or found.is_wrong_result or found.type == expected.type
    if (found.type, found.cause) != (expected.type, expected.cause):
        return False
    # The names of both programs, for both: a word of torch's own may be a name in one of them only.
    names = _defined_names(text) | _defined_names(whole_text)
    if is_raised_by_program(expected):
        return is_raised_by_program(found) and (not own_words or _words_of(found, names) == _words_of(expected, names))
    return raising_frames(found) == raising_frames(expected) and _words_of(found, names) == _words_of(expected, names)


def values_differ(one: str, other: str) -> bool:
    """Whether two outputs have other numbers or truth values, not only other words (names, types)."""
    return _VALUE.findall(one) != _VALUE.findall(other)


def is_raised_by_program(signature: Signature) -> bool:
    """Whether an exception was raised outside torch: the program's own comparison, or a library."""
    return signature.kind == "exception" and signature.frames[:1] == ("program",)


def raising_frames(signature: Signature) -> list[str | None]:
    """The innermost frame in torch that is not a helper for raising; all that a recursion without end comes to."""
    frames = [frame for frame in signature.frames if frame != "program" and not _RAISING_HELPERS.search(frame)]
    return [*frames] if signature.is_endless_recursion else [frames[0] if frames else signature.where]


def _words_of(signature: Signature, bound: frozenset[str]) -> tuple[str, ...]:
    """The message without numbers and without names of the program, the exception that Dynamo observed, and the custom
    operator that the message names: one that a smaller program makes to lie is another failure.
    """
    first = normalise(signature.message.strip().partition("\n")[0])
    without = re.sub(r"\b__main__\.\w+(\.\w+)*", "<name>", first)
    return (
        _without_names(without, bound),
        *_observed_exception(signature),
        *_subject_of(signature, bound),
        *_points(signature),
        *_OPERATOR.findall(signature.message),
    )


def _points(signature: Signature) -> list[str]:
    """How the points begin that the message of an export lists, such as the reasons why a constraint does not hold."""
    listed = (line.split() for line in signature.message.splitlines() if signature.export)
    return sorted({" ".join(words[1:3]) for words in listed if words[:1] == ["-"]})


def _observed_exception(signature: Signature) -> Iterator[str]:
    """The exception that Dynamo observed: its type, and its message without what it quotes (types, keys, names)."""
    found = _RAISED.search(signature.message)
    if found is not None:
        yield found[1]
        message = found[3] or ""
        yield normalise(_QUOTED.sub("", message)) if " " in message else ""  # one word is a key


def _subject_of(signature: Signature, bound: frozenset[str]) -> Iterator[str]:
    """What Dynamo's explanation is about: the call that failed with fake tensors and how, or what it quotes.

    The first line of many messages is the same whatever was called.
    """
    explanation = next(iter(_EXPLANATION.findall(signature.message)), "")
    call = _FAKE_CALL.search(explanation)
    quoted = call.groups() if call else [found[0] for found in _QUOTED.finditer(explanation)]
    return (_without_names(_CHANGING.sub("", part), bound)[:_MAX_SUBJECT] for part in quoted)


def _without_names(quoted: str, bound: frozenset[str]) -> str:
    """The text without names of the program, and without the modules that they are in (``package.module.Name``)."""

    def instead(found: re.Match[str]) -> str:
        words = found[0].split(".")
        if words[0] == "torch":
            return ".".join("<name>" if word in bound else word for word in words)
        first = next((i for i, word in enumerate(words) if word in bound), None)
        return found[0] if first is None else ".".join(["<name>", *(w for w in words[first + 1 :] if w not in bound)])

    return _WORDS.sub(instead, quoted)


def _defined_names(text: str) -> frozenset[str]:
    """The names that a program defines or assigns."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
    return frozenset(names)
