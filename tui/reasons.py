"""Why something failed, in one line."""

from __future__ import annotations

import re

from tui.roles import one_line

__all__ = ["in_brief", "sentence"]

_MOST = 200  # characters
_ERROR = "error: "  # what compilers write before an error
_END = re.compile(r"(?<!e\.g)(?<!i\.e)\. ")
_SHORTEST = 40  # characters of a sentence: a full stop before that is one of a name


def in_brief(reason: str) -> str:
    """The first line of a reason; of a compiler's output also the first line that it calls an error."""
    first, *rest = [text for text in reason.split("\n") if text.strip()] or [""]
    said = next((text[text.find(_ERROR) :] for text in rest if _ERROR in text), "")
    return one_line(f"{first} … {said}" if said else f"{first} {' '.join(rest)}")[:_MOST]


def sentence(text: str) -> str:
    """The first sentence of a text, on one line."""
    whole = one_line(text)
    found = _END.search(whole, _SHORTEST)
    return whole[: found.start() + 1] if found else whole
