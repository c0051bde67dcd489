"""What a C++ or Triton compiler said of generated code: its one line, the generated line, and the command."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["CompilerOutput", "parse_compiler_output"]

_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_CODE = re.compile(r"^ *\d+ \| ?(?P<code>.*)$", re.MULTILINE)
_COMMAND = re.compile(r"^Command:\n(?P<command>.*?)\n\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class CompilerOutput:
    """``error`` is the compiler's first error, ``code`` the generated line that it is about, ``more`` the other errors.

    ``code`` is empty if the compiler did not print the line, ``command`` if torch did not report it.
    """

    error: str
    code: str
    more: tuple[str, ...]
    command: str


def parse_compiler_output(reason: str) -> CompilerOutput | None:
    """Return what a compiler said, read from torch's error; ``None`` if no compiler wrote it."""
    found = list(_ERROR.finditer(reason))
    if not found:
        return None
    code = _CODE.search(reason, found[0].end(), found[1].start() if found[1:] else len(reason))
    command = _COMMAND.search(reason)
    errors = dict.fromkeys(item["text"].strip() for item in found)
    first, *more = errors
    return CompilerOutput(
        first, code["code"].strip() if code else "", tuple(more), command["command"].strip() if command else ""
    )
