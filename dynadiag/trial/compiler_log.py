"""What a C++ compiler printed, without its warnings: a thousand lines of them can hide the one error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_WARNING = re.compile(r"^\S.*?:\d+(?::\d+)?: warning: ")
_CONTEXT = re.compile(
    r"^(?:In file included from \S| {17,}from \S"  # how a header came in
    r"|\S.*?:\d+(?::\d+)?:   +required from "  # of which instantiation of a template
    r"|\S.*?: (?:In|At) (?:instantiation of|(?:member |static )*function|lambda function|constructor|global scope)\b)"
)
_SNIPPET = re.compile(r"^ *(?:\d+ )?\|(?: |$)")  # the line of code below a message, and its underline


def without_warnings(lines: Sequence[str]) -> list[str]:
    """Return the lines without the compiler's warnings, each with its context and its code."""
    return list(_kept(lines))


def _kept(lines: Sequence[str]) -> Iterator[str]:
    context: list[str] = []  # lines that belong to the message after them
    in_warning = False
    for line in lines:
        if _WARNING.match(line):
            in_warning = True
            context.clear()
        elif _CONTEXT.match(line):
            in_warning = False
            context.append(line)
        elif not (in_warning and _SNIPPET.match(line)):
            in_warning = False
            yield from context
            context.clear()
            yield line
    yield from context
