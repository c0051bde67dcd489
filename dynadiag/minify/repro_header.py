"""Text at the top of a repro, without paths of the user's machine. It loads without torch: the command line uses it."""

from __future__ import annotations

import re
import textwrap

from dynadiag.recording.code_origin import path_in_packages

_WIDTH = 100
_MAX_MESSAGE_LINES = 3  # lines of a message in the header; the whole message is in the recording
# Also after a compiler's -I and -L. What follows the "https:/" of a link is none.
_PATH = re.compile(r"(?:(?<![\w.])(?<!:/)|(?<=\s-[IL]))(?:/[\w.+@~-]+){2,}")


def comment(line: str) -> str:
    """The line as a wrapped comment."""
    printable = "".join(c if c.isprintable() else " " for c in strip_directories(line))
    wrapped = textwrap.wrap(printable, _WIDTH, max_lines=_MAX_MESSAGE_LINES, placeholder=" ...")
    return "".join(f"# {part}\n" for part in wrapped)


def add_header_line(text: str, line: str) -> str:
    """The text of a repro with one more line in its header."""
    lines = text.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join([*lines[:end], comment(line), *lines[end:]])


def without_tolerance(text: str) -> str:
    """A message on wrong numbers without the tolerance of the search: the repro's own stands in its comparison.

    >>> without_tolerance("output 0 differs in 1 of 2 elements, by up to 3 (rtol 0, atol 0); a float64 run agrees")
    'output 0 differs in 1 of 2 elements, by up to 3; a float64 run agrees'
    """
    before, found, after = text.partition(" (rtol ")
    return before + after.partition(")")[2] if found else text


def strip_directories(text: str) -> str:
    """The text with each path shortened: that of an installed package begins at the package, others are a name."""
    return _PATH.sub(_shortened, text)


def _shortened(found: re.Match[str]) -> str:
    return path_in_packages(found[0]) or found[0].rsplit("/", 1)[-1]
