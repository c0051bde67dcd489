"""Text of a program in Markdown: as code, so that nothing in it becomes markup, a link or a command.

A line that begins with ``::``, or has ``##[`` in it, is a command to GitHub Actions wherever a step prints it.
"""

from __future__ import annotations

import re

from dynadiag.render.clean import clean, clean_line
from dynadiag.render.wrap import truncate_end

_CELL = 160  # columns
_COMMAND = re.compile(r"^(\s*)(?=::)|(?<=##)(?=\[)", re.MULTILINE)


def inline_code(text: str) -> str:
    """The text on one line, as code.

    >>> inline_code("a `b`")
    '`` a `b` ``'
    """
    return _in_backticks(escape_commands(clean_line(text)))


def cell(text: str) -> str:
    """Text as code in a cell of a table.

    >>> cell("a|b `c`")
    '`` a\\\\|b `c` ``'
    """
    return _in_backticks(truncate_end(escape_commands(clean_line(text)), _CELL).replace("|", "\\|"))


def fenced(text: str, language: str = "text") -> str:
    """The text as a block of code, in a fence that is longer than any in it."""
    shown = clean(text).rstrip("\n")
    fence = _fence(shown, "```")
    return f"{fence}{language}\n{shown}\n{fence}"


def has_commands(text: str) -> bool:
    """Whether a step that prints the text would give GitHub Actions a command."""
    return _COMMAND.search(text) is not None


def escape_commands(text: str) -> str:
    r"""The text with a backslash where a command would begin.

    >>> escape_commands("::error::x")
    '\\::error::x'
    """
    return _COMMAND.sub(lambda found: f"{found[0]}\\", text)


def _in_backticks(line: str) -> str:
    fence = _fence(line, "`")
    return f"{fence}{line}{fence}" if fence == "`" else f"{fence} {line} {fence}"


def _fence(text: str, fence: str) -> str:
    while fence in text:
        fence += "`"
    return fence
